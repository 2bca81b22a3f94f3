"""`amqpd connection`, `channel` and `consumer`: who is connected, and with what.

What comes in: filters; which connections to close, and why. What goes out: lists; closed connections.
Rules: 1. Only a running broker has connections. 2. Nothing is closed that was not named: --all has to be said.
Not here: users and what they may do (`users.py`, `permissions.py`).
"""

from __future__ import annotations

import click

from amqpd.commands.options import broker_option, json_option
from amqpd.commands.running import ask, ask_listing, listing, note_missing
from amqpd.commands.tables import show
from amqpd.management.control.socket import Place

COLUMNS = (
    "id",
    "user",
    "vhost",
    "state",
    "channels",
    "tls",
    "peer",
    "client",
    "connected_at",
    "bytes_in",
    "bytes_out",
)


@click.group()
def connection() -> None:
    """List the connections of a running broker, and close them.

    \b
    Examples:
      amqpd connection list
      amqpd connection close --user shop --reason 'new password, log in again'
    """


@connection.command("list")
@click.option("--vhost", help="Only those in this virtual host.")
@click.option("--user", help="Only those of this user.")
@json_option
@broker_option
def list_connections(vhost: str | None, user: str | None, as_json: bool, broker: Place) -> None:
    """List connections: who, from where, since when, how much.

    A client is shown by the connection_name or the product of its client_properties; --json has all of them.
    The state is blocked when it publishes and an alarm is on. In a cluster those of all nodes are listed; a node
    that does not answer is named.

    \b
    Examples:
      amqpd connection list --user shop
      amqpd connection list --json
    """
    order = ("connected_at", "node", "id")
    rows, of_nodes = ask_listing(broker, "connection list", {"vhost": vhost, "user": user}, order)
    if not as_json:
        rows = [{**row, "client": _client(row["client_properties"])} for row in rows]
    show(rows, ("node", *COLUMNS) if of_nodes else COLUMNS, as_json)


@connection.command()
@click.argument("which", metavar="[ID]", required=False)
@click.option("--all", "every", is_flag=True, help="All connections, in a cluster of all nodes.")
@click.option("--user", help="Those of this user.")
@click.option("--vhost", help="Those in this virtual host.")
@click.option("--reason", metavar="TEXT", help="What the client is told.  [default: closed by an operator]")
@broker_option
def close(
    which: str | None, every: bool, user: str | None, vhost: str | None, reason: str | None, broker: Place
) -> None:
    """Close the connection ID (or the one of that name), or those that --user, --vhost or --all say.

    The client gets connection.close with 320 CONNECTION_FORCED - TEXT. Most libraries connect again at once:
    who shall stay out needs another password, or no permissions. In a cluster this is done at all nodes; one
    that does not answer is named, and the exit code is 1.

    \b
    Examples:
      amqpd connection close c17-Vk1lPz0a --reason 'this one is stuck'
      amqpd connection close --user shop --vhost orders
      amqpd connection close --all
    """
    named = user is not None or vhost is not None
    if (which is not None) + named + every != 1:
        raise click.UsageError("say which connections: an ID, or --user and --vhost, or --all")
    request = {"id": which, "user": user, "vhost": vhost, "all": every, "reason": reason}
    done = ask(broker, "connection close", request)
    closed, missing = done["closed"], done["nodes_missing"]
    click.echo(f"closed {closed} connection{'' if closed == 1 else 's'}")
    note_missing("not closed: those of", missing)
    if missing:
        click.get_current_context().exit(1)


@click.group()
def channel() -> None:
    """List the channels of a running broker.

    \b
    Example:
      amqpd channel list --user shop
    """


channel.add_command(
    listing(
        "channel",
        """List channels: consumers, deliveries that are not acknowledged, prefetch, confirm or transaction mode.

        In a cluster those of all nodes are listed; a node that does not answer is named.

        \b
        Examples:
          amqpd channel list --vhost orders
          amqpd channel list --json
        """,
        (
            "connection_id",
            "number",
            "user",
            "vhost",
            "consumer_count",
            "messages_unacknowledged",
            "prefetch_count",
            "global_prefetch_count",
            "confirm",
            "transactional",
        ),
        ("node", "connection_id", "number"),
        by_user=True,
    )
)


@click.group()
def consumer() -> None:
    """List the consumers of a running broker.

    \b
    Example:
      amqpd consumer list --vhost orders
    """


consumer.add_command(
    listing(
        "consumer",
        """List consumers: of which queue, on which connection and channel.

        In a cluster those of all nodes are listed; a node that does not answer is named.

        \b
        Examples:
          amqpd consumer list --vhost orders
          amqpd consumer list --json
        """,
        (
            "vhost",
            "queue",
            "consumer_tag",
            "connection_id",
            "channel",
            "ack_required",
            "exclusive",
            "prefetch_count",
            "messages_unacknowledged",
        ),
        ("vhost", "queue", "node", "connection_id", "channel", "consumer_tag"),
        by_user=True,
    )
)


def _client(properties: dict[str, object]) -> str:
    return str(properties.get("connection_name") or properties.get("product") or "")
