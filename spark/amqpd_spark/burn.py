"""Objectives against what was measured: good shares, error budgets, burn rates, breaches.

What comes in: objectives, histograms and rates with names. What goes out: three small tables.
Rules: 1. A minute's messages are good or bad; everything else is sums of minutes. 2. A burn rate is the bad share
over a window by the share that the target allows: at 1 the budget is spent when the objective's window ends. 3. Two
windows must burn at a time: the long one says that it matters, the short one that it is still so (The Site
Reliability Workbook, chapter 5, "Multiwindow, Multi-Burn-Rate Alerts").
Not here: the file of objectives (`objectives.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from amqpd_spark.flows import NAMES
from amqpd_spark.histogram import bucket_of
from amqpd_spark.latencies import MEASURES
from amqpd_spark.objectives import Objective, pattern

WINDOWS_MIN = {"5m": 5, "30m": 30, "1h": 60, "6h": 360}
ALERTS = {"fast": ("1h", "5m", 14.4), "slow": ("6h", "30m", 6.0)}
"""alert -> long window, short one, burn rate above which it is a breach"""

_OBJECTIVES = (
    f"objective string, measure string, {', '.join(f'{name} string' for name in NAMES)}, threshold_ms double, "
    f"target double, window string, window_s long, {', '.join(f'_{name} string' for name in NAMES)}, "
    "_threshold int, _of_exchanges boolean"
)
_SHOWN = ("objective", "measure", *NAMES, "threshold_ms", "target", "window")


def described(spark: SparkSession, objectives: Sequence[Objective]) -> DataFrame:
    """A row for each objective, with regular expressions in place of its patterns."""
    rows = [
        (
            *(each.name, each.measure, *(getattr(each, name) for name in NAMES), each.threshold_ms),
            *(each.target, each.window, each.window_s),
            *(None if text is None else pattern(text) for text in (getattr(each, name) for name in NAMES)),
            None if each.threshold_ms is None else bucket_of(round(each.threshold_ms * 1000)),
            each.measure == "errors" and each.exchange is not None,
        )
        for each in objectives
    ]
    # Not as part of the plan (`given.py`): Spark cannot join such a table with what came of it.
    return spark.createDataFrame(rows, _OBJECTIVES)


def minutes(objectives: DataFrame, histogram: DataFrame, rates: DataFrame) -> DataFrame:
    """objective, minute, good, bad: at most objectives x minutes rows."""
    wanted = F.broadcast(objectives.withColumnsRenamed({name: f"o_{name}" for name in NAMES}))
    # `measure` is in both: a join by its name keeps one.
    durations = histogram.where(F.col("measure").isin(*MEASURES)).join(wanted, "measure").where(_meant())
    good = F.col("bucket") <= F.col("_threshold")
    zero = F.lit(0).cast("long")
    of_durations = durations.select(
        *("objective", "minute"),
        F.when(good, F.col("count")).otherwise(zero).alias("good"),
        F.when(good, zero).otherwise(F.col("count")).alias("bad"),
    )
    others = rates.join(wanted.where(~F.col("measure").isin(*MEASURES))).where(_meant())
    of_exchanges, redeliveries = F.col("_of_exchanges"), F.col("measure") == "redeliveries"
    right_rows = F.when(of_exchanges, F.col("queue").isNull()).otherwise(F.col("exchange").isNull())
    bad = (
        F.when(redeliveries, F.col("redelivered"))
        .when(of_exchanges, F.col("returned") + F.col("unroutable") + F.col("refused"))
        .otherwise(F.col("rejected") + F.col("expired") + F.col("dropped"))
    )
    good_ones = (
        F.when(redeliveries, F.col("delivered") - F.col("redelivered"))
        .when(of_exchanges, F.greatest(F.col("published") - bad, zero))
        .otherwise(F.col("acked"))
    )
    of_rates = others.where(right_rows).select("objective", "minute", good_ones.alias("good"), bad.alias("bad"))
    summed = of_durations.union(of_rates).groupBy("objective", "minute")
    return summed.agg(F.sum("good").alias("good"), F.sum("bad").alias("bad")).where(F.col("good") + F.col("bad") > 0)


def _meant() -> Column:
    found = F.lit(True)
    for name in NAMES:
        wanted = F.col(f"_{name}")
        found = found & (wanted.isNull() | F.rlike(F.col(name), wanted))
    return found


def burn(counts: DataFrame, objectives: DataFrame, until: datetime) -> DataFrame:
    """objective, minute, good, bad, burn_5m, burn_30m, burn_1h, burn_6h: for each minute before `until` that
    has a message of the objective within the longest window. The windows end with the minute."""
    second = F.unix_seconds("minute")
    spans = counts.groupBy("objective").agg(F.min("minute").alias("begin"))
    last = F.date_trunc("minute", F.lit(until) - F.expr("INTERVAL 1 MICROSECOND"))
    each = spans.where(F.col("begin") <= last).select(
        "objective", F.explode(F.sequence(F.col("begin"), last, F.expr("INTERVAL 1 MINUTE"))).alias("minute")
    )
    # Minutes without messages have rows too: what a window forgets makes a burn rate end.
    filled = each.join(counts, ["objective", "minute"], "left").fillna(0, ["good", "bad"])
    targets = F.broadcast(objectives.select("objective", "target"))
    rows = filled.join(targets, "objective").withColumn("_second", second)
    for name, length in WINDOWS_MIN.items():
        over = Window.partitionBy("objective").orderBy("_second").rangeBetween(-60 * (length - 1), 0)
        rows = rows.withColumn(f"burn_{name}", _rate(F.sum("good").over(over), F.sum("bad").over(over)))
    rates = [f"burn_{name}" for name in WINDOWS_MIN]
    known = rows.where(F.col("burn_6h").isNotNull())
    return known.select("objective", "minute", "good", "bad", *rates)


def _rate(good: Column, bad: Column) -> Column:
    return F.when(good + bad > 0, bad / (good + bad) / (1 - F.col("target")))


def breaches(rates: DataFrame) -> DataFrame:
    """objective, alert (fast, slow), from, until, minutes, peak (the long window's highest rate), bad (messages)."""
    found: DataFrame | None = None
    for alert, (long, short, factor) in ALERTS.items():
        rate = F.col(f"burn_{long}")
        burning = rates.where((rate > factor) & (F.col(f"burn_{short}") > factor)).select(
            "objective", F.lit(alert).alias("alert"), "minute", "bad", rate.alias("rate")
        )
        found = burning if found is None else found.union(burning)
    assert found is not None
    # Minutes that follow each other have the same distance from their place in the row of minutes.
    place = F.row_number().over(Window.partitionBy("objective", "alert").orderBy("minute"))
    stretches = found.withColumn("_run", F.unix_seconds("minute") - place * 60).groupBy("objective", "alert", "_run")
    return stretches.agg(
        F.min("minute").alias("from"),
        (F.max("minute") + F.expr("INTERVAL 1 MINUTE")).alias("until"),
        F.count("*").alias("minutes"),
        F.max("rate").alias("peak"),
        F.sum("bad").alias("bad"),
    ).drop("_run")


def status(counts: DataFrame, rates: DataFrame, objectives: DataFrame, until: datetime) -> DataFrame:
    """A row for each objective over its window before `until`; `met` is null where it had no messages."""
    end = F.lit(until)
    begin = F.timestamp_seconds(F.unix_seconds(end) - F.col("window_s"))
    within = F.col("minute").isNotNull() & (F.col("minute") >= begin) & (F.col("minute") < end)
    sums = (
        F.broadcast(objectives)
        .join(counts, "objective", "left")
        .groupBy(*_SHOWN, "window_s")
        .agg(*(F.coalesce(F.sum(F.when(within, F.col(n))), F.lit(0)).alias(n) for n in ("good", "bad")))
    )
    last = F.date_trunc("minute", end - F.expr("INTERVAL 1 MICROSECOND"))
    now = rates.where(F.col("minute") == last).select("objective", *(f"burn_{name}" for name in WINDOWS_MIN))
    total = F.col("good") + F.col("bad")
    share = F.when(total > 0, F.col("good") / total)
    return sums.join(now, "objective", "left").select(
        *_SHOWN,
        begin.alias("from"),
        end.alias("until"),
        "good",
        "bad",
        share.alias("share"),
        (share >= F.col("target")).alias("met"),
        # 1: nothing spent; 0: all of it; below 0: the objective is missed.
        F.when(total > 0, 1 - F.col("bad") / ((1 - F.col("target")) * total)).alias("budget_left"),
        *(f"burn_{name}" for name in WINDOWS_MIN),
    )
