"""What SQLite's tables have of replicated sources, and who looks at it: check, scrub, repair. The rules are in
`test_sources_contract.py`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from amqpd.backup.progress import Progress
from amqpd.checking.check import check
from amqpd.checking.repair import repair
from amqpd.journal.records import JournalDamaged, SeqRange
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.scrubbing import Scan
from amqpd.peers.entry import NO_VOTE, Vote
from amqpd.replication.replica import VoteCast
from amqpd.storage.page_cache import PageCache
from tests.journal.disks import SqliteDrive, idle, row, store, tell, transaction, undo, write


@pytest.fixture
def drive(tmp_path: Path) -> SqliteDrive:
    return SqliteDrive(tmp_path / "data")


def count(disk: SqliteDisk, table: str) -> int:
    (found,) = disk._writer.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found)


def test_of_what_left_no_table_has_a_record(drive):
    disk = drive.open()
    disk.recover()
    store(disk, 1, 1, 1, row(20, 0, 9), row(21, 0, 9), counts=[(20, 3, 1), (21, 4, 1)], delivered={20: 1})
    store(
        disk,
        1,
        1,
        2,
        counts=[(20, 3, 2)],
        delivered={20: 2},
        settled=[SeqRange(20, 0, 9)],
        retired=[SeqRange(20, 0, 9)],
    )
    store(disk, 1, 1, 3, dropped=[21])
    store(disk, 1, 1, 4)
    tell(disk, 1, 1, 4)
    idle(disk)
    tables = ("batch", "settled", "returned", "discard", "former", "tail")
    assert {table: count(disk, table) for table in tables} == dict.fromkeys(tables, 0)
    disk.close()


def test_an_undo_of_all_leaves_no_former_version(drive):
    disk = drive.open()
    disk.recover()
    store(disk, 1, 1, 1, row(20, 0, 9), counts=[(20, 3, 1)], delivered={20: 1})
    store(disk, 1, 1, 2, counts=[(20, 3, 2)], delivered={20: 2})
    assert count(disk, "former") > 0
    undo(disk, 1, 0, 0)
    assert count(disk, "former") == count(disk, "tail") == 0
    disk.close()


def test_a_row_says_in_which_epoch_it_came(drive):
    for _ in range(2):
        disk = drive.open()
        disk.recover()
        disk.commit(transaction(disk.index + 1, row(10, disk.index, disk.index)))
        disk.close()
    disk = drive.open()
    assert disk._writer.execute("SELECT source, epoch, idx FROM batch").fetchall() == [(0, 1, 1), (0, 2, 2)]
    disk.close()


def test_without_replicas_nothing_is_kept_of_what_is_written_over(drive):
    disk = drive.open()
    disk.recover()
    disk.commit(transaction(1, row(10, 0, 9), counts=[(10, 1, 1)], delivered={10: 1}))
    disk.commit(transaction(2, counts=[(10, 1, 2)], delivered={10: 2}))
    disk.commit(transaction(3, dropped=[10]))
    assert count(disk, "former") == 0
    disk.close()


@pytest.fixture
def tail(drive: SqliteDrive) -> Path:
    """A directory with a tail that replaced something."""
    disk = drive.open()
    disk.recover()
    store(disk, 1, 1, 1, row(20, 0, 9), counts=[(20, 3, 1)], delivered={20: 1})
    store(disk, 1, 1, 2, counts=[(20, 3, 2)], delivered={20: 2}, settled=[SeqRange(20, 0, 1)])
    write(disk, VoteCast(1, Vote(3, "other", 7)))
    disk.set_names(generation="12345")
    disk.close()
    return drive.directory


def found_by_check(directory: Path) -> list[str]:
    return [each.line for each in check(directory, Progress()).report.findings if each.file == JOURNAL]


def found_by_scrub(directory: Path) -> list[str]:
    scan = Scan(directory / JOURNAL, PageCache(directory / JOURNAL))
    scan.begin()
    steps = [scan.step()]
    while not steps[-1].done:
        steps.append(scan.step())
    scan.close()
    return [each.reason for step in steps for each in step.found]


def damage(directory: Path, change: str) -> None:
    connection = sqlite3.connect(directory / JOURNAL)
    connection.execute(change)
    connection.commit()
    connection.close()


def test_a_tail_that_is_whole_is_no_damage(tail):
    assert found_by_check(tail) == found_by_scrub(tail) == []


def test_a_damaged_former_version_is_found_by_all_who_look(tail):
    damage(tail, "UPDATE former SET was_idx = 9")
    assert any("former version of a record of queue number 20" in line for line in found_by_check(tail))
    assert any("of 'former' does not fit its checksum" in line for line in found_by_scrub(tail))
    with pytest.raises(JournalDamaged, match="former version of a record of queue 20"):
        SqliteDisk(tail).examine()
    done = repair(tail, Progress())
    assert {each.severity for each in done.consequences} == {"may come back"}
    assert found_by_check(tail) == []


@pytest.mark.parametrize("lost", ["DELETE FROM source", "UPDATE source SET idx = 77 WHERE source = 1"])
def test_of_a_source_whose_record_is_lost_nothing_counts_as_committed(tail, lost):
    damage(tail, lost)
    assert found_by_check(tail) != []
    repair(tail, Progress())
    assert found_by_check(tail) == []
    disk = SqliteDrive(tail).open()
    disk.recover()
    head = disk.head(1)
    assert (head.position, head.replicated, head.committed) == ((1, 2), True, (0, 0))
    assert head.reserved > 10
    disk.close()


def test_a_repair_leaves_every_source_what_it_has(tail):
    damage(tail, "UPDATE alembic_version SET version_num = '0001'")
    repair(tail, Progress())
    disk = SqliteDrive(tail).open()
    disk.recover()
    queue = undo(disk, 1, 1, 1)[20]
    assert (queue.counts, queue.delivered, queue.rows[0].settled) == ({3: 1}, 1, [])
    disk.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE tail SET checksum = checksum + 1 WHERE idx = 1", "an entry of a replicated source does not fit"),
        ("UPDATE tail SET control = x'00' WHERE idx = 2", "an entry of a replicated source does not fit"),
        ("DELETE FROM tail WHERE idx = 1", "entry (1, 1) of source 1 is missing, behind (0, 0)"),
        ("DELETE FROM tail WHERE idx = 2", "entries of source 1 end with"),
        ("DELETE FROM tail", "entries of source 1 from"),
        ("UPDATE seal SET epoch = 2", "who is the leader of a source does not fit"),
        ("UPDATE seal SET forwarder = 7", "who is the leader of a source does not fit"),
    ],
)
def test_a_damaged_tail_or_vote_is_found_and_after_a_repair_the_disk_is_another(tail, change, said):
    damage(tail, change)
    assert any(said in line for line in found_by_check(tail))
    if "UPDATE" in change:
        assert any(f"of '{change.split()[1]}' does not fit its checksum" in line for line in found_by_scrub(tail))
    with pytest.raises(JournalDamaged):
        SqliteDisk(tail).examine()
    repair(tail, Progress())
    assert found_by_check(tail) == []
    disk = SqliteDrive(tail).open()
    disk.recover()
    (state,) = disk.replicas()
    whole = [] if "tail" in change else [(1, 1), (1, 2)]
    assert (state.base, [link.position for link in state.tail]) == ((0, 0) if whole else (1, 2), whole)
    assert state.vote == (NO_VOTE if "seal" in change else Vote(3, "other", 7))
    assert "generation" not in disk.names
    assert disk.recovered_of({1}).queues[20].counts == {3: 2}
    disk.close()


def test_a_damaged_body_is_found_when_its_entry_is_asked_for(tail):
    damage(tail, "UPDATE batch SET data = zeroblob(20)")
    disk = SqliteDrive(tail).open()
    disk.recover()
    with pytest.raises(JournalDamaged, match=r"entry \(1, 1\) of source 1 is not as it was made"):
        disk.log_entries(1, (0, 0), 1)
    assert len(disk.log_entries(1, (1, 1), 1)) == 1
    disk.close()


def test_of_a_queue_that_is_dropped_no_mark_is_left(drive):
    """Its settles and its drop are told as committed together."""
    disk = drive.open()
    disk.recover()
    store(disk, 1, 1, 1, row(20, 0, 9), row(20, 10, 19))
    store(disk, 1, 1, 2, settled=[SeqRange(20, 0, 9)], retired=[SeqRange(20, 0, 9)])
    store(disk, 1, 1, 3, dropped=[20])
    tell(disk, 1, 1, 3)
    idle(disk)
    assert disk.recovered_of({1}).queues == {}
    assert count(disk, "queue") == count(disk, "batch") == 0
    disk.close()


def test_a_mark_that_came_behind_a_drop_goes_when_that_is_committed(drive):
    disk = drive.open()
    disk.recover()
    store(disk, 1, 1, 1, row(20, 0, 9), row(20, 10, 19))
    store(disk, 1, 1, 2, settled=[SeqRange(20, 0, 9)], retired=[SeqRange(20, 0, 9)])
    store(disk, 1, 1, 3, dropped=[20])
    tell(disk, 1, 1, 2)
    idle(disk)
    assert count(disk, "queue") == 1
    assert undo(disk, 1, 1, 2)[20].next_seq == 20
    store(disk, 1, 2, 1, dropped=[20])
    tell(disk, 1, 2, 1)
    idle(disk)
    assert count(disk, "queue") == count(disk, "batch") == 0
    disk.close()
