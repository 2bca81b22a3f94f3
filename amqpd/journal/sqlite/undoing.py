"""Takes back what a source has above one of its entries: the tail that another leader's log replaces.

What comes in: the source, an (epoch, idx) that is not below what is committed, inside a transaction. What goes out: a
journal that is as if nothing above that had ever come, except that sequence numbers stay reserved.
Rules: 1. By (epoch, idx), never by idx alone: a new epoch may begin with a smaller idx. 2. Records above it go; a
record that they replaced or removed comes back from `former`, or `former_operation_mark`. Rows and settled records
need no such version: no row leaves the disk before its settle is committed. 3. `next_seq` of a queue never falls:
numbers whose rows left the disk are not given again. 4. What a queue's leader makes of it is not seen to here: a
leader does not undo.
Not here: which entry that is (`amqpd.replication.log`).
"""

from __future__ import annotations

import sqlite3

from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import checksums, entry_statements, queries
from amqpd.journal.sqlite.draft import Draft
from amqpd.journal.sqlite.mark_rows import MarkRow, Place, formers_of, put_rows
from amqpd.journal.sqlite.queue_marks import Mark
from amqpd.journal.sqlite.schema import FORMER_MARK
from amqpd.peers.entry import Position

Former = tuple[int, ...]
"""of `queries.FORMER_OF`: kind, queue_id, one, two, was_epoch, was_idx"""


def undo(
    connection: sqlite3.Connection, draft: Draft, source: int, position: Position, staged_from: int | None = None
) -> None:
    """`staged_from`: the first row of what is to take the place of what is undone. Raises ValueError for what is
    committed, unless that is so, JournalDamaged, sqlite3.Error."""
    draft.undo(source, position, replaced=staged_from is not None)
    given = {"source": source, "epoch": position[0], "idx": position[1]}
    formers = _formers(connection, given)
    marks = _marks(connection, given, source, position, formers)
    rows = _undo_rows(connection, given, staged_from)
    settled = connection.execute(entry_statements.UNDO_SETTLED, given).rowcount
    for statement in (
        entry_statements.UNDO_RETURNED,
        entry_statements.UNDO_DISCARDS,
        entry_statements.UNDO_MARKS,
        entry_statements.UNDO_FORMER,
        entry_statements.UNDO_TAIL,
    ):
        connection.execute(statement, given)
    for kind, queue_id, seq, count, was_epoch, was_idx in formers:
        if kind != FORMER_MARK and (was_epoch, was_idx) <= position:  # else it is of the tail itself
            said = (queue_id, seq, count, source, was_epoch, was_idx)
            connection.execute(entry_statements.PUT_RETURNED, (*said, checksums.of_returned(*said)))
    for queue_id, mark in marks.items():
        if mark is not None:
            said = (queue_id, *mark)
            connection.execute(entry_statements.PUT_MARK, (*said, checksums.of_mark(*said)))
    _undo_operations(connection, draft, source, position)
    connection.execute(entry_statements.UNCOUNT, {"rows": rows, "settled": settled})
    draft.marks |= marks


def _undo_operations(connection: sqlite3.Connection, draft: Draft, source: int, position: Position) -> None:
    """What was said of the operations of edges above that."""
    given = {"source": source, "epoch": position[0], "idx": position[1]}
    rows: dict[Place, MarkRow | None] = {
        (source, forwarder): None for forwarder, row in draft.operations(source).items() if row.position > position
    }
    for forwarder, row in formers_of(connection, source, position):
        if row.position <= position:
            rows[source, forwarder] = row
    connection.execute(entry_statements.UNDO_OPERATION_MARKS, given)
    connection.execute(entry_statements.UNDO_FORMER_OPERATION_MARKS, given)
    put_rows(connection, {place: row for place, row in rows.items() if row is not None})
    draft.operation_rows |= rows


def _undo_rows(connection: sqlite3.Connection, given: dict[str, int], staged_from: int | None) -> int:
    """How many there were."""
    if staged_from is not None:
        given = given | {"below_row": staged_from}
        connection.execute(entry_statements.REPLACE_DEADLINES, given)
        return connection.execute(entry_statements.REPLACE_ROWS, given).rowcount
    places = [
        {"source": given["source"], "first_row": first, "last_row": first + rows - 1}
        for first, rows in connection.execute(entry_statements.UNDONE, given).fetchall()
        if rows
    ]
    if not places:
        return 0
    connection.executemany(entry_statements.UNDO_DEADLINES, places)
    return connection.executemany(entry_statements.UNDO_ROWS, places).rowcount


def _formers(connection: sqlite3.Connection, given: dict[str, int]) -> list[Former]:
    """What entries above it replaced or removed. Raises JournalDamaged."""
    formers = []
    for *said, crc in connection.execute(queries.FORMER_OF, given).fetchall():
        if checksums.of_former(*said) != crc:
            raise JournalDamaged(f"the former version of a record of queue {said[4]} does not fit its checksum")
        formers.append(tuple(said[3:]))
    return formers


def _marks(
    connection: sqlite3.Connection, given: dict[str, int], source: int, position: Position, formers: list[Former]
) -> dict[int, Mark | None]:
    """The records of `queue` in place of those that go, with rule 3; None: there is none."""
    ends: dict[int, int] = {}
    found: dict[int, tuple[int, int, int]] = {}
    for queue_id, next_seq in connection.execute(queries.MARKS_ABOVE, given).fetchall():
        ends[queue_id] = next_seq
    for kind, queue_id, next_seq, delivered, was_epoch, was_idx in formers:
        if kind == FORMER_MARK:
            ends[queue_id] = max(ends.get(queue_id, 0), next_seq)
            if (was_epoch, was_idx) <= position:
                found[queue_id] = delivered, was_epoch, was_idx
    marks: dict[int, Mark | None] = {}
    for queue_id, end in ends.items():
        delivered, epoch, idx = found.get(queue_id, (-1, 0, 0))
        marks[queue_id] = (end, delivered, source, epoch, idx) if end or queue_id in found else None
    return marks
