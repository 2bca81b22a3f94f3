"""Queues of the node in place of the plain ones: `Queue`, with a journal that is the simulated log.

What comes in: what the leader's end asks, by `JournalledQueue`; entries of the log, for a new leader. What goes out:
deliveries; transactions of the journal, which are parts of entries; for the law, what they make of messages.
Rules: 1. What a queue has done is told from what it has: whatever leaves it, or comes back, is a record of the log,
and the law judges that. 2. A new leader's queues are made of rows alone; what stands in them is what the records say.
3. Messages leave memory at any time, and are read when the time has come. 4. Queues are dispatched also while the
leader does not deliver: they withhold then.
Not here: the disk (`tests/journal`), several nodes that have the log (`tests/replication/simulation`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import RecoveredQueue, RecoveredRow, Row, SeqRange
from amqpd.journal.transaction import JournalTransaction
from amqpd.kernel import Run
from amqpd.message.properties import PropertiesReader
from amqpd.node.led_queue import JournalledQueue
from amqpd.queues.messages import Messages, RowsWanted
from amqpd.queues.queue import Queue
from amqpd.vocabulary.records import QueueRecord
from tests.remote.simulation.log import Contents, Enqueued, Entry, LeaderLog, Returned, Settled
from tests.remote.simulation.queue import NO_BOUND, name_of

if TYPE_CHECKING:
    from tests.remote.simulation.led import Led

READ_MS = 20
ROWS_AT_ONCE = 2
WORK = [5, 60, 1 << 20]
"""of a tick"""
MEMORY_BYTES = [0, 400, 1 << 20]


class SimulatedRows:
    """What the log has of rows, at one replica."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.rows: dict[int, dict[int, Row]] = {}
        self._settled: list[SeqRange] = []
        self._delivered: dict[int, int] = {}
        self._counts: dict[tuple[int, int], int] = {}
        for entry in entries:
            if entry.transaction is not None:
                self.apply(entry.transaction)

    def apply(self, transaction: JournalTransaction) -> None:
        for row in transaction.rows:
            row.join()
            self.rows.setdefault(row.queue_id, {})[row.first_seq] = row
        self._settled += transaction.settled
        for each in transaction.deletes:
            kept = self.rows.get(each.queue_id, {})
            for gone in [at for at, row in kept.items() if at >= each.first_seq and row.last_seq <= each.last_seq]:
                del kept[gone]
        self._delivered.update(transaction.delivered)
        self._counts.update({(queue_id, seq): count for queue_id, seq, count in transaction.counts})
        for queue_id in transaction.dropped:
            self.rows.pop(queue_id, None)

    def within(self, queue_id: int, first: int, last: int) -> list[Row]:
        rows = self.rows.get(queue_id, {})
        return [rows[at] for at in sorted(rows) if at <= last and rows[at].last_seq >= first]

    def recovered(self, queue_id: int, next_seq: int) -> RecoveredQueue:
        """As the journal gives it to a queue that begins."""
        found, live = [], set[int]()
        for row in self.within(queue_id, 0, next_seq):
            gone = sorted(
                (max(each.first_seq, row.first_seq), min(each.last_seq, row.last_seq))
                for each in self._settled
                if each.queue_id == queue_id and each.first_seq <= row.last_seq and each.last_seq >= row.first_seq
            )
            left = {*range(row.first_seq, row.last_seq + 1)}
            for first, last in gone:
                left.difference_update(range(first, last + 1))
            live |= left
            if left and row.persistent:
                size, body_bytes, came_ms = len(row.data), row.body_bytes, row.published_ms
                found.append(
                    RecoveredRow(row.first_seq, row.last_seq, size, gone, body_bytes=body_bytes, published_ms=came_ms)
                )
        counts = {seq: count for (of, seq), count in self._counts.items() if of == queue_id and seq in live}
        return RecoveredQueue(found, next_seq, self._delivered.get(queue_id, 0), counts)


class LeadingNode:
    """The node of one leader, as its queues know it."""

    def __init__(self, led: Led) -> None:
        self.led = led
        self.chance = led.world.clock.chance
        self.journal = JournalBuffer()
        log = led.world.log
        self.disk = SimulatedRows((*log.committed, *log.tail))
        self.properties = PropertiesReader()
        self.work_left = 1 << 30
        self.is_again = False
        self.steps: deque[Iterator[None]] = deque()
        self.dispatching = self
        self.to_dispatch = set[Any]()

    @property
    def now_ms(self) -> int:
        return int(self.led.world.clock.now_ms)

    def take(self) -> JournalTransaction:
        """What has gathered, for the entry that is cut."""
        transaction = self.journal.take()
        self.disk.apply(transaction)
        return transaction

    def committed(self, transaction: JournalTransaction) -> None:
        self.journal.stored(transaction.index)
        self.journal.committed(transaction.index)

    def later(self, steps: Iterator[None]) -> None:
        self.steps.append(steps)
        if len(self.steps) == 1:
            self.step()

    def step(self) -> None:
        if self.steps and next(self.steps[0], self) is self:
            self.steps.popleft()

    def again(self, _: object) -> None:
        self.is_again = True

    def wake(self, *_: object) -> None:
        raise AssertionError("nothing in here has a deadline")

    def dead_letter(self, *_: object) -> tuple[int, int]:
        raise AssertionError("no queue here has dead letters")

    keep_dead_letters = end_queue = dead_letter

    def log(self, event: str, **fields: Any) -> None:
        raise AssertionError(f"{event}: {fields}")

    def quarantine(self, queue: Queue, error: Exception) -> None:
        raise error

    def holds_lease(self, _: int) -> bool:
        return True


