"""Queues that are there, and that nobody uses.

What comes in: the log's rows; sums of each hour (`usage.facts`); `queue_age`. What goes out: the table idle_queues.
Rules: 1. What the log does not go back far enough for is not called idle. 2. All nodes of a cluster write that a
queue is declared, and counts do not name its source: so what has one name at nodes of a cluster is one queue. It is
at its source, else where it was used last.
Not here: the other tables of `usage` (`usage.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from amqpd_spark.ages import QUEUE
from amqpd_spark.books.places import in_source, place


def idle_queues(
    events: DataFrame, hours: DataFrame, ages: DataFrame, leaders: Collection[str], end: datetime, days: int
) -> DataFrame:
    """Those that took and gave no message since `days` before the end. `leaders`: nodes that wrote of a source."""
    act, figure = F.col("event"), F.col("figure")
    taken = act.isin("routed", "delivered") | ((act == "counted") & figure.isin("accepted", "delivered"))
    used = hours.where(taken & F.col("queue").isNotNull() & F.col("last").isNotNull())
    used = used.select(
        *("node", "place", "vhost", "queue"),
        F.lit("used").alias("what"),
        F.lit(None).cast("string").alias("user"),
        F.col("last").alias("time"),
        F.col("last").alias("first"),
    )
    name = F.coalesce("queue", F.regexp_extract("object", "^queue (.*)$", 1))
    acts = events.where(act.isin("standing", "queue_declared", "queue_deleted")).groupBy(
        "node", place().alias("place"), "vhost", name.alias("queue"), act.alias("what"), "user"
    )
    # Of what stands somewhere there may be very many rows.
    said = acts.agg(F.max("time").alias("time"), F.min("time").alias("first"))
    what, time = F.col("what"), F.col("time")
    told = used.unionByName(said).where(~F.col("queue").isin("", "delayed messages"))
    known = (
        _where_they_are(told, leaders)
        .groupBy(*QUEUE)
        .agg(
            F.max(F.when(what == "used", time)).alias("last_used"),
            F.max(F.when(what == "queue_declared", time)).alias("declared"),
            # Of a cluster the node that was asked knows for whom it is.
            F.max_by("user", F.when((what == "queue_declared") & F.col("user").isNotNull(), time)).alias("by"),
            F.min("first").alias("first_seen"),
            F.max(F.when(what == "queue_deleted", time)).alias("deleted"),
            F.max(F.when(what != "queue_deleted", time)).alias("there"),
        )
    )
    since = F.coalesce("last_used", "declared", "first_seen")
    there = F.col("there").isNotNull() & (F.col("deleted").isNull() | (F.col("deleted") < F.col("there")))
    idle = known.where(there & (since <= F.lit(end - timedelta(days=days))))
    age = (F.lit(end).cast("double") - since.cast("double")) / 86400
    return idle.join(ages.select(*QUEUE, "standing"), [*QUEUE], "left").select(
        *(*QUEUE, "last_used", "declared", F.col("by").alias("declared_by"), "standing"),
        F.round(age, 1).alias("idle_days"),
    )


def _where_they_are(told: DataFrame, leaders: Collection[str]) -> DataFrame:
    """With `node`: of each queue one. A node is one of a cluster if it wrote of a source, or if what it has was
    declared for nobody, that is, at another node."""
    queue = Window.partitionBy("vhost", "queue")
    of_source = in_source(F.col("place"))
    elsewhere = (F.col("what") == "queue_declared") & F.col("user").isNull()
    of_cluster = F.max(elsewhere).over(queue) | of_source | F.col("node").isin(*leaders)
    shared = told.withColumn("of_cluster", of_cluster)
    has_messages = F.col("what").isin("used", "standing")
    rank = F.struct(of_source, has_messages, F.col("user").isNotNull(), F.col("time"), F.col("place").alias("place"))
    at = F.max(F.when(F.col("of_cluster"), rank)).over(queue)["place"]
    return shared.withColumn("node", F.when(F.col("of_cluster"), at).otherwise(F.col("place")))
