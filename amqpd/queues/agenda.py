"""When to look at which segment of a backlog.

What comes in: segments with deadlines; segments that leave memory, that are read back, that are finished. What goes
out: the segment, or the timetable, whose time comes first.
Rules: 1. A segment has one time at most, its earliest; the timetable stands among the segments. 2. What is looked up
is taken out by what acts on it, and put back with its next time.
Not here: deadlines of one segment (`deadlines.py`), bodies in the order of deadlines (`timetable.py`), what is done
when the time has come (`expiry.py`).
"""

from __future__ import annotations

from amqpd.journal.buffer import JournalBuffer
from amqpd.queues.segment import Segment
from amqpd.queues.sorted_keys import SortedKeys
from amqpd.queues.timetable import Timetable

# A time and the number of a segment's first message in one number, by which segments are sorted.
FIRST_BITS = 64
# What expires one by one in any order is read so long before its time after a restart.
PREPARE_MS = 60_000


class Agenda:
    """The times at which the segments of one store, and its timetable, have to be looked at."""

    def __init__(self, queue_id: int, journal: JournalBuffer) -> None:
        self._queue_id = queue_id
        self._journal = journal
        # It takes 700 bytes, and most queues need none.
        self._timetable: Timetable | None = None
        self.due: dict[int, Segment | Timetable] = {}
        """when to look at which, see `_key`; always this dictionary"""
        self._keys = SortedKeys()

    @property
    def timetable(self) -> Timetable:
        """Made when it is asked for."""
        if self._timetable is None:
            self._timetable = Timetable(self._queue_id, self._journal)
        return self._timetable

    @property
    def has_timetable(self) -> bool:
        """Something may be in it."""
        return self._timetable is not None

    @property
    def next_ms(self) -> int | None:
        """When there is something to do next."""
        return (self._keys.first >> FIRST_BITS) if self.due else None

    @property
    def next(self) -> Segment | Timetable:
        """What there is something to do with then."""
        return self.due[self._keys.first]

    def add(self, segment: Segment | Timetable, due_ms: int) -> None:
        """Look at it then, unless an earlier time is known."""
        if segment.due_ms is None or due_ms < segment.due_ms:
            self.remove(segment)
            segment.due_ms = due_ms
            key = _key(segment)
            self.due[key] = segment
            self._keys.add(key)

    def remove(self, segment: Segment | Timetable) -> None:
        if segment.due_ms is not None:
            key = _key(segment)
            del self.due[key]
            self._keys.remove(key)
            segment.due_ms = None

    def put(self, segment: Segment) -> None:
        """Look at it at its next deadline, if it has one."""
        if segment.deadlines is not None:
            next_ms = segment.deadlines.next_ms()
            if next_ms is not None:
                self.add(segment, next_ms)

    def recovered(self, segment: Segment) -> None:
        """The segment, which is on disk only, was there at the start."""
        if segment.scattered:
            assert segment.deadlines is not None
            self.add(segment, (segment.deadlines.next_ms() or 0) - PREPARE_MS)
        else:
            self.put(segment)

    def copy(self, segment: Segment) -> None:
        """The segment, whose bodies are about to leave memory, is looked up in the timetable from now on."""
        self.remove(segment)
        self.timetable.take_over(segment)
        self.timetable_changed()
        if segment.deadlines is not None and segment.deadlines.back:
            self.add(segment, 0)

    def timetable_changed(self) -> None:
        """It may have something to do earlier than was said, or nothing more."""
        next_ms = self.timetable.next_ms()
        if next_ms is not None:
            self.add(self.timetable, next_ms)

    def finished(self, segment: Segment) -> None:
        """All of it is settled."""
        self.remove(segment)
        if segment.batch:
            self.timetable.forget(segment.batch)

    def drop(self) -> None:
        """The queue is deleted."""
        self.due.clear()
        self._keys = SortedKeys()
        if self._timetable is not None:
            self._timetable.drop()


def _key(segment: Segment | Timetable) -> int:
    """By the time, then in the order in which they stand in the queue. The timetable, whose number is -1, is the
    first of its time."""
    assert segment.due_ms is not None
    return (segment.due_ms << FIRST_BITS) + segment.first + 1
