"""What expires in a backlog, and leaves then.

What comes in: the time; a function that takes what expires, if it goes somewhere. What goes out: the ready
messages that have expired; requests to read.
Rules: 1. Only what is ready expires. A message that is unacked at its deadline expires when it comes back. 2.
Messages that go nowhere expire without their bodies: nothing is read. 3. What has to be transferred, to a dead letter
exchange mostly, and cannot be at once is *leaving*: it is not ready any more, and nobody gets it.
Not here: when to look at which segment (`agenda.py`), bodies in the order of deadlines (`timetable.py`), what a
message's deadline is, and when what is leaving is transferred (`removal.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from amqpd.audit.kinds import DEAD_EXPIRED, EXPIRED
from amqpd.kernel import Run
from amqpd.queues.backlog import Backlog
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.segment import Segment
from amqpd.queues.timetable import Timetable

# To look at a segment or at the timetable, and at a stretch that is due, in the unit of `flow/turns.py`.
LOOK_WORK, STRETCH_WORK = 2, 3
# What could not be transferred is tried again after this time.
RETRY_MS = 1000
# In the place of a publication: what is taken care of leaves later.
LATER = -1

Transfer = Callable[[Run, int, int], tuple[int, int]]
"""takes care of messages low..high-1 of the run, which then leave the queue; how many of them, from the first on: the
others have to stay; and the publication of what was published instead of them, 0 if that is not recorded. LATER, of
what is taken already (`Expiry.transfer`): they do not leave yet, and who takes care of them says when they do"""
Leaving = Callable[[int, int], object]
"""is told of messages first..last that have expired and must be transferred"""


class Expiry:
    """Takes the ready messages that have expired out of one backlog."""

    def __init__(self, backlog: Backlog) -> None:
        self.backlog = backlog
        self.store = backlog.store
        self._agenda = backlog.store.agenda

    @property
    def next_due_ms(self) -> int | None:
        """When `expire` has something to do next."""
        return self._agenda.next_ms

    def end_instants(self, now_ms: int) -> None:
        """A dispatch has ended: the deadline of what was published with INSTANT is now."""
        instants, self.backlog.instants = self.backlog.instants, []
        for first, last in instants:
            index = self.store.index_of(first)
            if index < len(self.store.segments) and self.store.segments[index].first <= last:
                segment = self.store.segments[index]
                if segment.deadlines is None:
                    segment.deadlines = Deadlines()
                segment.deadlines.add(now_ms, max(first, segment.first), last)
                self._agenda.add(segment, now_ms)

    def expire(
        self, now_ms: int, transfer: Transfer | None, leaving: Leaving, cause: int, work_max: int
    ) -> tuple[int, int]:
        """What is ready and whose deadline is `now_ms` or earlier is not ready any more. Without `transfer` it is
        gone. With it, what has its body at hand goes that way; the rest counts as unacked from now on, and `leaving`
        is told of it: it may have to be read, or to wait until it is taken, and until then nobody else gets it.
        The number of messages that are gone, and what it took, in the unit of `flow/turns.py`; from `work_max` on
        it breaks off, and what is left is still due. `cause` says what became of the messages."""
        count = work = 0
        while work < work_max and (due_ms := self.next_due_ms) is not None and due_ms <= now_ms:
            segment = self._agenda.next
            work += LOOK_WORK
            if isinstance(segment, Timetable):
                self._agenda.remove(segment)
                gone, took = self._expire_copies(now_ms, transfer, leaving, cause, work_max - work)
                count += gone
                work += took
                self._agenda.timetable_changed()
                due_ms = self._agenda.timetable.due_ms
                if due_ms is not None and due_ms <= now_ms:
                    break
                continue
            if transfer is not None and segment.damage:
                # It cannot be transferred, and stays where it is (`damage.py`).
                self._agenda.remove(segment)
                continue
            if transfer is not None and segment.runs is None and segment.scattered:
                # Read now, before its time, so that its messages are in the timetable when it leaves memory again.
                if self.backlog.wanted is None:
                    self.backlog.wanted = (segment.first, segment.last)
                break
            self._agenda.remove(segment)
            gone, took = self._expire_in(segment, now_ms, None if transfer is None else leaving)
            count += gone
            work += took
        return count, work

    def expire_in_line(self, now_ms: int, leaving: Leaving) -> int:
        """`expire` waits for a read: what consumers could be given meanwhile does not go to them if it has expired.
        What it took, in the unit of `flow/turns.py`."""
        store, backlog, work = self.store, self.backlog, 0
        for index in range(store.at, len(store.segments)):
            segment = store.segments[index]
            if segment.runs is None:
                if segment.left and not backlog.leaving:
                    break  # it must be read before anything behind it is delivered
            elif segment.due_ms is not None and segment.due_ms <= now_ms:
                self._agenda.remove(segment)
                work += LOOK_WORK + self._expire_in(segment, now_ms, leaving)[1]
        return work

    def expire_returned(self, now_ms: int, leaving: Leaving) -> None:
        """As `expire_in_line`, of what came back and is the next to be delivered."""
        returned, store = self.backlog.returned, self.store
        while returned:
            segment = store.segments[store.index_of(returned.first[0])]
            if segment.runs is None or segment.due_ms is None or segment.due_ms > now_ms:
                return
            self._agenda.remove(segment)
            self._expire_in(segment, now_ms, leaving)

    def _expire_in(self, segment: Segment, now_ms: int, leaving: Leaving | None) -> tuple[int, int]:
        count = 0
        deadlines = segment.deadlines
        assert deadlines is not None
        waiting: list[tuple[int, int]] = []
        due = deadlines.due(now_ms)
        for first, last in due:
            for low, high in segment.live_in(first, last) if segment.left else ():
                for part in self._ready_or(waiting, low, high):
                    if leaving is None:
                        count += self.backlog.leave(part[0], part[1], EXPIRED)
                    else:
                        self.backlog.begin_leaving(segment, *part)
                        leaving(*part)
                        if not segment.stored:
                            deadlines.leaving.append(part)
        if segment.left:
            # What is unacked now expires when it comes back.
            for part in waiting:
                deadlines.keep(*part)
            self._agenda.put(segment)
        return count, STRETCH_WORK * len(due)

    def _expire_copies(
        self, now_ms: int, transfer: Transfer | None, leaving: Leaving, cause: int, work_max: int
    ) -> tuple[int, int]:
        """What is due in the timetable; its segment need not be in memory."""
        count = work = 0
        for first, last, run, low in self._agenda.timetable.due(now_ms):
            work += STRETCH_WORK
            index = self.store.index_of(first)
            segment = self.store.segments[index] if index < len(self.store.segments) else None
            if segment is None or segment.first > first:
                if work >= work_max:
                    break
                continue
            waiting: list[tuple[int, int]] = []
            stopped = False
            for live in segment.live_in(first, last):
                for begin, end in self._ready_or(waiting, *live):
                    at = low + begin - first
                    self.backlog.transferring = begin
                    moved, instead = (
                        (end - begin + 1, 0) if transfer is None else transfer(run, at, at + end - begin + 1)
                    )
                    if moved:
                        count += self.backlog.leave(begin, begin + moved - 1, cause, instead)
                    if begin + moved <= end:
                        self.backlog.begin_leaving(segment, begin + moved, end)
                        leaving(begin + moved, end)
                        stopped = True
            if waiting:
                if segment.deadlines is None:
                    segment.deadlines = Deadlines()
                for part in waiting:
                    segment.deadlines.keep(*part)
            if stopped or work >= work_max:
                # The others keep their copies until there is space: what is leaving may have to be read again.
                break
        return count, work

    def _ready_or(self, waiting: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
        """The ready ones among the unsettled messages first..last; the others go to `waiting`, except those behind
        the cursor that die of something else already."""
        found = self.backlog.ready_in(first, last)
        at = first
        for low, high in found:
            if low > at:
                waiting.append((at, low - 1))
            at = high + 1
        if at <= last:
            waiting.append((at, last))
        if self.backlog.leaving:
            return [part for low, high in found for part in self.backlog.not_leaving(low, high)]
        return found

    def expire_damaged(self) -> None:
        """What is damaged and could not be transferred need not be any more: it may expire."""
        for segment in self.store.damaged.values():
            if segment.deadlines is not None and segment.deadlines.back:
                self._agenda.add(segment, 0)
            else:
                self._agenda.put(segment)

    def transfer(self, first: int, last: int, transfer: Transfer, cause: int) -> tuple[int, int, int]:
        """The taken messages first..last are done when `transfer` has taken care of them. Returns how many are done,
        how many are back in line because they are damaged, and the number of the first one that was not reached
        because its body must be read (`wanted`) or it has to stay; last + 1 when none is left."""
        count = back = 0
        while first <= last:
            segment = self.store.segments[self.store.index_of(first)]
            low = first - segment.first
            if segment.damage:
                end = min(last, segment.last)
                back += _put_back(self.backlog, segment, first, end, cause == DEAD_EXPIRED)
                first = end + 1
                continue
            if segment.runs is None:
                self.backlog.wanted = (segment.first, segment.last)
                break
            run, start, stop = segment.alike(low, min(last, segment.last) - segment.first + 1)
            self.backlog.transferring = first
            moved, instead = transfer(run, start, stop)
            if not moved:
                break
            if instead != LATER:
                count += self.backlog.settle(first, first + moved - 1, cause, instead)
            first += moved
        return count, back, first


def _put_back(backlog: Backlog, segment: Segment, first: int, last: int, expired: bool) -> int:
    """The messages first..last of the damaged segment, which are unacked and were to be dead-lettered, are in
    line again, each at its place (`damage.py`, rule 3). How many they are. `expired`: should a dead letter
    exchange no longer ask for their bodies, they expire."""
    store = backlog.store
    backlog.settle_leaving(first, last)
    count = 0
    if expired and segment.deadlines is None:
        segment.deadlines = Deadlines()
    for low, high in segment.live_in(first, last):
        count += high - low + 1
        if expired and segment.deadlines is not None:
            segment.deadlines.keep(low, high)
            segment.deadlines.come_back(max(low, store.cursor), high)
        if low < store.cursor:
            backlog.requeue(low, min(high, store.cursor - 1))
            low = store.cursor
        if low <= high:
            nbytes = segment.bytes_in(low, high)
            backlog.ready += high - low + 1
            backlog.unacked -= high - low + 1
            backlog.ready_bytes += nbytes
            backlog.unacked_bytes -= nbytes
            if segment.estimated:
                segment.taken_bytes -= nbytes
    return count
