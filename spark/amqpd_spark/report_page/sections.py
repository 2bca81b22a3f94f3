"""Whether every message is accounted for: the first section of the page, and its verdict.

What comes in: `Tables`. What goes out: a `Section`: verdicts, charts, lists; what could not be said, and why.
Rules: 1. A section without its tables says which command makes them. 2. Sums are Spark's; what comes here is a page's
worth of rows. 3. What merely stands, or is not known, is in the verdict's sentence, and above a share of what entered
the verdict is not green.
Not here: charts over time (`over_time.py`), services and users (`activity.py`), markup (`page.html.j2`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark.report_page import over_time, words
from amqpd_spark.report_page.names import Names
from amqpd_spark.report_page.over_time import DOUBTS, FATES
from amqpd_spark.report_page.parts import (
    BAD,
    GOOD,
    UNKNOWN,
    UNSURE,
    Cell,
    Column,
    Listing,
    Section,
    count,
    listing,
    text,
    told,
    when,
)
from amqpd_spark.report_page.tables import Tables, moment, rows, sums

STANDING_SHARE = 0.1
"""of what entered: when as much as this merely stands, or is not known, that nothing is missing says little"""
# Findings that say what cannot be known, and those that say what nobody was promised; all others say what is wrong.
DOUBTFUL_KINDS = ("unrecorded", "confirmed_unpublished", "uncertain", "gap")
HARMLESS_KINDS = ("unconfirmed", "transient")
# Kind -> of one, of several. Others are told by their name.
_SAID = {
    "log_hole": ("{} hole in the log: a file is not there", "{} holes in the log: files are not there"),
    "rows_removed": ("Rows were removed from {} file of the log", "Rows were removed from {} files of the log"),
    "returned_from_the_dead": (
        "{} message came back after its end was on disk",
        "{} messages came back after their end was on disk",
    ),
}
NO_MESSAGES = "No messages were recorded (audit.level says which are)"


def conservation(tables: Tables) -> Section:
    section = Section("conservation", "Is every message accounted for?", command="conservation")
    books = tables.table("conservation/books", "window", "vhost", "queue", "accepted", "missing")
    if books is None:
        section.verdict(UNKNOWN, "Whether messages are missing is not known: there are no books.")
        return section
    figures = [name for name in (*FATES, *DOUBTS) if name in books.columns]
    # `found`: messages that entered before the log begins, and have a fate all the same; `unseen`: in a hole of it.
    entered = [name for name in ("accepted", "found", "unseen") if name in books.columns]
    total = books.agg(*(F.sum(name).cast("double").alias(name) for name in (*entered, *figures))).first()
    sure = {name: total[name] or 0 if total else 0 for name in (*entered, *figures)}
    kinds = _findings(tables, section)
    _judge(section, sure, kinds)
    section.period = _ends(books)
    if any(sure[name] for name in entered):
        section.parts += over_time.charts(books, tables.table("conservation/flow", "window", "entered", "ended"))
        section.parts.append(_by_queue(books, figures, sure))
    _doubtful_windows(books, section)
    return section


def _judge(section: Section, sure: dict[str, Any], kinds: dict[str, int]) -> None:
    missing, uncertain, standing = (int(sure.get(name, 0)) for name in ("missing", "uncertain", "standing"))
    told_above = ("missing", "uncertain", *HARMLESS_KINDS)
    faults = [kind for kind in kinds if kind not in (*told_above, *DOUBTFUL_KINDS)]
    entered = int(sure["accepted"] + sure.get("found", 0) + sure.get("unseen", 0))
    became = _became(entered, entered - missing - uncertain - standing, standing)
    if not (entered or kinds):
        section.verdict(UNKNOWN, f"{NO_MESSAGES}: whether any is missing is not known")
    elif missing:
        section.verdict(BAD, f"{missing:,} {'message is' if missing == 1 else 'messages are'} missing; {became}")
    elif kinds.get("missing"):
        section.verdict(BAD, f"{kinds['missing']:,} messages are missing")
    elif not entered:
        section.verdict(UNSURE, "No messages entered, and there are findings")
    else:
        sure_of = standing + uncertain < STANDING_SHARE * entered and not faults
        section.verdict(GOOD if sure_of else UNSURE, f"Nothing is missing: {became}")
    if uncertain:
        sentence = f"{uncertain:,} messages cannot be accounted for: their events were not recorded"
        section.verdict(UNSURE, sentence)
    for kind in sorted(kinds, key=lambda kind: (kind not in _SAID, kind)):
        if kind not in told_above:
            section.verdict(UNSURE if kind in DOUBTFUL_KINDS else BAD, _counted(kind, kinds[kind]))


def _became(entered: int, ended: int, standing: int) -> str:
    """What of all that entered, so that what merely stands is not taken for what was seen to end."""
    if ended == entered:
        return f"all {entered:,} ended"
    stand = f", {standing:,} {'stands' if standing == 1 else 'stand'} ({words.share(standing / entered)})"
    return f"{ended:,} of {entered:,} ended{stand if standing else ''}"


def _counted(kind: str, number: int) -> str:
    if kind in _SAID:
        return _SAID[kind][number != 1].format(f"{number:,}")
    return f"{number:,} {'finding' if number == 1 else 'findings'}: {kind.replace('_', ' ')}"


def _findings(tables: Tables, section: Section) -> dict[str, int]:
    """How many of each kind, a bounded number of kinds."""
    found = tables.table("conservation/findings", "kind", "vhost", "queue", "detail")
    if found is None:
        return {}
    counts = {row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()}
    if counts:
        order = [F.col(name) for name in ("kind", "entered", "vhost", "queue", "first") if name in found.columns]
        known: list[Column] = [
            ("Queue", Names(found).of("queue", words.NOTHING), False),
            ("Kind", lambda row: Cell(str(row["kind"]).replace("_", " "), _tone(row["kind"])), False),
            ("Entered", when("entered"), False),
            ("In the queue", _place, False),
            ("Message id", text("message_id"), False),
            ("What", text("detail"), False),
        ]
        needs = {"Entered": "entered", "Message id": "message_id", "In the queue": "queue_id"}
        columns = [each for each in known if needs.get(each[0], "kind") in found.columns]
        shown = rows(found, order)
        section.parts.append(listing("Findings", shown, columns, found))
    return counts


def _place(row: dict[str, Any]) -> str:
    if row.get("queue_id") is None or row.get("first") is None:
        return words.NOTHING
    others = f" (+{row['count']})" if (row.get("count") or 1) > 1 else ""
    return f"{row['queue_id']}:{row.get('epoch', 0)}:{row['first']}{others}"


def _tone(kind: str) -> str:
    return "" if kind in HARMLESS_KINDS else UNSURE if kind in DOUBTFUL_KINDS else BAD


def _ends(table: DataFrame) -> list[datetime]:
    ends = table.agg(*(F.unix_micros(each("window")) for each in (F.min, F.max))).first()
    return [found for each in ends or () if (found := moment(each)) is not None]


def _by_queue(books: DataFrame, figures: list[str], sure: dict[str, Any]) -> Listing:
    names = Names(books)
    queues = sums(books, [*names.keys, "queue"], ["accepted", *figures])
    order = [F.desc(name) for name in ("missing", "uncertain", "accepted") if name in queues.columns]
    found = rows(queues, [*order, *map(F.col, names.keys), F.col("queue")])
    most = max((row["accepted"] or 0 for row in found), default=0) or 1
    columns: list[Column] = [("Queue", names.of("queue"), False), ("Accepted", count("accepted", most), True)]
    # What is wrong first: a phone shows some columns, and the rest after a swipe.
    for name in [*reversed(DOUBTS), *FATES]:
        if sure.get(name) or name == "missing":
            tone = {"missing": BAD, "uncertain": UNSURE}.get(name, "")
            columns.append((name.replace("_", "-").capitalize(), told(name, words.number, tone), True))
    return listing("The books of each queue", found, columns, queues, stay=("Missing",))


def _doubtful_windows(books: DataFrame, section: Section) -> None:
    if "uncertain" not in books.columns:
        return
    names = Names(books)
    doubtful = sums(books.where(F.col("uncertain") > 0), ["window", *names.keys, "queue"], ["uncertain"])
    found = rows(doubtful, [F.col("window"), F.col("queue")])
    if found:
        columns: list[Column] = [
            ("Queue", names.of("queue"), False),
            ("From", when("window"), False),
            ("Uncertain", told("uncertain", words.number, UNSURE), True),
        ]
        section.parts.append(listing("Gaps: what was not recorded", found, columns, doubtful))
