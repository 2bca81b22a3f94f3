"""Every kind of damage to a journal is found offline, said in words, and no file is changed by looking."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from amqpd.__main__ import run
from amqpd.checking.check import check
from amqpd.datadir.lock import open_data_directory
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite.database import JOURNAL
from tests.checking.conftest import contents, execute
from tests.journal.disks import SqliteDrive, row, transaction


def lines(directory, **how) -> list[str]:
    """The findings that are damage; nothing has changed."""
    before = contents(directory)
    findings = check(directory, **how).report.findings
    assert contents(directory) == before
    return [each.line for each in findings if each.severity == "damage"]


def test_nothing_is_found_where_nothing_is_wrong(data):
    assert lines(data) == []
    assert lines(data, quick=True) == []


def test_a_log_that_a_kill_left_is_no_damage(tmp_path):
    disk = SqliteDrive(tmp_path / "data").open()
    disk.recover()
    disk.commit(transaction(1, row(1, 0, 9)))
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    disk.close()
    assert lines(tmp_path / "killed") == []
    assert not (tmp_path / "killed" / f"{JOURNAL}-shm").exists()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (f"UPDATE batch SET {change} WHERE first_seq = 10", "index entry of messages")
        for change in (
            *("persistent = 0", "queue_id = 2", "first_seq = 11", "last_seq = 18", "nbytes = 49999", "idx = 0"),
            *("body_bytes = 40001", "published_ms = published_ms + 1", "crc = crc + (1 << 40)", "deadline_bytes = 0"),
        )
    ]
    + [
        (
            "UPDATE batch SET first_seq = 19 WHERE first_seq = 20",
            "index entry of messages 19 to 29 of queue number 1",
        ),
        ("DELETE FROM batch WHERE first_seq = 20", "3 rows of messages where 4 were written: messages are missing"),
        (
            "UPDATE batch SET data = zeroblob(20) WHERE first_seq = 20",
            "bodies of messages 20 to 29 of queue number 1",
        ),
        ("UPDATE alembic_version SET version_num = '0001'", "it says that it is of format '0001', and its tables"),
        ("UPDATE alembic_version SET version_num = '0' || char(10) || '04'", "it is of format '0\\n04'"),
        ("DELETE FROM alembic_version", "its format cannot be read"),
        ("UPDATE settled SET last_seq = 9", "record that messages 3 to 9 of queue number 1 are settled"),
        ("UPDATE settled SET idx = 0", "record that messages 3 to 4 of queue number 1 are settled"),
        ("DELETE FROM settled", "0 records of settled messages are there where 1 were written"),
        ("UPDATE queue SET delivered = 3", "record of what was delivered of queue number 1"),
        ("UPDATE queue SET queue_id = 3", "record of what was delivered of queue number 3"),
        ("UPDATE discard SET last_seq = 5", "record of the deletion of messages 0 to 5 of queue number 9"),
        ("UPDATE returned SET count = 0", "record of how often message 15 of queue number 1 came back"),
        ("UPDATE source SET idx = 2", "record of its last transaction does not fit its checksum"),
        (
            "UPDATE source SET rows = 2, rows_check = -2",
            "4 rows of messages where 2 were written: messages that were",
        ),
        ("DELETE FROM source", "record of its last transaction is missing"),
        ("UPDATE names SET value = 'x'", "its record of its own identity does not fit"),
        ("DELETE FROM names", "it has no identity"),
        ("UPDATE deadline SET crc = crc + 1", "deadlines of messages 10 to 19 of queue number 1 do not fit"),
        ("DELETE FROM deadline", "deadlines of messages 10 to 19 of queue number 1 are missing"),
        ("INSERT INTO deadline VALUES (99, 0, 1, 1, 0, x'')", "1 lists of deadlines belong to no row"),
    ],
)
def test_each_record_that_says_something_else_is_one_finding(data, change, found):
    execute(data, change)
    [line] = lines(data)
    assert found in line
    assert line.startswith("journal.db: ")
    assert "; " in line, "the way out"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE batch SET queue_id = 'x' WHERE first_seq = 10", "index entry of messages 10 to 19"),
        ("UPDATE batch SET idx = 1.5 WHERE first_seq = 10", "index entry of messages 10 to 19 of queue number 1"),
        ("UPDATE settled SET idx = 'x'", "record that messages 3 to 4 of queue number 1 are settled"),
        ("UPDATE names SET value = CAST(x'ff' AS TEXT)", "its record of its own identity"),
    ],
)
def test_a_value_of_another_type(data, change, found):
    execute(data, change)
    assert any(found in line for line in lines(data))


def test_all_damages_are_found_and_not_only_the_first(data):
    execute(
        data,
        *("UPDATE settled SET idx = 0", "UPDATE queue SET delivered = 3", "UPDATE returned SET count = 0"),
        *("UPDATE batch SET idx = 0 WHERE last_seq = 9", "UPDATE deadline SET crc = 0"),
        "UPDATE batch SET data = zeroblob(20) WHERE first_seq = 20",
    )
    assert len(lines(data)) == 6
    assert len(lines(data, quick=True)) == 5, "all but the body"


def test_whatever_page_is_damaged_it_is_found(data):
    content = (data / JOURNAL).read_bytes()
    for page in range(len(content) // 8192):
        (data / JOURNAL).write_bytes(content[: page * 8192] + b"\xa5" * 8192 + content[(page + 1) * 8192 :])
        assert lines(data), f"page {page + 1}"


@pytest.mark.parametrize("size", [1, 8192, 3 * 8192])
def test_a_file_that_is_cut_short_or_grown(data, size):
    content = (data / JOURNAL).read_bytes()
    (data / JOURNAL).write_bytes(content[:-size])
    assert lines(data)
    (data / JOURNAL).write_bytes(content + b"x" * size)
    assert lines(data)


@pytest.mark.parametrize("at", [*range(16, 24), *range(44, 48), *range(56, 60), *range(68, 92)])
def test_a_byte_of_the_header(data, at):
    """Of those that SQLite goes by when it opens the file; a start refuses each of them."""
    content = bytearray((data / JOURNAL).read_bytes())
    content[at] ^= 0x41
    (data / JOURNAL).write_bytes(content)
    assert lines(data)


def test_a_name_in_the_schema_that_is_no_text(data):
    content = (data / JOURNAL).read_bytes()
    (data / JOURNAL).write_bytes(content.replace(b"tablealembic_version", b"tablealembic_ver\xf3ion"))
    assert lines(data)
    with pytest.raises(JournalDamaged, match="is damaged"):
        SqliteDrive(data).open()


def test_the_index_and_the_table_that_differ(data):
    content = bytearray((data / JOURNAL).read_bytes())
    said = (40_000).to_bytes(3, "big") + (1_700_000_000_000).to_bytes(6, "big")  # neighbours, as SQLite stores them
    for place in [place for place in range(len(content)) if content.startswith(said, place)]:
        content[place + 2] ^= 1
        (data / JOURNAL).write_bytes(content)
        content[place + 2] ^= 1
        found = lines(data)
        assert any("the index and the table say different things of messages 10 to 19" in line for line in found)


def test_less_than_was_promised(data, tmp_path):
    older = shutil.copytree(data, tmp_path / "older")
    disk = SqliteDrive(data).open()
    disk.recover()
    disk.commit(transaction(4, row(1, 30, 39)))
    disk.close()
    shutil.copy(older / JOURNAL, data)
    [line] = lines(data)
    assert line.startswith("journal.db: journal.db ends at transaction 3, and 4 was confirmed")
    assert "--accept-loss" in line
    os.unlink(data / JOURNAL)
    [line] = lines(data)
    assert "it is missing, and journal.mark beside it" in line


def test_a_damaged_mark(data):
    (data / "journal.mark").write_bytes(b"x" * 4096)
    [line] = lines(data)
    assert line.startswith("journal.mark: it is damaged")


def test_the_command_says_it_in_words_and_in_json(data, capsys):
    assert run(["--data-dir", str(data), "check"]) == 0
    assert capsys.readouterr().out == f"{data}: no damage\n"
    execute(data, "UPDATE settled SET idx = 0")
    assert run(["--data-dir", str(data), "check"]) == 3
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("damage: journal.db: the record that messages 3 to 4 of queue number 1 are settled")
    assert said[1] == f"{data}: 1 damage"
    assert run(["--data-dir", str(data), "check", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["damage"] == 1
    [finding] = found["findings"]
    assert (finding["file"], finding["kind"], finding["severity"]) == ("journal.db", "settled", "damage")
    assert (finding["queue_id"], finding["first"], finding["last"]) == ("1", 3, 4)


def test_a_directory_that_is_in_use_or_has_nothing(data, tmp_path, capsys):
    with open_data_directory(data):
        assert run(["--data-dir", str(data), "check"]) == 2
    assert "stop that one" in capsys.readouterr().err
    assert run(["--data-dir", str(tmp_path / "none"), "check"]) == 1
    assert not (tmp_path / "none").exists()
