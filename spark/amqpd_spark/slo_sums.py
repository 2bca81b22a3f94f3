"""What `slo` adds up, from pieces to the few rows of which all tables are made.

What comes in: the log's rows. What goes out: `Measured`: histograms and rates of each flow and minute, packed, with
all that belongs to one of them in one row of Spark's.
Rules: 1. Messages are looked at once. 2. What a task has added up goes by (flow, minute) to the one that adds up
everything; a date's rows are in few tasks, so that its tables are few files. 3. A stream adds up the same, so its
tables are those of a batch.
Not here: messages (`latencies.py`), tables (`slo_tables.py`), the stream (`slo_stream.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark import flows, histogram, latencies, pieces, rates
from amqpd_spark.flows import Flows, Names
from amqpd_spark.footers import named
from amqpd_spark.inventory import Inventory
from amqpd_spark.pieces import NAMES, PIECES
from amqpd_spark.session import expect, kept
from amqpd_spark.stretches.chunk import Longs
from amqpd_spark.stretches.packed import (
    Columns,
    Function,
    hashed,
    mapped,
    of_columns,
    packed,
    sent,
    spread,
    together,
    unpacked,
)
from amqpd_spark.stretches.scan import TASK_ROWS, Rows
from amqpd_spark.stretches.sums import joined
from amqpd_spark.tabular import frame

HISTOGRAM, RATES = "histogram", "rates"
SUM_ROWS = 2 * TASK_ROWS
"""of the log, whose sums are one task's"""
DAY_MIN = 24 * 60


@dataclass(frozen=True)
class Shares:
    """Into how many tasks sums go: `parts`, of which a date has `of_date`."""

    parts: int = 1
    of_date: int = 1

    def part(self, rows: Columns) -> Longs:
        share = hashed(rows["flow"]) % np.uint64(self.of_date)
        return (rows["minute"] // DAY_MIN * self.of_date + share.astype(np.int64)) % self.parts


@dataclass(frozen=True)
class Measured:
    """`sums`: rows of HISTOGRAM and RATES, `part` by `part`. `names`: of all flows in them."""

    sums: DataFrame
    names: dict[int, Names]
    parts: int

    def of(self, what: str) -> DataFrame:
        return self.sums.where(F.col("what") == what)


def measured(rows: Rows, inventory: Inventory) -> Measured:
    spark = rows.spark
    parts = rows.tasks(inventory)
    # Of what objectives are held against, which is less by far; Spark's usual 200 tasks would be most of their time.
    expect(spark, parts)
    shares = shares_of(inventory)
    found = rows.reduced(pieces.pieces(parts), pieces.COLUMNS, parts, of_pieces(shares))
    return together_of(frame(rows.spark, found), shares)


def shares_of(inventory: Inventory) -> Shares:
    dates = {(named(file.path)[3] or "")[:10] for file in inventory.files}
    return shares_for(inventory.rows, len(dates))


def shares_for(rows: int, dates: int) -> Shares:
    parts = max(1, -(-rows // SUM_ROWS))
    return Shares(parts, -(-parts // max(1, dates)))


def together_of(partial: DataFrame, shares: Shares, names: Mapping[int, Names] | None = None) -> Measured:
    """Of sums that tasks have made. `names` that are known beside those among them."""
    sums = kept(mapped(sent(partial, shares.parts), added))
    return Measured(sums, {**(names or {}), **names_in(sums)}, shares.parts)


def names_in(rows: DataFrame) -> dict[int, Names]:
    names: dict[int, Names] = {}
    for row in rows.where(F.col("what") == NAMES).select("bytes").collect():
        names.update(flows.read(pa.ipc.open_stream(row[0]).read_all()))
    return names


def of_messages(messages: Iterable[Columns], more: Sequence[Columns], shares: Shares) -> Iterator[pa.RecordBatch]:
    """HISTOGRAM and RATES (with `more`)."""
    durations, rows = [], list(more)
    for each in messages:
        made = latencies.durations(each)
        refused = made["measure"] == latencies.REFUSED_PUBLISH
        durations.append(histogram.of_durations({name: column[~refused] for name, column in made.items()}))
        rows.append(rates.of_refused({name: column[refused] for name, column in made.items()}))
    if durations:
        yield from _shared(HISTOGRAM, histogram.added(joined(durations)), shares)
    if rows:
        yield from _shared(RATES, rates.added(joined(rows)), shares)


def _shared(what: str, rows: Columns, shares: Shares) -> Iterator[pa.RecordBatch]:
    return spread(what, shares.part(rows), shares.parts, rows)


def of_pieces(shares: Shares) -> Function:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables, met = sorted_out(batches)
        found = together(tables.pop(PIECES, []))
        if found:
            told = latencies.told(found)
            yield from of_messages(latencies.messages(told), [rates.of_pieces(found)], shares)
        yield from met

    return read


def sorted_out(batches: Iterable[pa.RecordBatch]) -> tuple[dict[str, list[pa.Table]], list[pa.RecordBatch]]:
    """The tables of a task, by what they are; and the names among them, packed."""
    tables: dict[str, list[pa.Table]] = defaultdict(list)
    for what, _, table in unpacked(batches):
        tables[what].append(table)
    met = Flows()
    for table in tables.pop(NAMES, []):
        met.add(table)
    return tables, [packed(NAMES, met.table())] if met.names else []


def added(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    tables, met = defaultdict(list), Flows()
    for what, part, table in unpacked(batches):
        if what == NAMES:
            met.add(table)
        else:
            tables[what, part].append(table)
    for (what, part), of_one in tables.items():
        add = histogram.added if what == HISTOGRAM else rates.added
        yield packed(what, of_columns(add(together(of_one))), part)
    if met.names:
        yield packed(NAMES, met.table())
