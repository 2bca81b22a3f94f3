"""Flipped bytes, vanished records and an index that contradicts itself: told, never skipped; nothing is written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from amqpd.journal.records import JournalDamaged, SeqRange
from amqpd.journal.sqlite.database import JOURNAL, is_damage
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


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def refused(directory: Path, sentence: str) -> None:
    """The journal is refused with the sentence, and left as it was."""
    before = contents(directory)
    with pytest.raises(JournalDamaged, match=sentence):
        recovered(directory)
    assert contents(directory) == before


def recovered(directory: Path):
    disk = SqliteDrive(directory).open()
    try:
        return disk.recover()
    finally:
        disk.close()


@pytest.mark.parametrize("at", [0, 10_000, 49_999])
def test_a_flipped_byte_of_a_body_is_the_rows_damage(data, at):
    content = bytearray((data / JOURNAL).read_bytes())
    body = b"1:10..19;" * 6000
    # The body lies in pieces, one a page; any byte of the pattern that is unique to row 10..19 will do.
    places = [place for place in range(len(content)) if content.startswith(body[:9], place)]
    place = places[at * len(places) // 50_000]
    content[place] ^= 0x10
    (data / JOURNAL).write_bytes(content)
    disk = SqliteDrive(data).open()
    assert len(disk.recover().queues[1].rows) == 3
    before, damaged, behind = disk.read(1, 0, 29, 1 << 20)
    assert (before, behind) == (row(1, 0, 9), row(1, 20, 29))
    assert (damaged.first_seq, damaged.last_seq) == (10, 19)
    assert damaged.damage.endswith("journal.db are damaged: they do not fit their checksum")
    assert len(damaged.data) == 50_000  # for export
    disk.close()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (f"UPDATE batch SET {change} WHERE first_seq = 10", "index entry of messages")
        for change in (
            *("persistent = 0", "queue_id = 2", "first_seq = 11", "last_seq = 18", "nbytes = 49999", "idx = 0"),
            *("body_bytes = 40001", "published_ms = published_ms + 1", "crc = crc + (1 << 40)"),
        )
    ]
    + [
        ("UPDATE batch SET deadline_bytes = 0 WHERE first_seq = 10", "index entry of messages"),
        ("UPDATE batch SET first_seq = 19 WHERE first_seq = 20", "index entry of messages 19..29"),
        ("DELETE FROM batch WHERE first_seq = 20", "index has 2 rows of messages where 3 were written"),
        ("UPDATE settled SET last_seq = 9", "record that 3..9 of queue 1 are settled"),
        ("UPDATE settled SET queue_id = 2", "record that 3..4 of queue 2 are settled"),
        ("UPDATE settled SET idx = 0", "are settled does not fit"),
        ("UPDATE settled SET epoch = 1", "are settled does not fit"),
        ("UPDATE settled SET source = 1", "are settled does not fit"),
        ("UPDATE batch SET epoch = 0 WHERE first_seq = 10", "index entry of messages 10..19"),
        ("UPDATE batch SET source = 1 WHERE first_seq = 10", "index entry of messages 10..19"),
        ("UPDATE queue SET epoch = 7", "record of what was delivered of queue 1"),
        ("UPDATE returned SET epoch = 7", "how often message 15 of queue 1 came back"),
        ("UPDATE discard SET epoch = 7", "record of a deletion of messages of queue 9"),
        ("UPDATE source SET reserved = 7", "record of its last transaction is"),
        ("UPDATE source SET committed_idx = 7", "record of its last transaction is"),
        ("UPDATE source SET replicated = 1", "record of its last transaction is"),
        ("UPDATE source SET source = 1", "record of its last transaction is"),
        ("INSERT INTO former VALUES (1, 1, 1, 1, 1, 1, 1, 1, 1, 1)", "the former version of a record of queue 1"),
        ("UPDATE settled SET idx = 1.5", "a record is not of the types that were written"),
        ("UPDATE source SET idx = 'x'", "record of its last transaction is"),
        ("DELETE FROM settled", "0 records of settled messages are there where 1 were written"),
        ("UPDATE queue SET delivered = 3", "record of what was delivered of queue 1"),
        ("UPDATE queue SET next_seq = 3", "record of what was delivered of queue 1"),
        ("UPDATE queue SET queue_id = 3", "record of what was delivered of queue 3"),
        ("UPDATE discard SET last_seq = 0", "record of a deletion of messages of queue 9"),
        ("UPDATE discard SET queue_id = 1", "record of a deletion of messages of queue 1"),
        ("UPDATE returned SET seq = 16", "how often message 16 of queue 1 came back"),
        ("UPDATE returned SET count = 0", "how often message 15 of queue 1 came back"),
        ("UPDATE source SET idx = 2", "record of its last transaction is"),
        ("UPDATE source SET rows = 2", "record of its last transaction is"),
        ("UPDATE source SET rows = 2, rows_check = -2", "index has 3 rows of messages where 2 were written"),
        ("UPDATE source SET settled = 0", "record of its last transaction is"),
        ("DELETE FROM source", "record of its last transaction is missing"),
        ("UPDATE names SET value = 'x'", "its record of its own identity is"),
        ("DELETE FROM names", "it has no identity"),
        ("UPDATE deadline SET data = CAST(substr(data, 1, 100) || x'01' || substr(data, 102) AS BLOB)", "deadlines"),
        ("UPDATE deadline SET data = substr(data, 1, 216)", "deadlines"),
        ("UPDATE deadline SET crc = crc + 1", "deadlines"),
        ("UPDATE deadline SET batch_id = 1", "deadlines"),
        ("DELETE FROM deadline", "deadlines"),
        ("INSERT INTO deadline VALUES (99, 0, 1, 1, 0, x'')", "deadlines"),
    ],
)
def test_a_record_that_says_something_else_than_was_written_is_refused(data, monkeypatch, change, sentence):
    # One record of each kind.
    monkeypatch.setattr("amqpd.journal.sqlite.disk.RECOVERY_STEPS_MAX", 0)
    disk = SqliteDrive(data).open()
    disk.recover()
    disk.commit(transaction(2, row(9, 0, 0), SeqRange(1, 3, 4), delivered={1: 5}))
    disk.commit(transaction(3, dropped=[9]))
    disk._discards.pending.clear()  # so that it stays
    disk.close()
    execute(data, "DELETE FROM batch WHERE queue_id = 9")
    execute(data, "UPDATE source SET rows = rows - 1, rows_check = rows_check + 1")
    assert len(recovered(data).queues[1].rows) == 3
    execute(data, change)
    refused(data, sentence)


def test_a_row_whose_table_and_index_differ_is_damaged(data):
    """Recovery goes by the index, so a checksum that fits only what the table says is no checksum."""
    content = bytearray((data / JOURNAL).read_bytes())
    said = (40_000).to_bytes(3, "big") + (1_700_000_000_000).to_bytes(6, "big")  # neighbours, as SQLite stores them
    places = [place for place in range(len(content)) if content.startswith(said, place)]
    assert len(places) == 2, "the table and the index"
    outcomes = []
    for place in places:
        content[place + 2] ^= 1
        (data / JOURNAL).write_bytes(content)
        content[place + 2] ^= 1
        try:
            found = recovered(data)
        except JournalDamaged as error:
            outcomes.append(str(error).partition("the ")[2][:11])
        else:
            # What the table says of it is read by nobody.
            assert found.queues[1].rows[1].body_bytes == 40_000
            outcomes.append("table")
    assert sorted(outcomes) == ["index entry", "table"]


def test_bodies_that_were_exchanged_are_damaged(data):
    execute(data, "UPDATE batch SET data = (SELECT data FROM batch WHERE first_seq = 0) WHERE first_seq = 20")
    disk = SqliteDrive(data).open()
    disk.recover()
    assert [bool(each.damage) for each in disk.read(1, 0, 29, 1 << 20)] == [False, False, True]
    disk.close()


def test_a_page_of_garbage_is_told(data):
    """Whatever page is hit, the journal opens and reads right, or says that it is damaged: nothing else."""
    content = (data / JOURNAL).read_bytes()
    expected = [row(1, 0, 9), TIMED, row(1, 20, 29)]
    told = fenced = 0
    for page in range(1, len(content) // 8192):
        (data / JOURNAL).write_bytes(content[: page * 8192] + b"\xa5" * 8192 + content[(page + 1) * 8192 :])
        disk = None
        try:
            disk = SqliteDrive(data).open()
            found = disk.recover()
            rows = disk.read(1, 0, 100, 1 << 20)
            assert [(each.first_seq, each.last_seq) for each in rows] == [(0, 9), (10, 19), (20, 29)]
            assert all(each.damage or each == right for each, right in zip(rows, expected, strict=True))
            fenced += any(each.damage for each in rows)
            assert found.queues[1].next_seq == 30
            assert found.queues[1].rows[1].deadlines == EXPIRING
            assert found.queues[1].rows[1].body_bytes == 40_000
            assert found.queues[1].counts == {15: 3}
        except JournalDamaged:
            told += 1
        finally:
            if disk is not None:
                disk.close()
            (data / JOURNAL).write_bytes(content)
            (data / f"{JOURNAL}-wal").unlink(missing_ok=True)
            (data / "journal.mark").unlink(missing_ok=True)
    assert told >= 8
    assert fenced >= 6


@pytest.mark.parametrize("size", [1, 8192, 3 * 8192, 100])
def test_a_file_that_is_cut_short_or_grown_is_refused(data, size):
    content = (data / JOURNAL).read_bytes()
    (data / JOURNAL).write_bytes(content[:-size])
    refused(data, "is damaged")
    (data / JOURNAL).write_bytes(content + b"x" * size)
    refused(data, "is damaged: it has .* bytes, and its header says")


def test_a_page_that_deletions_meet_ends_deletions_and_nothing_else(data):
    disk = SqliteDrive(data).open()
    disk.recover()
    disk.commit(transaction(2, *(row(2, n, n, nbytes=200) for n in range(200))))
    disk.close()
    content = bytearray((data / JOURNAL).read_bytes())
    # A leaf of the table, and not the last one, where new rows go.
    page = content.index(b"2:80..80;") // 8192
    content[page * 8192] = 0x55
    (data / JOURNAL).write_bytes(content)
    disk = SqliteDrive(data).open()
    disk.recover()
    assert [each.first_seq for each in disk.read(2, 80, 81, 1 << 20) if each.damage] == [80, 81]
    disk.commit(transaction(3, row(2, 200, 200), SeqRange(2, 80, 80)))
    disk.commit(transaction(4, row(2, 201, 201), deletes=[SeqRange(2, 80, 80)]))
    assert disk.kept is not None
    assert "they stay on the disk" in disk.kept
    assert not disk.vacuum_step()
    disk.commit(transaction(5, row(2, 202, 202)))
    disk.close()
    rows = recovered(data).queues[2].rows
    assert [each.first_seq for each in rows] == [*range(80), *range(81, 203)]


@pytest.mark.parametrize(("space_bytes", "damage"), [(0, True), (1 << 60, False)])
def test_a_full_disk_that_has_space_is_damage_of_what_is_deleted(tmp_path, monkeypatch, space_bytes, damage):
    """SQLite says "full" when it deletes a row whose length is damaged: tried again, that would never end."""
    monkeypatch.setattr("amqpd.journal.sqlite.database.SPACE_BYTES", space_bytes)
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError, match="full") as full:
        connection.execute("CREATE TABLE t AS SELECT zeroblob(100000)")
    connection.close()
    assert is_damage(full.value, tmp_path / JOURNAL) is damage
