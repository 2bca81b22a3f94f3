"""Messages that stand again after an end that was on disk.

What comes in: the suspects that ended and stood in a later life. What goes out: of those of which the log proves it,
the end, the anchor that proves it, and where the message stood again.
Rules: 1. A kill undoes ends, so a message that stands in the next life is nothing wrong. 2. It is, where a whole
anchor between the two does not have it, and says what was on disk: that of an orderly stop, or that of a start. 3.
Such an anchor of the same life is one only if it ended the life: `level` and `gap` say what was in memory. 4. A hole
of the log excuses nothing: all three rows are there.
Not here: finding those who came back (`fates.py`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark import events as log
from amqpd_spark.books.moments import life_of, moment
from amqpd_spark.books.queues import QUEUE, counted
from amqpd_spark.schema import ENDS

RETURNED = "struct<end: bigint, proof: bigint, stood: bigint>"
"""moments"""


def returned(events: DataFrame, slots: DataFrame, suspects: DataFrame) -> DataFrame:
    """`suspects` with `returned`: null, or RETURNED of the first time."""
    names = (*QUEUE, "epoch")
    came_back = suspects.where(F.col("suspect") == "came_back")
    wanted, many = counted(came_back.select("slot", "seq", *names))
    if not many:
        return suspects.withColumn("returned", F.lit(None).cast(RETURNED))
    spans = F.broadcast(wanted.groupBy("slot", *names).agg(F.min("seq").alias("_low"), F.max("seq").alias("_high")))
    told = events.where(F.col("event").isin("standing", *ENDS) & (F.col("count") > 0))
    near = told.select(*names, "first", "count", "event", moment().alias("at")).join(spans, list(names))
    near = near.where((F.col("first") <= F.col("_high")) & (F.col("first") + F.col("count") > F.col("_low")))
    each = log.each_message(near).withColumnRenamed("first", "seq")
    stood = F.col("event") == "standing"
    moments = each.join(wanted.select("slot", "seq"), ["slot", "seq"]).groupBy("slot", "seq")
    sets = moments.agg(
        F.array_sort(F.collect_set(F.when(~stood, F.col("at")))).alias("ends"),
        F.array_sort(F.collect_set(F.when(stood, F.col("at")))).alias("stands"),
    )
    proven = sets.join(slots.select("slot", "proofs"), "slot").select("slot", "seq", _first().alias("returned"))
    return suspects.join(proven, ["slot", "seq"], "left")


def _first() -> Column:
    """Of `ends`, `stands` and `proofs`."""

    def of_end(end: Column) -> Column:
        stood = F.array_min(F.filter("stands", lambda at: at > end))

        def proves(proof: Column) -> Column:
            life = life_of(proof["from"])
            lasting = (life > life_of(end)) | (proof["stopped"] & (life == life_of(end)))
            return (proof["from"] > end) & (proof["to"] < stood) & lasting

        proof = F.get(F.filter("proofs", proves), F.lit(0))["from"]
        return F.struct(end.alias("end"), proof.alias("proof"), stood.alias("stood"))

    return F.get(F.filter(F.transform("ends", of_end), lambda each: each["proof"].isNotNull()), F.lit(0))
