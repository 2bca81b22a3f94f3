"""What each section of the page says, from the tables.

What comes in: `Tables`. What goes out: `Section`s: verdicts, charts, lists; what could not be said, and why.
Rules: 1. A section without its tables says which command makes them. 2. Sums are Spark's; what comes here is a page's
worth of rows.
Not here: the order of the sections and the markup (`page.html.j2`), services and users (`activity.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark.report_page import words
from amqpd_spark.report_page.charts import Chart, Series, bars
from amqpd_spark.report_page.tables import ROWS_FEW, ROWS_MAX, Rows, Tables, coarse, moment, rows, sums

GOOD, BAD, UNSURE, UNKNOWN = "good", "bad", "unsure", "unknown"

# In the order of a message's way; the first group is where messages went, the second what is wrong or not known.
FATES = (
    *("acked", "dead_lettered", "expired", "dropped", "rejected", "purged", "moved", "released"),
    *("transient", "unconfirmed", "standing"),
)
DOUBTS = ("uncertain", "missing")
# Findings that say what cannot be known, and those that say what nobody was promised; all others say what is wrong.
DOUBTFUL_KINDS = ("unrecorded", "confirmed_unpublished", "uncertain", "gap")
HARMLESS_KINDS = ("unconfirmed", "transient")
STEP_S = {"minute": 60, "hour": 3600, "day": 86400, "month": 30 * 86400}


@dataclass(frozen=True)
class Cell:
    """`share`: a bar of that part of the cell, from 0 to 1; `whole`: never broken into lines."""

    text: str
    tone: str = ""
    share: float | None = None
    whole: bool = False


@dataclass(frozen=True)
class Listing:
    """`heads`: of the columns, with whether it has numbers; `more`: what is not shown."""

    caption: str
    heads: list[tuple[str, bool]]
    lines: list[list[Cell]]
    more: str = ""


@dataclass(frozen=True)
class Verdict:
    tone: str
    sentence: str
    section: str


@dataclass
class Section:
    name: str
    title: str
    verdicts: list[Verdict] = field(default_factory=list)
    parts: list[Chart | Listing] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    period: list[datetime] = field(default_factory=list)
    command: str = ""

    def verdict(self, tone: str, sentence: str) -> None:
        self.verdicts.append(Verdict(tone, sentence, self.name))


Column = tuple[str, Callable[[dict[str, Any]], Cell | str], bool]


def listing(caption: str, found: Rows, columns: list[Column], whole: DataFrame | None = None) -> Listing:
    """A line for each row; `columns`: heading, what to write, whether it is a number. `whole`: what the rows are the
    first of; it is counted when there may be more."""
    lines = []
    for row in found:
        cells = [write(row) for _, write, _ in columns]
        lines.append([cell if isinstance(cell, Cell) else Cell(cell) for cell in cells])
    left = whole.count() - len(found) if whole is not None and len(found) in (ROWS_MAX, ROWS_FEW) else 0
    more = f"{left:,} more are in the table." if left > 0 else ""
    return Listing(caption, [(heading, numeric) for heading, _, numeric in columns], lines, more)


def text(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: words.NOTHING if row[name] is None else str(row[name]) or "(empty)"


def when(name: str) -> Callable[[dict[str, Any]], Cell]:
    return lambda row: Cell(words.time(row[name]), whole=True)


def within(name: str, empty: str = "(none)") -> Callable[[dict[str, Any]], str]:
    """A name, with its virtual host where that is not the usual one."""

    def write(row: dict[str, Any]) -> str:
        called = row[name] or empty
        return called if row["vhost"] in ("/", None) else f"{called} in {row['vhost']}"

    return write


def told(name: str, write: Callable[[Any], str], tone: str = "") -> Callable[[dict[str, Any]], Cell]:
    """A figure; the tone is for what is not 0."""
    return lambda row: Cell(write(row[name]), tone if row[name] else "")


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
    if sure["accepted"]:
        section.parts.append(_by_time(books, figures))
        section.parts.append(_by_queue(books, figures, sure))
    _doubtful_windows(books, section)
    return section


def _judge(section: Section, sure: dict[str, Any], kinds: dict[str, int]) -> None:
    missing, uncertain = int(sure["missing"]), int(sure.get("uncertain", 0))
    told_above = ("missing", "uncertain", *HARMLESS_KINDS)
    entered = sure["accepted"] + sure.get("found", 0) + sure.get("unseen", 0)
    accounted = words.number(entered - missing - uncertain)
    if not (entered or kinds):
        section.verdict(UNKNOWN, f"{NO_MESSAGES}: whether any is missing is not known")
    elif missing:
        is_are = "message is" if missing == 1 else "messages are"
        section.verdict(BAD, f"{missing:,} {is_are} missing; {accounted} accounted for")
    elif kinds.get("missing"):
        section.verdict(BAD, f"{kinds['missing']:,} messages are missing")
    else:
        section.verdict(GOOD, f"Nothing is missing: {accounted} messages accounted for")
    if uncertain:
        sentence = f"{uncertain:,} messages cannot be accounted for: their events were not recorded"
        section.verdict(UNSURE, sentence)
    for kind, count in sorted(kinds.items()):
        if kind not in told_above:
            tone = UNSURE if kind in DOUBTFUL_KINDS else BAD
            section.verdict(tone, f"{count:,} {'finding' if count == 1 else 'findings'}: {kind.replace('_', ' ')}")


def _findings(tables: Tables, section: Section) -> dict[str, int]:
    """How many of each kind, a bounded number of kinds."""
    found = tables.table("conservation/findings", "kind", "vhost", "queue", "detail")
    if found is None:
        return {}
    counts = {row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()}
    if counts:
        order = [F.col(name) for name in ("kind", "entered", "vhost", "queue", "first") if name in found.columns]
        known: list[Column] = [
            ("Kind", lambda row: Cell(str(row["kind"]).replace("_", " "), _tone(row["kind"])), False),
            ("Entered", when("entered"), False),
            ("Queue", within("queue", words.NOTHING), False),
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


def _by_time(books: DataFrame, figures: list[str]) -> Chart:
    cut, step = coarse(books, "window", whole=True)
    other = [name for name in figures if name not in ("acked", "standing", *DOUBTS)]
    parts = {"acknowledged": ["acked"], "standing": ["standing"], "ended otherwise": other}
    parts["uncertain or missing"] = list(DOUBTS)
    found = rows(sums(cut, ["window"], figures), [F.col("window")], 2000)
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
    return bars("What became of messages", says, series, words.number, STEP_S[step], marks)


def _by_queue(books: DataFrame, figures: list[str], sure: dict[str, Any]) -> Listing:
    queues = sums(books, ["vhost", "queue"], ["accepted", *figures])
    order = [F.desc(name) for name in ("missing", "uncertain", "accepted") if name in queues.columns]
    found = rows(queues, [*order, F.col("vhost"), F.col("queue")])
    most = max((row["accepted"] for row in found), default=0) or 1
    columns: list[Column] = [
        ("Queue", within("queue"), False),
        ("Accepted", lambda row: Cell(words.number(row["accepted"]), "", row["accepted"] / most), True),
    ]
    # What is wrong first: a phone shows some columns, and the rest after a swipe.
    for name in [*reversed(DOUBTS), *FATES]:
        if sure.get(name) or name in ("acked", "missing"):
            tone = {"missing": BAD, "uncertain": UNSURE}.get(name, "")
            columns.append((name.replace("_", "-").capitalize(), told(name, words.number, tone), True))
    return listing("The books of each queue", found, columns, queues)


def _doubtful_windows(books: DataFrame, section: Section) -> None:
    if "uncertain" not in books.columns:
        return
    doubtful = sums(books.where(F.col("uncertain") > 0), ["window", "vhost", "queue"], ["uncertain"])
    found = rows(doubtful, [F.col("window"), F.col("queue")])
    if found:
        columns: list[Column] = [
            ("From", when("window"), False),
            ("Queue", within("queue"), False),
            ("Uncertain", told("uncertain", words.number, UNSURE), True),
        ]
        section.parts.append(listing("Gaps: what was not recorded", found, columns))
