"""What commands that declare have in common: the virtual host, arguments, what is said of something that is there.

What comes in: `--argument NAME=VALUE` and `--arguments JSON`. What goes out: an object of JSON; a declaration.
Rules: a value that is JSON is what it says (5, true, ["a"], "5" for a text of a digit), any other one is a text.
Not here: which arguments there are (`amqpd/queues/arguments.py`, `amqpd/exchanges/`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from amqpd.commands.options import json_value, together
from amqpd.commands.running import ask
from amqpd.management.control.socket import Place
from amqpd.vocabulary.escapes import escaped

vhost_option = click.option("--vhost", default="/", show_default=True, help="The virtual host.")
durable_option = click.option(
    "--durable/--transient", default=True, show_default=True, help="Whether it is there after a restart."
)
auto_delete_option = click.option("--auto-delete", is_flag=True, help="It goes when the last one that used it goes.")


arguments_options = together(
    click.option(
        "--argument", multiple=True, metavar="NAME=VALUE", help="An argument, as in x-max-length=1000; once for each."
    ),
    click.option("--arguments", metavar="JSON", help="All arguments, as an object of JSON."),
)
"""`argument` and `arguments`, for `arguments_of`"""


def arguments_of(argument: Sequence[str], arguments: str | None) -> dict[str, Any]:
    """The arguments that the options name. Raises ClickException, BadParameter."""
    found = {} if arguments is None else json_value("value of --arguments", arguments)
    if not isinstance(found, dict):
        raise click.BadParameter('an object of JSON, as in {"x-max-length": 1000}', param_hint="'--arguments'")
    return {**found, **dict(pair(each, "--argument") for each in argument)}


def pair(text: str, option: str) -> tuple[str, Any]:
    """Name and value of NAME=VALUE. Raises BadParameter."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint=f"'{option}'")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def say(done: str, thing: str, name: str, vhost: str, more: str = "") -> None:
    """As in "made queue 'jobs' in virtual host '/'"."""
    click.echo(escaped(f"{done} {thing} '{name}' in virtual host '{vhost}'{more}"))


def ask_to_declare(
    broker: Place,
    thing: str,
    vhost: str,
    name: str,
    argument: Sequence[str],
    arguments: str | None,
    more: Mapping[str, Any],
    **properties: Any,
) -> None:
    """Asks the broker for the thing, with `more` among its arguments, and says what became of that. Raises
    ClickException, BadParameter."""
    table = {**arguments_of(argument, arguments), **more}
    request = {"vhost": vhost, "name": name, **properties, "arguments": table}
    if ask(broker, f"{thing} declare", request)["new"]:
        say("made", thing, name, vhost)
    else:
        click.echo(escaped(f"{thing} '{name}' is in virtual host '{vhost}' already, as asked for: nothing changed"))
