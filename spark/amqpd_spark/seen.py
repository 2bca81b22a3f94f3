"""Which rows a stream has taken, so that each event counts once, whatever files it comes in again.

What comes in: the files of a batch, and their rows. What goes out: the rows that are new, each once; `seen`, the
ranges of row numbers that were taken up to this batch, and `masks`, where ranges would be too many.
Rules: 1. (node, incarnation, number) names an event, and no file's name does: `compact` writes the same events into
others.
2. A footer of the broker's is believed where the file has as many rows as it names; of all others the numbers are
read, also of what `generate` made, for they jump there. 3. Where the ranges show that nothing comes twice, no row is
touched. 4. Ranges are the driver's, a few for each incarnation. Where a million numbers are cut into more than
ISLANDS_MAX (numbers that jump; some files of an hour that `compact` made several of), masks of 64 numbers are written
down instead, exactly. 5. What is written follows from the files and the batch before, so a batch that is done again
gives the same. 6. A file is taken as a whole: also rows that --since and --until leave out.
Not here: how numbers are read (`present.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark import events, present
from amqpd_spark.batches import SEEN, Batches, NotOurs
from amqpd_spark.footers import BROKER, File
from amqpd_spark.given import of_rows
from amqpd_spark.present import BLOCK_BITS, INCARNATION, ISLANDS_MAX, PART_BITS

MASKS = "masks"


class Taken(NamedTuple):
    """Rows `first` to `last` of an incarnation: all of them, or, where it is not `whole`, those that masks say."""

    node: str
    incarnation: int
    first: int
    last: int
    whole: bool = True


@contextmanager
def new(batches: Batches, number: int, files: Sequence[File], rows: DataFrame) -> Iterator[DataFrame]:
    """Those of `rows`, all of `files`, that no batch before `number` had. Raises NotOurs."""
    before = _before(batches, number)
    told = [taken for file in files if (taken := _told(file)) is not None]
    read, once = _read(batches, number, [file for file in files if _told(file) is None])
    mine = [*told, *read]
    batches.write(SEEN, number, _table(batches.spark, merged([*before, *mine])).coalesce(1))
    again = met(before, mine)
    once = once and not met(told, read) and sum(map(_rows, told)) == sum(map(_rows, merged(told)))
    if once and not again:
        yield rows
        return
    kept = _without(batches, number, rows, again)
    kept = (kept if once else events.once(kept)).persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def merged(taken: Iterable[Taken]) -> list[Taken]:
    """The same rows in as few ranges as there can be; of those that are not whole, one for each million numbers."""
    found: list[Taken] = []
    parts: dict[tuple[str, int, int], Taken] = {}
    for each in sorted(taken):
        if not each.whole:
            part = each.node, each.incarnation, each.first >> (BLOCK_BITS + PART_BITS)
            there = parts.get(part, each)
            parts[part] = each._replace(first=there.first, last=max(there.last, each.last))
        elif found and found[-1][:2] == each[:2] and each.first <= found[-1].last + 1:
            found[-1] = found[-1]._replace(last=max(found[-1].last, each.last))
        else:
            found.append(each)
    return [*found, *parts.values()]


def met(taken: Iterable[Taken], others: Iterable[Taken]) -> list[Taken]:
    """Those of `taken` that have a number which one of `others` may have, too."""
    incarnations: dict[tuple[str, int], list[Taken]] = {}
    for each in others:
        incarnations.setdefault((each.node, each.incarnation), []).append(each)
    return [
        each
        for each in taken
        if any(
            each.first <= other.last and other.first <= each.last
            for other in incarnations.get((each.node, each.incarnation), ())
        )
    ]


def _rows(taken: Taken) -> int:
    return taken.last - taken.first + 1


def _told(file: File) -> Taken | None:
    """What the footer says; None: it says nothing that can be relied on."""
    if (
        file.made_by != BROKER
        or file.node is None
        or file.incarnation is None
        or file.first is None
        or file.last is None
    ):
        return None
    taken = Taken(file.node, file.incarnation, file.first, file.last)
    return taken if _rows(taken) == file.rows else None


def _read(batches: Batches, number: int, files: Sequence[File]) -> tuple[list[Taken], bool]:
    """What the rows of these files say, and whether each of them is there once. Writes masks."""
    # Those of a batch that was killed; it may have had a file more.
    batches.forget(MASKS, number)
    if not files:
        return [], True
    masks = present.masks(events.of_files(batches.spark, [file.path for file in files])).persist()
    try:
        parts: dict[tuple[str, int, int], list[Taken]] = {}
        cut: set[tuple[str, int, int]] = set()
        for row in present.islands(masks).collect():
            part = row["node"], row["incarnation"], row["part"]
            parts.setdefault(part, []).append(Taken(*part[:2], row["first"], row["last"]))
            if row["many"] > ISLANDS_MAX:
                cut.add(part)
        if cut:
            keys = of_rows(batches.spark, sorted(cut), "node string, incarnation int, part bigint")
            placed = masks.withColumn("part", F.shiftright("block", PART_BITS))
            kept = placed.join(F.broadcast(keys), [*INCARNATION, "part"], "left_semi").select(
                *INCARNATION, "block", "mask"
            )
            batches.write(MASKS, number, kept.sortWithinPartitions(*INCARNATION, "block"))
        rows = masks.agg(F.sum(F.bit_count("mask"))).collect()[0][0] or 0
    finally:
        masks.unpersist()
    found = [each for part, ranges in parts.items() if part not in cut for each in ranges]
    for part in sorted(cut):
        first, last = min(each.first for each in parts[part]), max(each.last for each in parts[part])
        found.append(Taken(*part[:2], first, last, whole=False))
    return found, rows == sum(file.rows for file in files)


def _without(batches: Batches, number: int, rows: DataFrame, taken: Sequence[Taken]) -> DataFrame:
    """Without what was `taken`, as far as ranges and masks of earlier batches say."""

    def of_incarnation(table: DataFrame) -> list[Column]:
        return [rows[name] == table[f"_{name}"] for name in INCARNATION]

    if ranges := [each for each in taken if each.whole]:
        table = F.broadcast(_hidden(_table(batches.spark, ranges)))
        within = rows["number"].between(table["_first"], table["_last"])
        rows = rows.join(table, [*of_incarnation(table), within], "left_anti")
    if cut := [each for each in taken if not each.whole]:
        masks = batches.up_to(MASKS, number - 1)
        low, high = (edge >> BLOCK_BITS for edge in (min(each.first for each in cut), max(each.last for each in cut)))
        table = _hidden(masks.where(F.col("block").between(low, high)))
        bit = F.expr(f"(shiftrightunsigned(_mask, cast(number & {(1 << BLOCK_BITS) - 1} as int)) & 1L) = 1L")
        same = F.shiftright(rows["number"], BLOCK_BITS) == table["_block"]
        rows = rows.join(table, [*of_incarnation(table), same, bit], "left_anti")
    return rows


def _hidden(table: DataFrame) -> DataFrame:
    """Its columns have other names than those of events."""
    return table.withColumnsRenamed({name: f"_{name}" for name in table.columns})


def _before(batches: Batches, number: int) -> list[Taken]:
    if number == 0:
        return []
    if not batches.is_there(SEEN, number - 1):
        raise NotOurs(f"{batches.root} was begun by an earlier amqpd-spark: delete it, and the checkpoint")
    return [Taken(*row) for row in batches.read(SEEN, number - 1).select(*Taken._fields).collect()]


def _table(spark: SparkSession, taken: Sequence[Taken]) -> DataFrame:
    return of_rows(spark, taken, "node string, incarnation int, first bigint, last bigint, whole boolean")
