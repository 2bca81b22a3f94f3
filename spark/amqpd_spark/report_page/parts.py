"""What a section of the page is made of: verdicts, charts, lists.

What comes in: rows of a table, and what to write of each. What goes out: `Section`, `Listing`, `Cell`.
Rules: 1. A count of 0 is a dash, and a column of dashes is left out: what happened is to be seen among what did not.
2. The first column stays where it is when a list is wider than the window, so it says what a line is about.
Not here: what each section says (`sections.py`, `activity.py`), the markup (`page.html.j2`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame

from amqpd_spark.report_page import words
from amqpd_spark.report_page.charts import Chart
from amqpd_spark.report_page.tables import ROWS_FEW, ROWS_MAX, Rows

GOOD, BAD, UNSURE, UNKNOWN = "good", "bad", "unsure", "unknown"
# Of these 0 is nothing; of a time or a share it is a figure.
_COUNTS = (words.number, words.octets)


@dataclass(frozen=True)
class Cell:
    """`share`: a bar of that part of the cell, from 0 to 1; `whole`: never broken into lines; `where`: in small,
    below."""

    text: str
    tone: str = ""
    share: float | None = None
    whole: bool = False
    where: str = ""


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


def listing(
    caption: str,
    found: Rows,
    columns: list[Column],
    whole: DataFrame | None = None,
    stay: Collection[str] = (),
) -> Listing:
    """A line for each row; `columns`: heading, what to write, whether it is a number. `whole`: what the rows are the
    first of; it is counted when there may be more. `stay`: headings of columns that are shown whatever they have."""
    left = whole.count() - len(found) if whole is not None and len(found) in (ROWS_MAX, ROWS_FEW) else 0
    written = {heading: [_cell(write(row)) for row in found] for heading, write, _ in columns}
    shown = [
        (heading, numeric)
        for heading, _, numeric in columns
        # What is not shown may have something there.
        if not numeric or left > 0 or heading in stay or any(cell.text != words.NOTHING for cell in written[heading])
    ]
    lines = [list(line) for line in zip(*(written[heading] for heading, _ in shown), strict=True)]
    return Listing(caption, shown, lines, f"{left:,} more are in the table." if left > 0 else "")


def _cell(written: Cell | str) -> Cell:
    return written if isinstance(written, Cell) else Cell(written)


def text(name: str, empty: str = "(empty)") -> Callable[[dict[str, Any]], str]:
    return lambda row: words.NOTHING if row[name] is None else str(row[name]) or empty


def when(name: str) -> Callable[[dict[str, Any]], Cell]:
    return lambda row: Cell(words.time(row[name]), whole=True)


def told(name: str, write: Callable[[Any], str], tone: str = "") -> Callable[[dict[str, Any]], Cell]:
    """A figure; the tone is for what is not 0."""

    def cell(row: dict[str, Any]) -> Cell:
        nothing = not row[name] and write in _COUNTS
        return Cell(words.NOTHING if nothing else write(row[name]), tone if row[name] else "")

    return cell


def count(name: str, most: float, write: Callable[[Any], str] = words.number) -> Callable[[dict[str, Any]], Cell]:
    """A figure with a bar, which is full at `most`."""
    return lambda row: Cell(write(row[name]), "", (row[name] or 0) / most) if row[name] else Cell(words.NOTHING)
