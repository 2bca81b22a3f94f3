"""Charts of conservation over time: what became of messages, how many came and went, how many stood.

What comes in: the tables `books` and `flow`. What goes out: charts.
Rules: 1. The step is the table's own window, or the next longer one of which the chart can show all. 2. What stands
is reckoned back from the end, where the books say it: what stood before a time is what stands after it, less what
entered meanwhile, and what ended. So what had entered before the log begins is in it.
Not here: sums of queues (`sections.py`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark.report_page import words
from amqpd_spark.report_page.charts import Chart, Series, bars, lines
from amqpd_spark.report_page.tables import POINTS_MAX, Rows, coarse, rows, sums, whole
from amqpd_spark.windows import length_s

# In the order of a message's way; the first group is where messages went, the second what is wrong or not known.
FATES = (
    *("acked", "dead_lettered", "expired", "dropped", "rejected", "purged", "moved", "released"),
    *("transient", "unconfirmed", "standing"),
)
DOUBTS = ("uncertain", "missing")
# They are not there any more, and no row of the log says when they went.
_WITHOUT_END = ("transient", "unconfirmed", *DOUBTS)
_MONTH_S = 30 * 86400


def charts(books: DataFrame, flow: DataFrame | None) -> list[Chart]:
    cut, step, step_s = coarse(books, "window", length_s(books) or whole(books, "window"))
    figures = [name for name in (*FATES, *DOUBTS) if name in books.columns]
    other = [name for name in ("accepted", "unseen") if name in books.columns]
    found = rows(sums(cut, ["window"], [*figures, *other]), [F.col("window")], POINTS_MAX + 2)
    return [_fates(found, figures, step, step_s), *_flow(found, flow, step_s)]


def _fates(found: Rows, figures: list[str], step: str, step_s: int) -> Chart:
    other = [name for name in figures if name not in ("acked", "standing", *DOUBTS)]
    parts = {"acknowledged": ["acked"], "standing": ["standing"], "ended otherwise": other}
    parts["uncertain or missing"] = list(DOUBTS)
    series = [
        Series(
            name,
            [(row["window"], sum(row.get(each) or 0 for each in of)) for row in found],
            colour,
        )
        for colour, (name, of) in enumerate(parts.items())
    ]
    series = [each for each in series if any(value for _, value in each.points)] or series[:1]
    marks = [row["window"] for row in found if row["missing"]]
    says = f"Messages that came in each {step}, by what became of them."
    if marks:
        says += f" A red line: some of that {step} are missing."
    return bars("What became of messages", says, series, words.number, step_s, marks)


def _flow(found: Rows, flow: DataFrame | None, least_s: int) -> list[Chart]:
    if flow is None:
        return []
    cut, step, step_s = coarse(flow, "window", least_s)
    moved = rows(sums(cut, ["window"], ["entered", "ended"]), [F.col("window")], POINTS_MAX + 2)
    if not moved:
        return []
    entered = {row["window"]: float(row["entered"] or 0) for row in moved}
    ended = {row["window"]: float(row["ended"] or 0) for row in moved}
    times = _each(min(entered), max(entered), step_s, [row["window"] for row in moved])
    came = [
        # Colours that say nothing else in the chart above: what ended is mostly what was acknowledged.
        Series(name, [(at, values.get(at, 0.0)) for at in times], colour)
        for name, values, colour in (("entered", entered, 4), ("ended", ended, 0))
    ]
    stood = _standing(times, found, entered, ended)
    return [
        lines("Entered and ended", f"Messages in each {step}, by when it happened.", came, words.number),
        lines("Standing", f"Messages there at the end of each {step}.", [Series("standing", stood, 1)], words.number),
    ]


def _each(begin: datetime, end: datetime, step_s: int, known: list[datetime]) -> list[datetime]:
    """All windows, also those in which nothing happened."""
    if step_s >= _MONTH_S:
        return known
    steps = int((end - begin).total_seconds()) // step_s
    return [begin + timedelta(seconds=step_s * at) for at in range(steps + 1)]


def _standing(
    times: list[datetime], books: Rows, entered: dict[Any, float], ended: dict[Any, float]
) -> list[tuple[datetime, float]]:
    """At the end of each window."""
    there = float(sum(row.get("standing") or 0 for row in books))
    silent: dict[datetime, float] = {}
    for row in books:
        at = max((time for time in times if time <= row["window"]), default=times[0])
        silent[at] = silent.get(at, 0.0) + sum(float(row.get(name) or 0) for name in _WITHOUT_END)
    points = []
    for time in reversed(times):
        points.append((time, max(there, 0.0)))
        there += ended.get(time, 0.0) - entered.get(time, 0.0) + silent.get(time, 0.0)
    return points[::-1]
