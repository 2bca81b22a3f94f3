"""Where a queue is, for the books: at a node, or in a source that several nodes keep.

What comes in: events of several nodes. What goes out: the same events; of those of a source's queue `node` is the
source and `life` its epoch, and `at_node` and `at_life` say whose log it is.
Rules: 1. An epoch of a source takes the place of a node's life, and the anchor with which the next epoch begins that
of the next start: so what holds for the queues of one node over its lives holds for those of a source over its homes
(docs/decisions/audit-epochs.md). 2. An epoch has one writer, so the numbers of its events in that node's log are in
the order in which things happened. 3. Publications and confirms are the node's. 4. A gap of a node is one of the
sources that it was the home of then; so is a hole of the log, and an epoch that has no rows may lie in any hole.
Not here: what is concluded (`fates.py`, `suspects.py`, `origins.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark.books.moments import LAST_KIND, NUMBER_MAX, moment_of
from amqpd_spark.inventory import Hole

PUBLISHER = ("at_node", "at_life")
"""whose number a publication is"""
HOLES = "array<struct<from: bigint, to: bigint>>"
_PLACE = "source "


def placed(events: DataFrame) -> DataFrame:
    """With `PUBLISHER`, and gaps of sources."""
    named = events.withColumns({"at_node": F.col("node"), "at_life": F.col("life")})
    is_source = _of_source()
    rows = named.withColumns(
        {
            "node": place(),
            "life": F.when(is_source, F.col("source_epoch")).otherwise(F.col("life")),
        }
    )
    of_sources = rows.where(is_source)
    if of_sources.limit(1).isEmpty():
        return rows
    return rows.unionByName(_gaps(rows, of_sources), allowMissingColumns=True)


def place() -> Column:
    """Where the queue of an event is: "source 5", or the node that wrote of it."""
    return F.when(_of_source(), F.concat(F.lit(_PLACE), F.col("source"))).otherwise(F.col("node"))


def _of_source() -> Column:
    return F.coalesce(F.col("source"), F.lit(0)) > 0


def in_source(node: Column) -> Column:
    """Whether the place is one."""
    return node.startswith(_PLACE)


def log_holes(events: DataFrame, holes: Sequence[Hole]) -> DataFrame:
    """`node`, `log_holes`: an array of (`from`, `to`), moments; of each place that has one. `events`: placed ones."""
    spark = events.sparkSession
    if not holes:
        return spark.createDataFrame([], f"node string, log_holes {HOLES}")
    rows = [(hole.node, hole.life, hole.first, hole.last) for hole in holes]
    lost = F.broadcast(spark.createDataFrame(rows, "of_node string, of_life int, low bigint, high bigint"))
    of_nodes = lost.select(F.col("of_node").alias("node"), F.col("of_life").alias("life"), "low", "high")
    begun = F.min(F.when(F.col("event") == "source_begins", F.col("number")))
    ended = F.max(F.when(F.col("event") == "source_ends", F.col("number")))
    of_sources = events.where(in_source(F.col("node")))
    reigns = of_sources.groupBy("node", "life", *PUBLISHER).agg(begun.alias("begun"), ended.alias("ended"))
    mine = (F.col("at_node") == F.col("of_node")) & (F.col("at_life") == F.col("of_life"))
    meets = (F.col("ended").isNull() | (F.col("ended") > F.col("low"))) & (
        F.col("begun").isNull() | (F.col("begun") < F.col("high"))
    )
    within = reigns.join(lost, mine & meets).select("node", "life", "low", "high")
    epochs = of_sources.groupBy("node").agg(F.collect_set("life").alias("there"), F.max("life").alias("newest"))
    missing = F.array_except(F.sequence(F.lit(1), "newest"), "there")
    silent = epochs.select("node", F.explode(missing).alias("life")).select(
        *("node", "life", F.lit(0).cast("bigint").alias("low"), F.lit(NUMBER_MAX).alias("high")),
    )
    spans = (
        of_nodes.unionByName(within)
        .unionByName(silent)
        .select(
            "node",
            F.struct(
                moment_of(F.col("life"), F.col("low")).alias("from"),
                (moment_of(F.col("life"), F.col("high")) + LAST_KIND).alias("to"),
            ).alias("span"),
        )
    )
    return spans.groupBy("node").agg(F.array_sort(F.collect_set("span")).alias("log_holes"))


def _gaps(rows: DataFrame, of_sources: DataFrame) -> DataFrame:
    """`node`, `life`, `number` of each gap that lies in an epoch of a source, or may have taken its end."""
    ended = F.min(F.when(F.col("event") == "source_ends", F.col("number")))
    reigns = of_sources.groupBy("node", "life", *PUBLISHER).agg(ended.alias("ended"))
    gaps = rows.where(F.col("event") == "gap").select(
        *(F.col("at_node").alias("gap_node"), F.col("at_life").alias("gap_life"), "number"),
        F.coalesce(F.get_json_object("detail", "$.life").cast("int"), F.col("at_life") - 1).alias("life_before"),
    )
    meets = reigns.join(F.broadcast(gaps), F.col("at_node") == F.col("gap_node"))
    within = (F.col("at_life") == F.col("gap_life")) & (F.col("ended").isNull() | (F.col("number") < F.col("ended")))
    behind = (F.col("at_life") == F.col("life_before")) & F.col("ended").isNull()
    return meets.where(within | behind).select(
        *("node", "life", *PUBLISHER),
        F.when(within, F.col("number")).otherwise(F.lit(NUMBER_MAX)).alias("number"),
        F.lit("gap").alias("event"),
    )
