"""The time of the broker: the wall clock as it was at the start, and what the monotonic clock counts from there.

What comes in: nothing. What goes out: milliseconds and microseconds since the epoch.
Rules: it never goes back. Deadlines outlive a restart, but a clock that is set while the broker runs must not expire
everything, or nothing.
Not here: what may ask (the pure modules are told).
"""

from __future__ import annotations

import time


class SteadyClock:
    """Time since the epoch that never goes back: the wall clock at the start, plus the monotonic clock."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def ms(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000

    def us(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1000
