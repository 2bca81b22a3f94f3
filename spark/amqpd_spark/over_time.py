"""The table `flow`: how many messages entered and how many ended, by the time at which each happened.

What comes in: the books, and how many ended in each window. What goes out: a row for each place, virtual host, queue
and window in which something entered or ended.
Rules: it is what the log says, not what is concluded: an end that a kill has undone is counted, and so is the next
one of that message; what ended without a word, as a kill's victims do, is not. `books` has what became of messages,
by the time at which they entered.
Not here: what a page makes of it (`report_page/over_time.py`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

KEYS = ("node", "vhost", "queue", "window")


def flow(books: DataFrame, ended: DataFrame) -> DataFrame:
    """KEYS, `entered`, `ended` (long), `date`. `ended`: KEYS and `messages`."""
    entered = books.where("accepted > 0").select(*KEYS, F.col("accepted").alias("entered"))
    nothing = F.lit(0).cast("long")
    out = ended.select(*KEYS, nothing.alias("entered"), F.col("messages").alias("ended"))
    rows = entered.withColumn("ended", nothing).unionByName(out)
    sums = rows.groupBy(*KEYS).agg(F.sum("entered").alias("entered"), F.sum("ended").alias("ended"))
    return sums.withColumn("date", F.to_date("window"))
