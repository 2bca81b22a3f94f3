"""The tables of the job `slo`, from what was added up.

What comes in: `Measured`; objectives. What goes out: the tables of `docs/audit/slo.md`, as DataFrames.
Rules: from histograms and rates, which are small, all tables are made; names are joined last.
Not here: sums (`slo_sums.py`), objectives (`objectives.py`, `burn.py`), the command (`slo.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark import burn, flows, histogram, rates
from amqpd_spark.flows import NAMES, Names, number_of, wide
from amqpd_spark.histogram import PERCENTILES
from amqpd_spark.latencies import MEASURES
from amqpd_spark.objectives import Objective
from amqpd_spark.options import Options
from amqpd_spark.session import kept
from amqpd_spark.slo_sums import HISTOGRAM, RATES, Measured
from amqpd_spark.stretches.chunk import Longs
from amqpd_spark.stretches.packed import SCHEMA, hashed, sent, spread, together, unpacked

SCOPES = ("route", "vhost")
_BY_DATE = ("latency", "histogram", "rates")
_LATENCY = ("mean_ms", *PERCENTILES, "max_ms")
Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def tables(found: Measured, wanted: Sequence[Objective], until: datetime | None = None) -> dict[str, DataFrame]:
    """All tables by name; those of objectives where there are some. `until`: where their windows end, without it
    after the last minute in which something happened."""
    by_minute, of_durations = rates_of(found), histogram_of(found)
    made = {
        "latency": _latency(found),
        "latency_total": _totals(found),
        "histogram": of_durations,
        "rates": by_minute,
    }
    if wanted:
        described = burn.described(by_minute.sparkSession, wanted)
        counts = kept(burn.minutes(described, of_durations, by_minute))
        end = until or _end(by_minute)
        rows = kept(burn.burn(counts, described, end))
        status = burn.status(counts, rows, described, end)
        made |= {"objectives": status, "burn": rows, "breaches": burn.breaches(rows)}
    return made


def histogram_of(found: Measured) -> DataFrame:
    """NAMES, minute, measure, bucket, FIGURES."""

    def read(table: pa.Table) -> dict[str, Any]:
        columns = {name: table.column(name) for name in ("flow", *histogram.FIGURES)}
        narrow = {name: table.column(name).cast(pa.int32()) for name in ("measure", "bucket")}
        return columns | narrow | {"minute": _minutes(np.asarray(table.column("minute").to_numpy()))}

    figures = ", ".join(f"{name} bigint" for name in histogram.FIGURES)
    schema = f"flow bigint, minute timestamp, measure int, bucket int, {figures}"
    return _named(found, _rows(found.of(HISTOGRAM), read, schema), "minute", "measure", "bucket", *histogram.FIGURES)


def rates_of(found: Measured) -> DataFrame:
    """NAMES, minute, FIGURES."""

    def read(table: pa.Table) -> dict[str, Any]:
        made = rates.wide(together([table]))
        return made | {"minute": _minutes(made["minute"])}

    schema = f"flow bigint, minute timestamp, {', '.join(f'{name} bigint' for name in rates.FIGURES)}"
    return _named(found, _rows(found.of(RATES), read, schema), "minute", *rates.FIGURES)


def _latency(found: Measured) -> DataFrame:
    def read(table: pa.Table) -> dict[str, Any]:
        made, figures = histogram.percentiles(together([table]), ("flow", "minute", "measure"))
        made["measure"] = made["measure"].astype(np.int32)
        return made | figures | {"minute": _minutes(made["minute"])}

    figures = ", ".join(f"{name} double" for name in _LATENCY)
    schema = f"flow bigint, minute timestamp, measure int, count bigint, {figures}"
    return _named(
        found, _rows(found.of(HISTOGRAM), read, schema), "minute", "measure", "count", *_LATENCY
    )


def _totals(found: Measured) -> DataFrame:
    """The same of all minutes, of routes and of virtual hosts."""
    figures = ", ".join(f"{name} double" for name in _LATENCY)
    schema = f"scope int, flow bigint, measure int, count bigint, {figures}"
    parts = sent(found.of(HISTOGRAM).mapInArrow(_of_all_minutes(found.names, found.parts), SCHEMA), found.parts)
    scope = F.element_at(F.array(*map(F.lit, SCOPES)), F.col("scope") + 1)
    rows = parts.mapInArrow(_total, schema).withColumn("scope", scope)
    return _named(found, rows, "measure", "count", *_LATENCY, "scope")


def _of_all_minutes(names: dict[int, Names], parts: int) -> Function:
    known = np.array(sorted(names), np.int64)
    above = np.array([number_of(*wide(names[flow])) for flow in known.tolist()], np.int64)
    keys = ("scope", "flow", "measure", "bucket")

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, _, table in unpacked(batches):
            columns = together([table])
            for scope in range(len(SCOPES)):
                columns["scope"] = np.full(len(columns["flow"]), scope)
                if scope:
                    columns["flow"] = above[np.searchsorted(known, columns["flow"])]
                columns = histogram.added(columns, keys)
                part = hashed(columns["flow"]) % np.uint64(parts)
                yield from spread(HISTOGRAM, part.astype(np.int64), parts, columns)

    return read


def _total(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held = together([table for _, _, table in unpacked(batches)])
    if held:
        made, figures = histogram.percentiles(held, ("scope", "flow", "measure"))
        narrow = {name: made[name].astype(np.int32) for name in ("scope", "measure")}
        yield pa.RecordBatch.from_pydict(made | narrow | figures)


def _rows(sums: DataFrame, read: Callable[[pa.Table], dict[str, Any]], schema: str) -> DataFrame:
    names = [column.split()[0] for column in schema.split(", ")]

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, _, table in unpacked(batches):
            made = read(table)
            yield from pa.table({name: made[name] for name in names}).combine_chunks().to_batches()

    return sums.mapInArrow(rows, schema)


def _named(found: Measured, rows: DataFrame, *columns: str) -> DataFrame:
    of_vhosts = {wide(each) for each in found.names.values()}
    every = found.names | {number_of(*each): each for each in of_vhosts}
    named = flows.with_names(rows, flows.table(rows.sparkSession, every.items()))
    return named.select(*NAMES, *(_measure() if name == "measure" else name for name in columns))


def _measure() -> Column:
    return F.element_at(F.array(*map(F.lit, MEASURES)), F.col("measure") + 1).alias("measure")


def _minutes(minute: Longs) -> pa.Array:
    return pa.array(minute * rates.MINUTE_US).cast(pa.timestamp("us", "UTC"))


def _end(by_minute: DataFrame) -> datetime:
    last = by_minute.agg(F.unix_seconds(F.max("minute"))).first()
    seconds = last[0] if last and last[0] is not None else 0
    return datetime.fromtimestamp(seconds, tz=UTC) + timedelta(minutes=1)


def write(made: dict[str, DataFrame], options: Options) -> None:
    for name, table in made.items():
        # Few files for each date: these tables are small, and their readers many.
        if name in _BY_DATE:
            dated = table.withColumn("date", F.to_date("minute"))
            dated.write.mode("overwrite").partitionBy("date").parquet(options.table(name))
        else:
            table.coalesce(1).write.mode("overwrite").parquet(options.table(name))
