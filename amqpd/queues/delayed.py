"""The delayed messages of a virtual host: a backlog that nobody consumes, and that gives back what falls due.

What comes in: runs with a delay; the time. What goes out: the runs, when their time has come.
Rules: 1. Whatever their delivery mode, delayed messages are on disk before they are confirmed, and survive a restart:
there is no client any more that could publish them again. 2. A message leaves the store in the tick in which it
enters its queues: one transaction of the journal has both. 3. It never comes too early. 4. A damaged message holds
back nothing else: delayed messages have no order.
Not here: what delays a message (`amqpd/message/delays.py`), where it goes then (`amqpd/publishing/routing.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from amqpd.audit.kinds import RELEASED
from amqpd.audit.publication import Publication
from amqpd.kernel import Run
from amqpd.queues.host import QueueHost
from amqpd.queues.messages import Messages
from amqpd.queues.queue import Queue
from amqpd.vocabulary.records import QueueRecord

# What it takes to publish a run again, in the unit of `limiting/turns.py`, without routing and copies.
RELEASE_WORK = 10

Release = Callable[[str, Run], int]
"""publishes the run again in the virtual host: its publication in the audit log, 0 if that does not record"""


class DelayedMessages(Queue):
    """Like a queue for the node, which pages it and looks at it in time; but no client can name it."""

    def __init__(self, vhost: str, number: int, host: QueueHost[Queue], release: Release) -> None:
        """`number`: under which the journal has them (`vocabulary/journal_numbers.py`)."""
        super().__init__(QueueRecord(vhost, "delayed messages", number), host, {})
        self._release = release
        self.messages.transfers(True)
        self._falling: deque[tuple[int, int]] = deque()
        """(first, last) whose time has come, and that must be read first"""

    def take_over(self, level: Messages) -> None:
        """Have these messages, which are a store's, in place of none. Its books are to be looked at then."""
        assert not self.backlog.ready
        self.messages, self.backlog = level, level.backlog
        level.transfers(True)
        self._find_plain()
        self.facts.begin(level.backlog.ready)

    def earliest_ms(self) -> int | None:
        """The first time. (`next_due_ms` is when the store wants to look, which may be some time before.)"""
        times = []
        for level in self.messages.levels():
            times.append(level.store.agenda.timetable.earliest_ms)
            segments = level.store.segments
            times += [segment.deadlines.next_ms() for segment in segments if segment.deadlines is not None]
        return min((each for each in times if each is not None), default=None)

    def delay(self, run: Run, delay_ms: int, publication: Publication | None) -> bool:
        """Keep the run for so long; True: its confirm must wait for the journal."""
        self.facts.accepted += run.count
        now_ms = self.host.now_ms
        # The clock is rounded down.
        return self.backlog.publish(run, True, now_ms, now_ms + delay_ms + 1, publication)

    def dispatch(self) -> None:
        messages, falling = self.messages, self._falling
        while self.host.work_left > 0 and (due_ms := messages.next_due_ms) is not None and due_ms <= self.host.now_ms:
            # In the order of their times, also after a pause.
            gone, work = messages.expire(
                due_ms,
                self._fall_due,
                lambda first, last: falling.append((first, last)),
                RELEASED,
                self.host.work_left,
            )
            self.host.work_left -= work
            self.facts.expired += gone
            if messages.next_due_ms == due_ms:
                break  # something must be read first
        while falling:
            first, last = falling[0]
            count, _, stopped = messages.transfer(first, last, self._fall_due, RELEASED)
            self.facts.expired += count
            if stopped <= last:
                falling[0] = stopped, last
                if self.host.work_left <= 0:
                    self.host.again(self)
                break
            falling.popleft()
        if self.damage:
            self.look_for_damage()
        due_ms = messages.next_due_ms
        if due_ms is not None:
            self.host.wake(self, due_ms)

    def _fall_due(self, run: Run, low: int, high: int) -> tuple[int, int]:
        if self.host.work_left <= 0:
            return 0, 0
        self.host.work_left -= RELEASE_WORK
        return high - low, self._release(self.record.vhost, run.part(low, high))
