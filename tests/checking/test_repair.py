"""What a repair gives back: a journal that opens, with all that was not damaged, and words for the rest."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from amqpd.__main__ import run
from amqpd.backup.progress import Progress
from amqpd.checking.repair import BEFORE, Repaired, RepairError, repair
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.storage.mark import read_mark
from tests.checking.conftest import EXPIRING, contents, execute
from tests.journal.disks import SqliteDrive, row, transaction


def repaired(directory: Path) -> Repaired:
    before = contents(directory)
    done = repair(directory, Progress())
    if done.kept is not None:
        for name in (JOURNAL, "journal.mark"):
            if name in before and (done.kept / name).exists():
                assert (done.kept / name).read_bytes() == before[name], "kept as it was"
    return done


def state(directory: Path):
    """What a start gives the queues: rows with their bodies, marks, counts."""
    disk = SqliteDrive(directory).open()
    try:
        found = disk.recover()
        rows = {
            queue_id: disk.read(queue_id, 0, 1000, 1 << 20) for queue_id, queue in found.queues.items() if queue.rows
        }
        return found, rows
    finally:
        disk.close()


@pytest.fixture
def whole(data, tmp_path):
    """What an undamaged journal gives."""
    return state(shutil.copytree(data, tmp_path / "whole"))


def test_nothing_is_done_where_nothing_is_wrong(data):
    before = contents(data)
    done = repaired(data)
    assert (done.kept, done.consequences, done.in_the_way) == (None, [], [])
    assert contents(data) == before


@pytest.mark.parametrize(
    ("change", "severity", "said", "flagged"),
    [
        ("UPDATE settled SET idx = 0", "may come back", "settled messages may come back", True),
        ("DELETE FROM settled", "may come back", "settled messages may come back", True),
        ("UPDATE discard SET last_seq = 5", "may come back", "deleted messages may come back", True),
        ("UPDATE returned SET count = 0", "may come back", "more often than its delivery limit", False),
        ("UPDATE queue SET delivered = 3", "changed", "all its messages come flagged as redelivered", True),
        ("DELETE FROM source", "changed", "the number of the last transaction was lost, and is taken to be 3", False),
        ("UPDATE source SET idx = 2", "changed", "the number of the last transaction was lost", False),
        ("UPDATE deadline SET crc = 0", "changed", "the deadlines of messages 10 to 19 of queue number 1", False),
        ("UPDATE names SET value = 'x'", "changed", "the journal's identity was lost, and is taken from", False),
        ("UPDATE alembic_version SET version_num = '0001'", "", "", False),
        ("DELETE FROM alembic_version", "", "", False),
        ("INSERT INTO deadline VALUES (99, 0, 1, 1, 0, x'')", "", "", False),
        ("UPDATE batch SET idx = 0 WHERE last_seq = 9", "", "", False),
        ("UPDATE batch SET nbytes = 7 WHERE last_seq = 9", "", "", False),
        ("DELETE FROM batch WHERE first_seq = 20", "lost", "1 rows of messages are not there any more", True),
    ],
)
def test_a_record_that_is_damaged(data, whole, change, severity, said, flagged):
    execute(data, change)
    done = repaired(data)
    assert done.in_the_way == []
    if severity:
        [one] = done.consequences
        assert one.severity == severity
        assert said in one.text
    else:
        assert done.consequences == []
    found, rows = state(data)
    expected, bodies = whole
    assert found.index == 3
    queue = found.queues[1]
    end = 20 if "DELETE FROM batch" in change else 30
    assert queue.next_seq == end
    assert queue.delivered == (end if flagged else 5)
    wanted = [each for each in bodies[1] if each.first_seq < end]
    if "deadline SET" in change:
        wanted[1].deadlines = b""
    assert rows[1] == wanted
    settled_is_back = "settled" in change
    assert queue.rows[0].settled == ([] if settled_is_back else [(3, 4)])
    assert queue.counts == ({} if "returned" in change else {15: 3})
    if "deadline" not in change:
        assert queue.rows[1].deadlines == EXPIRING
    # The queue that was being dropped is back only when the record of that is gone.
    assert bool(found.queues.get(9) and found.queues[9].rows) == ("discard" in change)
    assert expected.queues[1].rows[0].settled == [(3, 4)]


def test_a_row_that_fits_no_checksum_in_index_and_table_is_left_out_and_named(data):
    execute(data, "UPDATE batch SET queue_id = 7 WHERE first_seq = 20")
    done = repaired(data)
    assert [(each.severity, each.first, each.last) for each in done.consequences] == [("lost", 20, 29)]
    assert done.in_the_way == []
    assert [each.first_seq for each in state(data)[1][1]] == [0, 10]


def test_a_damaged_body_stays_and_its_queue_stops_at_it(data):
    execute(data, "UPDATE batch SET data = zeroblob(20) WHERE first_seq = 20", "UPDATE settled SET idx = 0")
    done = repaired(data)
    assert done.in_the_way == []
    assert [each.kind for each in done.after.findings if each.severity == "damage"] == ["body"]
    rows = state(data)[1][1]
    assert [bool(each.damage) for each in rows] == [False, False, True]


def test_the_index_is_made_again_of_the_table_or_the_table_of_the_index(data, whole):
    content = bytearray((data / JOURNAL).read_bytes())
    said = (40_000).to_bytes(3, "big") + (1_700_000_000_000).to_bytes(6, "big")  # neighbours, as SQLite stores them
    places = [place for place in range(len(content)) if content.startswith(said, place)]
    assert len(places) == 2
    for place in places:
        content[place + 2] ^= 1
        (data / JOURNAL).write_bytes(content)
        content[place + 2] ^= 1
        done = repaired(data)
        assert (done.consequences, done.in_the_way) == ([], [])
        assert state(data)[1] == whole[1]


def test_whatever_page_is_garbage_what_is_whole_comes_back_or_nothing_is_changed(data, whole, tmp_path):
    content = (data / JOURNAL).read_bytes()
    mended = refused = 0
    for page in range(len(content) // 8192):
        trial = Path(shutil.copytree(data, tmp_path / f"page{page}"))
        (trial / JOURNAL).write_bytes(content[: page * 8192] + b"\xa5" * 8192 + content[(page + 1) * 8192 :])
        before = contents(trial)
        try:
            done = repaired(trial)
        except RepairError:
            assert contents(trial) == before
            refused += 1
            continue
        if done.kept is None:
            assert contents(trial) == before
            refused += bool(done.in_the_way)
            continue
        mended += 1
        assert done.in_the_way == [], (page, done.in_the_way)
        rows = {each.first_seq: each for each in state(trial)[1].get(1, []) if not each.damage}
        lost = [each for each in done.consequences if each.severity == "lost"]
        bodies = [each for each in done.after.findings if each.kind == "body"]
        missing = [each.first_seq for each in whole[1][1] if rows.get(each.first_seq) != each]
        unless_deadlines = [first for first in missing if not (first == 10 and rows.get(10) and not lost)]
        assert not unless_deadlines or lost or bodies, (page, missing)
    assert mended >= 8
    assert refused <= 3


def test_a_repair_does_not_accept_that_confirmed_transactions_are_missing(data, tmp_path):
    older = shutil.copytree(data, tmp_path / "older")
    disk = SqliteDrive(data).open()
    disk.recover()
    disk.commit(transaction(4, row(1, 30, 39)))
    disk.close()
    shutil.copy(older / JOURNAL, data)
    execute(data, "UPDATE settled SET idx = 0")
    done = repaired(data)
    assert [each.kind for each in done.in_the_way] == ["end of the log"]
    assert read_mark(data / "journal.mark").number == 4


def test_a_damaged_mark_is_made_again(data):
    (data / "journal.mark").write_bytes(b"x" * 4096)
    done = repaired(data)
    assert done.in_the_way == []
    assert done.kept is not None
    assert (done.kept / "journal.mark").read_bytes() == b"x" * 4096
    assert read_mark(data / "journal.mark").number == 3


def test_the_log_is_part_of_what_is_repaired_and_kept(tmp_path):
    disk = SqliteDrive(tmp_path / "data").open()
    disk.recover()
    disk.commit(transaction(1, row(1, 0, 9), row(1, 10, 19)))
    disk._writer.execute("UPDATE batch SET idx = 0 WHERE last_seq = 9")
    killed = Path(shutil.copytree(tmp_path / "data", tmp_path / "killed"))
    disk.close()
    log = (killed / f"{JOURNAL}-wal").read_bytes()
    done = repaired(killed)
    assert done.in_the_way == []
    assert done.kept is not None
    assert (done.kept / f"{JOURNAL}-wal").read_bytes() == log
    assert [(each.first_seq, each.damage) for each in state(killed)[1][1]] == [(0, ""), (10, "")]


def test_without_space_nothing_is_changed(data, monkeypatch):
    execute(data, "UPDATE settled SET idx = 0")
    before = contents(data)
    usage = shutil.disk_usage(data)
    monkeypatch.setattr("amqpd.checking.repair.shutil.disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(RepairError, match=r"has 0 MB of free space, and a repair needs \d+ MB.*nothing was changed"):
        repair(data, Progress())
    assert contents(data) == before


def test_the_command(data, capsys):
    execute(data, "UPDATE settled SET idx = 0")
    assert run(["--data-dir", str(data), "check", "--repair"]) == 0
    said = capsys.readouterr().out
    assert "may come back: " in said
    assert BEFORE in said
    assert said.endswith("the broker can start\n")
    assert run(["--data-dir", str(data), "check"]) == 0
    os.unlink(data / "journal.mark")
    execute(data, "UPDATE returned SET count = 9")
    capsys.readouterr()
    assert run(["--data-dir", str(data), "check", "--repair", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["can_start"] is True
    assert [each["severity"] for each in found["consequences"]] == ["may come back"]
