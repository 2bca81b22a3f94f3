"""A transaction of several sources, or of a journal with a replicated one, in the shape in which SQLite takes it in.

What comes in: a transaction; how far the sources are; what the records that it replaces say now. What goes out:
`Work` for `statements.COMMIT_OF_SOURCES`.
Rules: 1. What is deleted is committed: the rest waits (`sources.Held`). 2. Of a record of a replicated source that is
replaced or removed, the former version is kept until that is committed. 3. Nothing is changed here: `disk.py` does
that, when all is on the disk.
Not here: the transactions of a node without replicas, which have no such work (`disk.py`), the undo (`undoing.py`).
"""

from __future__ import annotations

import sqlite3
from typing import Any

from amqpd.journal.records import SourceEntry
from amqpd.journal.sqlite import checksums, queries
from amqpd.journal.sqlite.discards import Discards, Piece
from amqpd.journal.sqlite.intake import INLINE_RANGES_MAX, listed, split
from amqpd.journal.sqlite.queue_marks import QueueMarks, records
from amqpd.journal.sqlite.recovery import Found
from amqpd.journal.sqlite.schema import FORMER_MARK, FORMER_RETURNED, FORMER_SETTLED, SEQ_MAX, SOURCE
from amqpd.journal.sqlite.sources import Head, Held, Sources
from amqpd.journal.sqlite.work import Work
from amqpd.journal.transaction import Transaction


def work_of(
    transaction: Transaction | None,
    sources: Sources,
    discards: Discards,
    marks: QueueMarks,
    connection: sqlite3.Connection,
    identity: str,
) -> tuple[Work, Piece]:
    """`transaction`: None for housekeeping. Raises ValueError for entries that do not follow, sqlite3.Error."""
    local = sources.local
    work = Work(local, of_sources=True)
    piece = Piece()
    lists: dict[str, list[Any]] = {"settled": [], "settled_again": [], "returned": [], "former": []}
    lists["heads"] = heads = []
    if transaction is not None:
        work.head = local.at((local.epoch, transaction.index))
        entries = [_local(transaction, local.epoch), *transaction.entries]
        _check(transaction.entries, sources)
        ranges: list[tuple[int, ...]] = []
        for entry in entries:
            ranges += _take_in(entry, work, lists, sources, discards, marks, connection)
    else:
        ranges = []
    unwritten = {head.source: head for head in sources.unwritten()}
    for head in work.heads:
        unwritten.pop(head.source, None)
    work.heads += unwritten.values()
    heads += [head.record(identity) for head in work.heads]
    lists["committed"] = [(head.source, *head.committed) for head in work.heads if head.replicated]
    work.released = sources.releasable(work.held, INLINE_RANGES_MAX)
    for held in work.released:
        now, later = split(held.ranges, len(piece.row_discards) + work.rows)
        piece.add(now, *held.position)
        ranges += [(item.queue_id, item.first_seq, item.last_seq, held.source, *held.position) for item in later]
        marks.kept(work.marks, held.source, [(item.queue_id, item.last_seq) for item in held.ranges])
    for queue_id in work.dropped:
        work.marks.pop(queue_id, None)
    work.begun = discards.numbered(ranges)  # type: ignore[arg-type]
    lists["marks"] = records(work.marks)
    lists["dropped"] = [(queue_id,) for queue_id in work.dropped]
    work.lists = lists
    return work, piece


def work_of_dead(found: Found, local: Head, discards: Discards, marks: QueueMarks) -> tuple[Work, Piece]:
    """What recovery found dead becomes discards."""
    work, piece = Work(local, of_sources=True), Piece()
    work.begun = discards.numbered([(*item, source, *upto) for source, upto, item in found.dead])
    for source, _, (queue_id, _, last) in found.dead:
        marks.kept(work.marks, source, [(queue_id, last)])
    for _, upto, (queue_id, first, last) in found.orphans:
        piece.settled_discards.append((queue_id, first, first, last, *upto))
    work.lists["marks"] = records(work.marks)
    return work, piece


def _local(transaction: Transaction, epoch: int) -> SourceEntry:
    of = transaction
    return SourceEntry(SOURCE, epoch, of.index, of.rows, of.settled, of.deletes, of.delivered, of.counts, of.dropped)


def _check(entries: list[SourceEntry], sources: Sources) -> None:
    seen = {SOURCE}
    for entry in entries:
        head = sources.head(entry.source)
        if entry.source in seen or (entry.epoch, entry.idx) <= head.position:
            raise ValueError(
                f"entry {entry.epoch, entry.idx} of source {entry.source} does not follow {head.position}"
            )
        seen.add(entry.source)


def _take_in(
    entry: SourceEntry,
    work: Work,
    lists: dict[str, list[Any]],
    sources: Sources,
    discards: Discards,
    marks: QueueMarks,
    connection: sqlite3.Connection,
) -> list[tuple[int, ...]]:
    """What it begins to discard: (queue_id, first_seq, last_seq, source, epoch, idx)."""
    source, epoch, idx = of = entry.source, entry.epoch, entry.idx
    head = sources.head(source)
    if source != SOURCE:
        work.heads.append(head.at((epoch, idx), entry.reserved))
    work.parts.append((entry.rows, *of))
    settled = [(item.queue_id, item.first_seq, item.last_seq) for item in entry.settled]
    begun = checksums.seed(checksums.SETTLED, source, epoch)
    lists["settled"] += [(*item, *of) for item in checksums.four_summed(begun, settled, idx)]
    again = discards.of_queues(settled)
    lists["settled_again"] += again
    counts = {(queue_id, seq): count for queue_id, seq, count in entry.counts}
    begun = checksums.seed(checksums.RETURNED, source, epoch)
    last = [(queue_id, seq, count) for (queue_id, seq), count in counts.items()]
    lists["returned"] += [(*item, *of) for item in checksums.four_summed(begun, last, idx)]
    work.counted += [queue_id for queue_id, _, _ in last]
    below = [(queue_id, 0, seq) for queue_id, seq in entry.delivered.items()]
    raised = marks.raised(below, *of)
    work.marks |= raised
    work.dropped += entry.dropped
    if entry.deletes:
        work.held.append(Held(source, head.position, list(entry.deletes)))
    if head.replicated:
        lists["former"] += _former(of, list(counts), again, {*raised, *entry.dropped}, marks, connection)
    return [(queue_id, 0, SEQ_MAX, *of) for queue_id in entry.dropped]


def _former(
    of: tuple[int, int, int],
    counts: list[tuple[int, int]],
    again: list[tuple[int, int, int]],
    queues: set[int],
    marks: QueueMarks,
    connection: sqlite3.Connection,
) -> list[tuple[int, ...]]:
    """Rows of the table `former` of what a transaction replaces or removes."""
    found: list[tuple[int, ...]] = []
    for queue_id in sorted(queues):
        mark = marks.of(queue_id)
        if mark is not None:
            found.append((*of, FORMER_MARK, queue_id, *mark[:2], *mark[3:]))
    for kind, query, keys in (
        (FORMER_RETURNED, queries.RETURNED_NOW, counts),
        (FORMER_SETTLED, queries.SETTLED_NOW, again),
    ):
        if keys:
            records_now = connection.execute(query, {"keys": listed(keys)})
            found += [(*of, kind, *record) for record in records_now.fetchall()]
    return [(*each, checksums.of_former(*each)) for each in found]
