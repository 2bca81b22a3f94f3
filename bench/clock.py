"""The measured window of a run, seen from one worker.

What comes in: the two moments at which to look (seconds of CLOCK_MONOTONIC, one clock for all processes of
the machine) and the worker's count. What goes out: what was counted between them, and the processor time it
cost. Rule: a moment is taken at the first look after it, with the time of that look, so that a worker that
was blocked for a while still reports a correct rate.
Not here: the broker's processor time (`proc.py`).
"""

from __future__ import annotations

import time
from math import inf

now = time.monotonic


class Stopwatch:
    """`mark` is the next moment to look at; a hot loop compares it with `now()` and calls `take`."""

    def __init__(self, start: float, stop: float) -> None:
        self.mark = start
        self.stop = stop
        self._looks: list[tuple[float, int, float]] = []

    def take(self, moment: float, count: int) -> None:
        if len(self._looks) < 2:
            self._looks.append((moment, count, time.process_time()))
        self.mark = self.stop if len(self._looks) == 1 else inf

    def report(self) -> dict[str, float]:
        """`seconds` and `count` of the window and `cpu_s` of this process in it; zeros if it was never
        reached."""
        if len(self._looks) < 2:
            return {"seconds": 0.0, "count": 0, "cpu_s": 0.0}
        (start, first, cpu_start), (stop, last, cpu_stop) = self._looks
        return {"seconds": stop - start, "count": last - first, "cpu_s": cpu_stop - cpu_start}


def percentiles_ms(latencies_s: list[float]) -> dict[str, float]:
    """p50, p99 and p99.9 in milliseconds, by nearest rank; empty for no values."""
    if not latencies_s:
        return {}
    ordered = sorted(latencies_s)
    ranks = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    last = len(ordered) - 1
    return {name: round(ordered[min(last, int(len(ordered) * q))] * 1e3, 4) for name, q in ranks.items()}
