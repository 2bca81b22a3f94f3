"""Reading the other jobs' tables, a bounded part of each.

What comes in: their folder. What goes out: rows as dictionaries, times with their zone.
Rules: 1. A table that is not there is None, and one that a job wrote without a row is empty: what is not known is not
what is nothing. 2. Columns are asked for before they are read: a job may be older or newer than the report.
Not here: what the rows mean (`sections.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

ROWS_MAX, ROWS_FEW = 50, 20
POINTS_MAX = 500
"""of a line in a chart: more are drawn over each other"""

Rows = list[dict[str, Any]]
STEPS_S = {"minute": 60, "hour": 3600, "day": 86400, "month": 30 * 86400}


class Tables:
    """`read` and `absent` fill as tables are asked for: "job/table"."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark, self._folder = spark, folder.rstrip("/")
        self.read: list[str] = []
        self.absent: list[str] = []
        self.strange: dict[str, str] = {}

    def table(self, name: str, *columns: str) -> DataFrame | None:
        """None: it is not there, or has no such columns. A column "a|b" is `a`, which some jobs call `b`."""
        try:
            found = self._spark.read.parquet(f"{self._folder}/{name}")
        except AnalysisException as error:
            # Of a partitioned table without a row there is a folder, and no file that says its columns.
            if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":
                self.read.append(name)
                # `void` is null, which fits wherever a figure, a time or a name is expected.
                return self._spark.createDataFrame(
                    [], ", ".join(f"{each.partition('|')[0]} void" for each in columns)
                )
            self.absent.append(name)
            return None
        for alias in columns:
            wanted, _, other = alias.partition("|")
            if wanted not in found.columns and other in found.columns:
                found = found.withColumnRenamed(other, wanted)
        lacking = [wanted for alias in columns if (wanted := alias.partition("|")[0]) not in found.columns]
        if lacking:
            self.strange[name] = f"has no column {', '.join(lacking)}"
            return None
        self.read.append(name)
        return found


def rows(table: DataFrame, order: Sequence[Column] = (), limit: int = ROWS_MAX) -> Rows:
    """The first rows; Spark gives times in the zone of the machine, and without saying so."""
    times = [field.name for field in table.schema.fields if isinstance(field.dataType, TimestampType)]
    table = table.withColumns({name: F.unix_micros(name) for name in times}) if times else table
    found = [row.asDict() for row in table.orderBy(*order).limit(limit).collect()]
    for row in found:
        row |= {name: moment(row[name]) for name in times}
    return found


def moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1_000_000, tz=UTC)


def sums(table: DataFrame, keys: Sequence[str], figures: Sequence[str]) -> DataFrame:
    return table.groupBy(*keys).agg(*(F.sum(name).cast("double").alias(name) for name in figures))


def coarse(table: DataFrame, time: str, length_s: int | None = None) -> tuple[DataFrame, str, int]:
    """With `time` cut to a step of which the whole has at most POINTS_MAX; the step, and how long it is. No step is
    shorter than `length_s`, that of the table's own windows."""
    seconds = F.unix_seconds(F.col(time).cast("timestamp"))
    ends = table.agg(F.min(seconds), F.max(seconds)).first()
    span = ends[1] - ends[0] if ends and ends[0] is not None else 0
    if length_s and length_s not in STEPS_S.values() and span / length_s <= POINTS_MAX:
        name, length = next((name, length) for name, length in reversed(STEPS_S.items()) if not length_s % length)
        return table, f"{length_s // length} {name}s", length_s
    steps = {name: length for name, length in STEPS_S.items() if length >= (length_s or 0)}
    step = next((name for name, length in steps.items() if span / length <= POINTS_MAX), "month")
    return table.withColumn(time, F.date_trunc(step, F.col(time).cast("timestamp"))), step, STEPS_S[step]


def whole(table: DataFrame, time: str) -> int:
    """How long windows are that do not say so: an hour, where all begin with one."""
    rest = table.agg(F.max(F.unix_seconds(time) % STEPS_S["hour"])).first()
    return STEPS_S["minute"] if rest and rest[0] else STEPS_S["hour"]
