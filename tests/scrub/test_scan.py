"""A journal that is being written is read as a whole, and every kind of damage in it is found."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqpd.journal.records import SeqRange
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.schema import PAGE_BYTES
from amqpd.journal.sqlite.scrubbing import STEP_BYTES_MAX, STEP_ROWS_MAX, Scan, ScrubbedDamage, ScrubStep
from amqpd.storage.page_cache import PageCache

from ..journal.disks import SqliteDrive, deadlines, row, transaction

EXPIRING = deadlines((1_700_000_000_000, 10, 19))
PUBLISHED_MS = 0x0123_4567_89AB
ROWS = [
    row(1, 0, 9),
    row(1, 10, 19, nbytes=50_000, deadlines=EXPIRING),
    row(1, 20, 29, nbytes=600_000),
    *(row(2, at, at, nbytes=300) for at in range(200)),
    row(3, 0, 0, published_ms=PUBLISHED_MS),
]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal whose rows are in the database's file, not only in the log: tests get copies."""
    data = tmp_path_factory.mktemp("written") / "data"
    disk = SqliteDrive(data).open()
    disk.recover()
    disk.commit(transaction(1, *ROWS, counts=[(1, 15, 3)]))
    disk.commit(transaction(2, SeqRange(1, 3, 4), delivered={1: 5}))
    disk.close()
    return data


@pytest.fixture
def disk(written: Path, tmp_path: Path) -> Iterator[SqliteDisk]:
    disk = SqliteDrive(shutil.copytree(written, tmp_path / "data")).open()
    disk.recover()
    yield disk
    disk.close()


@pytest.fixture
def scan(disk: SqliteDisk) -> Iterator[Scan]:
    page_cache = PageCache(disk.path)
    scan = Scan(disk.path, page_cache)
    yield scan
    scan.close()
    disk.close()
    page_cache.close()


def steps_of(scan: Scan) -> list[ScrubStep]:
    assert scan.begin() > 0
    steps = [scan.step()]
    while not steps[-1].done:
        steps.append(scan.step())
    return steps


def found_by(scan: Scan) -> list[ScrubbedDamage]:
    return [found for step in steps_of(scan) for found in step.found]


def execute(disk: SqliteDisk, statement: str) -> None:
    """Through the node's own connection, as another process cannot; what it changes is damage."""
    disk._writer.execute(statement)


def places(path: Path, text: bytes) -> list[int]:
    """The first one in each page: SQLite leaves old bytes behind where it moves a cell."""
    content = path.read_bytes()
    found = {
        place.start() // PAGE_BYTES: place.start() for place in reversed([*re.finditer(re.escape(text), content)])
    }
    return list(found.values())


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def test_a_whole_journal_is_read_as_a_whole_in_small_steps(disk: SqliteDisk, scan: Scan) -> None:
    for _ in range(2):  # a pass and the next one
        steps = steps_of(scan)
        assert not [step.found for step in steps if step.found]
        assert sum(step.rows for step in steps) == len(ROWS)
        assert sum(step.nbytes for step in steps) >= sum(len(each.data) for each in ROWS)
        assert max(step.rows for step in steps) <= STEP_ROWS_MAX
        assert max(step.nbytes for step in steps) <= STEP_BYTES_MAX + 600_000
        # The node goes on, between two steps and between two passes.
        disk.commit(transaction(disk.index + 1, row(9, disk.index, disk.index)))
        disk.commit(transaction(disk.index + 1, dropped=[9]))
        while disk.vacuum_step():
            pass


@pytest.mark.parametrize(
    ("text", "key"), [(b"1:0..9;", (1, 0, 9)), (b"1:10..19;", (1, 10, 19)), (b"2:77..77;", (2, 77, 77))]
)
def test_a_byte_that_flips_while_the_node_serves_is_found_by_the_next_pass(
    disk: SqliteDisk, scan: Scan, text: bytes, key: tuple[int, int, int]
) -> None:
    """Though all of it was in memory: SQLite's, and the system's."""
    assert not found_by(scan)
    for at in (hit := places(disk.path, text)):
        flip(disk.path, at)
    [found] = found_by(scan)
    assert (found.key, found.messages) == (key, True)
    assert "do not fit their checksum" in found.reason
    for at in hit:
        flip(disk.path, at)
    assert not found_by(scan)


def test_a_flip_in_the_middle_of_a_large_body_is_found(disk: SqliteDisk, scan: Scan) -> None:
    flip(disk.path, disk.path.read_bytes().index(b"1:20..29;" * 800) + 7000)
    [found] = found_by(scan)
    assert (found.key, found.messages) == ((1, 20, 29), True)


