"""Which rows are in files whose footers do not say it: by reading the numbers of all of them.

What comes in: the rows of files that Spark wrote (`compact`), or that have no statistics. What goes out: ranges of
rows that are there, and the rows with which a broker says what it did not record.
Rules: 1. Masks of 64 numbers are added up by Spark, so the driver gets ranges, never rows. 2. Where more than
ISLANDS_MAX ranges are among a million numbers, the driver gets the first and the last of them: all between counts as
missing. 3. Times of a range are those of 64 rows around its ends.
Not here: what follows (`contiguity.py`), also in a stream (`seen.py`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from amqpd_spark import events
from amqpd_spark.contiguity import Gap, Removed
from amqpd_spark.footers import File

ISLANDS_MAX = 256
INCARNATION = ("node", "incarnation")
BLOCK_BITS, PART_BITS = 6, 14
"""numbers of a mask, masks of a part, as powers of two"""
_OF_GAP = ("incarnation", "rows_from", "rows_to")


def ranges(spark: SparkSession, files: Sequence[File], sparse: bool = True) -> tuple[list[File], bool]:
    """As if each range were a file, and whether any incarnation was left out: without `sparse`, one in which most
    numbers are missing, as in what `generate` of an earlier version made."""
    rows = events.of_files(spark, [file.path for file in files])
    blocks = masks(rows).persist()
    try:
        parts = _parts(blocks).persist()
        incarnations = parts.groupBy(*INCARNATION).agg(
            *(F.sum("rows").alias("rows"), F.min("first").alias("first"), F.max("last").alias("last"))
        )
        jump = F.col("rows") * 2 < F.col("last") - F.col("first") + 1
        left_out = (
            set() if sparse else {(row["node"], row["incarnation"]) for row in incarnations.where(jump).collect()}
        )
        found = _islands(blocks, parts).drop("part", "many").collect()
    finally:
        parts.unpersist()
        blocks.unpersist()
    there = [File("", 0, row["last"] - row["first"] + 1, files[0].made_by, **row.asDict()) for row in found]
    return [each for each in there if (each.node, each.incarnation) not in left_out], bool(left_out)


def islands(blocks: DataFrame) -> DataFrame:
    """node, incarnation, `part` (of a million numbers), first, last, from_us, to_us, `many`: ranges of the part.
    Where these are more than ISLANDS_MAX, there are the first and the last one only. `blocks`: `masks`, best
    persisted."""
    return _islands(blocks, _parts(blocks))


def spans(spark: SparkSession, path: str, gone: int) -> list[Removed]:
    """Of a file that lost `gone` rows: the rows that it has, of each incarnation."""
    rows = events.of_files(spark, [path])
    us = F.unix_micros("time")
    of_incarnations = rows.groupBy(*INCARNATION).agg(F.min("number"), F.max("number"), F.min(us), F.max(us))
    return [Removed(path, row[0], row[1], row[2], row[3], gone, row[4], row[5]) for row in of_incarnations.collect()]


def gaps(spark: SparkSession, files: Sequence[File]) -> list[Gap]:
    """In order."""
    rows = events.of_files(spark, [file.path for file in files]).where(F.col("event") == "gap")
    found = rows.select("node", "incarnation", "number", "reason", "detail").distinct().collect()
    return sorted((_gap(*row) for row in found), key=lambda gap: (gap.node, gap.incarnation, gap.number))


def _gap(node: str, incarnation: int, number: int, reason: str | None, detail: str | None) -> Gap:
    try:
        said = json.loads(detail or "{}")
        of, low, high = (None if said.get(name) is None else int(said[name]) for name in _OF_GAP)
        file = said.get("file")
    except (ValueError, TypeError, AttributeError):
        of = low = high = file = None
    return Gap(node, incarnation, number, reason or "", of, low, high, file if isinstance(file, str) else None)


def masks(rows: DataFrame) -> DataFrame:
    """node, incarnation, `block`, `mask` (bit i: number 64 * block + i is there), first, last, from_us, to_us."""
    us = F.unix_micros("time")
    bit = F.expr(f"shiftleft(1L, cast(number & {(1 << BLOCK_BITS) - 1} as int))")
    known = rows.where("node is not null and incarnation is not null and number > 0")
    return known.groupBy(*INCARNATION, F.shiftright("number", BLOCK_BITS).alias("block")).agg(
        F.bit_or(bit).alias("mask"),
        *(F.min("number").alias("first"), F.max("number").alias("last")),
        *(F.min(us).alias("from_us"), F.max(us).alias("to_us")),
    )


def _parts(blocks: DataFrame) -> DataFrame:
    """Of about a million numbers each: first, last, from_us, to_us, how many rows."""
    return blocks.groupBy(*INCARNATION, F.shiftright("block", PART_BITS).alias("part")).agg(
        *(F.min("first").alias("first"), F.max("last").alias("last")),
        *(F.min("from_us").alias("from_us"), F.max("to_us").alias("to_us")),
        F.sum(F.bit_count("mask")).alias("rows"),
    )


def _islands(blocks: DataFrame, parts: DataFrame) -> DataFrame:
    whole = F.col("rows") == F.col("last") - F.col("first") + 1
    columns = (*INCARNATION, "part", "first", "last", "from_us", "to_us")
    one = parts.where(whole).select(*columns, F.lit(1).alias("many"))
    return one.unionByName(_of_broken(blocks, parts.where(~whole)).select(*columns, "many"))


def _of_broken(blocks: DataFrame, broken: DataFrame) -> DataFrame:
    """Ranges within the parts that have not all numbers between their first and last."""
    keys = F.broadcast(broken.select(*INCARNATION, "part"))
    mine = blocks.withColumn("part", F.shiftright("block", PART_BITS)).join(keys, [*INCARNATION, "part"])
    size = 1 << BLOCK_BITS
    is_there = F.expr(f"filter(sequence(0, {size - 1}), i -> (shiftrightunsigned(mask, i) & 1L) = 1L)")
    each = F.transform(is_there, lambda i: F.struct(*(2 * [(F.col("block") * size + i)])))
    pair = "array<struct<low: bigint, high: bigint>>"
    parts = F.when(F.col("mask") == -1, F.array(F.struct("first", "last")).cast(pair)).otherwise(each.cast(pair))
    runs = mine.withColumn("run", F.explode(parts)).select(*INCARNATION, "part", "run.*", "from_us", "to_us")
    ordered = Window.partitionBy(*INCARNATION, "part").orderBy("low")
    apart = F.coalesce(F.col("low") > F.lag("high").over(ordered) + 1, F.lit(True)).cast("int")
    numbered = runs.withColumn("begins", apart).withColumn("island", F.sum("begins").over(ordered))
    found = numbered.groupBy(*INCARNATION, "part", "island").agg(
        *(F.min("low").alias("first"), F.max("high").alias("last")),
        *(F.min("from_us").alias("from_us"), F.max("to_us").alias("to_us")),
    )
    many = F.max("island").over(Window.partitionBy(*INCARNATION, "part"))
    kept = (F.col("many") <= ISLANDS_MAX) | (F.col("island") == 1) | (F.col("island") == F.col("many"))
    return found.withColumn("many", many).where(kept)
