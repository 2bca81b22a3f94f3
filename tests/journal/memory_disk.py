"""A disk in memory with the behaviour of `SqliteDisk`, and hooks to make it fail; it passes the same contract tests.

What comes in: transactions. What goes out: what a real disk would give back, also after `crash`.
Rules: 1. `MemoryDisk(platter)` opens what an earlier one left on the same `Platter`, as a restart does. 2. What was
not stored is not on the platter. 3. Rows that may leave are gone at once: pieces are SQLite's business. 4. Each entry
of a replicated source keeps what the source's queues were before it, until it is committed: an undo brings that back.
Hooks: `before_commit(transaction)` may raise, or block on what a test holds (a thread's Event); `failing[index]` is
raised by the commit of that index; `durable_after_failure` says whether its transaction is on the platter all the
same (both happen after a failed fsync); `full` refuses rows, and only rows, unless the reserve is given up.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from amqpd.journal.disk import READ_ROWS_MAX, ReplicaState
from amqpd.journal.errors import DiskFailure, DiskFull
from amqpd.journal.operation_marks import Marks
from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow, Row, SeqRange, SourceEntry
from amqpd.journal.sqlite.payload import encode
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import NO_VOTE, LogEntry, Position, Vote
from amqpd.replication.log import EntryHead
from amqpd.replication.replica import (
    Appended,
    StateBegin,
    StateDiscard,
    StateEnd,
    StatePart,
    Undone,
    VoteCast,
    Write,
)
from tests.journal.payloads import entry_of

LOCAL = 0


@dataclass
class PlatterQueue:
    """What is there of one queue."""

    source: int
    rows: dict[int, Row] = field(default_factory=dict)
    """first_seq -> row"""
    settled: dict[int, Position] = field(default_factory=dict)
    """sequence number -> the entry that settled it, the older one if there are two"""
    next_seq: int = 0
    """a lower bound: rows say the rest"""
    delivered: int = 0
    counts: dict[int, int] = field(default_factory=dict)

    def settled_at(self, row: Row) -> Position | None:
        """The entry that settled the last of it; None: something is left."""
        if not all(seq in self.settled for seq in _numbers(row)):
            return None
        return max(self.settled[seq] for seq in _numbers(row))

    def delete(self, row: Row) -> None:
        """The row leaves the disk, and all that is known of its messages."""
        del self.rows[row.first_seq]
        self.next_seq = max(self.next_seq, row.last_seq + 1)
        for seq in _numbers(row):
            self.settled.pop(seq, None)
            self.counts.pop(seq, None)


@dataclass
class Step:
    """An entry that is not committed."""

    entry: LogEntry
    before: dict[int, PlatterQueue]
    """the source's queues"""
    marks: Marks
    """the source's, before"""

    @property
    def position(self) -> Position:
        return self.entry.position


@dataclass
class Staging:
    """What is to take the place of what a source has."""

    queues: dict[int, PlatterQueue] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)
    reserved: int = 0
    base: Position | None = None
    entries: list[LogEntry] = field(default_factory=list)

    @property
    def last(self) -> Position | None:
        return self.entries[-1].position if self.entries else self.base


@dataclass
class Platter:
    """What survives a crash."""

    heads: dict[int, SourceHead] = field(default_factory=lambda: {LOCAL: SourceHead(LOCAL)})
    queues: dict[int, PlatterQueue] = field(default_factory=dict)
    marks: dict[int, Marks] = field(default_factory=dict)
    """by source"""
    tails: dict[int, list[Step]] = field(default_factory=dict)
    """source -> its entries that are not committed, in order"""
    votes: dict[int, Vote] = field(default_factory=dict)
    staged: dict[int, Staging] = field(default_factory=dict)
    held: list[tuple[int, Position, list[SeqRange]]] = field(default_factory=list)
    """(source, position, ranges): their rows leave when that is committed"""
    damaged: set[tuple[int, int]] = field(default_factory=set)
    """(queue_id, first_seq) of rows whose checksum does not fit"""

    @property
    def index(self) -> int:
        """Of the last transaction."""
        return self.heads[LOCAL].idx

    def head(self, source: int) -> SourceHead:
        """See `SourceProgress.head`."""
        return self.heads.get(source) or SourceHead(source, replicated=source != LOCAL)

    def of(self, source: int) -> dict[int, PlatterQueue]:
        """The source's queues."""
        return {queue_id: queue for queue_id, queue in self.queues.items() if queue.source == source}


