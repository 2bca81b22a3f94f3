"""The tables of the job `slo`, from events or from what a stream has added up.

What comes in: events; objectives. What goes out: the tables of `docs/audit/slo.md`, as DataFrames.
Rules: 1. Messages are looked at once: from a histogram and rates, which are small, all tables are made. 2. A stream
adds up the same two, so its tables are those of a batch.
Not here: messages (`latencies.py`), objectives (`objectives.py`, `burn.py`), the command (`slo.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark import burn, flows, latencies, rates
from amqpd_spark.flows import NAMES
from amqpd_spark.histogram import FIGURES, percentiles
from amqpd_spark.latencies import REFUSED
from amqpd_spark.objectives import Objective
from amqpd_spark.options import Options

_BY_DATE = ("latency", "histogram", "rates")


@dataclass(frozen=True)
class Measured:
    """Both have NAMES and `minute`; the histogram has `measure`, `bucket` and its figures, rates those of
    `rates.py`."""

    histogram: DataFrame
    rates: DataFrame


def measured(events: DataFrame) -> Measured:
    """Reads all events three times: names, messages, stretches; each time only the columns that it takes."""
    counts = flows.counted(events).localCheckpoint()
    names = flows.named(counts).localCheckpoint()
    total = counts.agg(F.coalesce(F.sum("count"), F.lit(0))).first()
    parts = latencies.tasks(total[0] if total else 0, events.sparkSession.sparkContext.defaultParallelism)
    each = latencies.messages(latencies.stretches(events), parts)
    histogram = flows.with_names(latencies.histogram(each), names).localCheckpoint()
    by_minute = flows.with_names(rates.rates(events), names)
    return Measured(histogram, rates.with_refused(by_minute, histogram).localCheckpoint())


def tables(found: Measured, wanted: Sequence[Objective], until: datetime | None = None) -> dict[str, DataFrame]:
    """All tables by name; those of objectives where there are some. `until`: where their windows end, without it
    after the last minute in which something happened."""
    durations = found.histogram.where(F.col("measure") != REFUSED)
    by_route = percentiles(durations, [*NAMES, "measure"])
    by_vhost = percentiles(durations, ["vhost", "measure"])
    made = {
        "latency": percentiles(durations, [*NAMES, "minute", "measure"]),
        "latency_total": by_route.withColumn("scope", F.lit("route")).unionByName(
            by_vhost.withColumns({"scope": F.lit("vhost"), "exchange": flows.none(), "queue": flows.none()})
        ),
        "histogram": durations.select(*NAMES, "minute", "measure", "bucket", *FIGURES),
        "rates": found.rates,
    }
    if wanted:
        described = burn.described(found.rates.sparkSession, wanted)
        counts = burn.minutes(described, found.histogram, found.rates).localCheckpoint()
        end = until or _end(found)
        rows = burn.burn(counts, described, end).localCheckpoint()
        status = burn.status(counts, rows, described, end)
        made |= {"objectives": status, "burn": rows, "breaches": burn.breaches(rows)}
    return made


def _end(found: Measured) -> datetime:
    last = found.rates.agg(F.unix_seconds(F.max("minute"))).first()
    seconds = last[0] if last and last[0] is not None else 0
    return datetime.fromtimestamp(seconds, tz=UTC) + timedelta(minutes=1)


def write(made: dict[str, DataFrame], options: Options) -> None:
    for name, table in made.items():
        # One file, or one for each date: these tables are small, and their readers many.
        if name in _BY_DATE:
            table.withColumn("date", F.to_date("minute")).repartition("date").write.mode("overwrite").partitionBy(
                "date"
            ).parquet(options.table(name))
        else:
            table.coalesce(1).write.mode("overwrite").parquet(options.table(name))
