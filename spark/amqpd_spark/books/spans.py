"""Numbers that should be there and are not, found from stretches, without a row for each number.

What comes in: stretches that are wanted, and stretches that cover them. What goes out: the stretches between.
Rules: 1. A stretch is cut at multiples of `BUCKET`, so that one hot queue is many groups. 2. A stretch that comes
twice covers what it covers once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from amqpd_spark.books.moments import incarnation_of, moment
from amqpd_spark.books.queues import QUEUE, Anchor, Known, Slot, in_queues, settled
from amqpd_spark.given import of_rows

BUCKET = 1 << 20


def uncovered(spans: DataFrame, keys: Sequence[str]) -> DataFrame:
    """`keys`, `low`, `high`: what is wanted (`covers` false) and not covered (`covers` true)."""
    floor = F.col("bucket") * BUCKET
    cut = spans.withColumn("bucket", F.explode(F.expr(f"sequence(low div {BUCKET}, high div {BUCKET})"))).select(
        *(*keys, "bucket", "covers"),
        F.greatest("low", floor).alias("low"),
        F.least(F.col("high"), floor + (BUCKET - 1)).alias("high"),
    )
    edge = F.struct(F.col("low").alias("at"), F.lit(1).cast("long").alias("step"))
    end = F.struct((F.col("high") + 1).alias("at"), F.lit(-1).cast("long").alias("step"))
    edges = cut.select(*keys, "bucket", "covers", F.explode(F.array(edge, end)).alias("edge"))
    step = F.col("edge.step")
    steps = edges.groupBy(*keys, "bucket", F.col("edge.at").alias("low")).agg(
        F.sum(F.when(F.col("covers"), step).otherwise(0)).alias("covering"),
        F.sum(F.when(~F.col("covers"), step).otherwise(0)).alias("wanting"),
    )
    along = Window.partitionBy(*keys, "bucket").orderBy("low")
    levels = steps.select(
        *(*keys, "low"),
        (F.lead("low").over(along) - 1).alias("high"),
        F.sum("covering").over(along).alias("covering"),
        F.sum("wanting").over(along).alias("wanting"),
    )
    return _joined(levels.where((F.col("wanting") > 0) & (F.col("covering") == 0)).select(*keys, "low", "high"), keys)


Lack = tuple[str | None, int, int, str | None, str | None, int, int]
"""place, queue_id, epoch, vhost, queue, and of its numbers the least and the greatest"""


def lacking(slots: Sequence[Slot], heads: Sequence[Anchor], entered: Mapping[int, int]) -> list[Lack]:
    """What has fewer messages than numbers. `entered`: slot -> how many messages of it have."""
    reached: dict[tuple[str | None, int, int], int] = {}
    for head in heads:
        key = head.node, head.queue_id, head.incarnation
        reached[key] = max(reached.get(key, -1), head.next - 1)
    found: list[Lack] = []
    for slot in slots:
        if slot.first is None or slot.last is None or slot.slot not in entered:
            continue
        high = max(slot.last, reached.get((slot.node, slot.queue_id, slot.epoch), -1))
        if entered[slot.slot] < high - slot.first + 1:
            found.append((slot.node, slot.queue_id, slot.epoch, slot.vhost, slot.queue, slot.first, high))
    return found


def holes(events: DataFrame, lacking: Sequence[Lack], heads: Sequence[Anchor]) -> DataFrame:
    """node, queue_id, epoch, vhost, queue, low, high: never routed, between two that were. What an anchor `level` or
    `gap` comes after is none: it was not to be recorded."""
    names = (*QUEUE, "epoch", "vhost", "queue")
    spark = events.sparkSession
    kinds = "node string, queue_id bigint, epoch int, vhost string, queue string, low bigint, high bigint"
    wanted = of_rows(spark, lacking, kinds)
    routed = (
        events.where((F.col("event") == "routed") & (F.col("count") > 0))
        .select(*QUEUE, "epoch", F.col("first").alias("low"), (F.col("first") + F.col("count") - 1).alias("high"))
        .join(F.broadcast(wanted.select(*names)), [*QUEUE, "epoch"])
    )
    spans = wanted.withColumn("covers", F.lit(False)).unionByName(routed.withColumn("covers", F.lit(True)))
    gone = uncovered(spans, names)
    told = [
        (head.node, head.queue_id, head.incarnation, head.next) for head in heads if head.reason in ("level", "gap")
    ]
    if not told:
        return gone
    begins = of_rows(spark, told, "node string, queue_id bigint, epoch int, next bigint")
    excused = [
        *(F.col(f"hole.{name}") == F.col(f"begin.{name}") for name in (*QUEUE, "epoch")),
        F.col("next").between(F.col("low") + 1, F.col("high") + 1),
    ]
    return gone.alias("hole").join(F.broadcast(begins).alias("begin"), excused, "left_anti")


def doubtful(events: DataFrame, known: Known, gone: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Of `holes`, those whose entry may lie in a hole of the log (the rest is a fault); and of their numbers, those
    of which the log has no word at all: `slot`, `low`, `high`, `at` (of the hole, a moment)."""
    names = (*QUEUE, "epoch")
    of_queue = known.with_moments(known.slots.select("slot", "of", *names), "log_holes")
    of_queue = of_queue.where(F.size("log_holes") > 0)
    asked = settled(gone.select(*names, "low", "high").join(of_queue, list(names)))
    # Under other names: both sides come from the same rows.
    routed = events.where((F.col("event") == "routed") & (F.col("count") > 0)).select(
        *(F.col(name).alias(f"_{name}") for name in (*names, "first", "count")), moment().alias("_at")
    )
    same = [F.col(name) == F.col(f"_{name}") for name in names]
    ahead = F.col("_first") + F.col("_count") == F.col("low")
    edges = ahead | (F.col("_first") == F.col("high") + 1)
    near = routed.join(asked, [*same, edges], "right").groupBy("slot", *names, "low", "high")
    near_by = near.agg(
        F.first("log_holes").alias("log_holes"),
        F.max(F.when(ahead, F.col("_at"))).alias("before"),
        F.min(F.when(~ahead, F.col("_at"))).alias("behind"),
    )
    between = F.filter(
        "log_holes",
        lambda hole: (
            (incarnation_of(hole["from"]) == F.col("epoch"))
            & (F.col("before").isNull() | (hole["to"] > F.col("before")))
            & (F.col("behind").isNull() | (hole["from"] < F.col("behind")))
        ),
    )
    met = near_by.withColumn("at", F.get(between, F.lit(0))["from"])
    excused = settled(met.where(F.col("at").isNotNull()).select("slot", *names, "low", "high", "at"))
    told = events.where(in_queues()).select(
        *names, F.col("first").alias("low"), (F.col("first") + F.col("count") - 1).alias("high")
    )
    keys = ("slot", *names)
    covering = told.join(F.broadcast(excused.select(*keys).distinct()), list(names)).select(*keys, "low", "high")
    wanted = excused.select(*keys, "low", "high").withColumn("covers", F.lit(False))
    silent = uncovered(wanted.unionByName(covering.withColumn("covers", F.lit(True))), keys).alias("silent")
    within = (F.col("silent.slot") == F.col("of.slot")) & F.col("silent.low").between(
        F.col("of.low"), F.col("of.high")
    )
    placed = silent.join(F.broadcast(excused).alias("of"), within).select("silent.*", "of.at")
    return excused.select(*names, "low"), placed.select("slot", "low", "high", "at")


def _joined(pieces: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Pieces that touch as one; they are few."""
    along = Window.partitionBy(*keys).orderBy("low")
    begins = F.coalesce((F.col("low") > F.lag("high").over(along) + 1).cast("int"), F.lit(0))
    numbered = pieces.withColumn("begins", begins).withColumn("island", F.sum("begins").over(along))
    return (
        numbered.groupBy(*keys, "island").agg(F.min("low").alias("low"), F.max("high").alias("high")).drop("island")
    )
