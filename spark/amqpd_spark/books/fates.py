"""Each message's fate, from its facts.

What comes in: the rows of `facts.py`, the slots. What goes out: a row for each slot, window of time and fate, with
the number of messages; and a row of its own for each message that is suspect.
Rules: 1. An end is void when the message stands in a later life: its broker was killed before the end was on disk. 2.
What a hole of the log may have taken is uncertain; where all rows are there, a hole excuses nothing.
Not here: what becomes of the suspects (`suspects.py`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark.books.facts import LIVES_MAX
from amqpd_spark.books.moments import event_of, life_of, number_backwards, number_of
from amqpd_spark.books.queues import Known

MOMENTS = ("routed", "last", "end_first", "end_last", "after")
"""columns of a suspect: when it entered, was seen last, ended first and last, the first anchor after all that"""
MOVED = ("ends", "stands")
"""of a suspect that ended and stood: all its ends, all anchors that have it; moments, sorted"""


def fates(facts: DataFrame, known: Known, window: str, cut: bool) -> DataFrame:
    """Columns: slot, `window` (its start), `fate`, `found` (first seen in an anchor), `unseen` (it may have entered
    in a hole of the log), `unrecorded`, `suspect` (null, or why), of suspects `seq`, `publication`, `own` (the broker
    published it), `MOMENTS` and `MOVED`; `messages`, `low` and `high` (their numbers). `cut`: the log was read from
    some time on, so messages may have entered before."""
    slots = known.slots.select("slot", "of", "epoch", "last_life", "begun", "recorded")
    each = known.with_moments(facts.join(slots, "slot", "left"), "anchors", "gaps", "log_holes")
    each = each.withColumn("time", F.timestamp_micros("us"))
    each = each.withColumn("stood_life", F.coalesce(life_of(F.col("stood")), F.lit(0)))
    each = each.withColumn("ended", F.coalesce(life_of(F.col("end_last")) >= F.col("stood_life"), F.lit(False)))
    after = F.get(F.filter("anchors", lambda anchor: anchor > F.col("last")), F.lit(0))
    plain = F.col("plain").isNotNull()
    each = each.withColumn("after", F.when(~F.col("ended") & ~plain, after))
    unseen = F.when(plain, False).otherwise(F.col("routed").isNull() & _entered_in_hole() & F.lit(not cut))
    each = each.withColumn("unseen", unseen)
    each = each.withColumn("suspect", F.when(~plain, _suspect(cut)))
    each = each.withColumn("fate", F.coalesce("plain", _fate()))
    found = ~plain & F.col("routed").isNull() & ~F.col("unseen")
    away = found & F.col("stood").isNotNull() & ~F.col("at_home") & F.col("recorded")
    is_suspect = F.col("suspect").isNotNull()
    # A row for each suspect, and one for all others of an interval.
    apart = F.when(is_suspect, F.sequence(F.lit(0).cast("long"), F.col("messages") - 1))
    each = each.withColumn("_i", F.explode(F.coalesce(apart, F.array(F.lit(0).cast("long")))))
    each = each.withColumn("seq", F.col("first") + F.col("_i"))
    moved = F.when(F.col("publication") > 0, F.col("publication") + F.col("_i"))
    each = each.withColumn("publication", F.coalesce(moved, F.col("publication")))
    by = [
        F.col("slot"),
        F.window("time", window)["start"].alias("window"),
        F.col("fate"),
        found.alias("found"),
        F.col("unseen"),
        F.coalesce(away & F.lit(not cut), F.lit(False)).alias("unrecorded"),
        F.col("suspect"),
        *(F.when(is_suspect, F.col(name)).alias(name) for name in ("seq", "publication", "own", *MOMENTS, *MOVED)),
    ]
    return each.groupBy(*by).agg(
        F.sum(F.when(is_suspect, 1).otherwise(F.col("messages"))).alias("messages"),
        F.min("seq").alias("low"),
        F.max(F.when(is_suspect, F.col("seq")).otherwise(F.col("high"))).alias("high"),
    )


def _fate() -> Column:
    """Of suspects that are `absent`, null: it is not known yet."""
    last_seen = life_of(F.col("last"))
    gone = F.col("after").isNotNull()
    behind = last_seen < F.coalesce(life_of(F.col("after")), F.col("last_life"))
    over = ~F.coalesce("persistent", F.lit(False)) & behind
    # Of one that entered in a hole, it is not known whether it was persistent.
    stranger = F.col("routed").isNull() & F.col("stood").isNull()
    return (
        F.when(stranger & ~F.col("unseen"), F.lit("stranger"))
        .when(F.col("ended"), event_of(F.col("end_last")))
        .when(_in_hole(over & ~stranger) | (stranger & (gone | behind)), F.lit("uncertain"))
        .when(over, F.lit("transient"))
        .when(~gone, F.lit("standing"))
        .when(_in_gap(), F.lit("uncertain"))
    )


def _suspect(cut: bool) -> Column:
    stranger = F.col("routed").isNull() & F.col("stood").isNull()
    excused = F.lit(cut) | ~F.col("begun") | _entered_in_gap()
    lives = F.call_function(
        "shiftrightunsigned",
        F.col("end_lives"),
        F.least(F.greatest(F.col("stood_life") - F.col("epoch"), F.lit(0)), F.lit(LIVES_MAX)),
    )
    twice = ((F.bit_count(lives) > 1) & ~_undone_in_hole()) | (
        number_of(F.col("end_last")) != number_backwards(F.col("end_back"))
    )
    came_back = F.col("end_first").isNotNull() & (F.col("stood_life") > life_of(F.col("end_first")))
    ended_before_it_stood = F.col("ended") & (F.col("end_last") < F.col("stood"))
    transient = ~F.col("persistent") & (life_of(F.col("after")) > life_of(F.col("last")))
    return (
        F.when(stranger & ~excused & ~F.col("unseen"), F.lit("never_routed"))
        .when(F.col("ended") & twice, F.lit("ended_twice"))
        .when(ended_before_it_stood, F.lit("ended_yet_standing"))
        .when(~stranger & F.col("after").isNotNull() & ~transient & ~_in_gap() & ~_in_hole(), F.lit("absent"))
        .when(came_back, F.lit("came_back"))
    )


def _in_gap() -> Column:
    """It was not seen after a gap, so what ended it may not have been recorded."""
    return F.exists("gaps", lambda gap: (gap > F.col("last")) & (gap < F.col("after")))


def _in_hole(over: Column | None = None) -> Column:
    """What ended it may have been in a hole of the log. `over`: no later life has it, whatever is written there."""
    last, after = F.col("last"), F.col("after")

    def meets(hole: Column) -> Column:
        found = (hole["to"] > last) & (after.isNull() | (hole["from"] < after))
        return found if over is None else found & (~over | (life_of(hole["from"]) == life_of(last)))

    return F.exists("log_holes", meets)


def _entered_in_hole() -> Column:
    """A hole of the log, in a life in which it may have entered, and no whole anchor of the queue between the hole
    and what is known of the message first (its own anchor is none)."""
    seen = F.col("seen_first")
    own = (event_of(seen) == "standing").cast("int")

    def meets(hole: Column) -> Column:
        between = F.size(F.filter("anchors", lambda anchor: (anchor > hole["to"]) & (anchor < seen)))
        return (hole["from"] < seen) & (life_of(hole["from"]) >= F.col("epoch")) & (between <= own)

    return F.exists("log_holes", meets)


def _undone_in_hole() -> Column:
    """Of ends in two lives: the anchor that has the message between them may be in a hole."""
    first, last = F.col("end_first"), F.col("end_last")
    told = F.exists("anchors", lambda anchor: (anchor > first) & (anchor < last))
    return ~told & F.exists("log_holes", lambda hole: (hole["to"] > first) & (hole["from"] < last))


def _entered_in_gap() -> Column:
    """A gap, and no anchor of the queue between it and the message's last event."""
    last = F.col("last")
    return F.exists(
        "gaps",
        lambda gap: (gap < last) & ~F.exists("anchors", lambda anchor: (anchor > gap) & (anchor < last)),
    )
