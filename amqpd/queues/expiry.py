"""What expires in a backlog: when to look at which segment, and what leaves then.

What comes in: the time; somebody who buries what expires, if it goes somewhere. What goes out: the ready messages
whose time is over; wishes to read.
Rules: 1. Only what is ready expires. A message that is unacked when its time is over expires when it comes back. 2.
Without somebody to bury them, messages expire without their bodies: nothing is read. 3. What has to be buried and
cannot be at once is *doomed*: it is not ready any more, and nobody gets it. 4. Segments that leave memory with
deadlines in any order leave them, and a copy of the bodies, to the timetable.
Not here: deadlines of one segment (`deadlines.py`), bodies in the order of deadlines (`timetable.py`), what a
message's deadline is, and when the doomed are buried (`mortality.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from amqpd.audit.kinds import EXPIRED
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import Row
from amqpd.kernel import Run
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.segment import Segment
from amqpd.queues.segments import Segments
from amqpd.queues.sorted_keys import SortedKeys
from amqpd.queues.stretches import Stretches
from amqpd.queues.timetable import Timetable

# A deadline: who does not get the message in the dispatch to come never gets it (a TTL of 0).
INSTANT = 0
# To look at a segment or at the timetable, and at a stretch that is due, in the unit of `limiting/turns.py`.
LOOK_WORK, STRETCH_WORK = 2, 3
# A time and the number of a segment's first message in one number, by which segments are sorted.
FIRST_BITS = 64
# What could not be buried is tried again so much later.
RETRY_MS = 1000
# What expires one by one in any order is read so long before its time after a restart.
PREPARE_MS = 60_000

Bury = Callable[[Run, int, int], int]
"""takes care of messages low..high-1 of the run, which then leave the queue; how many of them, from the first on: the
others have to stay"""
Doomed = Callable[[int, int], object]
"""is told of messages first..last that are over and must be buried"""


class Expiring(Segments):
    def __init__(self, queue_id: int, journal: JournalBuffer, durable: bool, fifo_returns: bool) -> None:
        super().__init__(queue_id, journal, durable)
        self.returned = Stretches(fifo_returns)
        self.ready = 0
        self.unacked = 0
        self.ready_bytes = 0
        self.unacked_bytes = 0
        """of bodies; see `segment.py` rule 4"""
        self.instants: list[tuple[int, int]] = []
        """(first, last) published with the deadline INSTANT since the last dispatch"""
        self.doomed = Stretches()
        """at or behind the cursor: over, counted as unacked, and not buried yet"""
        self.due: dict[int, Segment | Timetable] = {}
        """when to look at which segment, see `_key`"""
        self._due_keys = SortedKeys()
        self.buries = False
        """what expires goes somewhere, so its body is needed"""
        self.timetable = Timetable(queue_id, journal, self._timetable_changed)

    @property
    def next_due_ms(self) -> int | None:
        """When `expire` has something to do next."""
        return (self._due_keys.first >> FIRST_BITS) if self.due else None

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
                self.schedule_at(segment, now_ms)

    def expire(self, now_ms: int, bury: Bury | None, doomed: Doomed, cause: int, work_max: int) -> tuple[int, int]:
        """What is ready and whose deadline is `now_ms` or earlier is not ready any more. Without `bury` it is gone.
        With it, what has its body at hand goes that way; the rest counts as unacked from now on, and `doomed` is told
        of it: it may have to be read, or to wait for somebody who takes it, and until then nobody else gets it.
        The number of messages that are gone, and what it took, in the unit of `limiting/turns.py`; from `work_max` on
        it breaks off, and what is left is still due. `cause` says what became of the messages."""
        count = work = 0
        while work < work_max and (due_ms := self.next_due_ms) is not None and due_ms <= now_ms:
            segment = self.due[self._due_keys.first]
            work += LOOK_WORK
            if isinstance(segment, Timetable):
                self._unschedule(segment)
                gone, took = self._expire_copies(now_ms, bury, doomed, cause, work_max - work)
                count += gone
                work += took
                self._timetable_changed()
                due_ms = self.timetable.due_ms
                if due_ms is not None and due_ms <= now_ms:
                    break
                continue
            if bury is not None and segment.damage:
                # It cannot be buried, and stays where it is (`fences.py`).
                self._unschedule(segment)
                continue
            if bury is not None and segment.runs is None and segment.scattered:
                # Read now, before its time, so that its messages are in the timetable when it leaves memory again.
                if self.wanted is None:
                    self.wanted = (segment.first, segment.last)
                break
            self._unschedule(segment)
            gone, took = self._expire_in(segment, now_ms, None if bury is None else doomed)
            count += gone
            work += took
        return count, work

    def _expire_in(self, segment: Segment, now_ms: int, doomed: Doomed | None) -> tuple[int, int]:
        count = 0
        deadlines = segment.deadlines
        assert deadlines is not None
        waiting: list[tuple[int, int]] = []
        due = deadlines.due(now_ms)
        for first, last in due:
            for low, high in segment.live_in(first, last) if segment.left else ():
                for part in self._ready_or(waiting, low, high):
                    if doomed is None:
                        count += self.leave(part[0], part[1], EXPIRED)
                    else:
                        self._doom(segment, *part)
                        doomed(*part)
                        if not segment.stored:
                            deadlines.doomed.append(part)
        if segment.left:
            # What is unacked now expires when it comes back.
            for part in waiting:
                deadlines.keep(*part)
            self._schedule(segment)
        return count, STRETCH_WORK * len(due)

    def _expire_copies(
        self, now_ms: int, bury: Bury | None, doomed: Doomed, cause: int, work_max: int
    ) -> tuple[int, int]:
        """What is due in the timetable; its segment need not be in memory."""
        count = work = 0
        for first, last, run, low in self.timetable.due(now_ms):
            work += STRETCH_WORK
            index = self.index_of(first)
            segment = self.segments[index] if index < len(self.segments) else None
            if segment is None or segment.first > first:
                if work >= work_max:
                    break
                continue
            waiting: list[tuple[int, int]] = []
            stopped = False
            for live in segment.live_in(first, last):
                for begin, end in self._ready_or(waiting, *live):
                    at = low + begin - first
                    buried = end - begin + 1 if bury is None else bury(run, at, at + end - begin + 1)
                    if buried:
                        count += self.leave(begin, begin + buried - 1, cause)
                    if begin + buried <= end:
                        self._doom(segment, begin + buried, end)
                        doomed(begin + buried, end)
                        stopped = True
            if waiting:
                if segment.deadlines is None:
                    segment.deadlines = Deadlines()
                for part in waiting:
                    segment.deadlines.keep(*part)
            if stopped or work >= work_max:
                # The others keep their copies until there is room: what is doomed may have to be read again.
                break
        return count, work

    def _ready_or(self, waiting: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
        """The ready ones among the unsettled messages first..last; the others go to `waiting`, but for those behind
        the cursor that die of something else already."""
        found = self.ready_in(first, last)
        at = first
        for low, high in found:
            if low > at:
                waiting.append((at, low - 1))
            at = high + 1
        if at <= last:
            waiting.append((at, last))
        if self.doomed:
            return [part for low, high in found for part in self.not_doomed(low, high)]
        return found

    def take_deadlines(self, first: int, rows: list[Row]) -> None:
        """See `Segments`. Where the row is damaged too, the messages have no deadline until a restart."""
        if self.untimed[-1].first == first:
            segment = self.untimed.pop()
            segment.batch = None
            if rows and rows[0].first_seq == first and rows[0].deadlines and not rows[0].damage:
                # All of it, also what is overdue: it is told again, and kept again.
                segment.deadlines = Deadlines.unpack(rows[0].deadlines)
                self._schedule(segment)

    def _timetable_changed(self) -> None:
        lost, self.timetable.lost = self.timetable.lost, []
        if lost:
            found = [each for each in self.segments if each.batch is not None and each.batch in lost]
            self.untimed = [*reversed(found), *self.untimed]
        next_ms = self.timetable.next_ms()
        if next_ms is not None:
            self.schedule_at(self.timetable, next_ms)

    def write_part(self) -> int:
        return self.timetable.write_row()

    def leaves(self, segment: Segment) -> int:
        if self.buries and segment.scattered:
            self._unschedule(segment)
            self.timetable.take_over(segment)
            if segment.deadlines is not None and segment.deadlines.back:
                self.schedule_at(segment, 0)
            return segment.left
        return 0

    def _finish(self, segment: Segment) -> None:
        super()._finish(segment)
        self._unschedule(segment)
        if segment.batch is not None:
            self.timetable.forget(segment.batch)

    def leave(self, first: int, last: int, cause: int) -> int:
        """The ready messages first..last leave the queue; how many that are."""
        if first < self.cursor:
            self.returned.cut(first, last)
        count, nbytes = self.discard(first, last, False, cause)
        self.ready -= count
        self.ready_bytes -= nbytes
        if self.miscounted_bytes:
            self.count_again()
        return count

    def doom(self, seq: int) -> None:
        """This message, which is ready, counts as unacked from now on: it will be buried."""
        self._doom(self.segments[self.index_of(seq)], seq, seq)

    def _doom(self, segment: Segment, first: int, last: int) -> None:
        """Ready messages count as unacked. What stands at the cursor is passed; what stands behind it will be."""
        if first < self.cursor:
            self.returned.cut(first, last)
        elif segment is self.segments[self.at] and (
            segment.first + segment.next_live(self.cursor - segment.first, 1)[0] == first
        ):
            self.cursor = last + 1
        else:
            self.doomed.add(first, last)
        count, nbytes = last - first + 1, segment.bytes_in(first, last)
        self.ready -= count
        self.unacked += count
        self.ready_bytes -= nbytes
        self.unacked_bytes += nbytes
        if segment.estimated:
            segment.taken_bytes += nbytes

    def settle_doomed(self, first: int, last: int) -> None:
        """Doomed messages first..last are buried."""
        for part in self.doomed.within(first, last):
            self.doomed.cut(*part)

    def not_doomed(self, first: int, last: int) -> list[tuple[int, int]]:
        """Parts of first..last, at or behind the cursor."""
        found: list[tuple[int, int]] = []
        for low, high in self.doomed.within(first, last):
            if first < low:
                found.append((first, low - 1))
            first = high + 1
        if first <= last:
            found.append((first, last))
        return found

    def ready_in(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ready ones among the unsettled messages first..last of one segment, in order."""
        found = self.returned.within(first, min(last, self.cursor - 1)) if first < self.cursor else []
        if last >= self.cursor:
            found.append((max(first, self.cursor), last))
        return found

    def recovered(self, segment: Segment) -> None:
        """The segment, which is on disk only, was there at the start."""
        if segment.scattered:
            assert segment.deadlines is not None
            self.schedule_at(segment, (segment.deadlines.next_ms() or 0) - PREPARE_MS)
        else:
            self._schedule(segment)

    def _schedule(self, segment: Segment) -> None:
        if segment.deadlines is not None:
            next_ms = segment.deadlines.next_ms()
            if next_ms is not None:
                self.schedule_at(segment, next_ms)

    def expire_damaged(self) -> None:
        """What is damaged and could not be buried need not be any more: it may expire."""
        for segment in self.damaged.values():
            if segment.deadlines is not None and segment.deadlines.back:
                self.schedule_at(segment, 0)
            else:
                self._schedule(segment)

    def schedule_at(self, segment: Segment | Timetable, due_ms: int) -> None:
        if segment.due_ms is None or due_ms < segment.due_ms:
            self._unschedule(segment)
            segment.due_ms = due_ms
            key = _key(segment)
            self.due[key] = segment
            self._due_keys.add(key)

    def _unschedule(self, segment: Segment | Timetable) -> None:
        if segment.due_ms is not None:
            key = _key(segment)
            del self.due[key]
            self._due_keys.remove(key)
            segment.due_ms = None

    # Bytes of bodies

    def ready_bytes_in(self, segment: Segment) -> int:
        if segment.whole and segment.first >= self.cursor and not self.doomed:
            return segment.body_bytes
        nbytes = 0
        for low, high in segment.live_ranges():
            for part in self.ready_in(segment.first + low, segment.first + high - 1):
                for first, last in self.not_doomed(*part) if self.doomed else (part,):
                    nbytes += segment.bytes_in(first, last)
        return nbytes

    def recount(self, segment: Segment, body_bytes: int, rest: Segment | None) -> None:
        ready_bytes, taken_bytes = self.ready_bytes_in(segment), segment.taken_bytes
        self.ready_bytes += ready_bytes - (body_bytes - taken_bytes)
        self.unacked_bytes += segment.body_bytes - ready_bytes - taken_bytes
        segment.taken_bytes = 0
        if rest is not None:
            # Untouched, so all of it is ready.
            rest.body_bytes -= segment.body_bytes - body_bytes
            self.ready_bytes -= segment.body_bytes - body_bytes

    def count_again(self) -> None:
        self.ready_bytes += self.miscounted_bytes
        self.unacked_bytes -= self.miscounted_bytes
        self.miscounted_bytes = 0


def _key(segment: Segment | Timetable) -> int:
    """By the time, then in the order in which they stand in the queue. The timetable, whose number is -1, is the
    first of its time."""
    assert segment.due_ms is not None
    return (segment.due_ms << FIRST_BITS) + segment.first + 1
