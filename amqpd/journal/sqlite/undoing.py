"""Takes back what a source has above one of its entries: the tail that another home's log replaces.

What comes in: the source, an (epoch, idx) that is not below what is committed. What goes out: a journal that is as if
nothing above that had ever come, except that sequence numbers stay reserved.
Rules: 1. By (epoch, idx), never by idx alone: a new epoch may begin with a smaller idx. 2. Records above it go; a
record that they replaced or removed comes back from `former`. Rows need no such version: none leaves the disk before
its settle is committed. 3. One transaction: all of it, or nothing. 4. `next_seq` of a queue never falls: numbers
whose rows left the disk are not given again.
Not here: which entry that is (log matching); what the queues make of it: the caller recovers them again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from amqpd.journal.records import JournalDamaged, Range
from amqpd.journal.sqlite import checksums, queries, statements, undo_statements
from amqpd.journal.sqlite.recovery import Found
from amqpd.journal.sqlite.schema import FORMER_MARK, FORMER_RETURNED
from amqpd.journal.sqlite.sources import Head, Held, Position

Former = tuple[int, ...]
"""of `queries.FORMER_OF`: kind, queue_id, one, two, was_epoch, was_idx"""


def undo(
    connection: sqlite3.Connection,
    head: Head,
    position: Position,
    identity: str,
    failed: Callable[[sqlite3.Error], Exception],
) -> Head:
    """The source's record after it. Raises ValueError for what is committed, JournalDamaged, what `failed` makes of
    sqlite3.Error."""
    if position > head.position or position < _base(head):
        raise ValueError(
            f"source {head.source} is at {head.position}, committed {_base(head)}: no undo to {position}"
        )
    new = Head(head.source, *position, head.reserved, head.replicated, head.committed)
    try:
        connection.execute("BEGIN IMMEDIATE")
        _undo(connection, new)
        connection.execute(statements.PUT_HEAD, new.parameters(identity))
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise failed(error) from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return new


def held_after(source: int, found: Found, before: list[Held]) -> list[Held]:
    """What waits to leave the disk after an undo, of which `found` is the index. Of the source whatever is settled
    there: nobody hands that in again. What other sources held they hold."""
    held = [each for each in found.held if each.source == source]
    held += [Held(source, upto, [Range(*part)]) for number, upto, part in found.dead if number == source]
    return held + [each for each in before if each.source != source]


def _base(head: Head) -> Position:
    return head.committed if head.replicated else head.position


def _undo(connection: sqlite3.Connection, new: Head) -> None:
    given = {"source": new.source, "epoch": new.epoch, "idx": new.idx}
    formers = _formers(connection, given)
    marks = _marks(connection, given, new, formers)
    connection.execute(undo_statements.UNDO_DEADLINES, given)
    rows = connection.execute(undo_statements.UNDO_ROWS, given).rowcount
    settled = connection.execute(undo_statements.UNDO_SETTLED, given).rowcount
    for statement in (undo_statements.UNDO_RETURNED, undo_statements.UNDO_DISCARDS, undo_statements.UNDO_MARKS):
        connection.execute(statement, given)
    for kind, queue_id, one, two, was_epoch, was_idx in formers:
        if kind == FORMER_MARK or (was_epoch, was_idx) > new.position:
            continue  # of the tail itself
        said = (queue_id, one, two, new.source, was_epoch, was_idx)
        if kind == FORMER_RETURNED:
            connection.execute(undo_statements.PUT_RETURNED, (*said, checksums.of_returned(*said)))
        else:
            connection.execute(undo_statements.PUT_SETTLED, (*said, checksums.of_settled(*said)))
            settled -= 1
    for mark in marks:
        connection.execute(undo_statements.PUT_MARK, (*mark, checksums.of_mark(*mark)))
    connection.execute(undo_statements.UNDO_FORMER, given)
    # What is committed is in the source's record then: no later transaction would write it, and forget these.
    epoch, idx = new.committed
    connection.execute(undo_statements.FORGET_FORMER, {"source": new.source, "epoch": epoch, "idx": idx})
    connection.execute(undo_statements.UNCOUNT, {"rows": rows, "settled": settled})


def _formers(connection: sqlite3.Connection, given: dict[str, int]) -> list[Former]:
    """What entries above it replaced or removed. Raises JournalDamaged."""
    formers = []
    for *said, crc in connection.execute(queries.FORMER_OF, given).fetchall():
        if checksums.of_former(*said) != crc:
            raise JournalDamaged(f"the former version of a record of queue {said[4]} does not fit its checksum")
        formers.append(tuple(said[3:]))
    return formers


def _marks(
    connection: sqlite3.Connection, given: dict[str, int], new: Head, formers: list[Former]
) -> list[tuple[int, ...]]:
    """The records of `queue` in place of those that go, with rule 4."""
    ends: dict[int, int] = {}
    found: dict[int, tuple[int, int, int]] = {}
    for queue_id, next_seq in connection.execute(queries.MARKS_ABOVE, given).fetchall():
        ends[queue_id] = next_seq
    for kind, queue_id, next_seq, delivered, was_epoch, was_idx in formers:
        if kind == FORMER_MARK:
            ends[queue_id] = max(ends.get(queue_id, 0), next_seq)
            if (was_epoch, was_idx) <= new.position:
                found[queue_id] = delivered, was_epoch, was_idx
    return [
        (queue_id, end, delivered, new.source, epoch, idx)
        for queue_id, end in ends.items()
        for delivered, epoch, idx in [found.get(queue_id, (-1, 0, 0))]
        if end or queue_id in found
    ]
