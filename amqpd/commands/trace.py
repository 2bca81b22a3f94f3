"""`amqpd trace`: RabbitMQ's firehose, copies of all messages that clients publish and get in a virtual host.

What comes in: a virtual host. What goes out: tracing turned on and off in the running broker; a list.
Rules: it is not kept over a restart, as in RabbitMQ.
Not here: the copies (`amqpd/publishing/firehose.py`).
"""

from __future__ import annotations

import click

from amqpd.commands.declaring import vhost_option
from amqpd.commands.options import broker_option, json_option
from amqpd.commands.running import ask, ask_rows
from amqpd.commands.tables import show
from amqpd.management.control.socket import Place


@click.group()
def trace() -> None:
    """Copy all messages of a virtual host to an exchange, to see them.

    While it is on, everything that clients publish in the virtual host goes to the exchange amq.rabbitmq.trace too,
    with the routing key publish.EXCHANGE, and everything that is delivered to them with deliver.QUEUE; headers say
    whose it was. It costs as much as the messages themselves; copies that cannot be made in time are dropped.

    \b
    Example: bind a queue to amq.rabbitmq.trace with the key '#', then
      amqpd trace on --vhost orders
      amqpd trace list
      amqpd trace off --vhost orders
    """


@trace.command()
@vhost_option
@broker_option
def on(vhost: str, broker: Place) -> None:
    """Copy messages from now on.

    \b
    Example:
      amqpd trace on
    """
    new = ask(broker, "trace on", {"vhost": vhost})["new"]
    click.echo(f"the virtual host {vhost} is traced" + ("" if new else " already"))


@trace.command()
@vhost_option
@broker_option
def off(vhost: str, broker: Place) -> None:
    """Copy no messages any more.

    \b
    Example:
      amqpd trace off
    """
    was_on = ask(broker, "trace off", {"vhost": vhost})["was_on"]
    click.echo(f"the virtual host {vhost} is not traced" + (" any more" if was_on else ""))


@trace.command("list")
@json_option
@broker_option
def list_traces(as_json: bool, broker: Place) -> None:
    """List the virtual hosts that are traced, and how many messages were copied and dropped.

    \b
    Example:
      amqpd trace list --json
    """
    show(ask_rows(broker, "trace list", {}, ("vhost",)), ("vhost", "traced", "dropped"), as_json)
