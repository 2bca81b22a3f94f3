"""Flipped bytes and an index that contradicts itself: told, never skipped."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from amqpd.journal.database import JOURNAL
from amqpd.journal.records import JournalDamaged
from tests.journal.disks import SqliteDrive, deadlines, row, transaction

EXPIRING = deadlines(*((1_700_000_000_000 + seq, seq, seq) for seq in range(10, 20)))
TIMED = row(1, 10, 19, nbytes=50_000, body_bytes=40_000, published_ms=1_700_000_000_000, deadlines=EXPIRING)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    disk = SqliteDrive(tmp_path).open()
    disk.recover()
    disk.commit(transaction(1, row(1, 0, 9), TIMED, row(1, 20, 29), counts=[(1, 15, 3)]))
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
        "body_bytes = 40001",
        "body_bytes = 0, published_ms = 0, deadline_bytes = 0",
        "published_ms = published_ms + 1",
        "deadline_bytes = 0",
        "deadline_bytes = 216",
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
    "change",
    [
        "UPDATE deadline SET data = CAST(substr(data, 1, 100) || x'01' || substr(data, 102) AS BLOB)",
        "UPDATE deadline SET data = substr(data, 1, 216)",
        "UPDATE deadline SET crc = crc + 1",
        "UPDATE deadline SET batch_id = 1",
        "DELETE FROM deadline",
        "UPDATE batch SET deadline_bytes = 216 WHERE first_seq = 10",
        "UPDATE batch SET deadline_bytes = 0 WHERE first_seq = 10",
        "UPDATE batch SET deadline_bytes = 240 WHERE first_seq = 20",
        "UPDATE batch SET queue_id = 2 WHERE first_seq = 10",
        "INSERT INTO deadline VALUES (99, 0, 1, 1, 0, x'')",
    ],
)
def test_deadlines_that_do_not_fit_their_row_stop_recovery_and_reading(data, change):
    execute(data, change)
    disk = SqliteDrive(data).open()
    with pytest.raises(JournalDamaged, match="deadlines"):
        disk.recover()
    if "99" not in change:  # of no row: nobody would read it
        with pytest.raises(JournalDamaged, match="are damaged"):
            disk.read(2 if "queue_id" in change else 1, 0, 29, 1 << 20)
    disk.close()


def test_what_the_index_says_is_held_against_the_checksum(data):
    """Recovery goes by the index, so a checksum that fits only what the table says is no checksum."""
    content = bytearray((data / JOURNAL).read_bytes())
    said = (40_000).to_bytes(3, "big") + (1_700_000_000_000).to_bytes(6, "big")  # neighbours, as SQLite stores them
    places = [place for place in range(len(content)) if content.startswith(said, place)]
    assert len(places) == 2, "the table and the index"
    found = []
    for place in places:
        content[place + 2] ^= 1
        (data / JOURNAL).write_bytes(content)
        content[place + 2] ^= 1
        disk = SqliteDrive(data).open()
        size = disk.recover().queues[1].rows[1].body_bytes
        try:
            rows = disk.read(1, 10, 19, 1 << 20)
        except JournalDamaged:
            found.append((size, None))
        else:
            found.append((size, rows[0].body_bytes))
        disk.close()
    assert sorted(found, key=str) == [(40_000, 40_000), (40_001, None)]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("UPDATE batch SET first_seq = 19 WHERE first_seq = 20", "two rows of queue 1 hold message 19"),
        ("UPDATE batch SET first_seq = 30 WHERE first_seq = 20", "queue 1 has a row 30..29 of transaction 1 of 1"),
        ("UPDATE batch SET idx = 2 WHERE first_seq = 10", "row 10..19 of transaction 2 of 1"),
        ("UPDATE batch SET first_seq = -1 WHERE first_seq = 0", "has a row -1..9"),
        ("UPDATE returned SET idx = 2", "message 15 of queue 1 came back 3 times in transaction 2 of 1"),
        ("UPDATE returned SET count = -1", "message 15 of queue 1 came back -1 times"),
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
    expected = [row(1, 0, 9), TIMED, row(1, 20, 29)]
    told = 0
    for page in range(1, len(content) // 8192):
        (data / JOURNAL).write_bytes(content[: page * 8192] + b"\xa5" * 8192 + content[(page + 1) * 8192 :])
        disk = None
        try:
            disk = SqliteDrive(data).open()
            recovered = disk.recover()
            assert disk.read(1, 0, 100, 1 << 20) == expected
            assert recovered.queues[1].next_seq == 30
            assert recovered.queues[1].rows[1].deadlines == EXPIRING
            assert recovered.queues[1].rows[1].body_bytes == 40_000
            assert recovered.queues[1].counts == {15: 3}
        except JournalDamaged:
            told += 1
        finally:
            if disk is not None:
                disk.close()
    assert told >= 8
