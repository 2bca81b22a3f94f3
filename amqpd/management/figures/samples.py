"""Figures over time: samples that are kept for a while, the older the fewer.

What comes in: values with their time. What goes out: those of a range of time, at whole steps; how fast they grow.
Rules: 1. Pure, and bounded: a series has as many samples as its policies say, in arrays. 2. A sample of time T is the
last value at or before T; where nobody looked for two steps there is none, and none is made up. 3. A range
is of RabbitMQ's form: an age and a step, in seconds.
Not here: what is looked at, and when (`sampling.py`), the form of answers (`admin/amqpd_admin/samples.py`).

Source: https://www.rabbitmq.com/docs/management#sample-retention, and rabbit_mgmt_util.erl of
deps/rabbitmq_management for what a range may be.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

STEP_MS = 5_000
"""between two samples, at least"""
Policies = tuple[tuple[int, int], ...]
"""(seconds between samples, how long these are kept in seconds), the shortest first"""
# RabbitMQ's defaults.
GLOBAL: Policies = ((5, 605), (60, 3_660), (600, 29_400), (1_800, 86_400))
BASIC: Policies = ((5, 605), (60, 3_600))
RANGE_MAX = 500
"""samples of one range, less one, as in RabbitMQ"""


class SampleRange(NamedTuple):
    """Samples at `last_ms`, and each `incr_ms` before that, not before `first_ms`."""

    first_ms: int
    last_ms: int
    incr_ms: int


class Sample(NamedTuple):
    """One sample of a series: its time, and the values in the order of the series' names."""

    at_ms: int
    values: Sequence[int]


def range_back(now_ms: int, age_s: int, incr_s: int, *, ahead: bool = False) -> SampleRange | None:
    """The last `age_s` seconds; None: there is no such range. It ends at a whole step: the one before now, or `ahead`
    the one after it, whose sample is the newest that there is."""
    if not (age_s > 0 and incr_s > 0 and age_s // incr_s <= RANGE_MAX):
        return None
    incr_ms = incr_s * 1000
    last_ms = now_ms - now_ms % incr_ms
    if ahead and last_ms < now_ms:
        last_ms += incr_ms
    return SampleRange(last_ms - age_s * 1000, last_ms, incr_ms)


class Series:
    """The samples of some figures over time, all figures looked at together."""

    def __init__(self, names: tuple[str, ...], policies: Policies = BASIC) -> None:
        self.names = names
        self._rings = [_Ring(step_s * 1000, keep_s // step_s + 1, 1 + len(names)) for step_s, keep_s in policies]

    def add(self, now_ms: int, values: Sequence[int]) -> None:
        """At most one is kept of each `STEP_MS`, which begins at a whole number of them."""
        for ring in self._rings:
            ring.add(now_ms - now_ms % STEP_MS, values)

    def within(self, wanted: SampleRange) -> list[Sample]:
        """The samples of a range, the newest first."""
        found = []
        for at_ms in range(wanted.last_ms, wanted.first_ms - 1, -wanted.incr_ms):
            values = self._at(at_ms, wanted.incr_ms)
            if values is not None:
                found.append(Sample(at_ms, values))
        return found

    def _at(self, at_ms: int, incr_ms: int) -> Sequence[int] | None:
        """The finest ring that goes back so far knows best."""
        for ring in self._rings:
            if ring.begins_ms <= at_ms:
                return ring.at(at_ms, 2 * max(incr_ms, ring.step_ms))
        return None

    def rate(self, name: str) -> float:
        """How much it grows in a second, by the last two samples."""
        return self._rings[0].rate(1 + self.names.index(name))


class _Ring:
    """The last samples at one distance, in one array: the time of each, and its values."""

    def __init__(self, step_ms: int, count: int, width: int) -> None:
        self.step_ms = step_ms
        self._width, self._length_max = width, count * width
        self._rows = array("q")

    @property
    def begins_ms(self) -> int:
        """Time of the oldest; far in the future when there is none."""
        return self._rows[0] if self._rows else 1 << 62

    def add(self, at_ms: int, values: Sequence[int]) -> None:
        rows = self._rows
        if rows and at_ms // self.step_ms <= rows[-self._width] // self.step_ms:
            return
        rows.append(at_ms)
        rows.extend(values)
        if len(rows) > self._length_max:
            del rows[: self._width]

    def at(self, at_ms: int, age_ms_max: int) -> Sequence[int] | None:
        """The last one that is not later, if it is younger than that. There is one that is not later."""
        rows, width = self._rows, self._width
        row = width * (bisect_right(range(0, len(rows), width), at_ms, key=rows.__getitem__) - 1)
        return rows[row + 1 : row + width] if at_ms - rows[row] < age_ms_max else None

    def rate(self, place: int) -> float:
        rows, width = self._rows, self._width
        if len(rows) < 2 * width:
            return 0.0
        before, last = len(rows) - 2 * width, len(rows) - width
        return (rows[last + place] - rows[before + place]) * 1000 / (rows[last] - rows[before])
