"""A token bucket: how much may go at once, and how much in the long run.

What comes in: amounts that were taken, the time. What goes out: how much may be taken now.
Rules: 1. Pure: the time is an argument, in milliseconds, and never goes back. 2. Exact: levels are counted in
thousandths, so that a millisecond adds a whole number whatever the rate. 3. What is taken beyond the level is owed,
and paid back before anything is free again: so the long-run rate holds for messages larger than the burst too.
Not here: what has a bucket, and what waiting is (`quotas.py`).
"""

from __future__ import annotations

# A connection that waits for tokens is looked at this often (`congestion.MEASURE_S`): a bucket that held less than
# comes in that time would overflow between two looks, and its owner would never reach the rate.
LOOK_MS = 100


class TokenBucket:
    """Tokens of one owner: they come at a rate, up to a burst."""

    __slots__ = ("_at_ms", "_level", "burst", "rate")

    def __init__(self, rate: int, burst: int, now_ms: int) -> None:
        """`rate` a second, `burst` at once, and at least what comes between two looks. Full at first."""
        self.rate = rate
        self.burst = max(1, burst, rate * LOOK_MS // 1000)
        self._level = self.burst * 1000
        self._at_ms = now_ms

    def available(self, now_ms: int) -> int:
        """Whole tokens; negative when some are owed."""
        self._fill(now_ms)
        return self._level // 1000

    def take(self, amount: int, now_ms: int) -> None:
        self._fill(now_ms)
        self._level -= amount * 1000

    def resize(self, rate: int, burst: int, now_ms: int) -> None:
        """Other limits from now on; what is owed stays owed."""
        self._fill(now_ms)
        self.rate = rate
        self.burst = max(1, burst, rate * LOOK_MS // 1000)
        self._level = min(self._level, self.burst * 1000)

    def _fill(self, now_ms: int) -> None:
        if now_ms > self._at_ms:
            self._level = min(self.burst * 1000, self._level + (now_ms - self._at_ms) * self.rate)
            self._at_ms = now_ms
