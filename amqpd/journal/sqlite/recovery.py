"""Reads a journal's index back: which rows there are, what of them is settled, what may leave the disk.

What comes in: a connection to an opened journal. What goes out: `Recovered` for the queues, and a list of what
recovery found dead, for the caller to write down.
Rules: 1. Each table is read once, in order, and no body at all: time goes with the number of rows, not of bytes.
2. Nothing is changed here, so a crash during recovery repeats it from the same state. 3. An index that contradicts
itself, a record whose checksum does not fit, and a number of records that is not what it should be are
`JournalDamaged`, never guessed around.
Not here: deleting (`disk.py` begins discards for `JournalContents.dead`), checksums of bodies (`Disk.read`).
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from amqpd.journal.records import JournalDamaged, Recovered, RecoveredQueue, RecoveredRow, SeqRange
from amqpd.journal.sqlite import checksums, mark_rows, queries, replicas, trust
from amqpd.journal.sqlite.discards import Discard, Gone
from amqpd.journal.sqlite.payload import pack_ranges
from amqpd.journal.sqlite.queue_marks import Mark
from amqpd.journal.sqlite.schema import SEQ_MAX, SOURCE
from amqpd.journal.sqlite.small_tables import check_former, check_structure, discard_of, mark_of
from amqpd.journal.sqlite.sources import HeldRanges, SourceHead
from amqpd.journal.sqlite.statement_parameters import checksum_of_deadlines
from amqpd.journal.sqlite.trust import Source
from amqpd.peers.entry import START, Position

ORPHANS_MAX = 100_000
"""Settled records and counts without a row that one recovery clears away; more wait for the next one."""


TOLD_ROWS = 50_000
"""Read in some tenths of a second."""

ReportProgress = Callable[[int, int], None]
"""is called with the number of rows that there are, and of those that were read"""

Dead = tuple[int, Position, tuple[int, int, int]]
"""of a source, up to an (epoch, idx): (queue_id, first_seq, last_seq)"""


@dataclass(slots=True)
class JournalContents:
    """The contents of a journal when it is opened: its queues, its sources, and what is left to do on the disk."""

    recovered: Recovered
    heads: dict[int, SourceHead]
    """of the sources"""
    discards: list[Discard]
    """begun by an earlier run and not finished"""
    dead: list[Dead]
    """runs of rows that are transient or wholly settled, which is committed; no other row is inside"""
    held: list[HeldRanges]
    """rows that are wholly settled, which is not committed"""
    orphans: list[Dead]
    """settled records, and counts (queue_id, seq, seq), whose rows are gone, and that are committed"""
    timed: set[int]
    """ids of queues that have deadlines on disk, also of rows that are discarded or dead"""
    counted: set[int]
    """the same for counts of returned messages"""
    marks: dict[int, Mark]
    """by queue_id, as they are on disk"""
    sources: dict[int, int]
    """queue_id -> source, of queues that are not of the local one"""
    staged: dict[int, int]
    """source -> the first row of what an earlier run staged of it"""
    operations: dict[mark_rows.Place, mark_rows.MarkRow]
    """of edges, by source and forwarder"""
    formerly: set[int]
    """sources of which more is kept of them, until that is committed"""
    behind: int = 0
    """see `SourceProgress.behind`"""
    rows: int = 0
    """of messages, of all sources: that its record says, and those behind it"""

    def of(self, sources: Collection[int]) -> Recovered:
        """What there is of queues of these sources."""
        queues = self.recovered.queues.items()
        mine = {queue_id: queue for queue_id, queue in queues if self.sources.get(queue_id, SOURCE) in sources}
        marks = {}
        for source in sources:
            rows = {forwarder: row for (of, forwarder), row in self.operations.items() if of == source}
            if rows:
                marks[source] = mark_rows.marks_of(rows)
        return Recovered(self.recovered.index, mine, marks)


def examine(
    path: Path, connection: sqlite3.Connection, report_progress: ReportProgress | None = None
) -> JournalContents:
    """All of the journal's index at `path`. `report_progress`: is told how far that is. Raises JournalDamaged, with
    the way out; sqlite3.Error."""
    try:
        source = trust.read_source(path, connection) or Source(0, 0, 0, 0)
        return find(connection, source, report_progress=report_progress)
    except JournalDamaged as error:
        if trust.REMEDY_OF_RECORDS in str(error):
            raise
        raise JournalDamaged(f"{path} is damaged: {error}; {trust.REMEDY_OF_RECORDS}") from error
    except checksums.NOT_AS_WRITTEN as error:
        reason = trust.not_as_written(error)
        raise JournalDamaged(f"{path} is damaged: {reason}; {trust.REMEDY_OF_RECORDS}") from error


def find(
    connection: sqlite3.Connection,
    source: Source,
    only: Collection[int] | None = None,
    report_progress: ReportProgress | None = None,
) -> JournalContents:
    """`only`: rows of these sources alone, of a journal that is in use: no counts are compared. Raises
    JournalDamaged, DiskFailure, and what `checksums.NOT_AS_WRITTEN` has."""
    heads, formerly = source.heads(), set[int]()
    if only is None:
        check_structure(connection)
        replicas.check_tails(connection, heads)
        formerly = check_former(connection)
    ask = _asking(connection, only)
    operations = dict(map(mark_rows.row_of, ask(queries.OPERATION_MARKS, queries.OPERATION_MARKS_OF)))
    for (number, forwarder), said in operations.items():
        if number not in heads or said.position > heads[number].position:
            raise JournalDamaged(
                f"operations of {forwarder} at source {number} are of transaction {said.position}, which is not there"
            )
    discards = [discard_of(row) for row in connection.execute(queries.DISCARDS)]
    marks = dict(mark_of(row) for row in connection.execute(queries.QUEUES))
    queues = {
        queue_id: RecoveredQueue(
            [], max(next_seq, delivered, heads[number].reserved if number in heads else 0), max(0, delivered)
        )
        for queue_id, (next_seq, delivered, number, _, _) in marks.items()
    }
    deadlines = _Deadlines(connection)
    sides = _Sides(heads)
    if report_progress is not None:
        sides.report_progress = partial(report_progress, source.rows)
    sides.staged = replicas.staged_from(connection)
    sides.sources = {queue_id: mark[2] for queue_id, mark in marks.items() if mark[2] != SOURCE}
    _rows(ask(queries.ROWS, queries.ROWS_OF), queues, Gone(discards), deadlines, sides)
    orphans = _settled(ask(queries.SETTLED, queries.SETTLED_OF), queues, Gone(discards), sides)
    if only is None:
        deadlines.check_all_taken()
        if sides.rows != source.rows:
            raise JournalDamaged(f"the index has {sides.rows} rows of messages where {source.rows} were written")
        if sides.settled != source.settled:
            raise JournalDamaged(
                f"{sides.settled} records of settled messages are there where {source.settled} were written"
            )
    counted, lonely = _returned(ask(queries.RETURNED, queries.RETURNED_OF), queues, Gone(discards), sides)
    orphans = (orphans + lonely)[:ORPHANS_MAX]
    dead, held = _dead(queues, sides)
    return JournalContents(
        recovered=Recovered(source.idx, queues),
        heads=heads,
        discards=discards,
        dead=dead,
        held=held,
        orphans=orphans,
        timed=deadlines.queues,
        counted=counted,
        marks=marks,
        sources=sides.sources,
        staged=sides.staged,
        operations=operations,
        formerly=formerly,
        behind=source.behind,
        rows=source.rows,
    )


def _asking(connection: sqlite3.Connection, only: Collection[int] | None) -> Callable[[str, str], Any]:
    """Of two queries the one of all sources, or of these."""
    if only is None:
        return lambda all_of_them, _: connection.execute(all_of_them)
    return lambda _, some: connection.execute(some, {"sources": str(list(only))})


class _Sides:
    """The facts about rows beside their place, by (queue_id, first_seq)."""

    def __init__(self, heads: dict[int, SourceHead]) -> None:
        self.heads = heads
        self.transient: set[tuple[int, int]] = set()
        """those that do not outlive a process: of sources that are not replicated"""
        self.sources: dict[int, int] = {}
        """queue_id -> source, of queues of sources that are not the local one"""
        self.late: dict[tuple[int, int], Position] = {}
        """the last settle of a row that is not committed"""
        self.staged: dict[int, int] = {}
        """source -> the first row of what is staged of it (`staging.py`): such rows are not there"""
        self.rows = self.settled = 0
        """how many records there were"""
        self.report_progress: Callable[[int], None] | None = None
        """is told of `rows` now and then"""

    def upto(self, source: int) -> Position:
        head = self.heads.get(source) or SourceHead(source)
        return head.committed if head.replicated else head.position


class _Deadlines:
    """The deadlines of rows, each to be taken by the row that it belongs to."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._left: dict[int, tuple[int | None, bytes]] = {
            batch_id: (crc, data) for batch_id, crc, data in connection.execute(queries.DEADLINES)
        }
        self.queues: set[int] = set()

    def of(self, batch_id: int, nbytes: int, queue_id: int, first_seq: int, last_seq: int) -> bytes:
        """Raises JournalDamaged when there are none for this row, or others than were written."""
        crc, data = self._left.pop(batch_id, (None, b""))
        if len(data) != nbytes or checksum_of_deadlines(queue_id, first_seq, last_seq, data) != crc:
            raise JournalDamaged(f"the deadlines of messages {first_seq}..{last_seq} of queue {queue_id} are damaged")
        self.queues.add(queue_id)
        return data

    def check_all_taken(self) -> None:
        if self._left:
            raise JournalDamaged(
                f"{len(self._left)} lists of deadlines belong to no row, or to one without deadlines"
            )


