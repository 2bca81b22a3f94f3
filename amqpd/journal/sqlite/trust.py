"""Whether a journal has everything that it once said was durable, asked before anything is written to it.

What comes in: the journal's file, its log's end, its mark, what it says of itself. What goes out: nothing, or
JournalDamaged with one sentence; or, when the operator accepts the loss, the same sentences for the log.
Rules: 1. Nothing is changed here but by `accept`, which copies the log aside first. 2. A mark that says more than the
journal has, and a log that is damaged in the middle, are losses. A mark that is missing or damaged promises nothing,
and is none.
Not here: checksums of records (`recovery.py`), the metadata store's word (`amqpd.datadir.pairing`).
"""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from amqpd.journal.errors import DiskFailure
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import checksums, queries
from amqpd.journal.sqlite.schema import PAGE_BYTES, SOURCE
from amqpd.journal.sqlite.sources import BEHIND_MAX, SourceHead
from amqpd.storage.files import keep_log, mark_path, wal_path
from amqpd.storage.mark import Mark, MarkDamaged, Promise, read_mark
from amqpd.storage.wal import WalEnd, read_end

AUTO_VACUUM_INCREMENTAL = 2

REMEDY = "restore a backup (amqpd restore), or start once with --accept-loss to go on with what is there"
REMEDY_OF_RECORDS = "'amqpd check' lists the damage; restore a backup (amqpd restore), or try 'amqpd check --repair'"


class Source(NamedTuple):
    """The record `source` of the local source, and how many rows and settled records of all sources there must be."""

    epoch: int
    idx: int
    rows: int
    settled: int
    reserved: int = 0
    others: tuple[tuple[int, ...], ...] = ()
    """of other sources: source, epoch, idx, reserved, replicated, committed epoch and idx"""
    behind: int = 0
    """the last rows, this number, came after the record was written, each in a transaction of its own"""

    def knows(self, source: int, epoch: int, idx: int) -> bool:
        """Whether such a transaction can have been."""
        head = self.heads().get(source)
        return head is not None and (epoch, idx) <= head.position

    def heads(self) -> dict[int, SourceHead]:
        local = SourceHead(SOURCE, self.epoch, self.idx, self.reserved)
        others = [
            SourceHead(number, epoch, idx, reserved, bool(replicated), (committed_epoch, committed_idx))
            for number, epoch, idx, reserved, replicated, committed_epoch, committed_idx in self.others
        ]
        return {head.source: head for head in (local, *others)}


def log_end(journal: Path) -> WalEnd:
    """Raises DiskFailure."""
    try:
        return read_end(wal_path(journal))
    except OSError as error:
        raise DiskFailure(f"{wal_path(journal)} cannot be read: {error.strerror or error}") from error


def read_names(journal: Path, connection: sqlite3.Connection) -> dict[str, str]:
    """Raises JournalDamaged."""
    names = {}
    for name, value, crc in connection.execute(queries.NAMES):
        if crc != checksums.of_name(name, value):
            raise JournalDamaged(f"{journal} is damaged: its record of its own {name} is; {REMEDY_OF_RECORDS}")
        names[name] = value
    if "identity" not in names:
        raise JournalDamaged(f"{journal} is damaged: it has no identity; {REMEDY_OF_RECORDS}")
    return names


def read_source(journal: Path, connection: sqlite3.Connection, identity: str | None = None) -> Source | None:
    """None: nothing was ever committed. `identity`: the journal's, if it is not to be read from there. Raises
    JournalDamaged."""
    record = read_record(journal, connection, identity)
    if record is None:
        return None
    source, gap = with_rows_above(connection, record)
    if gap:
        raise JournalDamaged(f"{journal} is damaged: {gap}; {REMEDY_OF_RECORDS}")
    return source


def with_rows_above(connection: sqlite3.Connection, record: Source) -> tuple[Source, str]:
    """The record of the last transaction, and the transactions of one row that came after it (`one_row.py`): they
    follow it one by one. And a sentence, if they do not: some are missing, and are counted."""
    epoch, idx = record.epoch, record.idx
    above = connection.execute(queries.ROWS_ABOVE, {"epoch": epoch, "idx": idx}).fetchall()
    count = len(above)
    fits = count < BEHIND_MAX and above == [(epoch, idx + n) for n in range(1, count + 1)]
    last = idx + count if fits else max([idx, *_likely(above, record)])
    last = max([last, *_likely(_last_row(connection), record)])
    fits = fits and last == idx + count
    gap = "" if fits else f"what came after transaction {idx}, whose record is the last one, is not all there"
    return record._replace(idx=last, rows=record.rows + last - idx, behind=last - idx), gap


def _likely(above: list[tuple[Any, ...]], record: Source) -> list[int]:
    """Of these (epoch, idx), which may be anything, those that can have been after the record."""
    return [
        idx
        for epoch, idx in above
        if epoch == record.epoch and type(idx) is int and 0 < idx - record.idx < BEHIND_MAX
    ]


