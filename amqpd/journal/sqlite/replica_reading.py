"""Reads what a journal in use has of replicated sources: for votes, for others who lack entries, for a leader.

What comes in: a journal that is recovered. What goes out: the state of each replica; entries as they were made;
queues as a leader builds them; the state of a source for another disk, as a difference (`state.py`), part by part.
Rules: 1. A connection of its own, which only reads: asked from any thread, one caller after the other, while others
commit and read. 2. What was written before the call is in the answer. 3. An entry is put together from its record and
its rows, and held against its checksum. 4. Of a state one look at the index says what is live at `base`; bodies are
read in steps of about a part each, and nothing is held open between two. A row that has left the disk since is passed
over: it died after `base`, and an entry that follows says so.
Not here: who asks (`amqpd.replication`, and what runs it), the queues of the local source (`recovery.py`, once),
taking a state in (`staging.py`).
"""

from __future__ import annotations

import sqlite3
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from amqpd.journal.disk import ReplicaState
from amqpd.journal.records import JournalDamaged, Recovered
from amqpd.journal.sqlite import checksums, queries, state, trust
from amqpd.journal.sqlite.database import connect_to_read, meaning
from amqpd.journal.sqlite.discards import Gone
from amqpd.journal.sqlite.mark_bytes import RANGE_BYTES
from amqpd.journal.sqlite.mark_rows import MarkRow, formers_of, row_of
from amqpd.journal.sqlite.recovery import find
from amqpd.journal.sqlite.replicas import TailRecord, read_votes, staged_from, tail_record
from amqpd.journal.sqlite.schema import FORMER_MARK, SOURCE
from amqpd.journal.sqlite.small_tables import discard_of, mark_of
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.journal.sqlite.state import SourceState, StateRow
from amqpd.peers.entry import NO_VOTE, LogEntry, Position
from amqpd.replication.log import EntryHead

T = TypeVar("T")

OPERATIONS_BYTES = 100
"""Of what is said of a forwarder's operations, without outcomes."""


Ask = Callable[[Callable[[sqlite3.Connection], SourceState]], SourceState]
"""`ReplicaReader._asked`"""
Ranges = list[tuple[int, int]]


def parts(ask: Ask, source: int, after: Position, base: Position, reserved: int) -> Iterator[bytes]:
    """At least one."""
    rows = array("q")
    of = SourceState(source, after, base, reserved)
    yield from _cut(ask(lambda connection: _records(connection, of, rows)))
    left = iter(rows)
    while (part := ask(lambda connection: _bodies(connection, of, left))).rows:
        yield part.encode()


def _records(connection: sqlite3.Connection, of: SourceState, rows: array[int]) -> SourceState:
    """Everything except rows; the numbers of those that go, in `rows`."""
    found = SourceState(of.source, of.after, of.base, of.reserved)
    given = {"sources": f"[{of.source}]"}
    upto: list[tuple[int, ...]] = connection.execute(queries.SETTLED_OF, given).fetchall()
    upto = [each for each in upto if each[4:6] <= of.base]
    settled = _merged(upto)
    discards = map(discard_of, connection.execute(queries.DISCARDS))
    gone = Gone([each for each in discards if each.source == of.source and each.position <= of.base])
    staged = staged_from(connection).get(of.source)
    live: dict[int, Ranges] = defaultdict(list)
    known: dict[int, int] = {}
    for item in connection.execute(queries.ROWS_OF, given):
        queue_id, last, first = item[:3]
        position, batch_id = item[6:8], item[12]
        if position > of.base or (staged is not None and batch_id >= staged):
            continue
        if gone.by(queue_id, first, last, position):
            continue
        known.setdefault(queue_id, 0)
        if _covers(settled.get(queue_id, []), first, last):
            continue
        ranges = live[queue_id]
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
        if position > of.after:
            rows.append(batch_id)
    found.live = [(queue_id, *each) for queue_id, ranges in live.items() for each in ranges]
    found.settled = [
        (queue_id, first, last, *position, crc)
        for queue_id, first, last, _, *position, crc in upto
        if tuple(position) > of.after and _touches(live.get(queue_id, []), first, last)
    ]
    found.operations = _operations_at_base(connection, of)
    marks, returned = _at_base(connection, of)
    for queue_id, (next_seq, delivered, *position) in marks.items():
        known[queue_id] = next_seq
        if of.after < tuple(position) <= of.base:
            found.marks.append((queue_id, delivered, *position))
    for (queue_id, seq), (count, *position) in returned.items():
        if of.after < tuple(position) <= of.base and _touches(live.get(queue_id, []), seq, seq):
            crc = checksums.of_returned(queue_id, seq, count, of.source, *position)
            found.returned.append((queue_id, seq, count, *position, crc))
    found.known = list(known.items())
    return found


