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

from amqpd_spark.books.moments import life_of

RETURNED = "struct<end: bigint, proof: bigint, stood: bigint>"
"""moments"""


def returned(suspects: DataFrame) -> DataFrame:
    """`suspects`, which have `proofs`, with `returned` instead: null, or RETURNED of the first time."""
    came_back = F.col("suspect") == "came_back"
    return suspects.withColumn("returned", F.when(came_back, _first()).cast(RETURNED)).drop("proofs")


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
