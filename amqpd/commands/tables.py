"""Rows as people and programs read them.

What comes in: rows, as use cases return them, and the columns to show. What goes out: aligned columns, or JSON.
Not here: what is in the rows (`amqpd/management/`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import click

from amqpd.vocabulary.escapes import escaped, readable_json

Rows = Sequence[Mapping[str, Any]]


def show(rows: Rows, columns: Sequence[str], as_json: bool) -> None:
    """Rows as aligned columns for people, or as JSON."""
    if as_json:
        click.echo(readable_json(rows, 2))
        return
    for line in table(rows, columns):
        click.echo(line)


def table(rows: Rows, columns: Sequence[str]) -> list[str]:
    """A line of headings, and one for each row."""
    cells = [tuple(columns), *(tuple(_shown(row[column]) for column in columns) for row in rows)]
    widths = [max(_width(line[at]) for line in cells) for at in range(len(columns))]
    return [
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


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
