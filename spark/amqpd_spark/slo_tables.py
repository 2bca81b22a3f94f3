"""The tables of the job `slo`, from what was added up.

What comes in: `Measured`; objectives. What goes out: the tables of `docs/audit/slo.md`, as DataFrames.
Rules: from histograms and rates, which are small, all tables are made; names are joined last.
Not here: sums (`slo_sums.py`), objectives (`objectives.py`, `burn.py`), the command (`slo.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark import burn, flows, histogram, rates
from amqpd_spark.flows import NAMES, Names, number_of, wide
from amqpd_spark.histogram import PERCENTILES
from amqpd_spark.latencies import MEASURES
from amqpd_spark.objectives import Objective
from amqpd_spark.options import Options
from amqpd_spark.session import kept
from amqpd_spark.slo_sums import DAY_MIN, HISTOGRAM, RATES, Measured
from amqpd_spark.stretches.packed import Function, hashed, mapped, packed, sent, spread, together, unpacked

SCOPES = ("route", "vhost")
_BY_DATE = ("latency", "histogram", "rates")
_LATENCY = ("mean_ms", *PERCENTILES, "max_ms")
Made = dict[str, NDArray[Any]]


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
    """NAMES, minute, measure, bucket, FIGURES, date."""
    columns = ("minute", "measure", "bucket", *histogram.FIGURES)
    return _rows(found, found.of(HISTOGRAM), lambda table: {**together([table])}, columns)


def rates_of(found: Measured) -> DataFrame:
    """NAMES, minute, FIGURES, date."""

    def read(table: pa.Table) -> Made:
        return {**rates.wide(together([table]))}

    return _rows(found, found.of(RATES), read, ("minute", *rates.FIGURES))


def _latency(found: Measured) -> DataFrame:
    def read(table: pa.Table) -> Made:
        return histogram.percentiles(together([table]), ("flow", "minute", "measure"))

    return _rows(found, found.of(HISTOGRAM), read, ("minute", "measure", "count", *_LATENCY))


def _totals(found: Measured) -> DataFrame:
    """The same of all minutes, of routes and of virtual hosts."""

    def read(table: pa.Table) -> Made:
        return histogram.percentiles(together([table]), ("scope", "flow", "measure"))

    parts = mapped(found.of(HISTOGRAM), _of_all_minutes(found.names, found.parts))
    return _rows(found, mapped(sent(parts, found.parts), _one), read, ("measure", "count", *_LATENCY, "scope"))


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


def _one(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All of a task in one row."""
    if tables := [table for _, _, table in unpacked(batches)]:
        yield packed(HISTOGRAM, pa.concat_tables(tables))


def _rows(found: Measured, sums: DataFrame, read: Callable[[pa.Table], Made], columns: Sequence[str]) -> DataFrame:
    """Rows with names, of what `read` makes of a row of `sums`; with `date`, where they have a minute."""
    columns = (*columns, "date") if "minute" in columns else columns
    names = found.names | {number_of(*each): each for each in {wide(each) for each in found.names.values()}}

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = flows.Named(names)
        for _, _, table in unpacked(batches):
            made = read(table)
            shown = named.of(made["flow"]) | {name: _shown(name, made) for name in columns}
            yield from pa.table(shown).to_batches()

    types = {**dict.fromkeys((*NAMES, "measure", "scope"), "string"), "minute": "timestamp", "date": "date"}
    types |= {"bucket": "int", **dict.fromkeys(_LATENCY, "double")}
    return mapped(sums, rows, ", ".join(f"{name} {types.get(name, 'bigint')}" for name in (*NAMES, *columns)))


def _shown(name: str, made: Made) -> pa.Array:
    """A column as it is in the table."""
    if name == "minute":
        return pa.array(made[name] * rates.MINUTE_US).cast(pa.timestamp("us", "UTC"))
    if name == "date":
        return pa.array((made["minute"] // DAY_MIN).astype(np.int32)).cast(pa.date32())
    if name == "bucket":
        return pa.array(made[name].astype(np.int32))
    if name in ("measure", "scope"):
        return pa.array(MEASURES if name == "measure" else SCOPES).take(pa.array(made[name]))
    return pa.array(made[name])


def _end(by_minute: DataFrame) -> datetime:
    last = by_minute.agg(F.unix_seconds(F.max("minute"))).first()
    seconds = last[0] if last and last[0] is not None else 0
    return datetime.fromtimestamp(seconds, tz=UTC) + timedelta(minutes=1)


def write(made: dict[str, DataFrame], options: Options) -> None:
    for name, table in made.items():
        # Few files for each date: these tables are small, and their readers many.
        if name in _BY_DATE:
            table.write.mode("overwrite").partitionBy("date").parquet(options.table(name))
        else:
            table.coalesce(1).write.mode("overwrite").parquet(options.table(name))
