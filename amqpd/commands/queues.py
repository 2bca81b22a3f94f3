"""`amqpd queue`, `exchange` and `binding`: what a running broker has, and what is in it.

What comes in: filters. What goes out: lists, of durable things and of transient ones.
Rules: lists ask the running broker, because only it knows depths, consumers, and what is not durable.
Not here: making and deleting them from a file (`definitions.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from amqpd.commands.metadata import data_dir_option, json_option, safe
from amqpd.commands.running import ask_rows, listing


@click.group()
def queue() -> None:
    """List the queues of a running broker, and show what one of them has been doing.

    \b
    Examples:
      amqpd queue list --vhost orders
      amqpd queue show / jobs
    """


queue.add_command(
    listing(
        "queue",
        """List queues: messages that are ready, messages that are not acknowledged, consumers.

        \b
        Examples:
          amqpd queue list --vhost orders
          amqpd queue list --json
        """,
        ("vhost", "name", "type", "durable", "messages_ready", "messages_unacknowledged", "consumers"),
        ("vhost", "name"),
    )
)


@queue.command("show")
@click.argument("vhost")
@click.argument("name")
@json_option
@data_dir_option
def show_queue(vhost: str, name: str, as_json: bool, data_dir: Path) -> None:
    """Show what is in the queue NAME of VHOST, how old it is, how fast it comes and goes, and how it left.

    Rates are messages a second over the last seconds. Totals count from the start of the broker, or of the
    queue: accepted messages are in the queue still, or left it acknowledged (acked), rejected, expired,
    dropped over the length limit, over the delivery limit, or purged. consumer_utilisation is the share of
    the time in which consumers could take at once what was ready. time_in_queue_ms counts messages by how
    long they waited for their delivery, up to so many milliseconds.

    \b
    Examples:
      amqpd queue show / jobs
      amqpd queue show / jobs --json
    """
    rows = ask_rows(data_dir, "queue list", {"vhost": vhost, "name": name}, ("name",))
    if not rows:
        raise click.ClickException(f"there is no queue '{name}' in virtual host '{vhost}'")
    if as_json:
        click.echo(json.dumps(rows[0], indent=2, ensure_ascii=False))
        return
    times = rows[0]["time_in_queue_ms"]
    row = {**rows[0], "time_in_queue_ms": {_up_to(bound): count for bound, count in times.items() if count}}
    width = max(map(len, row))
    for member, value in row.items():
        click.echo(f"{member:{width}}  {_described(value)}")


def _up_to(bound: str) -> str:
    return f"up to {int(bound):,}:" if bound.isdigit() else "more:"


def _described(value: Any) -> str:
    if isinstance(value, dict) and all(isinstance(each, int | float) for each in value.values()):
        return ", ".join(f"{name} {number:,}" for name, number in value.items()) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


@click.group()
def exchange() -> None:
    """List the exchanges of a running broker.

    \b
    Example:
      amqpd exchange list --vhost orders
    """


exchange.add_command(
    listing(
        "exchange",
        """List exchanges: their types and flags. (The default exchange, of every virtual host, is not in the list.)

        \b
        Examples:
          amqpd exchange list --vhost orders
          amqpd exchange list --json
        """,
        ("vhost", "name", "type", "durable", "auto_delete", "internal"),
        ("vhost", "name"),
    )
)


@click.group()
def binding() -> None:
    """List the bindings of a running broker.

    \b
    Example:
      amqpd binding list --vhost orders
    """


binding.add_command(
    listing(
        "binding",
        """List bindings. (Every queue's binding to the default exchange by its name is not in the list.)

        \b
        Examples:
          amqpd binding list --vhost orders
          amqpd binding list --json
        """,
        ("vhost", "source", "destination_type", "destination", "routing_key", "durable"),
        ("vhost", "source", "destination_type", "destination", "routing_key"),
    )
)