def _at_base(
    connection: sqlite3.Connection, of: SourceState
) -> tuple[dict[int, tuple[int, ...]], dict[tuple[int, int], tuple[int, ...]]]:
    """Marks, by queue_id: next_seq, delivered, epoch, idx; and how often messages came back, by queue_id and seq:
    count, epoch, idx. As they are now, or, if an entry above `base` has written over them, before that."""
    marks, returned = dict[int, tuple[int, ...]](), dict[tuple[int, int], tuple[int, ...]]()
    for queue_id, (next_seq, delivered, source, *position) in map(mark_of, connection.execute(queries.QUEUES)):
        if source == of.source:
            marks[queue_id] = (next_seq, delivered, *position)
    for queue_id, seq, count, _, *position, _ in connection.execute(
        queries.RETURNED_OF, {"sources": f"[{of.source}]"}
    ):
        returned[queue_id, seq] = (count, *position)
    given = {"source": of.source, "epoch": of.base[0], "idx": of.base[1]}
    # The first version that was replaced above `base` is the one that counted there.
    for *_, kind, queue_id, one, two, epoch, idx, _ in reversed(
        connection.execute(queries.FORMER_OF, given).fetchall()
    ):
        if kind == FORMER_MARK:
            marks[queue_id] = (max(one, marks.get(queue_id, (0,))[0]), two, epoch, idx)
        else:
            returned[queue_id, one] = (two, epoch, idx)
    return marks, returned


def _operations_at_base(connection: sqlite3.Connection, of: SourceState) -> dict[str, MarkRow]:
    """What was said of the operations of edges then, by forwarder."""
    found = connection.execute(queries.OPERATION_MARKS_OF, {"sources": f"[{of.source}]"}).fetchall()
    rows = {forwarder: row for (_, forwarder), row in map(row_of, found)}
    for forwarder, row in reversed(formers_of(connection, of.source, of.base)):
        rows[forwarder] = row
    return {forwarder: row for forwarder, row in rows.items() if row.position <= of.base}


