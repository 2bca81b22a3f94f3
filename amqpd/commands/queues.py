"""`amqpd queue`, `exchange` and `binding`: what a running broker has, and what is in it.

What comes in: filters. What goes out: lists, of durable things and of transient ones.
Rules: lists ask the running broker, because only it knows depths, consumers, and what is not durable.
Not here: making and deleting them from a file (`definitions.py`).
"""

from __future__ import annotations

import click

from amqpd.commands.running import listing


@click.group()
def queue() -> None:
    """List the queues of a running broker.

    \b
    Example:
      amqpd queue list --vhost orders
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
