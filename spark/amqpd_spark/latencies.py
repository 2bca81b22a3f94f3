"""How long each message took: from its publish to the confirm and to the delivery, from there to the acknowledgement.

What comes in: events. What goes out: a row for each message, then durations, then histograms.
Rules: 1. One shuffle for everything, of stretches and not of messages: they are cut at multiples of BLOCK, sent by
(key, block), and become messages where they arrive; a hot queue is many blocks. 2. Only min and max, so the same
event twice changes nothing. 3. Only numbers are aggregated (see `flows.py`).
A publisher's message is (node, life, publication), a queue's (node, queue_id, epoch, number).
Not here: histograms and percentiles (`histogram.py`); what the stream keeps between batches (`slo_stream.py`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark.flows import flow, none
from amqpd_spark.histogram import bucket
from amqpd_spark.schema import ENDS

MEASURES = ("publish_to_confirm", "publish_to_deliver", "deliver_to_ack")
REFUSED = "refused"
"""counted like a duration, at its publish: the refusal itself does not say which exchange it was"""
_ALL = (*MEASURES, REFUSED)

_BLOCK_BITS = 10
BLOCK = 1 << _BLOCK_BITS
"""numbers that go to one task together: small against a task's share, large against what a row costs"""
TASK_EVENTS = 1_000_000
"""messages' events of one task: its messages stay below 100 MB"""
TASKS_MAX = 4096

KEY = ("publisher", "key", "block")
FACTS = ("flow", "place", "began", "first", "last", "done", "ended")


def tasks(events: int, cores: int) -> int:
    return min(max(events // TASK_EVENTS + 1, cores), TASKS_MAX)


def stretches(events: DataFrame) -> DataFrame:
    """KEY, `from` and `to` (numbers), FACTS: what the stretch says of its messages, else null. Times are
    microseconds: began (published, routed), first and last (confirmed, delivered), done (acked, refused)."""
    event, us = F.col("event"), F.unix_micros("time")
    publisher = event.isin("published", "confirmed", "refused")
    asked_to_ack = (event == "acked") & ~F.col("auto")
    start = F.when(publisher, F.col("publication")).otherwise(F.col("first"))
    known = events.where(
        (F.col("count") > 0) & ((publisher & (F.col("confirm_tag") > 0)) | event.isin("routed", "delivered", *ENDS))
    )
    began, on_the_way = event.isin("published", "routed"), event.isin("confirmed", "delivered")
    rows = known.select(
        publisher.alias("publisher"),
        F.when(publisher, F.xxhash64("node", "life")).otherwise(F.xxhash64("node", "queue_id", "epoch")).alias("key"),
        start.alias("from"),
        (start + F.col("count") - 1).alias("to"),
        F.when(
            began, flow(F.col("vhost"), F.col("exchange"), F.when(publisher, none()).otherwise(F.col("queue")))
        ).alias("flow"),
        F.when(event == "delivered", flow(F.col("vhost"), none(), F.col("queue"))).alias("place"),
        F.when(began, us).alias("began"),
        F.when(on_the_way, us).alias("first"),
        F.when(on_the_way, us).alias("last"),
        F.when(asked_to_ack | (event == "refused"), us).alias("done"),
        # 1: the message is over; 2: and was acknowledged by its consumer, so a delivery must be known.
        F.when(asked_to_ack, 2).when(event.isin("confirmed", "refused", *ENDS), 1).alias("ended"),
    )
    return _in_blocks(rows)


def _in_blocks(rows: DataFrame) -> DataFrame:
    def block(number: str) -> Column:
        return F.shiftright(number, _BLOCK_BITS)

    cut = rows.withColumn("block", F.explode(F.sequence(block("from"), block("to"))))
    low = F.shiftleft("block", _BLOCK_BITS)
    return cut.withColumn("from", F.greatest("from", low)).withColumn("to", F.least("to", low + (BLOCK - 1)))


def messages(cut: DataFrame, parts: int) -> DataFrame:
    """A row for each message: KEY, `number`, FACTS. Of stretches, and of messages that were aggregated before (with
    `from` and `to` their number), in any mixture."""
    # The exchange is by (key, block), and the aggregate is by more than that: Spark sees that it needs no other one.
    placed = cut.repartition(parts, "key", "block")
    each = placed.withColumn("number", F.explode(F.sequence("from", "to")))
    return each.groupBy(*KEY, "number").agg(
        *(F.max(name).alias(name) for name in ("flow", "place")),
        *(F.min(name).alias(name) for name in ("began", "first")),
        F.max("last").alias("last"),
        # A refusal, or an acknowledgement, is told once.
        F.min("done").alias("done"),
        F.max("ended").alias("ended"),
    )


def histogram(of: DataFrame) -> DataFrame:
    """flow, minute, measure, bucket, count, sum_us, max_us. The minute is that of the publish, for deliver_to_ack
    that of the last delivery."""
    publisher, began, last = F.col("publisher"), F.col("began"), F.col("last")
    since = F.when(publisher, began).otherwise(last)
    durations = F.inline(
        F.array(
            _duration(F.when(publisher, 0).otherwise(1), began, F.col("first")),
            _duration(F.when(publisher, 3).otherwise(2), since, F.col("done")),
        )
    )
    # Where the log does not have the publish, the delivery still says which queue.
    rows = of.select(F.coalesce("flow", "place").alias("flow"), durations).where(F.col("us").isNotNull())
    names = F.array(*(F.lit(name) for name in _ALL))
    return (
        rows.groupBy("flow", "measure", "minute", bucket(F.col("us")).alias("bucket"))
        .agg(F.count("*").alias("count"), F.sum("us").alias("sum_us"), F.max("us").alias("max_us"))
        .withColumn("measure", F.element_at(names, F.col("measure") + 1))
        .withColumn("minute", F.timestamp_seconds(F.col("minute") * 60))
    )


def _duration(measure: Column, since: Column, until: Column) -> Column:
    us = F.greatest(until - since, F.lit(0).cast("long"))
    # greatest() passes nulls over, and what is not known has no duration.
    known = F.when(since.isNotNull() & until.isNotNull(), us)
    minute = F.floor(since / 60_000_000)
    return F.struct(measure.alias("measure"), minute.alias("minute"), known.alias("us"))
