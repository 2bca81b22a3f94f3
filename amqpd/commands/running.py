"""How commands speak with a broker that runs: what only it knows (connections, depths), and what only it can do.

What comes in: a data directory, a command of the control socket, its arguments. What goes out: the result or the
rows; or one sentence, when no broker runs there.
Rules: rows come in no order, and are sorted here, so that two runs can be compared.
Not here: the socket (`amqpd/management/control/socket.py`), what changes metadata and needs no broker
(`metadata.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from amqpd.commands.options import broker_option, json_option
from amqpd.commands.refusals import refusals
from amqpd.commands.tables import show
from amqpd.datadir.lock import holder_of
from amqpd.management.control import socket as control
from amqpd.vocabulary.escapes import escaped

# A busy broker answers between two ticks; a minute is for one that closes its 65,536 connections.
ANSWER_TIMEOUT_S = 60.0


def ask(
    broker: control.Place, command: str, arguments: dict[str, Any], timeout_s: float = ANSWER_TIMEOUT_S
) -> dict[str, Any]:
    """Raises ClickException when no broker runs, or when it refuses."""
    with refusals():
        result = control.call(broker, command, arguments, timeout_s)
    if result is None:
        raise _nobody(broker)
    return result


def ask_rows(
    broker: control.Place,
    command: str,
    arguments: dict[str, Any],
    order: Sequence[str],
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> list[dict[str, Any]]:
    """The rows of a listing, sorted by the members that `order` names. Raises as `ask`."""
    return ask_listing(broker, command, arguments, order, timeout_s)[0]


def ask_listing(
    broker: control.Place,
    command: str,
    arguments: dict[str, Any],
    order: Sequence[str],
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> tuple[list[dict[str, Any]], bool]:
    """As `ask_rows`, and whether the rows are those of a cluster's nodes, each with its `node`. Nodes whose rows are
    missing are named on standard error."""
    with refusals():
        found = control.listing(broker, command, arguments, timeout_s)
    if found is None:
        raise _nobody(broker)
    rows, said = found
    missing: dict[str, str] | None = said.get("nodes_missing")
    note_missing(f"not in this list: {command.split()[0]}s of", missing or {})
    return sorted(rows, key=lambda row: [row[name] for name in order]), missing is not None


def note_missing(what: str, missing: Mapping[str, str]) -> None:
    """A line on standard error for each node that did not answer. `missing`: what is known of it."""
    for node, why in sorted(missing.items()):
        click.echo(escaped(f"({what} node {node}, which {why})"), err=True)


def ask_each(broker: control.Place, command: str, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of an answer that may be larger than memory, as they come. Raises as `ask`."""
    with refusals():
        rows = control.each_row(broker, command, arguments, ANSWER_TIMEOUT_S)
        if rows is None:
            raise _nobody(broker)
        yield from rows


def listing(
    of: str, help_text: str, columns: Sequence[str], order: Sequence[str], *, by_user: bool = False
) -> click.Command:
    """A command `list` that shows the rows of `<of> list`, in a cluster with their node; --json has members beyond
    the columns."""

    def run(as_json: bool, broker: control.Place, **filters: str | None) -> None:
        rows, of_nodes = ask_listing(broker, f"{of} list", filters, order)
        show(rows, ("node", *columns) if of_nodes else columns, as_json)

    command: Callable[..., None] = broker_option(json_option(run))
    if by_user:
        command = click.option("--user", help="Only of this user.")(command)
    return click.command("list", help=help_text)(click.option("--vhost", help="Only in this virtual host.")(command))


class NobodyThere(click.ClickException):
    """No broker runs on the data directory."""


def _nobody(broker: control.Place) -> NobodyThere:
    if isinstance(broker, Path) and (holder := holder_of(broker)) is not None:
        process, doing = holder
        return NobodyThere(
            f"the broker on {broker} (process {process}) does not answer commands now: "
            + escaped(doing or "it is used by a command, or begins or ends")
        )
    return NobodyThere(
        f"no broker runs on {broker}: name its data directory with --data-dir, or start it (amqpd serve)"
    )
