"""Each message's fate, from all its events: the one heavy stage.

What comes in: events, `slots`. What goes out: `fates`: a row for each slot, window of time and fate, with the number
of messages; and a row of its own for each message that is suspect.
Rules: 1. One shuffle of all messages, by (slot, number in the queue): a hot queue is spread over all tasks. 2. An end
is void when the message stands in a later life: its broker was killed before the end was on disk. 3. What a hole of
the log may have taken is uncertain; where all rows are there, a hole excuses nothing.
Not here: what becomes of the suspects (`suspects.py`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark import events as log
from amqpd_spark.books.moments import backwards, event_of, life_of, moment, number_backwards, number_of
from amqpd_spark.books.queues import QUEUE, in_queues
from amqpd_spark.schema import ENDS

LIVES_MAX = 62
"""of a message, that are told apart when its ends are counted; later ones count as one"""

MOMENTS = ("routed", "last", "end_first", "end_last", "after")
"""columns of a suspect: when it entered, was seen last, ended first and last, the first anchor after all that"""


def messages(events: DataFrame, slots: DataFrame) -> DataFrame:
    """A row for each message in a queue: `slot`, `first` (its number) and what its events come to."""
    is_end = F.col("event").isin(list(ENDS))
    standing = F.col("event") == "standing"
    lives = F.least(F.greatest(F.col("life") - F.col("epoch"), F.lit(0)), F.lit(LIVES_MAX))
    rows = events.where(in_queues()).join(slots.select(*QUEUE, "epoch", "slot"), [*QUEUE, "epoch"])
    # Before the stretches are taken apart, so that it is worked out once for each.
    rows = rows.select(
        *("slot", "first", "count", "time", "persistent"),
        # Of the end it would be the letter's.
        F.when(F.col("event") == "routed", F.col("publication")).otherwise(0).alias("publication"),
        F.when(F.col("event") == "routed", F.col("connection").isNull()).alias("own"),
        moment().alias("at"),
        F.when(F.col("event") == "routed", moment()).alias("routed_at"),
        F.when(standing, moment()).alias("stood_at"),
        F.when(is_end, moment()).alias("ended_at"),
        F.when(is_end, backwards()).alias("ended_back"),
        F.when(is_end, F.call_function("shiftleft", F.lit(1).cast("long"), lives)).alias("ended_lives"),
        (standing & (F.col("life") == F.col("epoch"))).alias("at_home"),
    )
    return (
        log.each_message(rows)
        .groupBy("slot", "first")
        .agg(
            F.min("time").alias("time"),
            F.max("persistent").alias("persistent"),
            F.max("publication").alias("publication"),
            F.max("own").alias("own"),
            F.min("at").alias("seen_first"),
            F.max("at").alias("last"),
            F.max("routed_at").alias("routed"),
            F.max("stood_at").alias("stood"),
            F.min("ended_at").alias("end_first"),
            F.max("ended_at").alias("end_last"),
            F.max("ended_back").alias("end_back"),
            F.bit_or("ended_lives").alias("end_lives"),
            F.max("at_home").alias("at_home"),
        )
    )


def fates(events: DataFrame, slots: DataFrame, window: str, cut: bool) -> DataFrame:
    """Columns: slot, `window` (its start), `fate`, `found` (first seen in an anchor), `unseen` (it may have entered
    in a hole of the log), `unrecorded`, `suspect` (null, or why), of suspects `seq`, `publication`, `own` (the broker
    published it) and `MOMENTS`; `messages`, `low` and `high` (their numbers). `cut`: the log was read from some time
    on, so messages may have entered before."""
    known = slots.select("slot", "epoch", F.col("anchors"), "gaps", "log_holes", "last_life", "begun", "recorded")
    each = (
        messages(events, slots)
        .join(known, "slot")
        .withColumns({"stood_life": F.coalesce(life_of(F.col("stood")), F.lit(0))})
    )
    each = each.withColumn("ended", F.coalesce(life_of(F.col("end_last")) >= F.col("stood_life"), F.lit(False)))
    after = F.get(F.filter("anchors", lambda anchor: anchor > F.col("last")), F.lit(0))
    each = each.withColumn("after", F.when(~F.col("ended"), after))
    each = each.withColumn("unseen", F.col("routed").isNull() & _entered_in_hole() & F.lit(not cut))
    each = each.withColumn("suspect", _suspect(cut)).withColumn("fate", _fate())
    found = F.col("routed").isNull() & ~F.col("unseen")
    away = found & F.col("stood").isNotNull() & ~F.col("at_home") & F.col("recorded")
    by = [
        F.col("slot"),
        F.window("time", window)["start"].alias("window"),
        F.col("fate"),
        found.alias("found"),
        F.col("unseen"),
        (away & F.lit(not cut)).alias("unrecorded"),
        F.col("suspect"),
        *(F.when(F.col("suspect").isNotNull(), F.col(name)).alias(alias) for name, alias in _OF_SUSPECTS),
    ]
    return each.groupBy(*by).agg(
        F.count("*").alias("messages"), F.min("first").alias("low"), F.max("first").alias("high")
    )


_OF_SUSPECTS = (("first", "seq"), *((name, name) for name in ("publication", "own", *MOMENTS)))


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
