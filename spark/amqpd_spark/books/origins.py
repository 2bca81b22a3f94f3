"""To whom a message was promised: the walk from what the broker published itself up to a client's publish.

What comes in: publications whose messages are absent, and events. What goes out: `promised` for each publication.
Rules: 1. A dead letter (a dead letter, what was released from a delay or moved) came in one commit with its source's
end: where the source stands again in a later incarnation, that was undone. 2. Else, of a source that entered in the
same incarnation, what holds for it holds for the dead letter: a client's publish was promised if it was confirmed; a
dead letter is asked the same. 3. A source of an earlier incarnation was safe. One that nothing is known of excuses
nothing. 4. What was not persistent was promised nothing over a restart, and neither was what came of it.
Not here: which messages are absent (`fates.py`), what is concluded (`suspects.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark import events as log
from amqpd_spark.books.moments import incarnation_of
from amqpd_spark.books.places import PUBLISHER, in_source
from amqpd_spark.books.queues import QUEUE, Known, counted, settled

PUBLICATION = (*PUBLISHER, "publication")
LINKS = ("dead_lettered", "released", "moved")
"""ends whose `publication` is that of what came of the message"""
HOPS_MAX = 50
"""dead letters of dead letters; publications only go up from a source to its dead letter, so a walk ends"""
_DEAD_LETTER = (*PUBLISHER, "dead_letter")
_MESSAGE = (*QUEUE, "epoch", "first")


def promised(events: DataFrame, known: Known, absent: DataFrame) -> DataFrame:
    """`PUBLISHER`, `dead_letter` (the publication in `absent`), `promised`: the client's publish that it comes from
    was confirmed, and is not back. `absent`: `PUBLICATION`, and `own`, which says that the broker published it. A
    dead letter that is not in the answer comes from nothing that is known, or from an earlier incarnation."""
    asked = absent.select(*PUBLICATION, "own", F.col("publication").alias("dead_letter")).distinct()
    answers = [asked.where(~F.col("own")).select(*_DEAD_LETTER, "publication", F.lit(False).alias("undone"))]
    dead_letters, left = counted(asked.where("own").select(*_DEAD_LETTER, "publication"))
    reached = known.moments.select(*QUEUE, incarnation_of(F.array_max("anchors")).alias("reached"))
    for _ in range(HOPS_MAX):
        if not left:
            break
        step = settled(_step(events, dead_letters, reached))
        over = F.col("undone") | F.col("client")
        answers.append(step.where(over).select(*_DEAD_LETTER, "publication", "undone"))
        dead_letters, left = counted(step.where(~over).select(*_DEAD_LETTER, "publication"))
    answered, rows = counted(reduce(DataFrame.unionByName, answers))
    if rows:
        told = _confirmed(events, answered.where(~F.col("undone")).select(*PUBLICATION))
        joined = answered.join(told, list(PUBLICATION), "left")
    else:
        joined = answered.withColumn("told", F.lit(False))
    # Of a dead letter there is one source; should a broken log have two, the one that was promised decides.
    confirmed = F.max(~F.col("undone") & F.coalesce("told", F.lit(False)))
    return joined.groupBy(*_DEAD_LETTER).agg(confirmed.alias("promised"))


def _step(events: DataFrame, dead_letters: DataFrame, reached: DataFrame) -> DataFrame:
    """`_DEAD_LETTER`, the `publication` of its source, whether a `client` published that, and `undone`. Without those
    whose source did not enter in the same incarnation, and is not back either. `reached`: of each queue, the
    incarnation of its last anchor."""
    left = events.where(F.col("event").isin(list(LINKS)) & (F.col("publication") > 0) & (F.col("count") > 0))
    left = left.select(*_MESSAGE, *PUBLISHER, "incarnation", "count", "publication")
    each = log.each_message(_near(left, dead_letters, PUBLISHER, "publication"))
    ended = each.join(dead_letters, list(PUBLICATION)).select(*_DEAD_LETTER, *_MESSAGE, "incarnation").distinct()
    sources = settled(ended.join(reached, list(QUEUE), "left"))
    rows = events.where(F.col("event").isin("routed", "standing") & (F.col("count") > 0)).select(
        *(*_MESSAGE, "count", "publication", "persistent", F.col("incarnation").alias("seen_in")),
        (F.col("event") == "standing").alias("stood"),
        F.col("connection").isNotNull().alias("by_client"),
    )
    found = log.each_message(_near(rows, sources, (*QUEUE, "epoch"), "first")).join(sources, list(_MESSAGE))
    entered = ~F.col("stood") & (F.col("seen_in") == F.col("incarnation"))
    back = F.col("stood") & (F.col("seen_in") > F.col("incarnation"))
    mortal = ~F.col("stood") & ~F.col("persistent")
    # Its next leader has not said yet what stands there; a dead letter of another source is no part of the same
    # commit.
    open_yet = in_source(F.col("node")) & (F.coalesce("reached", F.lit(0)) <= F.col("incarnation"))
    steps = found.groupBy(*_DEAD_LETTER).agg(
        F.max(back | mortal | open_yet).alias("undone"),
        F.max(F.when(entered, F.col("publication"))).alias("publication"),
        F.max(entered & F.col("by_client")).alias("client"),
    )
    return steps.where(F.col("undone") | (F.col("publication") > 0))


def _confirmed(events: DataFrame, wanted: DataFrame) -> DataFrame:
    """Those of `wanted` whose publisher was told, with `told`."""
    rows = events.where((F.col("event") == "confirmed") & (F.col("publication") > 0) & (F.col("count") > 0))
    near = _near(rows.select(*PUBLICATION, "count"), wanted, PUBLISHER, "publication")
    found = log.each_message(near).select(*PUBLICATION).join(wanted, list(PUBLICATION), "leftsemi").distinct()
    return found.withColumn("told", F.lit(True))


def _near(stretches: DataFrame, wanted: DataFrame, by: Sequence[str], number: str) -> DataFrame:
    """Stretches between the least and the greatest number that is wanted of each `by`, a queue's history or an
    incarnation: what is absent was on its way when an incarnation ended, so most of the log is not taken apart."""
    spans = F.broadcast(wanted.groupBy(*by).agg(F.min(number).alias("_low"), F.max(number).alias("_high")))
    inside: Column = (F.col(number) <= F.col("_high")) & (F.col(number) + F.col("count") > F.col("_low"))
    return stretches.join(spans, list(by)).where(inside).drop("_low", "_high")
