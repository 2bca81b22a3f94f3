"""The events of messages, as rows of the log.

What comes in: a `Plan` and its `Cycle`. What goes out: a DataFrame with the log's columns, `stretch` (which of the
plan's it came of) and `step` (which of a stretch's events).
Rules: 1. All randomness is a hash of seed, stretch and what is drawn. 2. `number` goes up with the time, by whole
seconds; within one it tells stretches apart by their place among those that can be under way at once. So it has gaps.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark.schema import COLUMNS
from amqpd_spark.traffic.cycle import DEAD, DEAD_ID, Cycle, Plan

SECOND = 1_000_000
QUIET_US = 60 * SECOND
"""at an incarnation's begin (what was left is delivered) and at its end (what is under way ends)"""
UNDER_WAY_US = 50 * SECOND
"""at most, from a publish to its message's end"""
STEPS = 16
ACTS = 64 * STEPS
"""numbers kept free in each second, for what is not of messages"""
STRETCHES_PER_TASK = 100_000

# A stretch's events, in order; the last ones are of the next incarnation, or of the orderly stop.
PUBLISHED, ROUTED, CONFIRMED, DELIVERED, REQUEUED, REDELIVERED, ENDED, ENDED_AGAIN = range(8)
(
    DEAD_LETTER_PUBLISHED,
    DEAD_LETTER_ROUTED,
    DEAD_LETTER_DELIVERED,
    DEAD_LETTER_ACKED,
    STANDING,
    NEXT_DELIVERED,
    NEXT_ACKED,
) = range(8, 15)
NAMES = (
    *("published", "routed", "confirmed", "delivered", "requeued", "delivered", "acked", "acked"),
    *("published", "routed", "delivered", "acked", "standing", "delivered", "acked"),
)


