"""Reads a journal's index back: which rows there are, what of them is settled, what may leave the disk.

What comes in: a connection to an opened journal. What goes out: `Recovered` for the queues, and a list of what
recovery found dead, for the caller to write down.
Rules: 1. Each table is read once, in order, and no body at all: time goes with the number of rows, not of bytes.
2. Nothing is changed here, so a crash during recovery repeats it from the same state. 3. An index that contradicts
itself, a record whose checksum does not fit, and a number of records that is not what it should be are
`JournalDamaged`, never guessed around.
Not here: deleting (`disk.py` begins discards for `Found.dead`), checksums of bodies (`Disk.read`).
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from amqpd.journal.errors import DiskFailure
from amqpd.journal.records import JournalDamaged, Recovered, RecoveredQueue, RecoveredRow
from amqpd.journal.sqlite import checksums, queries, trust
from amqpd.journal.sqlite.discards import Discard
from amqpd.journal.sqlite.intake import checksum_of_deadlines
from amqpd.journal.sqlite.schema import EPOCH, SEQ_MAX
from amqpd.journal.sqlite.trust import Source
from amqpd.storage.probe import could_not_read

ORPHANS_MAX = 100_000
"""Settled records and counts without a row that one recovery clears away; more wait for the next one."""


@dataclass(slots=True)
class Found:
    recovered: Recovered
    discards: list[Discard]
    """begun by an earlier run and not finished"""
    dead: list[tuple[int, int, int]]
    """(queue_id, first_seq, last_seq) of runs of rows that are transient or wholly settled; no other row is inside"""
    orphans: list[tuple[int, int, int]]
    """settled records (queue_id, first_seq, last_seq) and counts (queue_id, seq, seq) whose rows are gone"""
    timed: set[int]
    """ids of queues that have deadlines on disk, also of rows that are discarded or dead"""
    counted: set[int]
    """the same for counts of returned messages"""
    marks: dict[int, tuple[int, int]]
    """queue_id -> (next_seq, delivered), as they are on disk"""


def examine(path: Path, connection: sqlite3.Connection) -> Found:
    """All of the journal's index at `path`. Raises JournalDamaged, with the way out; sqlite3.Error."""
    try:
        source = trust.read_source(path, connection) or Source(EPOCH, 0, 0, 0)
        return find(connection, source)
    except JournalDamaged as error:
        if trust.REMEDY_OF_RECORDS in str(error):
            raise
        raise JournalDamaged(f"{path} is damaged: {error}; {trust.REMEDY_OF_RECORDS}") from error
    except checksums.NOT_AS_WRITTEN as error:
        reason = trust.not_as_written(error)
        raise JournalDamaged(f"{path} is damaged: {reason}; {trust.REMEDY_OF_RECORDS}") from error


def find(connection: sqlite3.Connection, source: Source) -> Found:
    """Raises JournalDamaged, DiskFailure, and what `checksums.NOT_AS_WRITTEN` has."""
    _check_structure(connection)
    index = source.idx
    discards = [_discard(row) for row in connection.execute(queries.DISCARDS)]
    marks = dict(_mark(row) for row in connection.execute(queries.QUEUES))
    queues = {
        queue_id: RecoveredQueue([], max(next_seq, delivered), max(0, delivered))
        for queue_id, (next_seq, delivered) in marks.items()
    }
    deadlines = _Deadlines(connection)
    transient = _rows(connection, source, queues, _Gone(discards), deadlines)
    deadlines.check_all_taken()
    orphans = _settled(connection, source, queues, _Gone(discards))
    counted, lonely = _returned(connection, index, queues, transient, _Gone(discards))
    orphans = (orphans + lonely)[:ORPHANS_MAX]
    dead = _dead(queues, transient)
    return Found(Recovered(index, queues), discards, dead, orphans, deadlines.queues, counted, marks)


