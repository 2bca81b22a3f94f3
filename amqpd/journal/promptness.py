"""Whether a commit may keep the pump's thread: while it lasts, all clients wait.

What comes in: when such commits began and ended. What goes out: whether the next one may be one.
Rules: 1. After one that took long, or when some took long on the average, the next ones go to a thread for a pause: a
disk with a hiccup now and then is hardly noticed, neither by those that wait for confirms nor by others. 2. Each time
that this happens soon after the last pause, the next is twice as long: a slow disk takes some hundredths of all
clients' time. A process that the system does not let run looks like a slow disk, too.
Not here: which commits are small enough (`buffer.py`), who carries them out (`writer.py`).
"""

from __future__ import annotations

import math
from typing import Final

TOOK_S_MAX: Final = 0.02
AVERAGE_S_MAX: Final = 0.003
AVERAGED: Final = 8
PAUSE_S_MIN: Final = 0.25
PAUSE_S_MAX: Final = 16.0


class Promptness:
    """Predicts whether the next commit on one disk is prompt enough for the pump's thread. Times are seconds of
    one clock."""

    def __init__(self) -> None:
        self._average_s = 0.0
        self._pause_s = PAUSE_S_MIN
        """of the next one"""
        self._paused_until = -math.inf

    def expected(self, now_s: float) -> bool:
        """No pause is on."""
        return now_s >= self._paused_until

    def took(self, began_s: float, ended_s: float) -> None:
        """A commit on the pump's thread did."""
        took_s = ended_s - began_s
        self._average_s += (took_s - self._average_s) / AVERAGED
        if took_s <= TOOK_S_MAX and self._average_s <= AVERAGE_S_MAX:
            return
        self._average_s = 0.0
        if began_s - self._paused_until >= 2 * self._pause_s:
            self._pause_s = PAUSE_S_MIN
        self._paused_until = ended_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
