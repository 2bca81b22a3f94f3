"""What expires in a backlog: when to look at which segment, and what leaves then.

What comes in: the time; somebody who buries what expires, if it goes somewhere. What goes out: the ready messages
whose time is over, in the order of their deadlines in each segment; wishes to read.
Rules: 1. Only what is ready expires. A message that is unacked when its time is over expires when it comes back. 2.
Without somebody to bury them, messages expire without their bodies: nothing is read. 3. Segments that leave memory
with deadlines in any order leave them, and a copy of the bodies, to the timetable.
Not here: deadlines of one segment (`deadlines.py`), bodies in the order of deadlines (`timetable.py`), what a
message's deadline is (`mortality.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Run
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.returned import Returned
from amqpd.queues.segment import Segment
from amqpd.queues.segments import Segments
from amqpd.queues.timetable import Timetable

# A deadline: who does not get the message in the dispatch to come never gets it (a TTL of 0).
INSTANT = 0
# What could not be buried is tried again so much later.
RETRY_MS = 1000
# What expires one by one in any order is read so long before its time after a restart.
PREPARE_MS = 60_000

Bury = Callable[[Run, int, int], int]
"""takes care of messages low..high-1 of the run, which then leave the queue; how many of them, from the first on: the
others have to stay"""


class Expiring(Segments):
    def __init__(self, queue_id: int, journal: JournalBuffer, durable: bool, fifo_returns: bool) -> None:
        super().__init__(queue_id, journal, durable)
        self.returned = Returned(fifo_returns)
        self.ready = 0
        self.ready_bytes = 0
        """of bodies; see `segment.py` rule 4"""
        self.due: list[tuple[int, int, Segment | Timetable]] = []
        """when to look at which segment, a heap; what is not `Segment.due_ms` any more is passed over"""
        self.instants: list[tuple[int, int]] = []
        """(first, last) published with the deadline INSTANT since the last dispatch"""
        self.buries = False
        """what expires goes somewhere, so its body is needed"""
        self.timetable = Timetable(queue_id, journal, self._timetable_changed)

    @property
    def next_due_ms(self) -> int | None:
        """When `expire` has something to do next."""
        due = self.due
        while due and due[0][2].due_ms != due[0][0]:
            heappop(due)
        return due[0][0] if due else None

    def end_instants(self, now_ms: int) -> None:
        """A dispatch is over: the time of what was published with INSTANT is now."""
        instants, self.instants = self.instants, []
        for first, last in instants:
            index = self.index_of(first)
            if index < len(self.segments) and self.segments[index].first <= last:
                segment = self.segments[index]
                if segment.deadlines is None:
                    segment.deadlines = Deadlines()
                segment.deadlines.add(now_ms, max(first, segment.first), last)
                self._schedule_at(segment, now_ms)

    def expire(self, now_ms: int, bury: Bury | None) -> int:
        """What is ready and whose deadline is `now_ms` or earlier leaves the queue, by way of `bury` if there is one.
        The number of messages. What is on disk only and has to be buried is `wanted`, and the rest waits for it."""
        count = 0
        retry: list[Segment] = []
        while (due_ms := self.next_due_ms) is not None and due_ms <= now_ms:
            segment = self.due[0][2]
            if isinstance(segment, Timetable):
                heappop(self.due)
                segment.due_ms = None
                count += self._expire_copies(now_ms, bury, retry)
                self._timetable_changed()
                if segment.due_ms is not None and segment.due_ms <= now_ms:
                    break
                continue
            if bury is not None and segment.runs is None:
                if self.wanted is None:
                    self.wanted = (segment.first, segment.last)
                break
            heappop(self.due)
            segment.due_ms = None
            assert segment.deadlines is not None
            waiting: list[tuple[int, int]] = []
            for first, last in segment.deadlines.due(now_ms):
                for part in segment.live_in(first, last) if segment.left else ():
                    count += self._expire_part(segment, *part, bury, waiting)
            if segment.left:
                segment.deadlines.overdue = waiting
                if waiting and bury is not None and any(self._ready_in(*part) for part in waiting):
                    retry.append(segment)
                self._schedule(segment)
        for segment in retry:
            if segment.left:
                self._schedule_at(segment, now_ms + RETRY_MS)
        return count

    def _expire_copies(self, now_ms: int, bury: Bury | None, retry: list[Segment]) -> int:
        """What is due in the timetable; its segment need not be in memory."""
        count = 0
        for first, last, run, low in self.timetable.due(now_ms):
            index = self.index_of(first)
            segment = self.segments[index] if index < len(self.segments) else None
            if segment is None or segment.first > first:
                continue
            waiting: list[tuple[int, int]] = []
            for part in segment.live_in(first, last):
                count += self._expire_part(segment, *part, bury, waiting, (run, first - low))
            if waiting:
                if segment.deadlines is None:
                    segment.deadlines = Deadlines()
                segment.deadlines.overdue += waiting
                if bury is not None and any(self._ready_in(*part) for part in waiting):
                    retry.append(segment)
        return count

    def _timetable_changed(self) -> None:
        next_ms = self.timetable.next_ms()
        if next_ms is not None:
            self._schedule_at(self.timetable, next_ms)

    def _leaves(self, segment: Segment) -> None:
        if self.buries and segment.deadlines is not None and segment.deadlines.scattered:
            self.timetable.take_over(segment)

    def _finish(self, segment: Segment) -> None:
        super()._finish(segment)
        if segment.batch is not None:
            self.timetable.forget(segment.batch)

    def _expire_part(
        self,
        segment: Segment,
        first: int,
        last: int,
        bury: Bury | None,
        waiting: list[tuple[int, int]],
        copy: tuple[Run, int] | None = None,
    ) -> int:
        """Unsettled messages whose time is over: what is unacked or has to stay goes to `waiting`. `copy` is a run
        that holds them, and the sequence number of its first message."""
        count, at = 0, first
        for low, high in self._ready_in(first, last):
            if low > at:
                waiting.append((at, low - 1))
            at = high + 1
            while low <= high:
                end = high
                if bury is not None:
                    if copy is None:
                        run, start, stop = segment.piece(low - segment.first, high - segment.first + 1)
                    else:
                        run, start, stop = copy[0], low - copy[1], high - copy[1] + 1
                    buried = bury(run, start, stop)
                    if buried < stop - start:
                        waiting.append((low + buried, high))
                        high = low + buried - 1
                    end = low + buried - 1
                if low <= end:
                    count += self._expired(low, end)
                low = end + 1
        if at <= last:
            waiting.append((at, last))
        return count

    def _expired(self, first: int, last: int) -> int:
        if first < self.cursor:
            self.returned.cut(first, last)
        count, nbytes = self.discard(first, last)
        self.ready -= count
        self.ready_bytes -= nbytes
        return count

    def _ready_in(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ready ones among the unsettled messages first..last of one segment, in order."""
        found = self.returned.within(first, min(last, self.cursor - 1)) if first < self.cursor else []
        if last >= self.cursor:
            found.append((max(first, self.cursor), last))
        return found

    def _recovered(self, segment: Segment) -> None:
        """The segment, which is on disk only, was there at the start."""
        if segment.deadlines is not None and segment.deadlines.scattered:
            # Read before its time, so that its messages are in the timetable when it leaves memory again.
            self._schedule_at(segment, (segment.deadlines.next_ms() or 0) - PREPARE_MS)
        else:
            self._schedule(segment)

    def _schedule(self, segment: Segment) -> None:
        if segment.deadlines is not None:
            next_ms = segment.deadlines.next_ms()
            if next_ms is not None:
                self._schedule_at(segment, next_ms)

    def _schedule_at(self, segment: Segment | Timetable, due_ms: int) -> None:
        if segment.due_ms is None or due_ms < segment.due_ms:
            segment.due_ms = due_ms
            heappush(self.due, (due_ms, segment.first, segment))
