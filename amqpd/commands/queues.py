"""`amqpd queue`, `exchange` and `binding`: what a running broker has, and what is in it.

What comes in: filters. What goes out: lists, of durable things and of transient ones.
Rules: lists ask the running broker, because only it knows depths, consumers, and what is not durable.
Not here: making and deleting them from a file (`definitions.py`).
"""

from __future__ import annotations

from typing import Any

import click

from amqpd.commands.options import broker_option, json_option
from amqpd.commands.queue_picture import counted, picture
from amqpd.commands.running import ask, ask_rows, listing
from amqpd.commands.tables import show
from amqpd.management.control.socket import Place
from amqpd.vocabulary.escapes import escaped, readable_json

DEFAULT_COLUMNS = "vhost,name,type,policy,ready,unacked,oldest,in,out,consumers"
# Short names of what is asked for most; the others are paths into a row of --json.
SHORT = {
    "ready": "messages_ready",
    "unacked": "messages_unacknowledged",
    "bytes": "message_bytes",
    "oldest": "oldest_message_age_s",
    "in": "message_stats.publish_details.rate",
    "out": "message_stats.deliver_get_details.rate",
    "acks": "message_stats.ack_details.rate",
    "capacity": "consumer_capacity",
}


@click.group()
def queue() -> None:
    """List the queues of a running broker, and show what one of them has been doing.

    \b
    Examples:
      amqpd queue list --vhost orders
      amqpd queue show jobs
      amqpd queue why jobs
    """


@queue.command("list")
@click.option("--vhost", help="Only in this virtual host.")
@click.option(
    "--columns", default=DEFAULT_COLUMNS, show_default=True, metavar="A,B,...", help="What to show of each queue."
)
@json_option
@broker_option
def list_queues(vhost: str | None, columns: str, as_json: bool, broker: Place) -> None:
    """List queues: how much is in them and for how long, how fast it comes and goes, who consumes.

    A column is a member of what --json prints, with dots for members of members, or one of the short names
    ready, unacked, bytes, oldest (seconds), in, out, acks (messages a second, over the last seconds), and
    capacity (the share of that time in which consumers could take at once what was ready).

    \b
    Examples:
      amqpd queue list --vhost orders
      amqpd queue list --columns name,messages,capacity,totals.expired
      amqpd queue list --json
    """
    rows = ask_rows(broker, "queue list", {"vhost": vhost}, ("vhost", "name"))
    names = [name.strip() for name in columns.split(",") if name.strip()]
    shown = [{name: _cell(row, name) for name in names} for row in rows] if not as_json else rows
    show(shown, names, as_json)


def _cell(row: dict[str, Any], column: str) -> Any:
    value: Any = row
    for member in SHORT.get(column, column).split("."):
        if not isinstance(value, dict) or member not in value:
            raise click.BadParameter(
                f"there is no column '{column}': there are {', '.join([*SHORT, *row])}", param_hint="'--columns'"
            )
        value = value[member]
    if value is None:
        return ""
    return readable_json(value) if isinstance(value, dict | list) else value


@queue.command("show")
@click.argument("name")
@click.option("--vhost", default="/", show_default=True, help="The queue's virtual host.")
@json_option
@broker_option
def show_queue(name: str, vhost: str, as_json: bool, broker: Place) -> None:
    """Show what is in the queue NAME, how old it is, how fast it comes and goes, how it left, and who consumes.

    Rates are messages a second over the last seconds, and so is the consumers' capacity: the share of the time
    in which they could take at once what was ready. Totals count from the start of the broker, or of the
    queue: accepted messages are in the queue still, or left it acknowledged (acked), rejected, expired,
    dropped over the length limit, over the delivery limit, purged, or withdrawn by amqpd message.

    \b
    Examples:
      amqpd queue show jobs
      amqpd queue show jobs --vhost orders --json
    """
    rows = ask_rows(broker, "queue list", {"vhost": vhost, "name": name}, ("name",))
    if not rows:
        raise click.ClickException(f"there is no queue '{name}' in virtual host '{vhost}'")
    wish = {"vhost": vhost, "queue": name}
    consumers = ask_rows(broker, "consumer list", wish, ("connection_id", "channel", "consumer_tag"))
    if as_json:
        click.echo(readable_json({**rows[0], "consumer_details": consumers}, 2))
    else:
        click.echo(picture(rows[0], consumers))


@queue.command("why")
@click.argument("name")
@click.option("--vhost", default="/", show_default=True, help="The queue's virtual host.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, for programs.")
@broker_option
def why_queue(name: str, vhost: str, as_json: bool, broker: Place) -> None:
    """Say in words why the queue NAME is as it is: what waits, for whom, what was lost.

    \b
    Examples:
      amqpd queue why jobs
      amqpd queue why jobs --vhost orders
    """
    found = ask(broker, "queue why", {"vhost": vhost, "name": name})
    click.echo(readable_json(found) if as_json else "\n".join(map(escaped, found["why"])))


@click.group()
def exchange() -> None:
    """List the exchanges of a running broker.

    \b
    Example:
      amqpd exchange list --vhost orders
    """


@exchange.command("list")
@click.option("--vhost", help="Only in this virtual host.")
@json_option
@broker_option
def list_exchanges(vhost: str | None, as_json: bool, broker: Place) -> None:
    """List exchanges: types and flags, and how many messages reached no queue.

    Such a message is returned (it was mandatory), dropped, nacked, or rerouted, by the policy unroutable.
    The default exchange, of every virtual host, is not in the list; amqpd status counts it in.

    \b
    Examples:
      amqpd exchange list --vhost orders
      amqpd exchange list --json
    """
    rows = ask_rows(broker, "exchange list", {"vhost": vhost}, ("vhost", "name"))
    if not as_json:
        rows = [{**row, "unroutable": counted(row["unroutable"])} for row in rows]
    show(rows, ("vhost", "name", "type", "durable", "auto_delete", "internal", "unroutable"), as_json)


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