class MemoryDisk:
    """Implements `records.SourcesDisk`."""

    def __init__(self, platter: Platter | None = None) -> None:
        self.platter = platter if platter is not None else Platter()
        self.before_commit: Callable[[JournalTransaction], None] = lambda transaction: None
        self.failing: dict[int, Exception] = {}
        self.durable_after_failure = False
        self.full = False
        self.reserve_held = True
        self.closed = False
        self._recovered = False
        self._lock = threading.Lock()
        """a read sees a whole transaction or none of it"""
        self._failure: Exception | None = None

    @property
    def index(self) -> int:
        return self.platter.index

    def head(self, source: int) -> SourceHead:
        return self.platter.head(source)

    def recover(self) -> Recovered:
        self._recovered = True
        self.platter.held, self.platter.staged = [], {}
        local = self.platter.heads[LOCAL]
        self.platter.heads[LOCAL] = local.at((local.epoch + 1, local.idx))
        for queue in self.platter.queues.values():
            head = self.platter.head(queue.source)
            for row in list(queue.rows.values()):
                settled = queue.settled_at(row)
                if settled is not None and not head.is_committed(settled):
                    part = SeqRange(row.queue_id, row.first_seq, row.last_seq)
                    self.platter.held.append((queue.source, settled, [part]))
                elif settled is not None or not (row.persistent or head.replicated):
                    queue.delete(row)
        return self.recovered_of((LOCAL,))

    def recovered_of(self, sources: Collection[int]) -> Recovered:
        queues = {}
        for queue_id, queue in sorted(self.platter.queues.items()):
            if queue.source not in sources:
                continue
            living = [row for _, row in sorted(queue.rows.items()) if queue.settled_at(row) is None]
            left = {seq for row in living for seq in _numbers(row)} - set(queue.settled)
            reserved = self.platter.head(queue.source).reserved
            queues[queue_id] = RecoveredQueue(
                [
                    RecoveredRow(
                        *(row.first_seq, row.last_seq, len(row.data), _parts(row, queue.settled)),
                        *(row.body_bytes, row.published_ms, row.deadlines),
                    )
                    for row in living
                ],
                max([queue.next_seq, queue.delivered, reserved, *(row.last_seq + 1 for row in queue.rows.values())]),
                queue.delivered,
                {seq: queue.counts[seq] for seq in sorted(queue.counts) if seq in left},
            )
        marks = {source: deepcopy(marks) for source, marks in self.platter.marks.items() if source in sources}
        return Recovered(
            self.platter.index, queues, {source: each for source, each in marks.items() if each != Marks()}
        )

    prompt = True

    def commit(self, transaction: JournalTransaction, *, housekeeping: bool = True) -> None:
        if not self._recovered or transaction.after != self.platter.index:
            raise ValueError(f"transaction {transaction.index} does not follow {self.platter.index}")
        if transaction.entries:
            raise ValueError("entries of sources become writes before they are committed")
        rows = list(transaction.rows)
        for row in rows:
            row.join()
        if self._failure is not None:
            raise DiskFailure(str(self._failure))
        self.before_commit(transaction)
        if self.full and self.reserve_held:
            raise DiskFull("no space left on the platter")
        if self.full and (rows or transaction.writes):
            raise DiskFull("no space left on the platter, nor in the reserve")
        failure = self.failing.get(transaction.index)
        if failure is not None:
            self._failure = failure
            if self.durable_after_failure:
                self._apply(transaction)
            raise failure
        with self._lock:
            self._apply(transaction)

    def read(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Row]:
        with self._lock:
            queue = self.platter.queues.get(queue_id)
            rows = sorted(queue.rows.items()) if queue is not None else []
        found: list[Row] = []
        for _, row in rows:
            if row.last_seq < first_seq or row.first_seq > last_seq:
                continue
            if len(found) == READ_ROWS_MAX:
                break
            if found and sum(len(each.data) for each in found) + len(row.data) > bytes_max:
                break
            read = deepcopy(row)
            if (queue_id, row.first_seq) in self.platter.damaged:
                read.damage = f"messages {row.first_seq}..{row.last_seq} of queue {queue_id} are damaged"
                read.data = b"\0" + read.data[1:]
            found.append(read)
        return found

    def vacuum_step(self, rests: bool = False) -> bool:
        return False

    def release_reserve(self) -> None:
        self.reserve_held = False

    def restore_reserve(self) -> bool:
        self.reserve_held = self.reserve_held or not self.full
        return self.reserve_held and not self.full

    def close(self) -> None:
        self.closed = True

    # --- sources

    def payload(self, entry: SourceEntry) -> bytes:
        return encode(entry)

    def replicas(self) -> list[ReplicaState]:
        found = []
        for source, head in sorted(self.platter.heads.items()):
            if source != LOCAL:
                entries = [step.entry for step in self.platter.tails.get(source, [])]
                tail = [EntryHead(each.position, each.before, each.checksum) for each in entries]
                vote = self.platter.votes.get(source, NO_VOTE)
                found.append(ReplicaState(source, vote, head.committed, tail, head.reserved))
        return found

    def state_parts(self, source: int, after: Position, base: Position) -> Iterator[bytes]:
        """All of it, whatever `after` is."""
        head = self.platter.head(source)
        if not max(after, head.committed) <= base <= head.position:
            raise ValueError(f"no state of source {source} from {after} to {base}")
        later = [step for step in self.platter.tails.get(source, []) if step.position > base]
        queues = deepcopy(later[0].before if later else self.platter.of(source))
        for queue_id, queue in list(queues.items()):
            for row in [row for row in queue.rows.values() if queue.settled_at(row) is not None]:
                queues[queue_id].delete(row)
        marks = later[0].marks if later else self.platter.marks.get(source, Marks())
        yield pickle.dumps((queues, marks, head.reserved))

    def log_entries(self, source: int, after: Position, bytes_max: int) -> list[LogEntry]:
        found: list[LogEntry] = []
        for step in self.platter.tails.get(source, []):
            if step.position > after and (not found or bytes_max > 0):
                found.append(step.entry)
                bytes_max -= len(step.entry.payload)
        return found

    def _undo(self, source: int, position: Position) -> None:
        head = self.platter.head(source)
        if source == LOCAL or not head.committed <= position <= head.position:
            raise ValueError(f"source {source} is at {head.position}: no undo to {position}")
        tail = self.platter.tails.get(source, [])
        undone = [step for step in tail if step.position > position]
        if undone:
            self._restore(source, undone[0].before)
            self.platter.marks[source] = undone[0].marks
            self.platter.tails[source] = tail[: -len(undone)]
        self.platter.heads[source] = SourceHead(source, *position, head.reserved, head.replicated, head.committed)
        self.platter.held = [each for each in self.platter.held if each[0] != source or each[1] <= position]

    def _restore(self, source: int, before: dict[int, PlatterQueue]) -> None:
        """The source's queues, but no number that left the disk is given again."""
        for queue_id, queue in self.platter.of(source).items():
            floor = queue.next_seq
            if queue_id in before:
                floor = max(floor, before[queue_id].next_seq)
                before[queue_id].next_seq = floor
            elif floor:
                before[queue_id] = PlatterQueue(source, next_seq=floor)
            del self.platter.queues[queue_id]
        self.platter.queues |= before

    # --- one transaction

    def _apply(self, transaction: JournalTransaction) -> None:
        """All of it, or nothing."""
        before = deepcopy(self.platter) if transaction.writes or transaction.committed else None
        try:
            for write in transaction.writes:
                self._carry_out(write)
            for source, position in transaction.committed.items():
                self._commit_source(source, position)
        except ValueError:
            assert before is not None
            self.platter.__dict__.update(before.__dict__)
            raise
        local = self.platter.heads[LOCAL]
        entry = SourceEntry(LOCAL, local.epoch, transaction.index, transaction.rows, transaction.settled)
        entry.retired, entry.delivered = transaction.deletes, transaction.delivered
        entry.counts, entry.dropped, entry.marks = transaction.counts, transaction.dropped, transaction.marks
        self._apply_entry(entry)
        self._let_go()

    def _carry_out(self, write: Write) -> None:
        if isinstance(write, Appended) and write.entry.source in self.platter.staged:
            entry, staged = write.entry, self.platter.staged[write.entry.source]
            if entry.before != staged.last:
                raise ValueError(f"entry {entry.position} of source {entry.source} follows {entry.before}")
            staged.entries.append(entry)
        elif isinstance(write, Appended):
            entry, head = write.entry, self.platter.head(write.entry.source)
            if entry.source <= LOCAL or entry.before != head.position or entry.position <= head.position:
                raise ValueError(f"entry {entry.position} of source {entry.source} follows {entry.before}")
            read = entry_of(entry.payload)
            if (read.source, read.epoch, read.idx) != (entry.source, *entry.position):
                raise ValueError(f"entry {entry.position} of source {entry.source} has a payload of another one")
            before = deepcopy(self.platter.of(entry.source))
            marks = deepcopy(self.platter.marks.get(entry.source, Marks()))
            self.platter.tails.setdefault(entry.source, []).append(Step(entry, before, marks))
            self._apply_entry(read)
        elif isinstance(write, Undone) and write.source in self.platter.staged:
            staged = self.platter.staged[write.source]
            if staged.base is None or write.position < staged.base:
                raise ValueError(f"source {write.source} is staged from {staged.base}: no undo to {write.position}")
            staged.entries = [each for each in staged.entries if each.position <= write.position]
        elif isinstance(write, Undone):
            self._undo(write.source, write.position)
        elif isinstance(write, VoteCast):
            self.platter.votes[write.source] = write.vote
            self.platter.heads.setdefault(write.source, self.platter.head(write.source))
        elif isinstance(write, StateBegin):
            self.platter.staged[write.source] = Staging()
        elif isinstance(write, StateDiscard):
            self.platter.staged.pop(write.source, None)
        elif write.source not in self.platter.staged:
            raise ValueError(f"nothing is being staged of source {write.source}")
        elif isinstance(write, StatePart):
            staged = self.platter.staged[write.source]
            queues, staged.marks, reserved = pickle.loads(write.part)
            staged.queues |= queues
            staged.reserved = max(staged.reserved, reserved)
        elif isinstance(write, StateEnd):
            self.platter.staged[write.source].base = write.base
        else:
            self._complete(write.source)

    def _complete(self, source: int) -> None:
        staged = self.platter.staged.pop(source)
        if staged.base is None:
            raise ValueError(f"the state of source {source} has not come")
        platter, reserved = self.platter, max(staged.reserved, self.platter.head(source).reserved)
        platter.queues = {key: queue for key, queue in platter.queues.items() if queue.source != source}
        platter.queues |= staged.queues
        platter.marks[source] = staged.marks
        platter.heads[source] = SourceHead(source, *staged.base, reserved, replicated=True, committed=staged.base)
        platter.tails[source] = []
        platter.held = [each for each in platter.held if each[0] != source]
        for entry in staged.entries:
            self._carry_out(Appended(entry))

    def _commit_source(self, source: int, position: Position) -> None:
        head = self.platter.head(source)
        if source == LOCAL or position > head.position:
            raise ValueError(f"{position} of source {source} is not stored here")
        if position > head.committed:
            head.committed = position
            tail = self.platter.tails.get(source, [])
            self.platter.tails[source] = [step for step in tail if step.position > position]

    def _apply_entry(self, entry: SourceEntry) -> None:
        platter, head, position = self.platter, self.platter.head(entry.source), (entry.epoch, entry.idx)
        if entry.retired:
            # Of the local source it was settled by an earlier transaction.
            platter.held.append((entry.source, position, list(entry.retired)))
        queues = platter.queues
        for row in entry.rows:
            queue = queues.setdefault(row.queue_id, PlatterQueue(entry.source))
            queue.rows[row.first_seq] = deepcopy(row)
        for item in entry.settled:
            if item.queue_id in queues:
                queue = queues[item.queue_id]
                for row in queue.rows.values():
                    for seq in range(max(item.first_seq, row.first_seq), min(item.last_seq, row.last_seq) + 1):
                        queue.settled.setdefault(seq, position)
        for queue_id, seq, count in entry.counts:
            if queue_id in queues:
                queues[queue_id].counts[seq] = count
        if entry.source == LOCAL:
            for item in entry.retired:
                queue = queues.setdefault(item.queue_id, PlatterQueue(entry.source))
                queue.next_seq = max(queue.next_seq, item.last_seq + 1)
        for queue_id, below in entry.delivered.items():
            queues.setdefault(queue_id, PlatterQueue(entry.source)).delivered = below
        for queue_id in entry.dropped:
            queues.pop(queue_id, None)
        marks = platter.marks.setdefault(entry.source, Marks())
        for change in entry.marks:
            for record in change.records():
                marks.apply(record)
        platter.heads[entry.source] = head.at(position, entry.reserved)

    def _let_go(self) -> None:
        """Of what is held the rows leave whose position is committed. Of a source that may still be undone they leave
        what would come back, too."""
        held, self.platter.held = self.platter.held, []
        for source, position, ranges in held:
            if not self.platter.head(source).is_committed(position):
                self.platter.held.append((source, position, ranges))
                continue
            states = [self.platter.queues, *(step.before for step in self.platter.tails.get(source, []))]
            for item in ranges:
                for state in states:
                    queue = state.get(item.queue_id)
                    for row in list(queue.rows.values()) if queue is not None else []:
                        if item.first_seq <= row.first_seq and row.last_seq <= item.last_seq:
                            assert queue is not None
                            queue.delete(row)


def _numbers(row: Row) -> range:
    return range(row.first_seq, row.last_seq + 1)


def _parts(row: Row, settled: dict[int, Position]) -> list[tuple[int, int]]:
    parts: list[tuple[int, int]] = []
    for seq in _numbers(row):
        if seq not in settled:
            continue
        if parts and parts[-1][1] == seq - 1:
            parts[-1] = (parts[-1][0], seq)
        else:
            parts.append((seq, seq))
    return parts