def _cut(of: SourceState) -> Iterator[bytes]:
    """Its lists, in parts of about `PART_BYTES`; what is said of operations behind them, a forwarder's in one."""
    whole = (of.live, of.settled, of.returned, of.marks, of.known)
    step = max(1, state.PART_BYTES // 48)
    for at in range(0, max(1, *map(len, whole)), step):
        live, settled, returned, marks, known = (each[at : at + step] for each in whole)
        yield SourceState(of.source, of.after, of.base, of.reserved, live, settled, returned, marks, known).encode()
    part, nbytes = SourceState(of.source, of.after, of.base, of.reserved), 0
    for forwarder, row in of.operations.items():
        part.operations[forwarder] = row
        nbytes += OPERATIONS_BYTES + RANGE_BYTES * len(row.of.ranges)
        if nbytes >= state.PART_BYTES:
            yield part.encode()
            part, nbytes = SourceState(of.source, of.after, of.base, of.reserved), 0
    if part.operations:
        yield part.encode()


def _bodies(connection: sqlite3.Connection, of: SourceState, rows: Iterator[int]) -> SourceState:
    """A part with the next ones that are there."""
    part, nbytes = SourceState(of.source, of.after, of.base, of.reserved), 0
    for batch_id in rows:
        given = {"batch_id": batch_id, "source": of.source}
        found = connection.execute(queries.STATE_ROW, given).fetchone()
        if found is not None:
            *facts, data, timed = found
            row = StateRow(*facts)
            if of.after < (row.epoch, row.idx) <= of.base:
                part.rows.append((row, data, timed))
                nbytes += row.nbytes + row.deadline_bytes
        if nbytes >= state.PART_BYTES:
            break
    return part


def _merged(records: list[tuple[int, ...]]) -> dict[int, Ranges]:
    """Settled records, in the order of queues and messages, as ranges that do not touch each other."""
    found: dict[int, Ranges] = defaultdict(list)
    for queue_id, first, last, *_ in records:
        ranges = found[queue_id]
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    return found


def _covers(ranges: Ranges, first: int, last: int) -> bool:
    at = bisect_right(ranges, first, key=itemgetter(0))
    return at > 0 and ranges[at - 1][1] >= last


def _touches(ranges: Ranges, first: int, last: int) -> bool:
    at = bisect_left(ranges, first, key=itemgetter(1))
    return at < len(ranges) and ranges[at][0] <= last


class ReplicaReader:
    """Reads what one journal has of replicated sources. Its methods raise JournalDamaged and DiskFailure."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def replicas(self) -> list[ReplicaState]:
        """Of each source, the local one aside, in the order of their numbers."""
        return self._asked(self._replicas)

    def log_entries(self, source: int, after: Position, bytes_max: int) -> list[LogEntry]:
        """Entries above this position that are not known to be committed, in order, until they have this many bytes;
        at least one, if there is any."""
        return self._asked(lambda connection: self._entries(connection, source, after, bytes_max))

    def recovered_of(self, sources: Collection[int]) -> Recovered:
        """The queues of these sources, as a leader builds them."""

        def read(connection: sqlite3.Connection) -> Recovered:
            record = trust.read_source(self._path, connection)
            return find(connection, record or trust.Source(1, 0, 0, 0), sources).of(sources)

        return self._asked(read)

    def state_parts(self, source: int, after: Position, base: Position) -> Iterator[bytes]:
        """The state of the source at `base`, beyond `after`, in parts for `StatePart`: each is read when it is asked
        for."""

        def ask(question: Callable[[sqlite3.Connection], SourceState]) -> SourceState:
            return self._asked(question)

        head = self._asked(self._heads).get(source)
        if head is None or not after <= base <= head.position:
            raise ValueError(f"no state of source {source} from {after} to {base}")
        return parts(ask, source, after, base, head.reserved)

    def close(self) -> None:
        """Nobody asks any more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _asked(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Of one state of the journal."""
        with self._turn:
            try:
                connection = self._connection = self._connection or connect_to_read(self._path)
                connection.execute("BEGIN")
                try:
                    return question(connection)
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise meaning(error, self._path) from error
            except checksums.NOT_AS_WRITTEN as error:
                raise JournalDamaged(f"{self._path} is damaged: {trust.not_as_written(error)}") from error

    def _heads(self, connection: sqlite3.Connection) -> dict[int, SourceHead]:
        record = trust.read_record(self._path, connection)
        return record.heads() if record is not None else {}

    def _replicas(self, connection: sqlite3.Connection) -> list[ReplicaState]:
        heads, tails = self._heads(connection), dict[int, list[EntryHead]]()
        for record in map(tail_record, connection.execute(queries.TAIL)):
            tails.setdefault(record.source, []).append(EntryHead(record.position, record.before, record.checksum))
        voted = read_votes(connection)
        return [
            ReplicaState(source, voted.get(source, NO_VOTE), head.committed, tails.get(source, []), head.reserved)
            for source, head in sorted(heads.items())
            if source != SOURCE
        ]

    def _entries(
        self, connection: sqlite3.Connection, source: int, after: Position, bytes_max: int
    ) -> list[LogEntry]:
        found: list[LogEntry] = []
        given = {"source": source, "epoch": after[0], "idx": after[1]}
        with closing(connection.execute(queries.ENTRIES_AFTER, given)) as rows:
            for record in map(tail_record, rows):
                if bytes_max <= 0 and found:
                    break
                found.append(self._entry(connection, record))
                bytes_max -= len(found[-1].payload)
        return found

    def _entry(self, connection: sqlite3.Connection, record: TailRecord) -> LogEntry:
        source, (epoch, idx), first = record.source, record.position, record.first_row
        given = {"source": source, "epoch": epoch, "idx": idx}
        given |= {"first_row": first, "last_row": first + record.rows - 1}
        pieces = connection.execute(queries.DATA_OF, given).fetchall()
        payload = b"".join([record.control, *(piece or b"" for piece in chain.from_iterable(pieces))])
        entry = LogEntry(source, record.position, record.before, payload, record.checksum)
        if not entry.sound:
            raise JournalDamaged(
                f"{self._path} is damaged: entry {record.position} of source {source} is not as it was made"
            )
        return entry
