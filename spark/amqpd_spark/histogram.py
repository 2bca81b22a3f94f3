"""Log-linear histograms of durations, and percentiles from them.

What comes in: durations in microseconds; rows with a bucket and a count. What goes out: buckets, percentiles.
Rules: 1. Below 128 us each microsecond is a bucket; above, each power of two has 64 of them. So a bucket's midpoint
is within 1/128 of what is in it. 2. Histograms are added up by adding counts: of minutes, queues, batches of a
stream. Percentiles are never added up.
Not here: which durations (`latencies.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

_BITS = 6
_SHARE = 1 << _BITS
"""buckets of a power of two: half of 1/64 is an error of at most 0.8 %"""

PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
FIGURES = ("count", "sum_us", "max_us")
"""of a bucket: durations in it, their sum, the longest"""


def bucket(us: Column) -> Column:
    """The bucket of a duration, 0 for a negative one (a clock that was set back)."""
    # The logarithm may be off by one next to a power of two: the formula gives the same bucket from both sides.
    value = F.greatest(us, F.lit(0).cast("long"))
    shift = F.greatest(F.floor(F.log2(F.greatest(value, F.lit(1)))).cast("int") - _BITS, F.lit(0))
    return (shift * _SHARE + F.call_function("shiftright", value, shift)).cast("int")


def bucket_of(us: int) -> int:
    """`bucket`, of a number."""
    value = max(us, 0)
    shift = max(value.bit_length() - 1 - _BITS, 0)
    return shift * _SHARE + (value >> shift)


def midpoint(number: Column) -> Column:
    """A bucket's value in microseconds."""
    shift = F.greatest(F.floor(number / _SHARE).cast("int") - 1, F.lit(0))
    width = F.call_function("shiftleft", F.lit(1).cast("long"), shift)
    return (number - shift * _SHARE) * width + (width - 1) / 2


def added(histogram: DataFrame, by: Sequence[str]) -> DataFrame:
    """One histogram for each value of the columns `by`."""
    return histogram.groupBy(*by, "bucket").agg(
        F.sum("count").alias("count"), F.sum("sum_us").alias("sum_us"), F.max("max_us").alias("max_us")
    )


def percentiles(histogram: DataFrame, by: Sequence[str]) -> DataFrame:
    """A row for each value of the columns `by`: count, mean, percentiles (nearest rank) and the longest, in ms. A
    window holds at most the buckets there are, some thousands, however many durations are in them."""
    whole = Window.partitionBy(*by)
    up_to = whole.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = added(histogram, by).select(
        *by,
        *FIGURES,
        midpoint(F.col("bucket")).alias("_value"),
        F.sum("count").over(up_to).alias("_rank"),
        F.sum("count").over(whole).alias("_total"),
    )
    longest = F.max("max_us") / 1000
    at = {
        name: F.least(
            F.min(F.when(F.col("_rank") >= F.ceil(F.col("_total") * share), F.col("_value"))) / 1000, longest
        )
        for name, share in PERCENTILES.items()
    }
    return ranked.groupBy(*by).agg(
        F.sum("count").alias("count"),
        (F.sum("sum_us") / F.sum("count") / 1000).alias("mean_ms"),
        *(value.alias(name) for name, value in at.items()),
        longest.alias("max_ms"),
    )
