"""Names as numbers: (vhost, exchange, queue) is a flow, and goes through shuffles as one long.

What comes in: events. What goes out: the flows in them, with their names.
Rules: 1. Text in an aggregate makes Spark sort where it could hash, so names are joined to sums, never carried along.
2. A name that does not apply is null, and null is not the empty name (which is the default exchange).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark.schema import OF_PUBLICATIONS, OF_QUEUES

NAMES = ("vhost", "exchange", "queue")


def none() -> Column:
    """A name that does not apply."""
    return F.lit(None).cast("string")


def flow(vhost: Column, exchange: Column, queue: Column) -> Column:
    """64 bits: two of a million flows are mixed up in one log of forty million."""
    # xxhash64 passes nulls over, so they stand as what no name can be.
    return F.xxhash64(*(F.coalesce(name, F.lit("\0")) for name in (vhost, exchange, queue)))


def counted(events: DataFrame) -> DataFrame:
    """Names as they are in the log, with how many messages' events have them, and the last one's time: as many rows
    as there are names."""
    of_messages = events.where(F.col("event").isin(*OF_QUEUES, *OF_PUBLICATIONS))
    return of_messages.groupBy(*NAMES).agg(
        F.sum("count").alias("count"), F.max(F.unix_micros("time")).alias("newest_us")
    )


def named(counts: DataFrame) -> DataFrame:
    """All flows that jobs use: an exchange with a queue, an exchange alone, a queue alone."""
    vhost, exchange, queue = (F.col(name) for name in NAMES)
    kept = [counts.select(*NAMES)]
    kept.append(counts.select(vhost, exchange, none().alias("queue")))
    kept.append(counts.select(vhost, none().alias("exchange"), queue))
    return kept[0].union(kept[1]).union(kept[2]).distinct().withColumn("flow", flow(vhost, exchange, queue))


def with_names(rows: DataFrame, names: DataFrame) -> DataFrame:
    """`flow` becomes the three names; null where there is none."""
    return rows.join(F.broadcast(names), "flow", "left").drop("flow")