class Clock:
    """Times (us from the plan's start) and numbers."""

    def __init__(self, plan: Plan, cycle: Cycle) -> None:
        self.plan = plan
        self.busy_us = max(plan.incarnation_us - 2 * QUIET_US, SECOND)
        self.incarnation_us = self.busy_us + 2 * QUIET_US
        self.step_us = self.busy_us / plan.per_incarnation
        self.under_way = math.ceil((UNDER_WAY_US + 2 * SECOND) / self.step_us) + 2
        self.each_second = self.under_way * STEPS + ACTS
        self.left_begin = cycle.anchor_end + 100
        self.begin = self.left_begin + 4 * cycle.anchor_end
        self.stop = self.begin + (self.incarnation_us // SECOND + 2) * self.each_second

    def number(self, at: Column, incarnation: Column, within: Column) -> Column:
        """`within`: below `each_second`."""
        second = F.floor((at - (incarnation - 1) * F.lit(self.incarnation_us).cast("long")) / SECOND)
        return F.lit(self.begin) + second * self.each_second + within

    def number_of_act(self, at_us: int, incarnation: int, which: int) -> int:
        """`which`: below ACTS, and another for each act of one second."""
        second = (at_us - (incarnation - 1) * self.incarnation_us) // SECOND
        return self.begin + second * self.each_second + self.under_way * STEPS + which % ACTS

    def time(self, at: Column) -> Column:
        return F.timestamp_micros(F.lit(round(self.plan.start.timestamp() * SECOND)) + at)


def rows(spark: SparkSession, plan: Plan, cycle: Cycle, lost: int | None, twice: int | None) -> DataFrame:
    """`lost`, `twice`: stretches that are acked; one's deliveries and end are left out, one is acked again."""
    clock = Clock(plan, cycle)
    total = plan.per_incarnation * plan.incarnations
    tasks = max(1, math.ceil(total / STRETCHES_PER_TASK))
    places = [{**row, **asdict(row["queue"])} for row in cycle.places]
    table = spark.createDataFrame(
        [{key: row[key] for key in _PLACE} for row in places], ", ".join(map(_typed, _PLACE))
    )
    stretches = spark.range(0, total, 1, tasks).withColumnRenamed("id", "stretch")
    stretches = stretches.withColumn("within", F.col("stretch") % plan.per_incarnation)
    stretches = stretches.withColumns(
        {
            "incarnation": (F.floor(F.col("stretch") / plan.per_incarnation) + 1).cast("int"),
            "turn": F.floor(F.col("within") / plan.cycle),
            "place": F.col("within") % plan.cycle,
        }
    )
    placed = stretches.join(F.broadcast(table), "place")
    timed = placed.select("*", _times(clock, plan.seed, lost, twice).alias("times"))
    steps = timed.select("*", F.posexplode("times").alias("step", "at")).where(F.col("at").isNotNull())
    return _columns(steps, clock)


_PLACE: dict[str, str] = {
    **dict.fromkeys(("place", "many", "first_at", "first_sum", "publication_at", "published_sum"), "bigint"),
    **dict.fromkeys(("dead_letter_at", "dead_letter_sum", "rank_at", "rank_sum", "header", "queue_id"), "bigint"),
    **dict.fromkeys(("fate", "name", "vhost", "user"), "string"),
    **dict.fromkeys(("persistent", "confirms"), "boolean"),
}


def _typed(name: str) -> str:
    return f"{name} {_PLACE[name]}"


def _times(clock: Clock, seed: int, lost: int | None, twice: int | None) -> Column:
    """When each of a stretch's steps happens; null for what does not."""

    def normal(what: int) -> Column:
        def uniform(half: int) -> Column:
            drawn = F.xxhash64(F.lit(seed), F.col("stretch"), F.lit(2 * what + half))
            return (F.shiftrightunsigned(drawn, 11) + 1) / float(1 << 53)

        return F.sqrt(-2 * F.log(uniform(0))) * F.cos(2 * math.pi * uniform(1))

    def spent(what: int, median_us: float, spread: float) -> Column:
        """Log-normal; at most ten seconds."""
        return F.least(F.exp(math.log(median_us) + spread * normal(what)), F.lit(10.0 * SECOND)).cast("long")

    fate = F.col("fate")
    # Incarnations of less than 36 minutes are an int to Spark, and three of them are too many microseconds for one.
    begin = (F.col("incarnation") - 1) * F.lit(clock.incarnation_us).cast("long")
    entered = (begin + QUIET_US + F.col("within") * clock.step_us).cast("long")
    delivered = entered + spent(1, 4_000, 0.8)
    redelivered = delivered + 2 * SECOND
    handled = spent(2, 20_000, 1.0)
    ended = (
        F.when(fate.isin("acked", "undone", "rejected"), delivered + handled)
        .when(fate == "requeued", redelivered + handled)
        .when(fate.isin("expired", "dead_lettered", "dead_letter_waits"), entered + 30 * SECOND)
        .when(fate == "dropped", entered + SECOND)
        .when(fate == "purged", entered + 5 * SECOND)
    )
    dead_letter = fate.isin("dead_lettered", "dead_letter_waits")
    last = F.col("incarnation") == clock.plan.incarnations
    crosses = fate.isin("unacked", "undone", "dead_letter_waits") & ~(last & (fate == "undone"))
    # An ack that a kill undid is one that the orderly stop has on disk: then it is as one that nobody sent.
    ended = F.when(~(last & (fate == "undone")), ended)
    found = F.coalesce(F.col("stretch") == F.lit(lost), F.lit(False))
    again = F.coalesce(F.col("stretch") == F.lit(twice), F.lit(False))
    left = F.col("incarnation") * F.lit(clock.incarnation_us).cast("long") + SECOND
    at = {
        PUBLISHED: entered,
        ROUTED: entered,
        CONFIRMED: F.when(F.col("confirms"), entered + spent(3, 2_000, 0.6)),
        DELIVERED: F.when(fate.isin("acked", "undone", "rejected", "requeued", "unacked") & ~found, delivered),
        REQUEUED: F.when(fate == "requeued", delivered + SECOND),
        REDELIVERED: F.when(fate == "requeued", redelivered),
        ENDED: F.when(~found, ended),
        ENDED_AGAIN: F.when(again, ended + SECOND),
        DEAD_LETTER_PUBLISHED: F.when(dead_letter, ended),
        DEAD_LETTER_ROUTED: F.when(dead_letter, ended),
        DEAD_LETTER_DELIVERED: F.when(fate == "dead_lettered", ended + SECOND),
        DEAD_LETTER_ACKED: F.when(fate == "dead_lettered", ended + 2 * SECOND),
        STANDING: F.when(crosses | (last & (fate == "undone")), F.when(last, left - 2 * SECOND).otherwise(left)),
        NEXT_DELIVERED: F.when(crosses & ~last, left + 10 * SECOND),
        NEXT_ACKED: F.when(crosses & ~last, left + 11 * SECOND),
    }
    return F.array(*(at[step].cast("long") for step in range(len(NAMES))))


def _columns(steps: DataFrame, clock: Clock) -> DataFrame:
    step, fate = F.col("step"), F.col("fate")
    nothing = F.lit(0).cast("long")
    last = F.col("incarnation") == clock.plan.incarnations
    flags = {
        "dead_letter": step.between(DEAD_LETTER_PUBLISHED, DEAD_LETTER_ACKED)
        | ((step >= STANDING) & (fate == "dead_letter_waits")),
        "of_dead_letter": step.isin(DEAD_LETTER_PUBLISHED, DEAD_LETTER_ROUTED),
        "of_queue": ~step.isin(PUBLISHED, CONFIRMED, DEAD_LETTER_PUBLISHED),
        "publishes": step.isin(PUBLISHED, ROUTED),
        "by_publisher": step.isin(PUBLISHED, ROUTED, CONFIRMED),
        "consumes": step.isin(DELIVERED, REQUEUED, REDELIVERED, DEAD_LETTER_DELIVERED, NEXT_DELIVERED),
        "ended_alone": (step == ENDED) & ~fate.isin("acked", "requeued", "undone"),
        "named": F.element_at(F.array(*map(F.lit, NAMES)), step + 1),
        "standing": F.when(last, F.lit("stopped")).otherwise(F.lit("recovered")),
        "next_incarnation": (step > STANDING) | ((step == STANDING) & ~last),
    }
    anchored = F.col("header") + 1 + F.col("turn") * F.col("rank_sum") + F.col("rank_at")
    within = F.col("within") % clock.under_way * STEPS + step
    number = (
        F.when(step == STANDING, anchored + F.when(last, F.lit(clock.stop)).otherwise(nothing))
        .when(step > STANDING, clock.left_begin + anchored * 4 + step - NEXT_DELIVERED)
        .otherwise(clock.number(F.col("at"), F.col("incarnation"), within))
    )
    named = steps.select("*", *(value.alias(name) for name, value in flags.items()))
    values = {
        "time": clock.time(F.col("at")),
        "node": F.lit(clock.plan.node),
        "incarnation": F.col("incarnation") + F.col("next_incarnation").cast("int"),
        "number": number,
        "count": F.col("many"),
        "redelivered": step.isin(REDELIVERED, NEXT_DELIVERED),
    }
    return named.select(*log_columns(values | _of_queue() | _of_publication() | _of_client()), "stretch", "step")


def _of_queue() -> dict[str, Column]:
    of_queue, dead_letter, fate, step = F.col("of_queue"), F.col("dead_letter"), F.col("fate"), F.col("step")
    own = F.col("turn") * F.col("first_sum") + F.col("first_at")
    first = F.when(dead_letter, F.col("turn") * F.col("dead_letter_sum") + F.col("dead_letter_at")).otherwise(own)
    ends = F.when(fate == "dead_letter_waits", F.lit("dead_lettered")).otherwise(fate)
    alone = F.col("ended_alone")
    reason = (
        F.when(F.col("of_dead_letter"), F.lit("dead_letter"))
        .when(alone & fate.isin("dead_lettered", "dead_letter_waits"), F.lit("expired"))
        .when(alone & (fate == "rejected"), F.lit("rejected"))
        .when(alone & (fate == "purged"), F.lit("purge"))
        .when(step == STANDING, F.col("standing"))
    )
    return {
        "event": F.when(alone, ends).otherwise(F.col("named")),
        "vhost": F.when(dead_letter, F.lit("/")).otherwise(F.col("vhost")),
        "queue": F.when(of_queue, F.when(dead_letter, F.lit(DEAD)).otherwise(F.col("name"))),
        "queue_id": F.when(of_queue, F.when(dead_letter, F.lit(DEAD_ID)).otherwise(F.col("queue_id"))).otherwise(0),
        "epoch": F.when(of_queue, F.col("incarnation")).otherwise(0),
        "first": F.when(of_queue, first).otherwise(0),
        "persistent": of_queue & F.col("persistent"),
        "reason": reason,
    }


def _of_publication() -> dict[str, Column]:
    publishes, of_dead_letter = F.col("publishes"), F.col("of_dead_letter")
    is_dead = F.col("ended_alone") & F.col("fate").isin("dead_lettered", "dead_letter_waits")
    # Dead letters have the numbers behind those of their cycle's own publications.
    begin = F.col("turn") * (F.col("published_sum") + F.col("dead_letter_sum")) + 1
    single = (publishes | of_dead_letter) & (F.col("many") == 1)
    return {
        "publication": F.when(F.col("by_publisher"), begin + F.col("publication_at"))
        .when(of_dead_letter | is_dead, begin + F.col("published_sum") + F.col("dead_letter_at"))
        .otherwise(0),
        "confirm_tag": F.when(
            F.col("by_publisher") & F.col("confirms"), F.col("turn") * F.col("first_sum") + F.col("first_at") + 1
        ).otherwise(0),
        "exchange": F.when(publishes, F.lit("orders")).when(of_dead_letter, F.lit("dead")),
        "routing_key": F.when(publishes | of_dead_letter, F.col("name")),
        "user": F.when(publishes, F.col("user")),
        "body_bytes": F.when(publishes | of_dead_letter, 100 + F.col("queue_id") * 37 % 4000).otherwise(0),
        "message_id": F.when(single, F.concat(F.lit("m-"), F.col("stretch").cast("string"))),
    }


def _of_client() -> dict[str, Column]:
    by_publisher, consumes = F.col("by_publisher"), F.col("consumes")
    by_consumer = consumes | (F.col("named") == "acked") & ~F.col("ended_alone")
    of_client = F.concat_ws(":", F.col("queue_id"), F.col("incarnation"))
    return {
        "connection": F.when(by_publisher, F.concat(F.lit("publisher "), of_client)).when(
            by_consumer, F.concat(F.lit("consumer "), of_client)
        ),
        "channel": F.when(by_publisher | by_consumer, 1).otherwise(0),
        "consumer": F.when(consumes, F.lit("worker")),
    }


def log_columns(values: dict[str, Any]) -> list[Column]:
    """All of the log's columns, what is not in `values` being null, 0 or false."""
    nothing = {"bigint": F.lit(0), "int": F.lit(0), "boolean": F.lit(False)}
    return [
        values.get(name, nothing.get(kind.simpleString(), F.lit(None))).cast(kind).alias(name)
        for name, kind in COLUMNS.items()
    ]