def _check_structure(connection: sqlite3.Connection) -> None:
    """Of the small tables: a page that names fewer records than it has shows in no record. (The index of the rows is
    too large for that; `Source.rows` says how many it must have.)"""
    for table in ("settled", "queue", "discard", "returned", "deadline", "source", "names"):
        (said,) = connection.execute(f"PRAGMA quick_check('{table}')").fetchone()
        if could_not_read(said):
            raise DiskFailure(f"the disk of the journal failed: {said.splitlines()[-1]}")
        if said != "ok":
            raise JournalDamaged(f"the table {table} is damaged ({' '.join(said.split())})")


def _discard(row: tuple[int, ...]) -> Discard:
    *fields, crc = row
    if checksums.of_discard(*fields) != crc:
        raise JournalDamaged(f"the record of a deletion of messages of queue {fields[1]} does not fit its checksum")
    return Discard(*fields)


def _mark(row: tuple[int, int, int, int]) -> tuple[int, tuple[int, int]]:
    queue_id, next_seq, delivered, crc = row
    if checksums.of_mark(queue_id, next_seq, delivered) != crc:
        raise JournalDamaged(f"the record of what was delivered of queue {queue_id} does not fit its checksum")
    return queue_id, (next_seq, delivered)


class _Gone:
    """Which ranges are discarded, asked in ascending order of (queue_id, first_seq): one sweep over both lists."""

    def __init__(self, discards: list[Discard]) -> None:
        self._waiting: dict[int, list[Discard]] = defaultdict(list)
        for discard in sorted(discards, key=lambda discard: -discard.first_seq):
            self._waiting[discard.queue_id].append(discard)
        self._queue_id: int | None = None
        self._open: list[Discard] = []

    def by(self, queue_id: int, first_seq: int, last_seq: int, idx: int) -> list[Discard]:
        """The discards that the range belongs to."""
        if queue_id not in self._waiting:
            return []
        if queue_id != self._queue_id:
            self._queue_id, self._open = queue_id, []
        waiting = self._waiting[queue_id]
        while waiting and waiting[-1].first_seq <= first_seq:
            self._open.append(waiting.pop())
        self._open = [discard for discard in self._open if discard.last_seq >= first_seq]
        return [discard for discard in self._open if last_seq <= discard.last_seq and idx <= discard.idx]


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
    connection: sqlite3.Connection,
    source: Source,
    queues: dict[int, RecoveredQueue],
    gone: _Gone,
    deadlines: _Deadlines,
) -> set[tuple[int, int]]:
    """Fill in the rows of each queue; returns (queue_id, first_seq) of the transient ones, which are among them."""
    transient = set()
    index, count = source.idx, 0
    for item in connection.execute(queries.ROWS):
        count += 1
        (
            queue_id,
            last_seq,
            first_seq,
            nbytes,
            persistent,
            idx,
            body_bytes,
            published_ms,
            deadline_bytes,
            crc,
            row_id,
        ) = item
        head = crc >> checksums.HEAD_SHIFT
        if head and head != checksums.of_head(
            *(queue_id, first_seq, last_seq, persistent, nbytes, idx, body_bytes, published_ms, deadline_bytes)
        ):
            raise JournalDamaged(
                f"the index entry of messages {first_seq}..{last_seq} of queue {queue_id} does not fit its checksum"
            )
        timed = deadlines.of(row_id, deadline_bytes, queue_id, first_seq, last_seq) if deadline_bytes else b""
        discards = gone.by(queue_id, first_seq, last_seq, idx)
        if any(discard.last_seq == SEQ_MAX for discard in discards):
            continue  # the queue was dropped, and its sequence numbers with it
        queue = queues.get(queue_id)
        if queue is None:
            queue = queues[queue_id] = RecoveredQueue([], 0, 0)
        if idx > index or not 0 <= first_seq <= last_seq:
            raise JournalDamaged(
                f"queue {queue_id} has a row {first_seq}..{last_seq} of transaction {idx} of {index}"
            )
        if queue.rows and first_seq <= queue.rows[-1].last_seq:
            raise JournalDamaged(f"two rows of queue {queue_id} hold message {first_seq}")
        queue.next_seq = max(queue.next_seq, last_seq + 1)
        if discards:
            continue
        queue.rows.append(RecoveredRow(first_seq, last_seq, nbytes, [], body_bytes, published_ms, timed))
        if not persistent:
            transient.add((queue_id, first_seq))
    if count != source.rows:
        raise JournalDamaged(f"the index has {count} rows of messages where {source.rows} were written")
    return transient


