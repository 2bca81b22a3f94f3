"""Reading all of `metadata.db` to see that it is whole.

What comes in: a connection in a transaction. What goes out: what the database says of itself; StoreDamaged.
Rules: 1. Whatever the values are that a damaged page gives, the answer is one sentence. 2. Nothing is written, but by
`write_journal`. 3. The history is not looked at: it is only for catching up, and a part that is damaged counts as
gone (`sqlite_file.py`).
Not here: the files beside it (`promises.py`, `copies.py`), checks of a single entry (`sqlite_file.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from amqpd.storage.probe import could_not_read
from amqpd.topology.metadata.sqlite.tables import (
    IDENTITY,
    JOURNAL,
    PUT_NAME,
    READ_DROPPED,
    READ_ENTRIES,
    READ_NAMES,
    READ_STATE,
    checksum_matches,
    dropped_checksum,
    entry_checksum,
    name_checksum,
    state_checksum,
)
from amqpd.topology.metadata.store import MetadataStoreError, StoreDamaged

IDENTITY_CHARS = 32


@dataclass(frozen=True, slots=True)
class DatabaseContents:
    """The properties of a database that make it equal to another one: identity, revision, numbers of entries."""

    identity: str
    revision: int
    entries: int
    total: int


def check_pages(driver: sqlite3.Connection, path: Path) -> None:
    """Of any format. Raises StoreDamaged, MetadataStoreError."""
    (found,) = driver.execute("PRAGMA quick_check(1)").fetchone()
    if could_not_read(str(found)):
        raise MetadataStoreError(f"the disk of {path} failed: {str(found).splitlines()[-1]}")
    if found != "ok":
        # Its first line only says that it is in this database.
        raise StoreDamaged(f"{path} is damaged ({str(found).splitlines()[-1]})")


def check_header(driver: sqlite3.Connection, path: Path, *, whole: bool) -> None:
    """Facts that SQLite goes by when it writes, and that its own check of the pages does not look at. `whole`: there
    is no log, so the file has all of its pages. Raises StoreDamaged."""
    (vacuum,) = driver.execute("PRAGMA auto_vacuum").fetchone()
    (page_bytes,) = driver.execute("PRAGMA page_size").fetchone()
    (pages,) = driver.execute("PRAGMA page_count").fetchone()
    size = path.stat().st_size
    if vacuum or (whole and size != pages * page_bytes):
        raise StoreDamaged(f"{path} is damaged (it has {size} bytes; its header is of {pages} pages of {page_bytes})")


def verify(driver: sqlite3.Connection, path: Path) -> DatabaseContents:
    """Every row's checksum, and that none is missing. Raises StoreDamaged."""
    contents = contents_of(driver, path)
    found = added = 0
    for key, value, at, checksum in driver.execute(READ_ENTRIES):
        if not checksum_matches(entry_checksum, key, value, at, checksum=checksum):
            raise StoreDamaged(f"{path} is damaged (the entry {key!r} does not fit its checksum)")
        found += 1
        added += checksum
    if (found, added) != (contents.entries, contents.total):
        raise StoreDamaged(f"{path} is damaged (of {contents.entries} entries it has {found}, or older ones)")
    for _ in read_dropped(driver, path):
        pass
    read_journal(driver, path)
    return contents


def contents_of(driver: sqlite3.Connection, path: Path) -> DatabaseContents:
    """What it says of itself. Raises StoreDamaged."""
    identity = _read_names(driver, path).get(IDENTITY, "")
    if len(identity) != IDENTITY_CHARS:
        raise StoreDamaged(f"{path} is damaged (it does not say which one it is)")
    revision, _, count, total = read_state(driver, path, identity)
    return DatabaseContents(identity, revision, count, total)


def read_state(driver: sqlite3.Connection, path: Path, identity: str) -> tuple[int, int, int, int]:
    """(revision, compacted, number of entries, sum of their checksums)"""
    rows = driver.execute(READ_STATE).fetchall()
    if len(rows) != 1 or not checksum_matches(state_checksum, *rows[0][:4], identity, checksum=rows[0][4]):
        raise StoreDamaged(f"{path} is damaged (its state does not fit its checksum)")
    revision, compacted, count, total, _ = rows[0]
    return revision, compacted, count, total


def read_dropped(driver: sqlite3.Connection, path: Path) -> Iterator[tuple[int, int]]:
    """The deleted queues that are remembered, as (number, revision). Raises StoreDamaged."""
    for number, at, checksum in driver.execute(READ_DROPPED):
        if not checksum_matches(dropped_checksum, number, at, checksum=checksum):
            raise StoreDamaged(f"{path} is damaged (a deleted queue's number does not fit its checksum)")
        yield number, at


def read_journal(driver: sqlite3.Connection, path: Path) -> tuple[str, int] | None:
    value = _read_names(driver, path).get(JOURNAL)
    if value is None:
        return None
    identity, _, index = value.partition(" ")
    return identity, int(index)


def write_journal(driver: sqlite3.Connection, identity: str, index: int) -> None:
    value = f"{identity} {index}"
    driver.execute(PUT_NAME, {"name": JOURNAL, "value": value, "checksum": name_checksum(JOURNAL, value)})


def _read_names(driver: sqlite3.Connection, path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value, checksum in driver.execute(READ_NAMES):
        if not checksum_matches(name_checksum, name, value, checksum=checksum):
            raise StoreDamaged(f"{path} is damaged (the name {name!r} does not fit its checksum)")
        found[name] = value
    return found
