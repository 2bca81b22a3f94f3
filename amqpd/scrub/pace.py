"""How fast the scrub reads, and within which time it finds damage: arithmetic.

What comes in: bytes that were read, bytes that there are, the time. What goes out: a rate, pauses, estimates.
Rules: 1. Pure: the time is handed in. 2. A pass is done a little before its interval ends, if the greatest rate
allows. 3. The average rate of a pass is never above the greatest one, beyond one step; time that was lost is not made
up for by a burst.
Not here: reading (`journal/sqlite/scrubbing.py`), the task (`task.py`).
"""

from __future__ import annotations

import math

RATE_MIN = 64 << 10
"""Bytes a second: a step of 256 kB each four seconds costs nothing that can be measured, and a small journal is read
within minutes, not days."""
PASS_S_MIN = 3600.0
"""A pass begins this long after the one before it, unless the interval is shorter: a small journal need not be read
all the time."""
AIM = 0.9
"""Share of the interval in which a pass is to be done, because steps wait for consumers and the journal grows."""


def rate(left_bytes: int, left_s: float, rate_max: int) -> float:
    """Bytes a second, to read what is left in the time that is left."""
    needed = left_bytes / left_s if left_s > 0 else math.inf
    return min(max(needed, RATE_MIN), rate_max)


def pass_s(total_bytes: int, interval_s: float, rate_max: int) -> float:
    """How long a pass takes."""
    return total_bytes / rate(total_bytes, AIM * interval_s, rate_max)


def period_s(interval_s: float) -> float:
    """From the beginning of a pass to that of the next, if the first has ended by then."""
    return min(interval_s, PASS_S_MIN)


def expected_s(total_bytes: int, interval_s: float, rate_max: int) -> float:
    """Within which time a byte that changes is read again, at the latest: it may change right after it was read by
    one pass, as the first of all, and be the last one that the next pass reads."""
    one = pass_s(total_bytes, interval_s, rate_max)
    return max(one, period_s(interval_s)) + one


class ScrubPace:
    """The pace of one pass of the scrub: how much was read, and the pause before the next step."""

    def __init__(self, now_s: float, interval_s: float, rate_max: int, total_bytes: int) -> None:
        """With an interval of 0 all is read at `rate_max`."""
        self.read_bytes = 0
        self.total_bytes = total_bytes
        self._rate_max = rate_max
        self._end_s = now_s + AIM * interval_s
        self._next_s = now_s

    def step(self, nbytes: int, total_bytes: int, now_s: float) -> float:
        """This much was read, of what is `total_bytes` now: seconds to wait before the next step."""
        left = max(total_bytes - self.read_bytes, nbytes)
        self.read_bytes += nbytes
        self.total_bytes = total_bytes
        # Both from when the step was due, so that what it took itself is part of the pause.
        at_s = rate(left, self._end_s - self._next_s, self._rate_max)
        self._next_s = max(self._next_s + nbytes / at_s, now_s)
        return self._next_s - now_s

    @property
    def progress(self) -> float:
        """0 to 1, by an estimate: 1 is for a pass that is known to have ended."""
        return min(self.read_bytes / self.total_bytes, 0.99) if self.total_bytes else 0.0
