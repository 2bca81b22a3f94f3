"""Counters seen now and then: how much one grew lately, and for how long one stood still.

What comes in: values with their time. What goes out: growth of the last minutes, and when it was last.
Rules: pure, and as large for a counter of a year as for one of a minute.
Not here: which counters (`watch.py`).
"""

from __future__ import annotations

RECENT_MS = 600_000
"""Growth counts for so long; how much it was is told of the last five to ten minutes."""


class Growth:
    """A counter that begins at 0."""

    __slots__ = ("_before", "_since", "_value", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self._before = self._since = (now_ms, 0)
        self._value = 0
        self.last_ms = 0
        """when it was seen to have grown last"""

    def look(self, now_ms: int, value: int) -> None:
        """It has this value now."""
        if now_ms - self._since[0] >= RECENT_MS // 2:
            stale = now_ms - self._since[0] >= RECENT_MS
            self._before = (now_ms, self._value) if stale else self._since
            self._since = (now_ms, self._value)
        if value != self._value:
            self._value, self.last_ms = value, now_ms

    def is_recent(self, now_ms: int) -> bool:
        """It has grown within `RECENT_MS`."""
        return self.last_ms > 0 and now_ms - self.last_ms < RECENT_MS

    def recent(self, now_ms: int) -> int:
        """How much it grew lately; 0 when it stood still for `RECENT_MS`."""
        return self._value - self._before[1] if self.is_recent(now_ms) else 0


class Still:
    """The time for which a counter has had the same value."""

    __slots__ = ("_since_ms", "_value")

    def __init__(self, now_ms: int, value: int) -> None:
        self._since_ms, self._value = now_ms, value

    def look(self, now_ms: int, value: int) -> None:
        """It has this value now."""
        if value != self._value:
            self._since_ms, self._value = now_ms, value

    def still_ms(self, now_ms: int) -> int:
        """As of the last look."""
        return now_ms - self._since_ms
