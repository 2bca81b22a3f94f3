"""What is known of each queue and life: the small table that all messages are held against.

What comes in: events. What goes out: `slots`, a row for each (node, queue_id, epoch), with a number of its own; its
names; the moments of the queue's anchors, of the broker's gaps; what the log should have of it.
Rules: 1. An anchor (the header of `standing` rows) counts when all its stretches are in the log: from half of one
nothing can be concluded. 2. Small: as many rows as queues times lives, so it is broadcast (up to `SMALL` rows).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark.books.moments import KINDS, LAST_KIND, NUMBER_SHIFT, moment
from amqpd_spark.books.places import HOLES, PUBLISHER, log_holes
from amqpd_spark.inventory import Hole

QUEUE = ("node", "queue_id")
PROOFS = "array<struct<from: bigint, to: bigint, stopped: boolean>>"
SMALL = 500_000
"""rows; some 100 octets each, in each executor"""


def settled(table: DataFrame) -> DataFrame:
    """Computed once, and from then on given to every task whole if it is small."""
    return counted(table)[0]


def counted(table: DataFrame) -> tuple[DataFrame, int]:
    """`settled`, and the number of rows."""
    kept = table.localCheckpoint()
    rows = kept.count()
    return F.broadcast(kept) if rows <= SMALL else kept, rows


def in_queues() -> Column:
    """Rows that are about messages in a queue, not an anchor's header."""
    return F.col("event").isin(list(KINDS[1:])) & (F.col("count") > 0)


def anchors(events: DataFrame) -> DataFrame:
    """Whole ones: node, queue_id, life, number, `reason`, `next` (the next number to be given out), `follow` (how
    many stretches), `at`."""
    standing = events.where(F.col("event") == "standing")
    identity = (*QUEUE, "life", "number")
    heads = standing.where(F.col("count") == 0).groupBy(*identity)
    follow = F.coalesce(F.min(F.expr("try_cast(detail as bigint)")), F.lit(0))
    headers = settled(
        heads.agg(
            F.min("reason").alias("reason"),
            F.min("first").alias("next"),
            follow.alias("follow"),
            F.min(moment()).alias("at"),
        )
    )
    stretches = standing.where(F.col("count") > 0).select(*QUEUE, "life", F.col("number").alias("row")).distinct()
    mine = F.col("row").between(F.col("number") + 1, F.col("number") + F.col("follow"))
    counted = (
        stretches.join(headers, [*QUEUE, "life"]).where(mine).groupBy(*identity).agg(F.count("*").alias("found"))
    )
    whole = F.coalesce("found", F.lit(0)) == F.col("follow")
    return headers.join(counted, list(identity), "left").where(whole).drop("found")


def slots(events: DataFrame, heads: DataFrame, holes: Sequence[Hole] = ()) -> DataFrame:
    """node, queue_id, epoch, `slot` (its number), vhost, queue; `first`, `last` routed (null: none); `anchors`,
    `gaps` (moments, sorted; of the queue, of the node), `stops` (lives whose end has an anchor), `last_life` of the
    node, `begun` (the log has the start of the life `epoch`), `recorded` (and should have what entered in it);
    `PUBLISHER` of what was routed; `log_holes` (of the place), `proofs` (anchors after which an end that they know of
    cannot be undone: `from`, `to`, moments, and whether one `stopped` the life). `holes`: of the log."""
    routed = F.col("event") == "routed"
    named = (
        events.where(in_queues())
        .groupBy(*QUEUE, "epoch", "vhost", "queue")
        .agg(
            F.min(F.when(routed, F.col("first"))).alias("first"),
            F.max(F.when(routed, F.col("first") + F.col("count") - 1)).alias("last"),
            *(F.min(F.when(routed, F.col(name))).alias(name) for name in PUBLISHER),
        )
    )
    known = named.groupBy(*QUEUE, "epoch").agg(
        *(F.min(name).alias(name) for name in ("vhost", "queue", "first", *PUBLISHER)), F.max("last").alias("last")
    )
    stopped = F.collect_set(F.when(F.col("reason") == "stopped", F.col("life")))
    heads = heads.join(F.broadcast(_cut_short(events)), ["node", "life"], "left")
    own = heads.groupBy(*QUEUE).agg(
        F.array_sort(F.collect_set("at")).alias("anchors"),
        stopped.alias("stops"),
        F.collect_set("life").alias("anchored"),
        F.array_sort(F.collect_set(_proof())).alias("proofs"),
    )
    joined = known.join(own, list(QUEUE), "left").join(_nodes(events), "node", "left")
    joined = joined.join(log_holes(events, holes), "node", "left")
    begun = F.coalesce(F.array_contains("starts", F.col("epoch")), F.lit(False))
    told = F.col("first").isNotNull() | F.coalesce(F.array_contains("anchored", F.col("epoch")), F.lit(False))
    return settled(
        joined.select(
            *(*QUEUE, "epoch", "vhost", "queue", "first", "last", "last_life", *PUBLISHER),
            *(_or_empty(name, "array<bigint>") for name in ("anchors", "gaps")),
            _or_empty("stops", "array<int>"),
            _or_empty("log_holes", HOLES),
            _or_empty("proofs", PROOFS),
            begun.alias("begun"),
            (begun & told).alias("recorded"),
            F.monotonically_increasing_id().alias("slot"),
        )
    )


def _proof() -> Column:
    """null: the anchor is none."""
    stops = (F.col("reason") == "stopped") & F.col("unflushed").isNull()
    last = F.shiftleft(F.col("follow"), NUMBER_SHIFT) + LAST_KIND
    span = F.struct(F.col("at").alias("from"), (F.col("at") + last).alias("to"), stops.alias("stopped"))
    return F.when(stops | (F.col("reason") == "recovered"), span)


def _cut_short(events: DataFrame) -> DataFrame:
    """node, life, `unflushed`: lives whose stop did not wait for the disk, as the act `stopped` says."""
    said = F.get_json_object("detail", "$.flushed") == "false"
    lives = events.where((F.col("event") == "stopped") & said).select("node", "life").distinct()
    return lives.withColumn("unflushed", F.lit(True))


def _nodes(events: DataFrame) -> DataFrame:
    started = F.when(F.col("event").isin("started", "source_begins"), F.col("life"))
    gap = F.when(F.col("event") == "gap", moment())
    # Two steps, for sets do not spill: the first leaves a row for each life and kind of row.
    facts = events.select("node", "life", started.alias("start"), gap.alias("gap")).distinct()
    return facts.groupBy("node").agg(
        F.max("life").alias("last_life"),
        F.collect_set("start").alias("starts"),
        F.array_sort(F.collect_set("gap")).alias("gaps"),
    )


def _or_empty(name: str, kind: str) -> Column:
    return F.coalesce(F.col(name), F.array().cast(kind)).alias(name)
