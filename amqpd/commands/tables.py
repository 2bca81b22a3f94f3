"""Rows as people and programs read them.

What comes in: rows, as use cases return them, and the columns to show. What goes out: aligned columns, or JSON.
Not here: what is in the rows (`amqpd/management/`).
"""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import click

from amqpd.vocabulary.escapes import escaped, readable_json

Rows = Sequence[Mapping[str, Any]]


SHORTENED_MIN = 12
"""characters that are left of a value which is shortened"""
CUT = "..."
BETWEEN = "  "


def show(rows: Rows, columns: Sequence[str], as_json: bool, shorten: Sequence[str] = ()) -> None:
    """Rows as aligned columns for people, or as JSON. Of the columns `shorten` a terminal shows what fits into it."""
    if as_json:
        click.echo(readable_json(rows, 2))
        return
    width = shutil.get_terminal_size().columns if shorten and sys.stdout.isatty() else None
    for line in table(rows, columns, width, shorten):
        click.echo(line)


def table(rows: Rows, columns: Sequence[str], width_max: int | None = None, shorten: Sequence[str] = ()) -> list[str]:
    """A line of headings, and one for each row; with `width_max` not longer than that, as far as it helps to shorten
    these columns."""
    cells = [tuple(columns), *(tuple(_shown(row[column]) for column in columns) for row in rows)]
    widths = [max(_width(line[at]) for line in cells) for at in range(len(columns))]
    if width_max is not None:
        over = sum(widths) + len(BETWEEN) * (len(widths) - 1) - width_max
        _narrow(widths, [columns.index(each) for each in shorten if each in columns], over)
    return [
        BETWEEN.join(_fitted(cell, width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _narrow(widths: list[int], which: Sequence[int], over: int) -> None:
    """Takes from the widest of these, one character after the other."""
    while over > 0 and which:
        widest = max(which, key=lambda at: widths[at])
        if widths[widest] <= SHORTENED_MIN:
            return
        widths[widest] -= 1
        over -= 1


def _fitted(cell: str, width: int) -> str:
    if _width(cell) > width:
        cell = cell[: width - len(CUT)]
        while _width(cell) > width - len(CUT):
            cell = cell[:-1]
        cell += CUT
    return cell + " " * (width - _width(cell))


def json_cells(rows: Rows, column: str, as_json: bool) -> Rows:
    """Rows with a value of JSON in one column: for programs as they are, for people with that value as text."""
    return rows if as_json else [{**row, column: readable_json(row[column])} for row in rows]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return escaped(", ".join(value))
    return escaped(str(value))


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
