"""`amqpd message publish`: one message, from a terminal or a script.

What comes in: an exchange, a routing key, properties, a body. What goes out: whether it reached a queue and is safe.
Rules: 1. What reached no queue is an error: a script notices. 2. A body is octets: nothing is added, not even the end
of a line.
Not here: checks and routes (`amqpd/management/messages/publishing.py`), many messages (any client of AMQP).
"""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import click

from amqpd.commands.declaring import pair, vhost_option
from amqpd.commands.options import broker_option
from amqpd.commands.running import ask
from amqpd.management.control.socket import Place
from amqpd.management.messages.property_names import NUMBERS, TEXTS
from amqpd.vocabulary.escapes import escaped

BODY_BYTES_MAX = 2 << 20
"""A command is a line of 4 MiB at most, and a body in it a third longer than it is."""
PERSISTENT, TRANSIENT = 2, 1


@click.command()
@click.argument("body", required=False)
@click.option("--exchange", default="", metavar="NAME", help="The exchange.  [default: the default exchange]")
@click.option("--routing-key", default="", metavar="KEY", help="The routing key; of the default exchange, a queue.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="As in content_type=text/plain; repeatable."
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; repeatable.")
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its content is the body.")
@click.option("--transient", is_flag=True, help="It may be lost at a restart; else it is on disk when this ends.")
@vhost_option
@broker_option
def publish(
    body: str | None,
    exchange: str,
    routing_key: str,
    properties: tuple[str, ...],
    headers: tuple[str, ...],
    file: Path | None,
    transient: bool,
    vhost: str,
    broker: Place,
) -> None:
    """Publish a message: BODY, the content of --file, or standard input.

    It says whether the message was routed, and confirmed: a persistent one is on disk then. One that reached no
    queue is an error, with exit code 1. What a client may not publish is refused here, too.

    \b
    Examples:
      amqpd message publish 'hello' --routing-key jobs
      amqpd message publish --exchange orders --routing-key order.new --file order.json \\
          --property content_type=application/json --header tenant=acme
      date | amqpd message publish --routing-key jobs
    """
    given = _properties(properties)
    given.setdefault("delivery_mode", TRANSIENT if transient else PERSISTENT)
    if headers:
        given["headers"] = dict(pair(each, "--header") for each in headers)
    octets = _body(body, file)
    where = {"vhost": vhost, "exchange": exchange, "routing_key": routing_key}
    payload = {"payload": b64encode(octets).decode(), "payload_encoding": "base64"}
    if not ask(broker, "message publish", {**where, **payload, "properties": given})["routed"]:
        raise click.ClickException(_unroutable(exchange, routing_key, vhost))
    safe = ", and is on disk" if given["delivery_mode"] == PERSISTENT else "; it is transient"
    size = "1 byte" if len(octets) == 1 else f"{len(octets):,} bytes"
    click.echo(escaped(f"published {size} to {_named(exchange)}: routed and confirmed{safe}"))


def _properties(given: tuple[str, ...]) -> dict[str, Any]:
    """Raises BadParameter."""
    found: dict[str, Any] = {}
    for each in given:
        name, value = pair(each, "--property")
        if name in NUMBERS:
            found[name] = value
        elif name in TEXTS or name == "type":
            found[name] = each.partition("=")[2]
        else:
            names = ", ".join(sorted((*TEXTS, *NUMBERS, "type")))
            raise click.BadParameter(f"there is no property '{name}': there are {names}", param_hint="'--property'")
    return found


def _body(body: str | None, file: Path | None) -> bytes:
    """Raises ClickException."""
    if body is not None and file is not None:
        raise click.UsageError("BODY and --file are two bodies: leave one out")
    if body is not None:
        octets = body.encode("utf-8", "surrogateescape")
    elif file is not None:
        try:
            with file.open("rb") as source:
                octets = source.read(BODY_BYTES_MAX + 1)
        except OSError as error:
            raise click.ClickException(f"cannot read {file}: {error.strerror}") from None
    elif sys.stdin.isatty():
        raise click.UsageError("there is no body: give it as BODY, with --file, or on standard input")
    else:
        octets = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
    if len(octets) > BODY_BYTES_MAX:
        raise click.ClickException(
            f"the body has more than {BODY_BYTES_MAX:,} bytes: publish it with a client of AMQP"
        )
    return octets


def _unroutable(exchange: str, routing_key: str, vhost: str) -> str:
    where = f"in virtual host '{vhost}'"
    if not exchange:
        return f"the message reached no queue: there is no queue '{routing_key}' {where}"
    return (
        f"the message reached no queue: exchange '{exchange}' {where} has no binding for the routing key "
        f"'{routing_key}'; amqpd exchange show says which it has"
    )


def _named(exchange: str) -> str:
    return f"exchange '{exchange}'" if exchange else "the default exchange"
