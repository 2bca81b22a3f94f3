"""The table `flow`: how many messages entered and how many ended, by the time at which each happened.

What comes in: events, and the books made of them. What goes out: a row for each place, virtual host, queue and window
in which something entered or ended.
Rules: 1. One scan, of the rows of ends, and of their names, time and count: stretches are added up, never made
messages of. What entered is in the books already. 2. It is what the log says, not what is concluded: an end that a
kill has undone is counted, and so is the next one of that message; what ended without a word, as a kill's victims do,
is not. `books` has what became of messages, by the time at which they entered.
Not here: what a page makes of it (`report_page/over_time.py`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark.books.places import place
from amqpd_spark.events import IDENTITY
from amqpd_spark.schema import ENDS

KEYS = ("node", "vhost", "queue", "window")


def flow(events: DataFrame, books: DataFrame, window: str, duplicates: bool = True) -> DataFrame:
    """KEYS, `entered`, `ended` (long), `date`. `duplicates`: a row may be in several files, so each is looked at for
    another like it, which costs a shuffle."""
    named = events.where(F.col("event").isin(*ENDS)).select(
        *IDENTITY, place().alias("at"), "vhost", "queue", "time", "count"
    )
    unique = named.dropDuplicates(list(IDENTITY)) if duplicates else named
    ended = unique.groupBy(
        F.col("at").alias("node"), "vhost", "queue", F.window("time", window)["start"].alias("window")
    ).agg(F.sum("count").alias("ended"))
    entered = books.where("accepted > 0").select(*KEYS, F.col("accepted").alias("entered"))
    nothing = F.lit(0).cast("long")
    rows = entered.withColumn("ended", nothing).unionByName(ended.withColumn("entered", nothing))
    sums = rows.groupBy(*KEYS).agg(F.sum("entered").alias("entered"), F.sum("ended").alias("ended"))
    return sums.withColumn("date", F.to_date("window"))