def _rows(
    found: Iterable[tuple[Any, ...]],
    queues: dict[int, RecoveredQueue],
    gone: Gone,
    deadlines: _Deadlines,
    sides: _Sides,
) -> None:
    """Fill in the rows of each queue, the transient ones too."""
    heads = sides.heads
    for item in found:
        sides.rows += 1
        if sides.report_progress is not None and sides.rows % TOLD_ROWS == 0:
            sides.report_progress(sides.rows)
        queue_id, last_seq, first_seq, nbytes, persistent, number, epoch, idx, *facts, crc, row_id = item
        body_bytes, published_ms, deadline_bytes = facts
        head = crc >> checksums.HEAD_SHIFT
        if head and head != checksums.of_head(
            queue_id, first_seq, last_seq, persistent, nbytes, number, epoch, idx, *facts
        ):
            raise JournalDamaged(
                f"the index entry of messages {first_seq}..{last_seq} of queue {queue_id} does not fit its checksum"
            )
        timed = deadlines.of(row_id, deadline_bytes, queue_id, first_seq, last_seq) if deadline_bytes else b""
        if sides.staged and row_id >= sides.staged.get(number, row_id + 1):
            continue
        position = (epoch, idx)
        discards = gone.by(queue_id, first_seq, last_seq, position)
        if any(discard.last_seq == SEQ_MAX for discard in discards):
            continue  # the queue was dropped, and its sequence numbers with it
        source = heads.get(number)
        if source is None or position > source.position or not 0 <= first_seq <= last_seq:
            raise JournalDamaged(
                f"queue {queue_id} has a row {first_seq}..{last_seq} of transaction {idx} of "
                f"{0 if source is None else source.idx}"
            )
        queue = queues.get(queue_id)
        if queue is None:
            queue = queues[queue_id] = RecoveredQueue([], source.reserved, 0)
        if queue.rows and first_seq <= queue.rows[-1].last_seq:
            raise JournalDamaged(f"two rows of queue {queue_id} hold message {first_seq}")
        queue.next_seq = max(queue.next_seq, last_seq + 1)
        if number != SOURCE:
            sides.sources[queue_id] = number
        if discards:
            continue
        came_in = epoch if number != SOURCE else 0
        queue.rows.append(RecoveredRow(first_seq, last_seq, nbytes, [], body_bytes, published_ms, timed, came_in))
        if not persistent and not source.replicated:
            sides.transient.add((queue_id, first_seq))


