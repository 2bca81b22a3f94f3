"""The job `security` as a stream: acts are put aside as they come, and findings made from all of them.

What comes in: batches of events. What goes out: in `_stream` the acts of each batch; after each batch that has acts,
the tables of a batch job, and a line for each new finding that is high.
Rules: acts are few, so they are kept: a finding may need those of days ago, and who was known then.
Not here: how batches are done once (`streaming.py`), and events counted once (`seen.py`); findings (`findings.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark.batches import Batches
from amqpd_spark.findings import Limits, acts, tables
from amqpd_spark.options import Options
from amqpd_spark.streaming import Settings, Step, Stop, run

SAID_MAX = 20
"""lines after a batch; the table has all"""


@dataclass(frozen=True)
class Stream:
    options: Options
    limits: Limits
    write: Callable[[dict[str, DataFrame], Options], None]

    def run(self, spark: SparkSession, settings: Settings, stop: Stop) -> bool:
        """Whether there is anything in the tables."""
        run(spark, self.options, self.step, settings, stop)
        return self._fold(spark, Batches(spark, self.options).last())

    def step(self, step: Step) -> None:
        number, batches = step.number, step.batches
        batches.write("acts", number, acts(step.rows).coalesce(1))
        new = batches.read("acts", number).agg(F.count("*"), F.min("time")).collect()[0]
        # Tables before `done`: killed in between, they are made again.
        if new[0]:
            self._fold(batches.spark, number)
            self._say(batches.spark, batches.read("acts", number))
        batches.end(number, batches.spark.range(1), ())

    def _fold(self, spark: SparkSession, number: int | None) -> bool:
        if number is None:
            return False
        self.write(tables(Batches(spark, self.options).up_to("acts", number), self.limits), self.options)
        return True

    def _say(self, spark: SparkSession, new: DataFrame) -> None:
        since = new.agg(F.min("time").alias("_since"))
        found = spark.read.parquet(self.options.table("findings")).where(F.col("severity") == "high")
        shown = found.join(F.broadcast(since)).where(F.col("until") >= F.col("_since")).orderBy("time")
        for row in shown.limit(SAID_MAX).collect():
            click.echo(f"high    {row['sentence']}")
