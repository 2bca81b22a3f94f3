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

from amqpd_spark import flows, pieces, slo_tables, slo_waiting
from amqpd_spark.batches import Batches, NotOurs
from amqpd_spark.flows import Names
from amqpd_spark.objectives import Objective
from amqpd_spark.options import Options
from amqpd_spark.schema import OF_PUBLICATIONS, OF_QUEUES
from amqpd_spark.session import kept
from amqpd_spark.slo_sums import RATES, Shares, names_in, shares_for, together_of
from amqpd_spark.streaming import Settings, Step, Stop, run
from amqpd_spark.stretches import packed, scan
from amqpd_spark.stretches.scan import TASK_ROWS

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
        of_messages = F.col("event").isin(*OF_QUEUES, *OF_PUBLICATIONS)
        newest = F.max(F.when(of_messages, F.unix_micros("time")))
        many, newest_us = rows.agg(F.count("*"), newest).collect()[0]
        watermark = max(before, newest_us or 0)
        shares = shares_for(many, 1)
        made = kept(self._merged(batches, rows, number, many, shares))
        names = self._names(batches, made, number)
        messages = slo_waiting.as_rows(made).withColumn("over", self._is_over(watermark))
        batches.write("messages", number, messages)
        over = _messages(batches, number).where("over")
        partial = made.where(F.col("what") == RATES).unionByName(slo_waiting.sums_of(over, shares))
        found = together_of(partial, shares, names)
        batches.write("histogram", number, slo_tables.histogram_of(found).drop("date"))
        batches.write("rates", number, slo_tables.rates_of(found).drop("date"))
        late = self._late(rows, over, batches.read("names", number), before)
        batches.write("late", number, late.coalesce(1))
        for table in (made, found.sums):
            table.unpersist()
        batches.end(number, spark.range(1).select(F.lit(watermark).alias("watermark")), _CARRIED)
        if number % self.tables_every == self.tables_every - 1:
            self.fold(spark)

    def _names(self, batches: Batches, made: DataFrame, number: int) -> dict[int, Names]:
        names = _names(batches, number - 1) if number else {}
        names |= names_in(made)
        batches.write("names", number, flows.table(batches.spark, names).coalesce(1))
        return names

    def _merged(self, batches: Batches, rows: DataFrame, number: int, many: int, shares: Shares) -> DataFrame:
        parts = max(batches.spark.sparkContext.defaultParallelism, -(-many // TASK_ROWS))
        told = scan.of_dataframe(rows).mapped(pieces.pieces(parts), pieces.COLUMNS, packed.SCHEMA)
        if number:
            told = told.unionByName(slo_waiting.waiting(_messages(batches, number - 1).where("not over"), parts))
        return packed.mapped(packed.sent(told, parts), slo_waiting.merged(shares))

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
        messages = unmatched.join(F.broadcast(names), "flow", "left").groupBy(
            "vhost", "queue", F.date_trunc("minute", heard_of).alias("minute")
        )
        return (
            events.agg(F.sum("count").alias("count"))
            .withColumn("what", F.lit("event"))
            .unionByName(messages.agg(F.sum("count").alias("count")).withColumn("what", F.lit("message")))
        )

    def fold(self, spark: SparkSession) -> bool:
        """Writes the tables from all batches that are done; whether there are any."""
        batches = Batches(spark, self.options)
        last = batches.last()
        if last is None:
            return False
        waiting = _messages(batches, last).where("not over")
        durations, figures = batches.up_to("histogram", last), batches.up_to("rates", last)
        counts = figures.agg(F.count_distinct(F.to_date("minute"))).collect()[0]
        shares = shares_for(durations.count(), counts[0])
        partial = slo_waiting.histograms(durations, shares)
        partial = partial.unionByName(slo_waiting.figures(figures, shares))
        partial = partial.unionByName(slo_waiting.sums_of(waiting, shares))
        found = together_of(partial, shares, _names(batches, last))
        made = slo_tables.tables(found, self.objectives, self.options.until)
        late = batches.up_to("late", last).groupBy("what", "vhost", "queue", "minute")
        made["late"] = late.agg(F.sum("count").alias("count"))
        slo_tables.write(made, self.options)
        found.sums.unpersist()
        return True


def _names(batches: Batches, number: int) -> dict[int, Names]:
    return flows.read(batches.read("names", number).toArrow())


def _messages(batches: Batches, number: int) -> DataFrame:
    rows = batches.read("messages", number)
    if "count" not in rows.columns:
        raise NotOurs(f"{batches.root} is of an earlier version: give another --output and --checkpoint")
    return rows
