"""What `amqpd ctl` prints: as rabbitmqctl does, so that what reads rabbitmqctl's output reads ours.

What comes in: sentences, rows of values. What goes out: text on standard output, in one of rabbitmqctl's formats.
Rules: 1. A sentence is left out with --quiet and --silent, and for csv and json. 2. Headings are left out with
--silent and --no-table-headers, and when there are no rows. 3. A value is written as Erlang would: `[a, b]`, `true`.
Not here: what is in the rows.

Source: what rabbitmqctl 3.10 prints; https://www.rabbitmq.com/docs/man/rabbitmqctl.8.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from amqpd.commands.tables import table
from amqpd.vocabulary.escapes import escaped

FORMATTERS = ("table", "json", "csv", "pretty_table", "erlang")
Row = Mapping[str, Any]


class Tags(list[str]):
    """A list of words: written as `[a, b]`, where that of other values is `["a","b"]`."""


class Arguments(dict[str, Any]):
    """A field table among the values that `amqpd ctl` prints."""


class Document(dict[str, Any]):
    """An object that is written as JSON in every format."""


@dataclass(frozen=True)
class CtlOutput:
    """Prints the output of one `amqpd ctl` command, in the format that its options ask for."""

    quiet: bool
    silent: bool
    formatter: str
    headers: bool

    def sentence(self, text: str) -> None:
        if not (self.quiet or self.silent or self.formatter in ("json", "csv")):
            click.echo(text)

    @property
    def as_json(self) -> bool:
        return self.formatter == "json"

    def result(self, text: str) -> None:
        """What was asked for, whatever is quiet."""
        click.echo(text)

    def object(self, value: Row) -> None:
        """The one thing that was asked for, where the format is JSON."""
        click.echo(compact(value))

    def rows(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        shown = [[row[column] for column in columns] for row in rows]
        if self.formatter == "json":
            lines = (compact(dict(zip(columns, map(_json, row), strict=True))) for row in shown)
            click.echo("[\n" + "\n,".join(lines) + "\n]")
        elif self.formatter == "csv":
            click.echo(_csv([list(columns), *shown] if self.headers else shown), nl=False)
        elif self.formatter == "pretty_table" and shown:
            for line in table([dict(zip(columns, map(term, row), strict=True)) for row in shown], columns):
                click.echo(line)
        else:
            if shown and self.headers and not self.silent:
                click.echo("\t".join(columns))
            for row in shown:
                click.echo("\t".join(escaped(term(value)) for value in row))


def term(value: Any) -> str:
    """A value in a column of a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Tags):
        return "[" + ", ".join(value) + "]"
    if isinstance(value, Document):
        return compact(value)
    if isinstance(value, dict | list):
        return _nested(value)
    return str(value)


def _nested(value: Any) -> str:
    if isinstance(value, dict):
        return "[" + ",".join(f'{{"{name}",{_nested(each)}}}' for name, each in value.items()) + "]"
    if isinstance(value, list):
        return "[" + ",".join(map(_nested, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return term(value)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _json(value: Any) -> Any:
    if isinstance(value, Arguments):
        return [[name, _type_of(each), _json(each)] for name, each in value.items()]
    if isinstance(value, Document):
        return compact(value)
    return "" if value is None else value


def _type_of(value: Any) -> str:
    """The type of a field that was probably declared so: a row has no types."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
    names: dict[type, str] = {float: "double", list: "array", dict: "table", type(None): "void"}
    return names.get(type(value), "longstr")


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for row in rows:
        writer.writerow(
            [each if isinstance(each, int) and not isinstance(each, bool) else term(each) for each in row]
        )
    return text.getvalue()