def _settled(
    connection: sqlite3.Connection, source: Source, queues: dict[int, RecoveredQueue], gone: _Gone
) -> list[tuple[int, int, int]]:
    """Fill in the settled parts, merged and cut at the rows' edges; returns the records that touch no row."""
    orphans: list[tuple[int, int, int]] = []
    known_queue = None
    rows: list[RecoveredRow] = []
    lasts: list[int] = []
    count, before = 0, (-SEQ_MAX - 1, 0, 0)
    for queue_id, first_seq, last_seq, idx, crc in connection.execute(queries.SETTLED):
        count += 1
        if (
            checksums.of_settled(queue_id, first_seq, last_seq, idx) != crc
            or (queue_id, first_seq, last_seq) <= before
        ):
            raise JournalDamaged(
                f"the record that {first_seq}..{last_seq} of queue {queue_id} are settled does not fit its checksum"
            )
        before = (queue_id, first_seq, last_seq)
        if gone.by(queue_id, first_seq, last_seq, idx):
            continue
        if queue_id != known_queue:
            known_queue = queue_id
            queue = queues.get(queue_id)
            rows = [] if queue is None else queue.rows
            lasts = [row.last_seq for row in rows]
        at = bisect_left(lasts, first_seq)
        if at == len(rows) or rows[at].first_seq > last_seq:
            orphans.append((queue_id, first_seq, last_seq))
        while at < len(rows) and rows[at].first_seq <= last_seq:
            _merge(rows[at], max(first_seq, rows[at].first_seq), min(last_seq, rows[at].last_seq))
            at += 1
    if count != source.settled:
        raise JournalDamaged(f"{count} records of settled messages are there where {source.settled} were written")
    return orphans


def _returned(
    connection: sqlite3.Connection,
    index: int,
    queues: dict[int, RecoveredQueue],
    transient: set[tuple[int, int]],
    gone: _Gone,
) -> tuple[set[int], list[tuple[int, int, int]]]:
    """Fill in the counts of messages that are not settled and not transient; returns the queues that have any on
    disk, and what touches no row."""
    counted = set()
    orphans: list[tuple[int, int, int]] = []
    known_queue = None
    rows: list[RecoveredRow] = []
    lasts: list[int] = []
    for queue_id, seq, count, idx, crc in connection.execute(queries.RETURNED):
        if checksums.of_returned(queue_id, seq, count, idx) != crc:
            raise JournalDamaged(
                f"the record of how often message {seq} of queue {queue_id} came back does not fit its checksum"
            )
        counted.add(queue_id)
        if gone.by(queue_id, seq, seq, idx):
            continue
        if idx > index or count < 0:
            raise JournalDamaged(
                f"message {seq} of queue {queue_id} came back {count} times in transaction {idx} of {index}"
            )
        if queue_id != known_queue:
            known_queue = queue_id
            queue = queues.get(queue_id)
            rows = [] if queue is None else queue.rows
            lasts = [row.last_seq for row in rows]
        at = bisect_left(lasts, seq)
        if at == len(rows) or rows[at].first_seq > seq:
            orphans.append((queue_id, seq, seq))
        elif (queue_id, rows[at].first_seq) not in transient and not _is_settled(rows[at], seq):
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


def _dead(queues: dict[int, RecoveredQueue], transient: set[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Take dead rows out of the queues; neighbours in one range."""
    dead: list[tuple[int, int, int]] = []
    for queue_id, queue in queues.items():
        living = []
        run: tuple[int, int, int] | None = None
        for row in queue.rows:
            if row.settled == [(row.first_seq, row.last_seq)] or (queue_id, row.first_seq) in transient:
                run = (queue_id, row.first_seq if run is None else run[1], row.last_seq)
                continue
            living.append(row)
            if run is not None:
                dead.append(run)
                run = None
        if run is not None:
            dead.append(run)
        queue.rows = living
    return dead
