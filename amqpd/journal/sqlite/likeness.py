"""Makes the tables of one journal those of another: what differs is written, and nothing else is.

What comes in: a connection that holds a read transaction on the one, and one that may write the other. What goes out:
the other one, with the same records.
Rules: 1. Both are compared by their indexes, in steps of some hundred records: no body is read that both have, since
each record has a checksum of all that it says. A body that is copied is held against it; one that is damaged is taken
from elsewhere, if it is whole there, and is copied as it is if not. 2. `batch_id`s are kept: other records name them.
3. In one transaction, if that is wanted; else in several of bounded size, and what is in between is no journal.
Not here: what is known of it in memory (`adoption.py`), who wants that (`amqpd.datadir.disks`).
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import LargeBinary, Table

from amqpd.journal.records import JournalDamaged, Row
from amqpd.journal.sqlite import checksums, schema
from amqpd.journal.sqlite.statement_parameters import checksum

STEP_ROWS = 500
"""Compared at a time."""
STEP_BYTES = 4 << 20
"""Of bodies, read and written at a time."""
COMMIT_BYTES = 16 << 20
"""After which a copy that is not one transaction commits."""
DEADLINE_BYTES = 24
"""Of one message that has a deadline of its own (`records.Row`)."""
DEADLINES_BYTES_MAX = 128 << 20
"""Of one record: far more than the messages of one have."""
RECORD_BYTES = 100
"""Of a record without bodies."""

Key = tuple[Any, ...]
Elsewhere = Callable[[int, int, int], Iterator[bytes]]
_COLUMNS = [column.name for column in schema.batch.columns]
_DATA = _COLUMNS.index("data")


class Likeness:
    """One copy of the tables of a journal to those of another."""

    def __init__(
        self,
        source: sqlite3.Connection,
        target: sqlite3.Connection,
        goes_on: Callable[[], None],
        *,
        whole: bool,
        elsewhere: Elsewhere = lambda queue_id, first_seq, last_seq: iter(()),
    ) -> None:
        """`goes_on`: called before each step; raises to end the copy. `whole`: in one transaction. `elsewhere`: gives
        the bodies of these messages that others have."""
        self._elsewhere = elsewhere
        self._source = source
        self._target = target
        self._goes_on = goes_on
        self._whole = whole
        self._uncommitted = 0
        self.written = self.removed = self.mended = 0
        """records; of those that were written, how many had a body from elsewhere"""
        self.nbytes = 0
        """of what was written"""

    def make(self) -> None:
        """Raises sqlite3.Error, JournalDamaged, and what `goes_on` raises; the open transaction is rolled back
        then."""
        try:
            self._target.execute("BEGIN IMMEDIATE")
            for table in schema.metadata.sorted_tables:
                self._table(table)
            self._target.execute("COMMIT")
        except BaseException:
            if self._target.in_transaction:
                self._target.execute("ROLLBACK")
            raise

    def _table(self, table: Table) -> None:
        compared = _Compared(table)
        after: Key | None = None
        while True:
            self._goes_on()
            ours, theirs = compared.some(self._source, after), compared.some(self._target, after)
            # Only up to where both were read: what is behind that may be in the next step of the other.
            ends = [rows[-1] for rows in (ours, theirs) if len(rows) == STEP_ROWS]
            until = min(map(compared.key, ends)) if ends else None
            wanted = _upto(ours, until, compared.key)
            there = _upto(theirs, until, compared.key)
            self._remove(compared, [row for row in there if row not in wanted])
            self._write(compared, [row for row in wanted if row not in there])
            if until is None:
                return
            after = until

    def _remove(self, compared: _Compared, rows: list[Key]) -> None:
        if rows:
            self._target.executemany(compared.delete, rows)
            self._wrote(len(rows) * RECORD_BYTES)
            self.removed += len(rows)

    def _write(self, compared: _Compared, rows: list[Key]) -> None:
        for some in _parts(rows, compared.body_bytes):
            self._goes_on()
            found = [self._record(compared, row) for row in some]
            if compared.by_index:
                found = list(map(self._sound, found))
            self._target.executemany(compared.insert, found)
            self.written += len(some)
            self._wrote(sum(compared.body_bytes(row) for row in some) + len(some) * RECORD_BYTES)

    def _record(self, compared: _Compared, row: Key) -> Key:
        """All of it."""
        found: Key | None = self._source.execute(compared.read, compared.primary(row)).fetchone()
        if found is None:
            raise JournalDamaged(f"the disk that is copied is damaged (an index of {compared.name} has a row more)")
        return found

    def _sound(self, record: Key) -> Key:
        """A record of messages, with a body that fits its checksum if anybody has it."""
        if _fits(record, record[_DATA]):
            return record
        queue_id, first_seq, last_seq = record[1:4]
        for data in self._elsewhere(queue_id, first_seq, last_seq):
            if _fits(record, data):
                self.mended += 1
                return (*record[:_DATA], data)
        return record

    def _wrote(self, nbytes: int) -> None:
        self.nbytes += nbytes
        self._uncommitted += nbytes
        if not self._whole and self._uncommitted >= COMMIT_BYTES:
            self._target.execute("COMMIT")
            self._target.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._target.execute("BEGIN IMMEDIATE")
            self._uncommitted = 0


class _Compared:
    """A table that is compared: it is walked through by an index that has all of it except bodies."""

    def __init__(self, table: Table) -> None:
        self.name = table.name
        names = [column.name for column in table.columns]
        small = [column.name for column in table.columns if not isinstance(column.type, LargeBinary)]
        primary = [column.name for column in table.primary_key]
        # Rows of messages by their index, which has all that is compared: their pages are full of bodies.
        self.by_index = by_index = table is schema.batch
        if by_index:
            (index,) = table.indexes
            small = [*(column.name for column in index.columns), *primary]
        order = small if by_index else primary
        self._key_length = len(order)
        rest = [name for name in small if name not in order]
        shown = [*order, *rest]
        self._primary = [shown.index(name) for name in primary]
        self._bytes_at = [shown.index(name) for name in ("nbytes", "deadline_bytes") if name in shown]
        columns, marks = ", ".join(order), ", ".join("?" * len(order))
        select = f"SELECT {', '.join(shown)} FROM {table.name}"
        end = f"ORDER BY {columns} LIMIT {STEP_ROWS}"
        self._first = f"{select} {end}"
        self._after = f"{select} WHERE ({columns}) > ({marks}) {end}"
        where = " AND ".join(f"{name} = ?" for name in primary)
        self.read = f"SELECT {', '.join(names)} FROM {table.name} WHERE {where}"
        self.insert = (
            f"INSERT OR REPLACE INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        )
        # All of it: another record may have its key by now.
        self.delete = f"DELETE FROM {table.name} WHERE {' AND '.join(f'{name} = ?' for name in shown)}"

    def some(self, connection: sqlite3.Connection, after: Key | None) -> list[Key]:
        """The next ones, in order."""
        if after is None:
            return connection.execute(self._first).fetchall()
        return connection.execute(self._after, after).fetchall()

    def key(self, row: Key) -> Key:
        """What the order is by."""
        return row[: self._key_length]

    def primary(self, row: Key) -> Key:
        return tuple(row[at] for at in self._primary)

    def body_bytes(self, row: Key) -> int:
        return sum(row[at] for at in self._bytes_at)


def _fits(record: Key, data: object) -> bool:
    """This body, to the record."""
    if not isinstance(data, bytes):
        return False
    said = dict(zip(_COLUMNS, record, strict=True))
    try:
        most = DEADLINE_BYTES * (said["last_seq"] - said["first_seq"] + 1)
        if not 0 <= said["deadline_bytes"] <= min(most, DEADLINES_BYTES_MAX):
            return False  # so much memory is taken for them
        row = Row(
            said["queue_id"],
            said["first_seq"],
            said["last_seq"],
            data,
            bool(said["persistent"]),
            said["body_bytes"],
            said["published_ms"],
            bytes(said["deadline_bytes"]),
        )
        return bool(len(data) == said["nbytes"] and checksum(row) == said["crc"] & checksums.BODY_MASK)
    except (struct.error, TypeError, ValueError, OverflowError):
        return False  # what the record says is damaged itself


def _upto(rows: Sequence[Key], until: Key | None, key: Callable[[Key], Key]) -> dict[Key, None]:
    """Those that are not behind it, in their order."""
    return dict.fromkeys(row for row in rows if until is None or key(row) <= until)


def _parts(rows: list[Key], nbytes: Callable[[Key], int]) -> Iterator[list[Key]]:
    """Each with not more than `STEP_BYTES` of bodies, or one row."""
    part: list[Key] = []
    size = 0
    for row in rows:
        if part and size + nbytes(row) > STEP_BYTES:
            yield part
            part, size = [], 0
        part.append(row)
        size += nbytes(row)
    if part:
        yield part