def _rows_of(queues: dict[int, RecoveredQueue], queue_id: int) -> tuple[list[RecoveredRow], list[int]]:
    """With the last message of each. Records are in the order of queues, so those of the last one are kept."""
    queue = queues.get(queue_id)
    rows = [] if queue is None else queue.rows
    return rows, [row.last_seq for row in rows]


def _settled(
    found: Iterable[tuple[Any, ...]],
    queues: dict[int, RecoveredQueue],
    gone: Gone,
    sides: _Sides,
) -> list[Dead]:
    """Fill in the settled parts, merged and cut at the rows' edges; returns the records that touch no row."""
    orphans: list[Dead] = []
    rows_of = lru_cache(1)(partial(_rows_of, queues))
    before = (-SEQ_MAX - 1, 0, 0)
    for queue_id, first_seq, last_seq, number, epoch, idx, crc in found:
        sides.settled += 1
        if (
            checksums.of_settled(queue_id, first_seq, last_seq, number, epoch, idx) != crc
            or (queue_id, first_seq, last_seq) <= before
        ):
            raise JournalDamaged(
                f"the record that {first_seq}..{last_seq} of queue {queue_id} are settled does not fit its checksum"
            )
        before = (queue_id, first_seq, last_seq)
        position = (epoch, idx)
        if gone.by(queue_id, first_seq, last_seq, position):
            continue
        rows, lasts = rows_of(queue_id)
        if rows and sides.sources.get(queue_id, SOURCE) != number:
            continue  # it came when nothing here said whose queue that is
        head = sides.heads.get(number)
        late = head is not None and not head.is_committed(position)
        at = bisect_left(lasts, first_seq)
        if (at == len(rows) or rows[at].first_seq > last_seq) and not late:
            orphans.append((number, position, (queue_id, first_seq, last_seq)))
        while at < len(rows) and rows[at].first_seq <= last_seq:
            row = rows[at]
            _merge(row, max(first_seq, row.first_seq), min(last_seq, row.last_seq))
            if late:
                key = (queue_id, row.first_seq)
                sides.late[key] = max(sides.late.get(key, START), position)
            at += 1
    return orphans