def _last_row(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """(epoch, idx) of the row that was written last, as the table says it, if it is of the local source and whole.
    What was written of the index may have been lost."""
    try:
        found = connection.execute(queries.LAST_ROW).fetchall()
    except sqlite3.Error:
        return []  # what reads the row says that, and its queue alone stops
    return [
        (row[6], row[7])
        for *row, crc in found
        if row[5] == SOURCE
        and all(type(value) is int for value in (*row, crc))
        and crc >> checksums.HEAD_SHIFT == checksums.of_head(*row)
    ]


def read_record(journal: Path, connection: sqlite3.Connection, identity: str | None = None) -> Source | None:
    """As `read_source`, without what came after it was written."""
    found = connection.execute(queries.SOURCE).fetchall()
    if not found:
        (used,) = connection.execute(queries.USED).fetchone()
        if used:
            raise JournalDamaged(
                f"{journal} is damaged: the record of its last transaction is missing; {REMEDY_OF_RECORDS}"
            )
        return None
    if identity is None:
        identity = next((value for name, value, _ in connection.execute(queries.NAMES) if name == "identity"), "")
    others = []
    for row in reversed(found):
        said, (crc, rows, rows_check, settled, settled_check) = row[:7], row[7:]
        summed = (*said, str(identity))
        # SQLite returns what type a damaged record says.
        numbers = all(type(value) is int for value in (*said, crc, rows, rows_check, settled, settled_check))
        counted = numbers and rows == -rows_check >= 0 and settled == -settled_check >= 0
        if not counted or crc != checksums.of_source(*summed):
            raise JournalDamaged(f"{journal} is damaged: the record of its last transaction is; {REMEDY_OF_RECORDS}")
        others.append(said)
    local = others.pop()
    if local[0] != SOURCE or local[4]:
        raise JournalDamaged(
            f"{journal} is damaged: the record of its last transaction is missing; {REMEDY_OF_RECORDS}"
        )
    return Source(local[1], local[2], rows, settled, local[3], tuple(others))


def promise_of(journal: Path) -> tuple[Promise | None, str]:
    """(what was promised, why that is not known). Raises DiskFailure."""
    try:
        return read_mark(mark_path(journal)), ""
    except MarkDamaged as error:
        return None, str(error)
    except OSError as error:
        raise DiskFailure(f"{mark_path(journal)} cannot be read: {error.strerror or error}") from error


def make_mark(journal: Path, identity: str, index: int, *, by_calls: bool = False) -> Mark | None:
    """None on a full disk. `by_calls`: see `Mark`. Raises DiskFailure."""
    try:
        return Mark(mark_path(journal), identity, index, by_calls=by_calls)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return None
        raise DiskFailure(f"{mark_path(journal)} cannot be written: {error.strerror or error}") from error


def losses(journal: Path, identity: str, index: int, end: WalEnd, promise: Promise | None) -> list[str]:
    """What was confirmed and is not there: a sentence each."""
    if promise is not None and promise.identity != identity:
        return [f"{journal} is not the journal that {mark_path(journal).name} beside it belongs to: one was replaced"]
    if promise is not None and promise.number > index:
        reason = f"the log {wal_path(journal).name} is damaged: {end.damage}" if end.damage else ""
        if not reason and end.torn:
            reason = f"the end of {wal_path(journal).name} is damaged"
        return [
            f"{journal} ends at transaction {index}, and {promise.number} was confirmed: "
            + (reason or "it is an older copy, or its log was removed or cut short")
        ]
    if end.damage and not (promise is not None and promise.number == index):
        return [f"{wal_path(journal)}: {end.damage}; what it had behind transaction {index} is lost"]
    return []


def not_as_written(error: Exception) -> str:
    return f"a record is not of the types that were written ({error})"


def missing(journal: Path) -> str:
    return f"{journal} is missing, and {mark_path(journal).name} beside it says that messages were confirmed"


def check_shape(journal: Path, connection: sqlite3.Connection, end: WalEnd) -> None:
    """Facts of the file's header that SQLite goes by when it writes: what is wrong there makes it write over pages
    that are in use. Raises JournalDamaged."""
    (vacuum,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    size = journal.stat().st_size
    # With a log the file has its size only after the next checkpoint.
    if not end.frames and size != pages * page_bytes:
        raise JournalDamaged(
            f"{journal} is damaged: it has {size} bytes, and its header says {pages} pages of {page_bytes}; "
            + REMEDY_OF_RECORDS
        )
    if vacuum != AUTO_VACUUM_INCREMENTAL or page_bytes != PAGE_BYTES or not 0 <= free < pages:
        raise JournalDamaged(f"{journal} is damaged: its header is; {REMEDY_OF_RECORDS}")


def accept(journal: Path) -> list[str]:
    """Copy the log aside, because going on writes over it: where it is, a sentence. Raises DiskFailure."""
    try:
        return keep_log(journal)
    except OSError as error:
        raise DiskFailure(f"{wal_path(journal)} cannot be copied: {error.strerror or error}") from error
