"""`amqpd queue purge` and `queue delete` for many queues at once.

What comes in: which queues are meant. What goes out: what would be done, a question, what was done.
Rules: 1. What was shown is what is done: the queues are named to the broker then. 2. Nothing is done without --yes or
the answer to a question at a terminal. 3. Some lines are shown and the rest is counted; what was refused is said,
and the exit code is 1 then.
Not here: finding and doing it (`amqpd/management/across_nodes/many_queues.py`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from amqpd.commands.running import ask_each
from amqpd.commands.tables import table
from amqpd.management.control.socket import Place
from amqpd.vocabulary.escapes import escaped, readable_json

LINES_MAX = 20
"""of queues, and of refusals, without --full"""
NAMES_CHARACTERS_MAX = 100_000
"""of one command: over HTTP its body has a bound"""
DONE = {"purge": "purged", "delete": "deleted"}

Row = dict[str, Any]


@dataclass(frozen=True)
class QueuesRequest:
    """The options of one `amqpd queue purge` or `queue delete` for many queues."""

    act: str
    vhost: str | None
    matching: str | None
    only: Sequence[str]
    dry_run: bool
    yes: bool
    full: bool
    as_json: bool


def carry_out(broker: Place, request: QueuesRequest) -> None:
    """Shows which queues are meant, asks, and does it. Raises ClickException."""
    meant = {"vhost": request.vhost, "matching": request.matching, "only": list(request.only)}
    found = list(ask_each(broker, f"queues {request.act}", {**meant, "yes": False}))
    if request.dry_run and request.as_json:
        click.echo(readable_json(found, 2))
        return
    if not request.as_json:
        _show(found, request)
    if not found:
        return
    if request.dry_run:
        click.echo(f"{_counted(found)} would be {DONE[request.act]}")
        return
    if not request.yes:
        _confirm(found, request)
    done: list[Row] = []
    for names in _in_parts(found):
        done += ask_each(broker, f"queues {request.act}", {**meant, "names": names, "yes": True})
    _account(done, request)


def _in_parts(found: Sequence[Row]) -> Iterator[list[list[str]]]:
    names, characters = list[list[str]](), 0
    for row in found:
        names.append([row["vhost"], row["name"]])
        characters += len(json.dumps(names[-1]))
        if characters >= NAMES_CHARACTERS_MAX:
            yield names
            names, characters = [], 0
    if names:
        yield names


def _show(found: Sequence[Row], request: QueuesRequest) -> None:
    if not found:
        click.echo("no queue is meant: nothing to do")
        return
    shown = found if request.full else found[:LINES_MAX]
    rows = [{**row, "messages": _number(row["messages"])} for row in shown]
    for line in table(rows, ("vhost", "name", "messages")):
        click.echo(line)
    if len(found) > len(shown):
        click.echo(f"and {len(found) - len(shown):,} more; --full shows all")


def _confirm(found: Sequence[Row], request: QueuesRequest) -> None:
    what = f"{request.act} {_counted(found)}"
    if request.as_json or not sys.stdin.isatty():
        raise click.ClickException(f"nothing was done: --yes is needed to {what}, and --dry-run only shows them")
    click.confirm(f"{what}?", abort=True)


def _account(done: Sequence[Row], request: QueuesRequest) -> None:
    refused = [row for row in done if row["refused"] is not None]
    if request.as_json:
        click.echo(readable_json(done, 2))
    else:
        click.echo(f"{DONE[request.act]} {_counted([row for row in done if row['refused'] is None])}")
        shown = refused if request.full else refused[:LINES_MAX]
        for row in shown:
            click.echo(escaped(f"! '{row['name']}' in virtual host '{row['vhost']}': {row['refused']}"), err=True)
        if len(refused) > len(shown):
            click.echo(f"! and {len(refused) - len(shown):,} more; --full shows all", err=True)
    if refused:
        count = len(refused)
        were = "1 queue was" if count == 1 else f"{count:,} queues were"
        raise click.ClickException(f"{were} not {DONE[request.act]}, for the reasons above")


def _counted(rows: Sequence[Row]) -> str:
    """As in "3 queues with 1,200 ready messages"."""
    known = sum(row["messages"] or 0 for row in rows)
    unknown = sum(row["messages"] is None for row in rows)
    queues = "1 queue" if len(rows) == 1 else f"{len(rows):,} queues"
    messages = "1 ready message" if known == 1 else f"{known:,} ready messages"
    more = f", and what is in the {unknown:,} whose leader does not answer" if unknown else ""
    return f"{queues} with {messages}{more}"


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"
