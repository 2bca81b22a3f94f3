"""What became of each suspect: the few messages that need more of the log than their own events.

What comes in: `outcome`, and events. What goes out: a row for each suspect, with its `kind` (null: no fault), its
fate, and, of a fault, what its publisher would know it by.
Rules: 1. A persistent message that is absent after a kill, for the first time, was promised to nobody if the client's
publish that it comes from was not confirmed, or is back (`origins.py`). 2. Kills make many that are absent and no
fault: of those only numbers are looked up.
Not here: finding the suspects (`fates.py`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark.books.moments import event_of, incarnation_of, number_of
from amqpd_spark.books.origins import promised
from amqpd_spark.books.outcome import BACK
from amqpd_spark.books.places import PUBLISHER
from amqpd_spark.books.queues import QUEUE, Known, counted, settled

OF_ENTRY = (
    *("time", "publication", "confirm_tag", "exchange", "routing_key", "user", "connection", "channel"),
    *("message_id", "correlation_id"),
)


def resolved(events: DataFrame, known: Known, outcome: DataFrame, absent: bool) -> DataFrame:
    """`outcome`'s columns, the queue's, `kind`, `promised`; of those with a kind `OF_ENTRY` and `last_time`.
    `absent`: there are such suspects."""
    of_queue = known.slots.select("slot", "of", *QUEUE, "epoch", "vhost", "queue", *PUBLISHER)
    suspects = outcome.where(F.col("suspect").isNotNull()).join(of_queue, "slot")
    suspects = known.with_moments(suspects, "stops", "log_holes")
    if absent:
        asked = suspects.where((F.col("suspect") == "absent") & (F.col("publication") > 0))
        answers = promised(events, known, asked).withColumnRenamed("dead_letter", "publication")
        told = suspects.join(answers, [*PUBLISHER, "publication"], "left").drop(*PUBLISHER)
    else:
        told = suspects.withColumn("promised", F.lit(None).cast("boolean")).drop(*PUBLISHER)
    first_recovery = (
        (incarnation_of(F.col("after")) > incarnation_of(F.col("last")))
        & (incarnation_of(F.col("last")) == F.col("epoch"))
        & ~F.array_contains("stops", F.col("epoch"))
        & ~F.col("found")
    )
    # A dead letter of which nothing is known is not excused; a publish that nobody confirmed is.
    excused = first_recovery & ~F.coalesce("promised", F.coalesce("own", F.lit(False)) & (F.col("publication") > 0))
    is_absent = F.col("suspect") == "absent"
    # What says that it was promised, or undone, may be in a hole of the log.
    in_doubt = F.col("unseen") | F.coalesce(_hole_in_its_incarnation(), F.lit(False))
    doubtful = first_recovery & ~F.coalesce("promised", F.lit(False)) & in_doubt
    fate = F.when(doubtful, F.lit("uncertain")).when(excused, F.lit("unconfirmed")).otherwise(F.lit("missing"))
    kind = F.when(~is_absent, F.col("suspect"))
    kind = kind.when(~excused & ~doubtful, F.lit("missing"))
    told = told.withColumn("kind", kind).withColumn("fate", F.when(is_absent, fate).otherwise(F.col("fate")))
    return _with_entries(events, settled(told.drop("publication")))


def suspect_detail(kind: str) -> Column:
    """What is wrong, for a person; of a row of `resolved`."""

    def event(name: str) -> Column:
        when = [
            F.lit(" (incarnation "),
            incarnation_of(F.col(name)),
            F.lit(", number "),
            number_of(F.col(name)),
            F.lit(")"),
        ]
        return F.concat(event_of(F.col(name)), *when)

    if kind == "missing":
        to_whom = F.when(F.coalesce("promised", F.lit(False)), F.lit("confirmed; ")).otherwise(F.lit(""))
        anchor = [F.lit(", not in the anchor of incarnation "), incarnation_of(F.col("after")), F.lit(", number ")]
        return F.concat(to_whom, F.lit("last "), event("last"), *anchor, number_of(F.col("after")))
    if kind == "ended_twice":
        return F.concat_ws(", ", event("end_first"), event("end_last"))
    if kind == "returned_from_the_dead":

        def place(at: Column) -> list[Column]:
            return [F.lit("incarnation "), incarnation_of(at), F.lit(", number "), number_of(at)]

        end, proof, stood = map(F.col, BACK)
        ended = [event_of(end), F.lit(" ("), *place(end), F.lit("), not in the anchor of "), *place(proof)]
        return F.concat(*ended, F.lit(", in the anchor of "), *place(stood))
    if kind == "ended_yet_standing":
        return F.concat(event("end_last"), F.lit(", then "), event("last"))
    return F.concat(F.lit("last "), event("last"), F.lit(", and never routed"))


def _hole_in_its_incarnation() -> Column:
    """Of the log: of a dead letter anywhere in the incarnation in which it entered, of a client's publish behind
    it."""
    routed = F.col("routed")

    def meets(hole: Column) -> Column:
        return (incarnation_of(hole["from"]) == incarnation_of(routed)) & (F.col("own") | (hole["to"] > routed))

    return F.exists("log_holes", meets)


def _with_entries(events: DataFrame, suspects: DataFrame) -> DataFrame:
    """With the columns of the row with which it entered, or of the last one of a message that did not; of faults."""
    roles = F.array(*(F.struct(F.lit(name).alias("role"), F.col(name).alias("at")) for name in ("routed", "last")))
    faults = suspects.where(F.col("kind").isNotNull())
    wanted = faults.select("slot", "seq", "node", F.explode(roles).alias("it")).where(F.col("it.at").isNotNull())
    wanted = wanted.select(
        *("slot", "seq", "node", F.col("it.role").alias("role")),
        incarnation_of(F.col("it.at")).alias("incarnation"),
        number_of(F.col("it.at")).alias("number"),
    )
    looked_for, many = counted(wanted)
    log = events if many else events.limit(0)
    rows = log.select("node", "incarnation", "number", "first", *OF_ENTRY).join(
        looked_for, ["node", "incarnation", "number"]
    )
    row = F.struct("first", *OF_ENTRY)
    found = rows.groupBy("slot", "seq").agg(
        F.max(F.when(F.col("role") == "routed", row)).alias("routed_row"),
        F.max(F.when(F.col("role") == "last", row)).alias("last_row"),
    )
    it = F.coalesce("routed_row", "last_row")
    offset = F.col("seq") - it["first"]
    columns = {
        name: F.when(it[name] > 0, it[name] + offset).otherwise(F.lit(0).cast("long"))
        if name in ("publication", "confirm_tag")
        else it[name]
        for name in OF_ENTRY
    }
    joined = suspects.join(found, ["slot", "seq"], "left")
    return joined.withColumns({**columns, "last_time": F.col("last_row.time")}).drop("routed_row", "last_row")