def _returned(
    found: Iterable[tuple[Any, ...]], queues: dict[int, RecoveredQueue], gone: Gone, sides: _Sides
) -> tuple[set[int], list[Dead]]:
    """Fill in the counts of messages that are not settled and not transient; returns the queues that have any on
    disk, and what touches no row."""
    counted = set()
    orphans: list[Dead] = []
    rows_of = lru_cache(1)(partial(_rows_of, queues))
    for queue_id, seq, count, number, epoch, idx, crc in found:
        if checksums.of_returned(queue_id, seq, count, number, epoch, idx) != crc:
            raise JournalDamaged(
                f"the record of how often message {seq} of queue {queue_id} came back does not fit its checksum"
            )
        counted.add(queue_id)
        position = (epoch, idx)
        if gone.by(queue_id, seq, seq, position):
            continue
        head = sides.heads.get(number)
        if head is None or position > head.position or count < 0:
            raise JournalDamaged(
                f"message {seq} of queue {queue_id} came back {count} times in transaction {idx} of "
                f"{0 if head is None else head.idx}"
            )
        rows, lasts = rows_of(queue_id)
        if rows and sides.sources.get(queue_id, SOURCE) != number:
            continue  # as above
        at = bisect_left(lasts, seq)
        if at == len(rows) or rows[at].first_seq > seq:
            if head.is_committed(position):
                orphans.append((number, position, (queue_id, seq, seq)))
        elif (queue_id, rows[at].first_seq) not in sides.transient and not _is_settled(rows[at], seq):
            queues[queue_id].counts[seq] = count
    return counted, orphans


def _is_settled(row: RecoveredRow, seq: int) -> bool:
    at = bisect_right(row.settled, seq, key=itemgetter(0))
    return at > 0 and row.settled[at - 1][1] >= seq


def _merge(row: RecoveredRow, first: int, last: int) -> None:
    """Parts come in ascending order of their first."""
    if row.settled and first <= row.settled[-1][1] + 1:
        row.settled[-1] = (row.settled[-1][0], max(last, row.settled[-1][1]))
    else:
        row.settled.append((first, last))


def _dead(queues: dict[int, RecoveredQueue], sides: _Sides) -> tuple[list[Dead], list[HeldRanges]]:
    """Take dead rows out of the queues; neighbours in one range. Those whose settle is not committed stay on the
    disk, each by itself."""
    dead: list[Dead] = []
    held: list[HeldRanges] = []
    for queue_id, queue in queues.items():
        source = sides.sources.get(queue_id, SOURCE)
        upto = sides.upto(source)
        living = []
        run: tuple[int, int, int] | None = None
        for row in queue.rows:
            key = (queue_id, row.first_seq)
            settled = row.settled == [(row.first_seq, row.last_seq)]
            if settled and key in sides.late:
                part = SeqRange(queue_id, row.first_seq, row.last_seq)
                held.append(HeldRanges(source, sides.late[key], pack_ranges([part])))
            elif settled or key in sides.transient:
                run = (queue_id, row.first_seq if run is None else run[1], row.last_seq)
                continue
            else:
                living.append(row)
            if run is not None:
                dead.append((source, upto, run))
                run = None
        if run is not None:
            dead.append((source, upto, run))
        queue.rows = living
    return dead, held
