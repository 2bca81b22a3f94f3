"""The job `slo` as a stream: messages that are not over are carried from batch to batch.

What comes in: batches of events. What goes out: in `_stream` a histogram and rates of each batch, and the messages
that wait for more; from all of them, the tables of a batch job.
Rules: 1. A message is counted when it is over (acknowledged, confirmed, ended), or when nothing was heard of it for
`lateness`. 2. The tables count messages that are not over too, as a batch job over the same events does.
Not here: how batches are done once (`streaming.py`), and events counted once (`seen.py`); the tables
(`slo_tables.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark import flows, histogram, latencies, rates, slo_tables
from amqpd_spark.batches import Batches
from amqpd_spark.flows import NAMES
from amqpd_spark.objectives import Objective
from amqpd_spark.options import Options
from amqpd_spark.slo_tables import Measured
from amqpd_spark.streaming import Settings, Step, Stop, run

LATENESS_S = 3600
TABLES_EVERY = 20
"""batches between two times that the tables are written: they are of all time, a batch is of a minute"""
_CARRIED = ("messages", "names")


@dataclass(frozen=True)
class Stream:
    options: Options
    objectives: Sequence[Objective]
    lateness_s: int = LATENESS_S
    tables_every: int = TABLES_EVERY

    def run(self, spark: SparkSession, settings: Settings, stop: Stop) -> bool:
        """Whether there is anything in the tables, which are written at the end in any case."""
        run(spark, self.options, self.step, settings, stop)
        return self.fold(spark)

    def step(self, step: Step) -> None:
        rows, number, batches = step.rows, step.number, step.batches
        spark = batches.spark
        before = batches.facts(number - 1).collect()[0]["watermark"] if number else 0
        counts = flows.counted(rows).localCheckpoint()
        names = self._names(batches, counts, number)
        total, newest = counts.agg(F.sum("count"), F.max("newest_us")).collect()[0]
        watermark = max(before, newest or 0)
        self._messages(batches, rows, number, total or 0, watermark)
        merged = batches.read("messages", number)
        over = merged.where("over")
        batches.write("histogram", number, flows.with_names(latencies.histogram(over), names).coalesce(1))
        batches.write("rates", number, flows.with_names(rates.rates(rows), names).coalesce(1))
        batches.write("late", number, self._late(rows, over, names, before).coalesce(1))
        batches.end(number, spark.range(1).select(F.lit(watermark).alias("watermark")), _CARRIED)
        if number % self.tables_every == self.tables_every - 1:
            self.fold(spark)

    def _names(self, batches: Batches, counts: DataFrame, number: int) -> DataFrame:
        names = flows.named(counts)
        if number:
            names = names.unionByName(batches.read("names", number - 1)).distinct()
        batches.write("names", number, names.coalesce(1))
        return batches.read("names", number)

    def _messages(self, batches: Batches, rows: DataFrame, number: int, total: int, watermark: int) -> None:
        cut = latencies.stretches(rows)
        if number:
            waiting = batches.read("messages", number - 1).where("not over").drop("over")
            of_one = waiting.withColumns({"from": F.col("number"), "to": F.col("number")}).drop("number")
            cut = cut.unionByName(of_one)
        parts = latencies.tasks(total, batches.spark.sparkContext.defaultParallelism)
        each = latencies.messages(cut, parts)
        batches.write("messages", number, each.withColumn("over", self._is_over(watermark)))

    def _is_over(self, watermark: int) -> Column:
        ended, known = F.col("ended"), F.col("began").isNotNull()
        # An acknowledgement may have been read before its delivery: then the delivery is waited for.
        complete = known & ended.isNotNull() & ((ended == 1) | F.col("first").isNotNull())
        heard_of = F.coalesce(F.greatest("began", "last", "done"), F.lit(0))
        return F.coalesce(complete | (heard_of < watermark - self.lateness_s * 1_000_000), F.lit(False))

    def _late(self, rows: DataFrame, over: DataFrame, names: DataFrame, before: int) -> DataFrame:
        old = rows.where(F.unix_micros("time") < before - self.lateness_s * 1_000_000)
        events = old.groupBy("vhost", "queue", F.date_trunc("minute", "time").alias("minute"))
        unmatched = over.where(F.col("began").isNull()).withColumn("flow", F.col("place"))
        heard_of = F.timestamp_micros(F.greatest("last", "done"))
        messages = flows.with_names(unmatched, names).groupBy(
            "vhost", "queue", F.date_trunc("minute", heard_of).alias("minute")
        )
        return (
            events.agg(F.sum("count").alias("count"))
            .withColumn("what", F.lit("event"))
            .unionByName(messages.agg(F.count("*").alias("count")).withColumn("what", F.lit("message")))
        )

    def fold(self, spark: SparkSession) -> bool:
        """Writes the tables from all batches that are done; whether there are any."""
        batches = Batches(spark, self.options)
        last = batches.last()
        if last is None:
            return False
        waiting = batches.read("messages", last).where("not over")
        unfinished = flows.with_names(latencies.histogram(waiting), batches.read("names", last))
        durations = histogram.added(
            batches.up_to("histogram", last).unionByName(unfinished), [*NAMES, "minute", "measure"]
        ).localCheckpoint()
        by_minute = rates.with_refused(batches.up_to("rates", last), durations).localCheckpoint()
        made = slo_tables.tables(Measured(durations, by_minute), self.objectives, self.options.until)
        late = batches.up_to("late", last).groupBy("what", "vhost", "queue", "minute")
        made["late"] = late.agg(F.sum("count").alias("count"))
        slo_tables.write(made, self.options)
        return True
