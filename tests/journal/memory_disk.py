"""A disk in memory with the behaviour of `SqliteDisk`, and hooks to make it fail; it passes the same contract tests.

What comes in: transactions. What goes out: what a real disk would give back, also after `crash`.
Rules: 1. `MemoryDisk(platter)` opens what an earlier one left on the same `Platter`, as a restart does. 2. What was
not committed is not on the platter. 3. Rows that are discarded are gone at once: pieces are SQLite's business.
Hooks: `before_commit(transaction)` may raise, or block on what a test holds (a thread's Event); `failing[index]` is
raised by the commit of that index; `durable_after_failure` says whether its transaction is on the platter all the
same (both happen after a failed fsync); `full` refuses rows, and only rows, unless the reserve is given up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

from amqpd.journal.errors import DiskFailure, DiskFull
from amqpd.journal.records import (
    READ_ROWS_MAX,
    Range,
    Recovered,
    RecoveredQueue,
    RecoveredRow,
    Row,
    Transaction,
)


@dataclass
class PlatterQueue:
    rows: dict[int, Row] = field(default_factory=dict)
    """first_seq -> row"""
    settled: set[int] = field(default_factory=set)
    """sequence numbers"""
    next_seq: int = 0
    delivered: int = 0
    counts: dict[int, int] = field(default_factory=dict)


@dataclass
class Platter:
    """What survives a crash."""

    index: int = 0
    queues: dict[int, PlatterQueue] = field(default_factory=dict)
    damaged: set[tuple[int, int]] = field(default_factory=set)
    """(queue_id, first_seq) of rows whose checksum does not fit"""


class MemoryDisk:
    def __init__(self, platter: Platter | None = None) -> None:
        self.platter = platter if platter is not None else Platter()
        self.before_commit: Callable[[Transaction], None] = lambda transaction: None
        self.failing: dict[int, Exception] = {}
        self.durable_after_failure = False
        self.full = False
        self.reserve_held = True
        self.committed: list[Transaction] = []
        self.closed = False
        self._recovered = False
        self._lock = threading.Lock()
        """a read sees a whole transaction or none of it"""
        self._failure: Exception | None = None

    def recover(self) -> Recovered:
        self._recovered = True
        for queue in self.platter.queues.values():
            for row in list(queue.rows.values()):
                living = [seq for seq in _numbers(row) if seq not in queue.settled]
                if not row.persistent or not living:
                    del queue.rows[row.first_seq]
            stored = {seq for row in queue.rows.values() for seq in _numbers(row)}
            queue.settled &= stored
            queue.counts = {seq: queue.counts[seq] for seq in sorted(queue.counts) if seq in stored - queue.settled}
            queue.next_seq = max(queue.next_seq, queue.delivered)
        return Recovered(
            self.platter.index,
            {
                queue_id: RecoveredQueue(
                    [
                        RecoveredRow(
                            *(row.first_seq, row.last_seq, len(row.data), _parts(row, queue.settled)),
                            *(row.body_bytes, row.published_ms, row.deadlines),
                        )
                        for _, row in sorted(queue.rows.items())
                    ],
                    queue.next_seq,
                    queue.delivered,
                    dict(queue.counts),
                )
                for queue_id, queue in self.platter.queues.items()
            },
        )

    def commit(self, transaction: Transaction) -> None:
        if not self._recovered or transaction.index != self.platter.index + 1:
            raise ValueError(f"transaction {transaction.index} does not follow {self.platter.index}")
        for row in transaction.rows:
            row.join()
        if self._failure is not None:
            raise DiskFailure(str(self._failure))
        self.before_commit(transaction)
        if self.full and self.reserve_held:
            raise DiskFull("no space left on the platter")
        if self.full and transaction.rows:
            raise DiskFull("no space left on the platter, nor in the reserve")
        failure = self.failing.get(transaction.index)
        if failure is not None:
            self._failure = failure
            if self.durable_after_failure:
                self._apply(transaction)
            raise failure
        with self._lock:
            self._apply(transaction)
        self.committed.append(transaction)

    def read(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Row]:
        with self._lock:
            rows = sorted(self.platter.queues.get(queue_id, PlatterQueue()).rows.items())
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

    def vacuum_step(self) -> bool:
        return False

    def release_reserve(self) -> None:
        self.reserve_held = False

    def restore_reserve(self) -> bool:
        self.reserve_held = self.reserve_held or not self.full
        return self.reserve_held and not self.full

    def close(self) -> None:
        self.closed = True

    def _apply(self, transaction: Transaction) -> None:
        queues = self.platter.queues
        for row in transaction.rows:
            queue = queues.setdefault(row.queue_id, PlatterQueue())
            queue.rows[row.first_seq] = deepcopy(row)
            queue.next_seq = max(queue.next_seq, row.last_seq + 1)
        for item in transaction.settled:
            if item.queue_id in queues:
                queue = queues[item.queue_id]
                stored = [row for row in queue.rows.values() if _overlaps(item, row)]
                queue.settled.update(
                    *(range(max(item.first_seq, r.first_seq), min(item.last_seq, r.last_seq) + 1) for r in stored)
                )
        for queue_id, seq, count in transaction.counts:
            if queue_id in queues:
                queues[queue_id].counts[seq] = count
        for item in transaction.deletes:
            queue = queues.setdefault(item.queue_id, PlatterQueue())
            queue.counts = {seq: n for seq, n in queue.counts.items() if not item.first_seq <= seq <= item.last_seq}
            queue.next_seq = max(queue.next_seq, item.last_seq + 1)
            for row in list(queue.rows.values()):
                if item.first_seq <= row.first_seq and row.last_seq <= item.last_seq:
                    del queue.rows[row.first_seq]
                    queue.settled.difference_update(_numbers(row))
        for queue_id, below in transaction.delivered.items():
            queue = queues.setdefault(queue_id, PlatterQueue())
            queue.delivered = below
        for queue_id in transaction.dropped:
            queues.pop(queue_id, None)
        self.platter.index = transaction.index


def _numbers(row: Row) -> range:
    return range(row.first_seq, row.last_seq + 1)


def _overlaps(item: Range, row: Row) -> bool:
    return item.first_seq <= row.last_seq and row.first_seq <= item.last_seq


def _parts(row: Row, settled: set[int]) -> list[tuple[int, int]]:
    parts: list[tuple[int, int]] = []
    for seq in _numbers(row):
        if seq not in settled:
            continue
        if parts and parts[-1][1] == seq - 1:
            parts[-1] = (parts[-1][0], seq)
        else:
            parts.append((seq, seq))
    return parts
