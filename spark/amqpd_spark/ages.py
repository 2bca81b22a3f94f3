"""How long messages are in their queues: those that left, and those that are there still.

What comes in: events; the last life of each broker; the end of the period. What goes out: a row for each queue.
Rules: 1. A message is a row here, grouped by its own name and never by its queue's, so a busy queue is spread over
all tasks; the same event twice changes no minimum and no maximum. 2. A message is there still when it has no end,
and entered, or was said to stand there, in its broker's last life. What else has no end is a matter of
`conservation`.
Not here: the other tables of `usage` (`usage.py`).
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqpd_spark.events import each_message
from amqpd_spark.schema import ENDS, OF_QUEUES

# Buckets of times are so much apart that a percentile is at most 2 % above the true one.
BUCKETS_PER_E = 50
_QUEUE = ("node", "queue_id")


def queue_ages(events: DataFrame, last_lives: dict[str, int], end: datetime) -> DataFrame:
    """Columns: vhost, queue, standing, oldest_since, oldest_age_s, oldest_is_at_least, ended, p50_ms, p99_ms, max_ms.
    `last_lives`: of each node."""
    of_queues = events.where(F.col("event").isin(*OF_QUEUES, "standing"))
    names = of_queues.groupBy(*_QUEUE).agg(F.max(F.struct("vhost", "queue")).alias("name"))
    waits = _waits(_messages(of_queues, last_lives))
    named = waits.join(F.broadcast(names), [*_QUEUE])
    counted = named.groupBy(F.col("name.vhost").alias("vhost"), F.col("name.queue").alias("queue"), "bucket").agg(
        F.sum("messages").alias("messages"),
        F.max("wait").alias("wait"),
        F.min("oldest").alias("oldest"),
    )
    return _summed_up(counted, end)


def _messages(of_queues: DataFrame, last_lives: dict[str, int]) -> DataFrame:
    """For each message its key, entered, ended, seen (microseconds), and whether it is there."""
    event, time = F.col("event"), F.unix_micros("time")
    stretches = of_queues.where(event.isin("routed", "standing", *ENDS) & (F.col("count") > 0)).select(
        *(*_QUEUE, "epoch", "first", "count"),
        F.when(event == "routed", time).alias("entered"),
        F.when(event.isin(*ENDS), time).alias("ended"),
        F.when(~event.isin(*ENDS), time).alias("seen"),
        F.when(~event.isin(*ENDS), F.col("life")).alias("life"),
    )
    messages = each_message(stretches).groupBy(*_QUEUE, "epoch", "first")
    known = messages.agg(
        F.min("entered").alias("entered"),
        F.min("ended").alias("ended"),
        F.min("seen").alias("seen"),
        F.max("life").alias("life"),
    )
    # Brokers are few: their last lives are a literal, and need no join.
    last_life = F.lit(0)
    for node, life in last_lives.items():
        last_life = F.when(F.col("node") == node, F.lit(life)).otherwise(last_life)
    return known.withColumn("there", F.col("ended").isNull() & (F.col("life") == last_life))


def _waits(messages: DataFrame) -> DataFrame:
    """For each queue and bucket the messages that left, their longest wait in it; with no bucket, those that are
    there."""
    left = F.col("entered").isNotNull() & F.col("ended").isNotNull()
    wait = F.when(left, F.greatest(F.col("ended") - F.col("entered"), F.lit(0)))
    bucket = F.ceil(F.log(wait + 1.0) * BUCKETS_PER_E)
    # What entered before the period is at least as old as the first time that it was seen.
    oldest = F.when(
        F.col("there"), F.struct(F.col("seen").alias("us"), F.col("entered").isNull().alias("is_at_least"))
    )
    rows = messages.where(F.col("there") | left).select(
        *_QUEUE, wait.alias("wait"), bucket.alias("bucket"), oldest.alias("oldest")
    )
    return rows.groupBy(*_QUEUE, "bucket").agg(
        F.count("*").alias("messages"), F.max("wait").alias("wait"), F.min("oldest").alias("oldest")
    )


def _summed_up(counted: DataFrame, end: datetime) -> DataFrame:
    queue = Window.partitionBy("vhost", "queue")
    # Of figures, at most some thousand for each queue.
    up_to_here = queue.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    left = F.when(F.col("bucket").isNotNull(), F.col("messages")).otherwise(0)
    so_far = counted.withColumn("so_far", F.sum(left).over(up_to_here)).withColumn("left", F.sum(left).over(queue))
    edge = F.least(F.exp(F.col("bucket") / BUCKETS_PER_E) - 1, F.col("longest"))

    def percentile(share: float) -> Column:
        reached = F.col("bucket").isNotNull() & (F.col("so_far") >= F.ceil(F.col("left") * share))
        return F.min(F.when(reached, edge)) / 1000

    summed = so_far.withColumn("longest", F.max("wait").over(queue)).groupBy("vhost", "queue")
    age = F.lit(end).cast("timestamp")
    found = summed.agg(
        F.sum(F.when(F.col("bucket").isNull(), F.col("messages")).otherwise(0)).alias("standing"),
        F.min("oldest").alias("oldest"),
        F.sum(left).alias("ended"),
        percentile(0.5).alias("p50_ms"),
        percentile(0.99).alias("p99_ms"),
        (F.max("wait") / 1000).alias("max_ms"),
    )
    return found.select(
        *("vhost", "queue", "standing"),
        F.timestamp_micros("oldest.us").alias("oldest_since"),
        ((F.unix_micros(age) - F.col("oldest.us")) / 1e6).alias("oldest_age_s"),
        F.col("oldest.is_at_least").alias("oldest_is_at_least"),
        *("ended", "p50_ms", "p99_ms", "max_ms"),
    )