@pytest.mark.parametrize(
    ("change", "table", "messages"),
    [
        ("UPDATE settled SET last_seq = 9", "settled", False),
        ("UPDATE settled SET crc = 'x'", "settled", False),
        ("UPDATE queue SET delivered = 3 WHERE queue_id = 1", "queue", False),
        ("UPDATE returned SET count = 0", "returned", False),
        ("INSERT INTO discard VALUES (1, 5, 0, 9, 0, 1, 2, 7)", "discard", False),
        ("UPDATE names SET value = 'x' WHERE name = 'identity'", "names", False),
        ("UPDATE source SET idx = 7", "source", False),
        ("UPDATE source SET idx = 'x'", "source", False),
        ("UPDATE deadline SET crc = crc + 1", "batch", True),
        ("DELETE FROM deadline", "batch", True),
        ("UPDATE batch SET crc = crc + 1 WHERE last_seq = 19 AND queue_id = 1", "batch", True),
    ],
)
def test_a_changed_record_is_found_and_nothing_else(
    disk: SqliteDisk, scan: Scan, change: str, table: str, messages: bool
) -> None:
    execute(disk, change)
    found = found_by(scan)
    assert [(each.table, each.messages) for each in found] == [(table, messages)]


@pytest.mark.parametrize("of_index", [True, False])
def test_an_index_entry_and_its_row_that_differ_are_found(disk: SqliteDisk, scan: Scan, *, of_index: bool) -> None:
    """One bit of `published_ms`, in a page of the one or of the other."""
    moment = (PUBLISHED_MS).to_bytes(6, "big")
    index = disk._writer.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'batch_index'").fetchone()[0]
    inside = range((index - 1) * PAGE_BYTES, index * PAGE_BYTES)
    for at in places(disk.path, moment):
        if (at in inside) == of_index:
            flip(disk.path, at + 5)
    found = found_by(scan)
    if of_index:
        # Its queue stops at it, as a consumer of it would, and recovery would refuse the entry.
        assert {(each.table, each.messages) for each in found} == {("batch", True), ("batch_index", False)}
        assert ("batch", (3, 0, 0)) in [(each.table, each.key) for each in found]
    else:
        [one] = found
        assert (one.table, one.key, one.messages) == ("batch", (3, 0), False)
        assert "says something else than its index entry" in one.reason


def test_what_cannot_be_read_is_found_and_the_rest_is_read(disk: SqliteDisk, scan: Scan) -> None:
    """A page of the table of settled records is not one."""
    page = disk._writer.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'settled'").fetchone()[0]
    with disk.path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xff" * PAGE_BYTES)
    steps = steps_of(scan)
    [found] = [found for step in steps for found in step.found]
    assert (found.table, found.messages) == ("settled", False)
    assert "'settled' cannot be read as a whole" in found.reason
    assert sum(step.rows for step in steps) == len(ROWS)


def test_a_page_of_bodies_that_is_lost_is_its_rows_damage(disk: SqliteDisk, scan: Scan) -> None:
    """A leaf of the table, in which there are some rows of queue 2."""
    content = disk.path.read_bytes()
    at = content.index(b"2:77..77;") // PAGE_BYTES * PAGE_BYTES
    inside = {int(seq) for seq in re.findall(rb"2:(\d+)\.\.", content[at : at + PAGE_BYTES])}
    with disk.path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(PAGE_BYTES))
    steps = steps_of(scan)
    found = [found for step in steps for found in step.found]
    assert len(inside) > 5
    assert {each.key for each in found} == {(2, seq, seq) for seq in inside}
    assert all(each.messages and "cannot be read" in each.reason for each in found)
    assert sum(step.rows for step in steps) == len(ROWS)


def test_a_failing_disk_is_found_and_raises_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    scan = Scan(path, PageCache(path))
    assert scan.begin() == 0
    steps = [scan.step()]
    while not steps[-1].done:
        steps.append(scan.step())
    assert len(steps) == 12
    assert all("cannot be read as a whole: the disk of" in step.found[0].reason for step in steps)


def test_a_journal_that_is_busy_is_read_later(disk: SqliteDisk, scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    scan.begin()
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    with monkeypatch.context() as patch:
        patch.setattr(scan, "_names", lambda *_: (_ for _ in ()).throw(busy))
        first = scan.step()
        assert (first.nbytes, first.found, first.done) == (STEP_BYTES_MAX, [], False)
    steps = [scan.step()]
    while not steps[-1].done:
        steps.append(scan.step())
    assert sum(step.rows for step in steps) == len(ROWS)
