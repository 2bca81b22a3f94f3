"""When the messages of a segment came.

What comes in: offsets with the time of their arrival, in order. What goes out: the time for an offset.
Rules: messages that come in one millisecond are one arrival: 16 bytes for each, and none for the first. What has been
on disk only keeps them to COARSE_MS, or a long backlog's arrivals would take memory. What the times are for are
figures (age, time in the queue), never deadlines.
Not here: deadlines (`deadlines.py`), the figures (`facts.py`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

ARRIVAL_MS = 1
# Against the seconds that a message stands on the disk it is nothing.
COARSE_MS = 20


class ArrivalTimes:
    """The times at which the messages of one segment came, in milliseconds since the epoch; offsets count from the
    segment's first message on."""

    __slots__ = ("_at", "_offsets", "first_ms")

    def __init__(self, first_ms: int = 0) -> None:
        self.first_ms = first_ms
        self._offsets: array[int] | None = None
        self._at: array[int] | None = None

    def add(self, offset: int, now_ms: int, apart_ms: int = ARRIVAL_MS) -> None:
        """From the offset on they came at `now_ms`; no arrival of its own when that is less than `apart_ms` later."""
        at = self._at
        if at is None or self._offsets is None:
            if now_ms - self.first_ms >= apart_ms:
                self._offsets, self._at = array("q", (offset,)), array("q", (now_ms,))
        elif now_ms - at[-1] >= apart_ms:
            self._offsets.append(offset)
            at.append(now_ms)

    def at(self, offset: int) -> int:
        if self._offsets is not None and self._at is not None:
            index = bisect_right(self._offsets, offset)
            if index:
                return self._at[index - 1]
        return self.first_ms

    def extend(self, size: int, behind: ArrivalTimes) -> None:
        """Take over those of the segment behind this one of `size` messages, coarsely."""
        self.add(size, behind.first_ms, COARSE_MS)
        if behind._offsets is not None and behind._at is not None:
            for offset, at in zip(behind._offsets, behind._at, strict=True):
                self.add(size + offset, at, COARSE_MS)

    def coarse(self) -> ArrivalTimes | None:
        """These, to COARSE_MS; None when the first one says it all."""
        found = ArrivalTimes(self.first_ms)
        if self._offsets is not None and self._at is not None:
            for offset, at in zip(self._offsets, self._at, strict=True):
                found.add(offset, at, COARSE_MS)
        return None if found._at is None else found

    def cut_from(self, offset: int) -> ArrivalTimes:
        """Those from the offset on, which is another segment's first message now."""
        rest = ArrivalTimes(self.at(offset))
        if self._offsets is not None and self._at is not None:
            index = bisect_right(self._offsets, offset)
            if index < len(self._offsets):
                rest._offsets = array("q", [each - offset for each in self._offsets[index:]])
                rest._at = self._at[index:]
                del self._offsets[index:], self._at[index:]
            if not self._offsets:
                self._offsets = self._at = None
        return rest
