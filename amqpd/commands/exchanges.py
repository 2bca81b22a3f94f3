"""`amqpd exchange` and `amqpd binding`: what a running broker routes by, declared and deleted.

What comes in: names, filters, properties. What goes out: lists, of durable things and of transient ones; what was
done.
Rules: the running broker is asked, because only it knows what is not durable, and what reached no queue.
Not here: making and deleting them from a file (`definitions.py`).
"""

from __future__ import annotations

from typing import Any

import click

from amqpd.commands.declaring import (
    arguments_of,
    arguments_options,
    ask_to_declare,
    auto_delete_option,
    durable_option,
    say,
    vhost_option,
)
from amqpd.commands.options import broker_option, json_option, together
from amqpd.commands.queue_picture import counted
from amqpd.commands.running import ask, ask_rows, listing
from amqpd.commands.tables import show, table
from amqpd.management.control.socket import Place
from amqpd.vocabulary.escapes import escaped, readable_json

ENDS = ("source", "destination_type", "destination", "routing_key", "arguments")

Row = dict[str, Any]


@click.group()
def exchange() -> None:
    """See the exchanges of a running broker and what they could not route; declare and delete them.

    \b
    Examples:
      amqpd exchange list --vhost orders
      amqpd exchange declare orders --type topic
      amqpd exchange show orders
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


@exchange.command("show")
@click.argument("name")
@vhost_option
@json_option
@broker_option
def show_exchange(name: str, vhost: str, as_json: bool, broker: Place) -> None:
    """Show the exchange NAME: its properties, what it could not route, and what is bound to it.

    \b
    Examples:
      amqpd exchange show orders
      amqpd exchange show orders --vhost shop --json
    """
    found = [row for row in ask_rows(broker, "exchange list", {"vhost": vhost}, ("name",)) if row["name"] == name]
    if not found:
        raise click.ClickException(f"there is no exchange '{name}' in virtual host '{vhost}'")
    order = ("source", "destination_type", "destination", "routing_key")
    bindings = ask_rows(broker, "binding list", {"vhost": vhost}, order)
    leaving = [row for row in bindings if row["source"] == name]
    arriving = [row for row in bindings if (row["destination_type"], row["destination"]) == ("exchange", name)]
    if as_json:
        click.echo(readable_json({**found[0], "bindings_from": leaving, "bindings_to": arriving}, 2))
    else:
        click.echo("\n".join(_picture(found[0], leaving, arriving)))


def _picture(row: Row, leaving: list[Row], arriving: list[Row]) -> list[str]:
    flags = [each for each in ("durable", "auto_delete", "internal") if row[each]]
    lines = [
        ("exchange", f"{row['name']} in {row['vhost']} ({', '.join([row['type'], *flags])})"),
        ("arguments", readable_json(row["arguments"]) if row["arguments"] else ""),
        ("unroutable", counted(row["unroutable"]) or "none"),
    ]
    text = [f"{name:10}  {escaped(value)}" for name, value in lines if value]
    for title, bindings in (("its messages go to:", leaving), ("it gets the messages of:", arriving)):
        if bindings:
            rows = [{**each, "arguments": readable_json(each["arguments"] or {})} for each in bindings]
            text += ["", title, *(f"  {line}" for line in table(rows, ENDS))]
    return text if leaving else [*text, "", "nothing is bound to it: what is published to it reaches no queue"]


@exchange.command()
@click.argument("name")
@vhost_option
@click.option(
    "--type", "kind", default="direct", show_default=True, metavar="TYPE", help="direct, fanout, topic, headers, ..."
)
@durable_option
@auto_delete_option
@click.option("--internal", is_flag=True, help="Only other exchanges can publish to it.")
@arguments_options
@broker_option
def declare(broker: Place, kind: str, **properties: Any) -> None:
    """Make the exchange NAME, if it is not there.

    One that is there stays as it is: it is refused when it has other properties than those asked for.

    \b
    Examples:
      amqpd exchange declare orders --type topic
      amqpd exchange declare later --type x-delayed-message --argument x-delayed-type=direct
      amqpd exchange declare orders --argument alternate-exchange=unrouted
    """
    ask_to_declare(broker, "exchange", more={}, type=kind, **properties)


@exchange.command()
@click.argument("name")
@vhost_option
@click.option("--if-unused", is_flag=True, help="Not if something is bound to it.")
@broker_option
def delete(name: str, vhost: str, if_unused: bool, broker: Place) -> None:
    """Delete the exchange NAME with its bindings. What is published to it from then on is an error.

    \b
    Example:
      amqpd exchange delete orders --if-unused
    """
    ask(broker, "exchange delete", {"vhost": vhost, "name": name, "if_unused": if_unused})
    say("deleted", "exchange", name, vhost)


@click.group()
def binding() -> None:
    """See the bindings of a running broker, make and delete them.

    \b
    Examples:
      amqpd binding list --vhost orders
      amqpd binding declare --source orders --destination jobs --routing-key 'order.*'
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


ends = together(
    broker_option,
    vhost_option,
    click.option("--source", required=True, metavar="EXCHANGE", help="The exchange whose messages are meant."),
    click.option("--destination", required=True, metavar="NAME", help="The queue or exchange that gets them."),
    click.option(
        "--destination-type",
        type=click.Choice(("queue", "exchange")),
        default="queue",
        show_default=True,
        help="What the destination is.",
    ),
    click.option("--routing-key", default="", metavar="KEY", help="What it matches; a pattern for some types."),
    arguments_options,
)
"""The options that say which binding."""


@binding.command("declare")
@ends
def declare_binding(
    argument: tuple[str, ...], arguments: str | None, broker: Place, vhost: str, **named: str
) -> None:
    """Have messages of an exchange go to a queue, or to another exchange.

    \b
    Examples:
      amqpd binding declare --source orders --destination jobs --routing-key 'order.*'
      amqpd binding declare --source orders --destination-type exchange --destination archive
      amqpd binding declare --source by-header --destination jobs --argument x-match=all --argument kind=new
    """
    request = {**named, "vhost": vhost, "arguments": arguments_of(argument, arguments)}
    made = ask(broker, "binding declare", request)
    what = f"{_said(**named)} in virtual host '{vhost}'"
    click.echo(escaped(f"made {what}" if made["new"] else f"{what} is there already: nothing changed"))


@binding.command("delete")
@ends
def delete_binding(argument: tuple[str, ...], arguments: str | None, broker: Place, vhost: str, **named: str) -> None:
    """Delete the binding with exactly these ends, this routing key and these arguments.

    \b
    Example:
      amqpd binding delete --source orders --destination jobs --routing-key 'order.*'
    """
    ask(broker, "binding delete", {**named, "vhost": vhost, "arguments": arguments_of(argument, arguments)})
    click.echo(escaped(f"deleted {_said(**named)} in virtual host '{vhost}'"))


def _said(source: str, destination: str, destination_type: str, routing_key: str) -> str:
    return f"binding '{source}' -> {destination_type} '{destination}', routing key '{routing_key}',"
