"""Flipped bytes and an index that contradicts itself: told, never skipped."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from amqpd.journal.database import JOURNAL
from amqpd.journal.records import JournalDamaged
from tests.journal.disks import SqliteDrive, row, transaction


@pytest.fixture
def data(tmp_path: Path) -> Path:
    disk = SqliteDrive(tmp_path).open()
    disk.recover()
    disk.commit(transaction(1, row(1, 0, 9), row(1, 10, 19, nbytes=50_000), row(1, 20, 29)))
    disk.close()
    return tmp_path


def execute(directory: Path, statement: str) -> None:
    connection = sqlite3.connect(directory / JOURNAL)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("at", [0, 10_000, 49_999])
def test_a_flipped_byte_of_a_body_is_told_when_it_is_read(data, at):
    content = bytearray((data / JOURNAL).read_bytes())
    body = b"1:10..19;" * 6000
    # The body lies in pieces, one a page; any byte of the pattern that is unique to row 10..19 will do.
    places = [place for place in range(len(content)) if content.startswith(body[:9], place)]
    place = places[at * len(places) // 50_000]
    content[place] ^= 0x10
    (data / JOURNAL).write_bytes(content)
    disk = SqliteDrive(data).open()
    assert len(disk.recover().queues[1].rows) == 3
    assert disk.read(1, 0, 9, 1 << 20) == [row(1, 0, 9)]
    with pytest.raises(JournalDamaged, match=r"messages 10\.\.19 of queue 1 in .*journal\.db are damaged"):
        disk.read(1, 0, 29, 1 << 20)
    assert disk.read(1, 20, 29, 1 << 20) == [row(1, 20, 29)]
    disk.close()


@pytest.mark.parametrize(
    "change",
    [
        "persistent = 0",
        "queue_id = 2",
        "first_seq = 11",
        "crc = crc + 1",
        "nbytes = 49999",
        "data = (SELECT data FROM batch WHERE first_seq = 0)",
    ],
)
def test_a_row_that_says_something_else_than_was_written_is_damaged(data, change):
    execute(data, f"UPDATE batch SET {change} WHERE first_seq = 10")
    disk = SqliteDrive(data).open()
    with pytest.raises(JournalDamaged):
        disk.read(2 if "queue_id" in change else 1, 11, 19, 1 << 20)
    disk.close()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("UPDATE batch SET first_seq = 9 WHERE first_seq = 10", "two rows of queue 1 hold message 9"),
        ("UPDATE batch SET first_seq = 21 WHERE first_seq = 10", "queue 1 has a row 21..19 of transaction 1 of 1"),
        ("UPDATE batch SET idx = 2 WHERE first_seq = 10", "row 10..19 of transaction 2 of 1"),
        ("UPDATE batch SET first_seq = -1 WHERE first_seq = 0", "has a row -1..9"),
    ],
)
def test_an_index_that_contradicts_itself_stops_recovery(data, change, sentence):
    execute(data, change)
    disk = SqliteDrive(data).open()
    with pytest.raises(JournalDamaged, match=sentence):
        disk.recover()
    disk.close()


def test_a_page_of_garbage_is_told(data):
    """Whatever page is hit, the journal opens and reads right, or says that it is damaged: nothing else."""
    content = (data / JOURNAL).read_bytes()
    expected = [row(1, 0, 9), row(1, 10, 19, nbytes=50_000), row(1, 20, 29)]
    told = 0
    for page in range(1, len(content) // 8192):
        (data / JOURNAL).write_bytes(content[: page * 8192] + b"\xa5" * 8192 + content[(page + 1) * 8192 :])
        disk = None
        try:
            disk = SqliteDrive(data).open()
            recovered = disk.recover()
            assert disk.read(1, 0, 100, 1 << 20) == expected
            assert recovered.queues[1].next_seq == 30
        except JournalDamaged:
            told += 1
        finally:
            if disk is not None:
                disk.close()
    assert told >= 8
