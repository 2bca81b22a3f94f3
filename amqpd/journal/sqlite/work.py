"""What one write to the journal does, and how SQLite takes it in.

What comes in: what a transaction has of the local source, and what is to be deleted. What goes out: the journal,
changed; the transaction that was begun before, if one was, is ended with it.
Rules: 1. A node without replicas pays for nothing that only others need. An empty list costs no call. 2. Nothing is
changed in memory here.
Not here: other sources (`entries.py`), what happens after a failure (`disk.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from amqpd.journal.sqlite import checksums, statements
from amqpd.journal.sqlite.database import put_names
from amqpd.journal.sqlite.discards import Discard, Discards, Piece
from amqpd.journal.sqlite.mark_rows import MarkRow, MarkRows, Place, changed, put_rows
from amqpd.journal.sqlite.queue_marks import Mark, QueueMarks
from amqpd.journal.sqlite.schema import PAGE_BYTES, SEQ_MAX, SOURCE
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.journal.sqlite.statement_parameters import Part, chunks, listed, split
from amqpd.journal.transaction import JournalTransaction

PAGES_ALWAYS = 8
"""that a transaction changes; a row changes a page of the table and one of the index."""
_NOTHING: dict[str, Any] = dict.fromkeys((*statements.LISTS, *statements.RARE_LISTS, "numbers", "data", "inserted"))


@dataclass(slots=True)
class Work:
    """The work of one write to the journal, beside what it deletes."""

    head: SourceHead
    """of the local source, as it is then"""
    parts: list[Part] = field(default_factory=list)
    lists: dict[str, list[Any]] = field(default_factory=dict)
    marks: dict[int, Mark] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    begun: list[Discard] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    """queues with counts of returned messages"""
    operations: dict[Place, MarkRow | None] = field(default_factory=dict)
    """what is said of the operations of edges; None: nothing any more"""
    behind: int = 0
    """rows that the record of the local source does not count yet, of earlier transactions"""

    @property
    def rows(self) -> int:
        """How many come in."""
        return sum([len(part[0]) for part in self.parts])

    @property
    def nbytes(self) -> int:
        """Of their bodies and deadlines."""
        return sum([len(row.data) + len(row.deadlines) for part in self.parts for row in part[0]])


def plain_work(
    transaction: JournalTransaction, local: SourceHead, discards: Discards, marks: QueueMarks, operations: MarkRows
) -> tuple[Work, list[tuple[int, int, int]]]:
    """What it has of the local source; (queue_id, first_seq, last_seq) of what it deletes itself."""
    index, epoch, rows, dropped = transaction.index, local.epoch, transaction.rows, transaction.dropped
    work = Work(SourceHead(SOURCE, epoch, index), [(rows, SOURCE, epoch, index)])
    lists = work.lists
    raised: list[tuple[int, int, int]] = []
    for queue_id, below in transaction.delivered.items():
        raised.append((queue_id, 0, below))
    deleted: list[tuple[int, int, int]] = []
    ends: list[tuple[int, int, int, int, int, int]] = []
    if transaction.deletes:
        now, later = split(transaction.deletes, len(rows))
        for item in now:
            deleted.append((item.queue_id, item.first_seq, item.last_seq))
            raised.append((item.queue_id, item.last_seq + 1, -1))
        for item in later:
            ends.append((item.queue_id, item.first_seq, item.last_seq, SOURCE, epoch, index))
            raised.append((item.queue_id, item.last_seq + 1, -1))
    if dropped:
        ends += [(queue_id, 0, SEQ_MAX, SOURCE, epoch, index) for queue_id in dropped]
        work.dropped = dropped
        lists["dropped"] = [(queue_id,) for queue_id in dropped]
    if ends:
        work.begun = discards.numbered(ends)
    if raised:
        work.marks = marks.raised(raised, SOURCE, epoch, index)
        said: list[tuple[int, int, int]] = []
        for queue_id, mark in work.marks.items():
            said.append((queue_id, mark[0], mark[1]))
        lists["marks"] = checksums.four_summed(checksums.seed(checksums.MARK, SOURCE, epoch), said, index)
    if transaction.settled:
        settled: list[tuple[int, int, int]] = []
        for item in transaction.settled:
            settled.append((item.queue_id, item.first_seq, item.last_seq))
        lists["settled"] = checksums.four_summed(checksums.seed(checksums.SETTLED, SOURCE, epoch), settled, index)
        if discards.pending:
            lists["settled_again"] = discards.of_queues(settled)
    if transaction.counts:
        begun = checksums.seed(checksums.RETURNED, SOURCE, epoch)
        lists["returned"] = checksums.four_summed(begun, transaction.counts, index)
        work.counted = [queue_id for queue_id, *_ in transaction.counts]
    if transaction.marks:
        before, position = operations.of(SOURCE), (epoch, index)
        work.operations = changed(before, SOURCE, transaction.marks, position, trusted=True)
    return work, deleted


def write(
    connection: sqlite3.Connection,
    work: Work,
    piece: Piece,
    timed: set[int],
    counted: set[int],
    names: dict[str, str],
    noted: dict[str, str],
) -> tuple[int, int]:
    """(about how many pages it changed, bytes of bodies). `timed`, `counted`: queues that may have deadlines, and
    counts of returned messages; `names`: of the journal; `noted`: names to be written with it. A transaction may be
    open before. Raises sqlite3.Error; one may be open then."""
    head, pages, nbytes = work.head, PAGES_ALWAYS, 0
    if noted:
        put_names(connection, noted)
    if work.operations:
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        put_rows(connection, work.operations)
        pages += len(work.operations)
    given: dict[str, Any] = _NOTHING.copy()
    given["epoch"], given["idx"] = head.epoch, head.idx
    given["source_crc"] = head.record(names["identity"])[-1]
    made = chunks(work.parts)
    chunk = next(made)
    pages += 2 * chunk.rows + len(chunk.deadlines)
    nbytes += len(chunk.data)
    chunk.take_in(given)
    given["inserted"] += work.behind
    for following in made:
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        connection.execute(_statement(given), given)
        pages += 2 * following.rows + len(following.deadlines)
        nbytes += len(following.data)
        following.take_in(given)
    _take_in(given, work, piece, timed, counted)
    connection.execute(_statement(given), given)
    if connection.in_transaction:
        connection.execute("COMMIT")
    # Freed bodies dirty 1 page of the free list and 1 of the map for some hundred of theirs.
    pages += len(piece.deletes) + len(piece.row_discards) + piece.nbytes // (100 * PAGE_BYTES)
    return pages, nbytes


def _take_in(given: dict[str, Any], work: Work, piece: Piece, timed: set[int], counted: set[int]) -> None:
    """What is not rows comes with the last of them."""
    for name, items in work.lists.items():
        if items:
            given[name] = listed(items)
    if work.begun:
        given["discards"] = listed([(*discard, checksums.of_discard(*discard)) for discard in work.begun])
    if piece.deletes:
        given["deletes"] = listed(piece.deletes)
    if piece.row_discards or piece.settled_discards or piece.discarded:
        given["row_discards"] = listed(piece.row_discards)
        given["settled_discards"] = listed(piece.settled_discards)
        given["discarded"] = listed(piece.discarded)
    upto = work.head.epoch, work.head.idx
    if timed:
        now = [(*item, *upto) for item in piece.deletes]
        given["deadline_deletes"] = listed(_among(timed, [*now, *piece.row_discards]))
    if counted:
        again = [(*item, item[2], *upto) for item in piece.deletes]
        given["returned_deletes"] = listed(_among(counted, [*again, *piece.settled_discards]))


def _statement(given: dict[str, Any]) -> str:
    return statements.COMMIT_WITH_RARE if any(map(given.get, statements.RARE_LISTS)) else statements.COMMIT


def _among(queues: Collection[int], items: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [item for item in items if item[0] in queues]
