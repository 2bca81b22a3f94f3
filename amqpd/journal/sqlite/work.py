"""What one write to the journal does, and how SQLite takes it in.

What comes in: a transaction of a node without peers, or `Work` from elsewhere, with what is to be deleted. What goes
out: the journal, changed in one transaction.
Rules: 1. A node without peers pays for nothing that only others need: its transactions are made here, by themselves.
2. Nothing is changed in memory here.
Not here: transactions of several sources (`entries.py`), what happens after a failure (`disk.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from amqpd.journal.records import Transaction
from amqpd.journal.sqlite import checksums, statements
from amqpd.journal.sqlite.discards import Discard, Discards, Piece
from amqpd.journal.sqlite.intake import Part, chunks, listed, split
from amqpd.journal.sqlite.queue_marks import Mark, QueueMarks, records
from amqpd.journal.sqlite.schema import SEQ_MAX, SOURCE
from amqpd.journal.sqlite.sources import Head, Held


@dataclass(slots=True)
class Work:
    """What one write does, beside what it deletes."""

    head: Head
    """of the local source, as it is then"""
    parts: list[Part] = field(default_factory=list)
    lists: dict[str, list[Any]] = field(default_factory=dict)
    marks: dict[int, Mark] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    begun: list[Discard] = field(default_factory=list)
    heads: list[Head] = field(default_factory=list)
    """of other sources"""
    held: list[Held] = field(default_factory=list)
    """what the transaction wants to delete and may not yet"""
    released: list[Held] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    """queues with counts of returned messages"""
    of_sources: bool = False

    @property
    def rows(self) -> int:
        return sum([len(part.rows) for part in self.parts])

    @property
    def nbytes(self) -> int:
        return sum([len(row.data) + len(row.deadlines) for part in self.parts for row in part.rows])

    @property
    def dirty_pages(self) -> int:
        """A row dirties a page of the table and one of the index; 8 are dirty always."""
        return 8 + sum([3 if row.deadlines else 2 for part in self.parts for row in part.rows])


def plain_work(
    transaction: Transaction, local: Head, discards: Discards, marks: QueueMarks
) -> tuple[Work, list[tuple[int, int, int]]]:
    """Of a journal of which no source is replicated; (queue_id, first_seq, last_seq) of what it deletes itself."""
    index, epoch, rows = transaction.index, local.epoch, transaction.rows
    of = SOURCE, epoch, index
    now, later = split(transaction.deletes, len(rows))
    raised = [(queue_id, 0, below) for queue_id, below in transaction.delivered.items()]
    raised += [(item.queue_id, item.last_seq + 1, -1) for item in (*now, *later)]
    work = Work(local.at((epoch, index), transaction.reserved), [Part(rows, *of)])
    work.begun = discards.numbered(
        [(item.queue_id, item.first_seq, item.last_seq, *of) for item in later]
        + [(queue_id, 0, SEQ_MAX, *of) for queue_id in transaction.dropped]
    )
    work.counted = [queue_id for queue_id, *_ in transaction.counts]
    work.marks = marks.raised(raised, *of)
    work.dropped = transaction.dropped
    settled = [(item.queue_id, item.first_seq, item.last_seq) for item in transaction.settled]
    begun = checksums.seed(checksums.SETTLED, SOURCE, epoch)
    returned = checksums.seed(checksums.RETURNED, SOURCE, epoch)
    work.lists = {
        "returned": [(*item, checksums.returned_sum(returned, *item, index)) for item in transaction.counts],
        "settled": [(*item, checksums.settled_sum(begun, *item, index)) for item in settled],
        "settled_again": discards.of_queues(settled),
        "marks": records(work.marks, False),
        "dropped": [(queue_id,) for queue_id in transaction.dropped],
    }
    return work, [(item.queue_id, item.first_seq, item.last_seq) for item in now]


def write(
    connection: sqlite3.Connection, work: Work, piece: Piece, timed: set[int], counted: set[int], identity: str
) -> None:
    """`timed`, `counted`: queues that may have deadlines, and counts of returned messages. Raises sqlite3.Error; a
    transaction may be open then."""
    head = work.head
    upto = head.position
    last: dict[str, Any] = {
        "deletes": listed(piece.deletes),
        "row_discards": listed(piece.row_discards),
        "settled_discards": listed(piece.settled_discards),
        "discarded": listed(piece.discarded),
        **{name: listed(items) for name, items in work.lists.items()},
    }
    if timed:
        now = [(*item, *upto) for item in piece.deletes]
        last["deadline_deletes"] = listed(_among(timed, [*now, *piece.row_discards]))
    if counted:
        again = [(*item, item[2], *upto) for item in piece.deletes]
        last["returned_deletes"] = listed(_among(counted, [*again, *piece.settled_discards]))
    given: dict[str, Any] = dict.fromkeys((*statements.LISTS, *statements.RARE_LISTS, *statements.SOURCES_LISTS))
    given.update(epoch=head.epoch, idx=head.idx, reserved=head.reserved)
    given["source_crc"] = head.record(identity)[-1]
    parts = chunks(work.parts, work.of_sources)
    part = next(parts).taken_in()
    for following in parts:
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        _take_in(connection, {**given, **part}, work.of_sources)
        part = following.taken_in()
    _take_in(connection, {**given, **last, **part}, work.of_sources)
    if connection.in_transaction:
        connection.execute("COMMIT")


def _take_in(connection: sqlite3.Connection, given: dict[str, Any], of_sources: bool) -> None:
    if of_sources:
        connection.execute(statements.COMMIT_OF_SOURCES, given)
    else:
        rare = any(map(given.get, statements.RARE_LISTS))
        connection.execute(statements.COMMIT_WITH_RARE if rare else statements.COMMIT, given)


def _among(queues: set[int], items: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [item for item in items if item[0] in queues]
