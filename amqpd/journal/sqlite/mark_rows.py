"""The journal's table `operation_mark`: one record of each forwarder at each source; in memory, and put into it.

What comes in: changes of a transaction. What goes out: whole records; `Marks` for a leader.
Rules: 1. A record says which incarnations of the forwarder have ended, and of the one that lives its mark and the
outcomes that it has not heard. 2. Nothing changes in memory before it is on the disk (`put`). 3. What an entry
replaces or removes stands in `former_operation_mark` until the entry is committed. 4. Nobody without remote clients
has any, and makes no call for them.
Not here: bytes of outcomes (`mark_bytes.py`), what a transaction that is under way changes (`draft.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from amqpd.journal.operation_marks import FORWARDERS_MAX, OUTCOMES_MAX, MarkChange, Marks, OperationMark
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import checksums, entry_statements, queries
from amqpd.journal.sqlite.mark_bytes import RANGES_READ_MAX, BadMarks, pack_ranges, unpack_ranges
from amqpd.peers.entry import START, Position

Place = tuple[int, str]
"""source, forwarder"""
_NOTHING = OperationMark()


class MarkRow(NamedTuple):
    """The record of a forwarder at a source."""

    ended: int = 0
    """the last incarnation that has"""
    incarnation: int = 0
    """that lives; 0: none"""
    of: OperationMark = _NOTHING
    """of that one"""
    position: Position = START
    """the transaction that it is of"""

    def after(self, change: MarkChange, position: Position) -> MarkRow:
        """Without what is gone; as `Marks.apply`."""
        ended, incarnation, of = (0, 0, _NOTHING) if change.gone else self[:3]
        ended = max(ended, change.ended)
        if change.incarnation > max(ended, incarnation):
            ended, incarnation, of = max(ended, change.incarnation - 1), change.incarnation, _NOTHING
        if incarnation <= ended:
            incarnation, of = 0, _NOTHING
        elif incarnation == change.incarnation:
            of = of.after(change.mark, change.heard, change.ranges)
        return MarkRow(ended, incarnation, of, position)

    @property
    def is_empty(self) -> bool:
        """It says nothing."""
        return not (self.ended or self.incarnation)

    def columns(self) -> tuple[int, int, int, bytes]:
        """ended, incarnation, mark, outcomes."""
        return self.ended, self.incarnation, self.of.mark, pack_ranges(self.of.ranges)

    def require_bounded(self) -> None:
        """Raises BadMarks."""
        ranges = self.of.ranges
        if len(ranges) > RANGES_READ_MAX or sum(each.last - each.first + 1 for each in ranges) > OUTCOMES_MAX:
            raise BadMarks(f"{len(ranges)} ranges of outcomes that an edge has not heard")


class MarkRows:
    """The records of all forwarders at all sources of one journal, as they are on the disk."""

    def __init__(self, rows: Mapping[Place, MarkRow], formerly: Iterable[int] = ()) -> None:
        """`formerly`: sources of which more than these are on the disk, until that is committed."""
        self._sources: dict[int, dict[str, MarkRow]] = {source: {} for source in formerly}
        self.put(rows)

    def copied(self) -> MarkRows:
        """The same, of another disk."""
        rows = {(source, name): row for source, rows in self._sources.items() for name, row in rows.items()}
        return MarkRows(rows, self._sources)

    def has(self, source: int) -> bool:
        """There is, or was, something of it: former versions may be on the disk."""
        return source in self._sources

    def of(self, source: int) -> Mapping[str, MarkRow]:
        """By forwarder."""
        return self._sources.get(source, {})

    def put(self, rows: Mapping[Place, MarkRow | None]) -> None:
        """These are on the disk; None: there is none any more."""
        for (source, forwarder), row in rows.items():
            if row is None:
                self._sources.get(source, {}).pop(forwarder, None)
            else:
                self._sources.setdefault(source, {})[forwarder] = row


def changed(
    before: Mapping[str, MarkRow], source: int, changes: Iterable[MarkChange], position: Position, *, trusted: bool
) -> dict[Place, MarkRow | None]:
    """The records of the source after the changes of a transaction. Raises BadMarks for more than there may be,
    unless it is `trusted`."""
    rows: dict[Place, MarkRow | None] = {}
    for change in changes:
        row = before.get(change.forwarder, MarkRow()).after(change, position)
        rows[source, change.forwarder] = None if row.is_empty else row
        if not trusted:
            row.require_bounded()
    if not trusted and len(before.keys() | {forwarder for _, forwarder in rows}) > FORWARDERS_MAX:
        raise BadMarks(f"operation marks of more than {FORWARDERS_MAX} forwarders at source {source}")
    return rows


def marks_of(rows: Mapping[str, MarkRow]) -> Marks:
    """As a leader begins with them."""
    marks = Marks()
    for forwarder, row in rows.items():
        if row.ended:
            marks.ended[forwarder] = row.ended
        if row.incarnation:
            marks.marks[forwarder, row.incarnation] = row.of
    return marks


def put_rows(connection: sqlite3.Connection, rows: Mapping[Place, MarkRow | None]) -> None:
    """Raises sqlite3.Error."""
    put = []
    for (source, forwarder), row in rows.items():
        if row is not None:
            put.append(record_of(source, forwarder, row))
        else:
            connection.execute(entry_statements.DROP_OPERATION_MARK, (source, forwarder))
    connection.executemany(entry_statements.PUT_OPERATION_MARK, put)


def keep_former(
    connection: sqlite3.Connection,
    source: int,
    position: Position,
    before: Mapping[str, MarkRow],
    names: Iterable[str],
) -> None:
    """What an entry at this position writes over. Raises sqlite3.Error."""
    former = []
    for forwarder in names:
        row = before.get(forwarder)
        if row is not None:
            ended, incarnation, mark, outcomes = row.columns()
            said = (source, *position, forwarder, ended, incarnation, mark, *row.position, outcomes)
            former.append((*said, checksums.of_former_operation_mark(*said)))
    if former:
        connection.executemany(entry_statements.PUT_FORMER_OPERATION_MARK, former)


def record_of(source: int, forwarder: str, row: MarkRow) -> tuple[Any, ...]:
    """As the table has it."""
    ended, incarnation, mark, outcomes = row.columns()
    said = (source, forwarder, ended, incarnation, mark, *row.position, outcomes)
    return (*said, checksums.of_operation_mark(*said))


def row_of(record: tuple[Any, ...]) -> tuple[Place, MarkRow]:
    """Raises JournalDamaged."""
    *said, crc = record
    if checksums.of_operation_mark(*said) != crc:
        raise JournalDamaged(
            f"the record of the operations of {said[1]} at source {said[0]} does not fit its checksum"
        )
    source, forwarder, ended, incarnation, mark, epoch, idx, outcomes = said
    return (source, forwarder), _row(ended, incarnation, mark, outcomes, (epoch, idx))


def formers_of(connection: sqlite3.Connection, source: int, position: Position) -> list[tuple[str, MarkRow]]:
    """What entries of the source above this position replaced or removed, in their order. Raises JournalDamaged,
    sqlite3.Error."""
    given = {"source": source, "epoch": position[0], "idx": position[1]}
    found = []
    for record in connection.execute(queries.FORMER_OPERATION_MARKS_OF, given).fetchall():
        found.append(former_of(record))
    return found


def former_of(record: tuple[Any, ...]) -> tuple[str, MarkRow]:
    """Raises JournalDamaged."""
    *said, crc = record
    source, _, _, forwarder, ended, incarnation, mark, was_epoch, was_idx, outcomes = said
    if checksums.of_former_operation_mark(*said) != crc:
        raise JournalDamaged(
            f"the former record of the operations of {forwarder} at source {source} does not fit its checksum"
        )
    return forwarder, _row(ended, incarnation, mark, outcomes, (was_epoch, was_idx))


def _row(ended: int, incarnation: int, mark: int, outcomes: bytes, position: Position) -> MarkRow:
    try:
        return MarkRow(ended, incarnation, OperationMark(mark, unpack_ranges(outcomes)), position)
    except BadMarks as error:
        raise JournalDamaged(f"a record of operations is damaged: {error}") from error
