"""Reading the audit log.

What comes in: its folder; a time from which, and one until which, events are meant. What goes out: a DataFrame with
the columns of `schema.EVENTS`.
Rules: 1. An event's `time` decides, never its folder: folders are only used to leave out what cannot be meant. 2. A
file may come twice, in whatever folder: (node, incarnation, number) names an event. Jobs either take `unique` ones,
which costs a shuffle of all rows, or aggregate so that the same event twice changes nothing (min, max, sets).
Not here: what events mean (`docs/audit.md`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StringType, StructField, StructType

from amqpd_spark.schema import EVENTS

# A file's folder is the hour of its first event, and it holds some minutes.
FOLDER_SLACK = timedelta(hours=1)
IDENTITY = ("node", "incarnation", "number")


def read(
    spark: SparkSession,
    folder: str,
    since: datetime | None = None,
    until: datetime | None = None,
    unique: bool = False,
) -> DataFrame:
    """Events with since <= time < until (UTC). `folder` is the broker's `audit/events`, or one that `compact` wrote.
    Raises AnalysisException when there is no such folder."""
    found = spark.read.schema(_with_folders()).option("basePath", folder).parquet(literally(folder))
    if since is not None:
        found = found.where((F.col("date") >= F.lit((since - FOLDER_SLACK).date())) & (F.col("time") >= F.lit(since)))
    if until is not None:
        found = found.where((F.col("date") <= F.lit(until.date())) & (F.col("time") < F.lit(until)))
    found = found.select(*EVENTS.fieldNames())
    return once(found) if unique else found


def once(rows: DataFrame) -> DataFrame:
    """Each event, whatever files it is in."""
    return rows.dropDuplicates(list(IDENTITY))


def of_files(
    spark: SparkSession, files: Sequence[str], since: datetime | None = None, until: datetime | None = None
) -> DataFrame:
    """Rows of these files, wherever they are, with since <= time < until."""
    if not files:
        return spark.createDataFrame([], EVENTS)
    # Else listing many paths is a job of its own.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", str(len(files) + 1))
    found = spark.read.schema(EVENTS).parquet(*map(literally, files))
    if since is not None:
        found = found.where(F.col("time") >= F.lit(since))
    return found if until is None else found.where(F.col("time") < F.lit(until))


def each_message(stretches: DataFrame) -> DataFrame:
    """A row for each message of each stretch: `first`, `publication` and `confirm_tag` become those of the message (0
    stays 0), `count` becomes 1."""
    rows = stretches.withColumn("_i", F.explode(F.sequence(F.lit(0).cast("long"), F.col("count") - 1)))
    for name in ("publication", "confirm_tag", "first"):
        if name in stretches.columns:
            rows = rows.withColumn(name, _moved(name))
    return rows.withColumn("count", F.lit(1).cast("long")).drop("_i")


def _moved(name: str) -> Column:
    # A queue's numbers begin at 0, so for them 0 is a number; the others begin at 1.
    if name == "first":
        return F.col(name) + F.col("_i")
    return F.when(F.col(name) > 0, F.col(name) + F.col("_i")).otherwise(F.lit(0).cast("long"))


def literally(path: str) -> str:
    """Spark takes a path for a pattern."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def _with_folders() -> StructType:
    return StructType([*EVENTS.fields, StructField("date", DateType()), StructField("hour", StringType())])
