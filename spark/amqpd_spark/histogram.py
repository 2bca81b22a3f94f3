"""Log-linear histograms of durations, and percentiles from them.

What comes in: durations in microseconds; rows with a bucket and a count. What goes out: buckets, percentiles.
Rules: 1. Below 128 us each microsecond is a bucket; above, each power of two has 64 of them. So a bucket's midpoint
is within 1/128 of what is in it. 2. Histograms are added up by adding counts: of minutes, queues, batches of a
stream. Percentiles are never added up.
Not here: which durations (`latencies.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amqpd_spark.stretches.chunk import Longs
from amqpd_spark.stretches.packed import Columns
from amqpd_spark.stretches.sums import Groups, summed

_BITS = 6
_SHARE = 1 << _BITS
"""buckets of a power of two: half of 1/64 is an error of at most 0.8 %"""
_HALF = 32

PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
FIGURES = ("count", "sum_us", "max_us")
"""of a bucket: durations in it, their sum, the longest"""
KEYS = ("flow", "minute", "measure", "bucket")
Doubles = NDArray[np.float64]


def buckets(us: Longs) -> Longs:
    """The bucket of each duration, 0 for a negative one (a clock that was set back)."""
    value = np.maximum(us, 0)
    # The exponent of a double is its length in bits where all of those fit into it: so of 32 at a time.
    high = value >> _HALF
    bits = np.where(high > 0, np.frexp(high)[1] + _HALF, np.frexp(value & ((1 << _HALF) - 1))[1])
    shift = np.maximum(bits - 1 - _BITS, 0).astype(np.int64)
    return np.asarray(shift * _SHARE + (value >> shift), np.int64)


def bucket_of(us: int) -> int:
    """`buckets`, of a number."""
    value = max(us, 0)
    shift = max(value.bit_length() - 1 - _BITS, 0)
    return shift * _SHARE + (value >> shift)


def midpoints(bucket: Longs) -> Doubles:
    """Buckets' values in microseconds."""
    shift = np.maximum(bucket // _SHARE - 1, 0)
    width = np.int64(1) << shift
    return np.asarray((bucket - shift * _SHARE) * width + (width - 1) / 2, np.float64)


def of_durations(durations: Columns) -> Columns:
    """KEYS and FIGURES."""
    us, count = durations["us"], durations["count"]
    rows = {name: durations[name] for name in ("flow", "minute", "measure")} | {"bucket": buckets(us)}
    return added(rows | {"count": count, "sum_us": us * count, "max_us": us})


def added(rows: Columns, keys: Sequence[str] = KEYS) -> Columns:
    if not len(rows["count"]):
        return {name: rows[name] for name in (*keys, *FIGURES)}
    return summed(rows, keys, ("count", "sum_us"), ("max_us",))


def percentiles(histogram: Columns, by: Sequence[str]) -> dict[str, NDArray[Any]]:
    """For each value of the columns `by`: those and `count`; mean, percentiles (nearest rank) and the longest, in
    ms. All rows of such a value must be there; there is at least one row."""
    rows = added(histogram, (*by, "bucket"))
    changes = np.zeros(len(rows["count"]), np.bool_)
    for name in by:
        changes[1:] |= np.diff(rows[name]) != 0
    changes[0] = True
    groups = Groups(np.arange(len(changes)), np.flatnonzero(changes))
    count = groups.sum(rows["count"])
    longest = groups.max(rows["max_us"]) / 1000
    up_to = np.cumsum(rows["count"])
    before = up_to[groups.starts] - rows["count"][groups.starts]
    made: dict[str, NDArray[Any]] = {name: groups.heads(rows[name]) for name in by} | {"count": count}
    made["mean_ms"] = groups.sum(rows["sum_us"]) / count / 1000
    for name, share in PERCENTILES.items():
        rank = np.ceil(count * share).astype(np.int64)
        value = midpoints(rows["bucket"][np.searchsorted(up_to, before + rank)])
        made[name] = np.minimum(value / 1000, longest)
    return made | {"max_ms": longest}