class DurableQueue(JournalledQueue):
    """One queue of the node, with what the simulation asks of a plain one."""

    def __init__(
        self, node: LeadingNode, number: int, log: LeaderLog, found: Contents, first: int, bound: int
    ) -> None:
        self.number, self.log = number, log
        self._bound = bound
        host: Any = node
        queue = Queue(self._record(), host, {})
        queue.recover(0, node.disk.recovered(queue.record.id, first))
        super().__init__(host, queue)
        self.node, self.real = node, queue
        self._level = next(iter(queue.levels()))
        self._live: dict[int, int] = {}
        """what the log has of it: number -> how often it came back"""
        self._names: list[int] = []
        self._figures = 0, -1, 0
        """what it had when it was looked at last"""
        self._returns = 0
        self._is_purging = False
        counts = {seq: count for (of, seq), count in found.counts.items() if of == number}
        self._live = {seq: counts.get(seq, 0) for seq in found.live[number]}
        if self._found() != self._live:
            raise AssertionError(f"queue {number} is recovered with {self._found()}, and the log has {self._live}")
        self.withhold(True)

    def _record(self) -> QueueRecord:
        bounds = {"x-max-length": self._bound, "x-overflow": "reject-publish"} if self._bound != NO_BOUND else {}
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1, **bounds}
        return QueueRecord("/", f"q{self.number}", self.number << 8, arguments=arguments)

    # What the simulation looks at

    @property
    def bound(self) -> int:
        return self._bound

    @bound.setter
    def bound(self, bound: int) -> None:
        self._bound = bound
        self.real.apply(self._record(), {})

    @property
    def runs(self) -> dict[int, int]:
        return self._live

    @property
    def ready(self) -> list[int]:
        level = self._level
        assert isinstance(level, Messages)
        return [
            seq
            for part in level.store.live_in(0, level.store.next_seq)
            for first, last in level.backlog.ready_in(*part)
            for seq in range(first, last + 1)
        ]

    @property
    def purges(self) -> deque[Iterator[None]]:
        return self.node.steps

    # What it does

    def publish(self, run: Run, redelivered: bool) -> int:
        self._names = [name_of(run, i) for i in range(run.count)]
        return super().publish(run, redelivered)

    def requeue(self, first: int, last: int) -> None:
        self._returns += 1
        super().requeue(first, last)

    def dispatch(self) -> None:
        node, queue = self.node, self.real
        self.withhold(not node.led.leader.delivers)
        node.work_left = node.chance.choice(WORK)
        node.is_again = True
        while node.is_again and node.work_left > 0:
            node.is_again = False
            queue.dispatch()
        queue.shrink(node.chance.choice(MEMORY_BYTES))
        request = queue.next_read(node.chance.random() < 0.5)
        if request is not None:
            node.led.world.clock.after(0, READ_MS, partial(self._loaded, request))
        self._note()

    def _loaded(self, request: RowsWanted) -> None:
        rows = self.node.disk.within(request.queue_id, request.first, request.last)
        self.real.loaded(request, rows[:ROWS_AT_ONCE])
        self.node.led.world.clock.counts["read"] += 1
        self.node.led.run()

    def delete(self) -> None:
        self.real.delete()
        while self.node.steps:
            self.node.step()

    def step(self) -> None:
        self.node.step()

    def purge_some(self, part: list[int]) -> None:
        """These have left with a step of a purge: for the law."""

    def _purging(self, gone: Callable[[int, bool], object]) -> Iterator[None]:
        steps = super()._purging(partial(self._left, gone))
        while True:
            self._is_purging = True
            try:
                next(steps)
            except StopIteration:
                return
            finally:
                self._is_purging = False
            yield

    def _left(self, gone: Callable[[int, bool], object], count: int, is_last: bool) -> None:
        self._is_purging = False
        gone(count, is_last)

    def _asked(self, question: Callable[[], Any], otherwise: Any) -> Any:
        said = super()._asked(question, otherwise)
        self._note()
        return said

    # The log

    def _found(self) -> dict[int, int]:
        """Number -> how often it came back, of what is there."""
        level = self._level
        assert isinstance(level, Messages)
        return {
            seq: self.real.delivery_count(seq) or 0
            for first, last, _ in level.backlog.standing()
            for seq in range(first, last + 1)
        }

    def _note(self) -> None:
        """What became of it since the last time."""
        backlog = self._level.backlog
        figures = backlog.store.next_seq, backlog.ready + backlog.unacked, self._returns
        if self.real.is_deleted or figures == self._figures:
            return
        self._figures = figures
        before, self._live = self._live, self._found()
        for seq, count in self._live.items():
            if seq not in before:
                self.log.append(Enqueued(self.number, seq, self._names.pop(0)))
            if count > before.get(seq, 0):
                self.log.append(Returned(self.number, seq, count))
        gone = [seq for seq in before if seq not in self._live]
        if self._is_purging and gone:
            self.purge_some(gone)
        for seq in gone:
            self.log.append(Settled(self.number, seq, seq, self._is_purging))
