"""`amqpd message`: look into a queue without consuming, take messages out of it, publish one.

What comes in: a queue, and which of its messages are meant; or an exchange, a routing key and a body. What goes out:
a list; messages deleted, moved, or set aside because they are damaged; whether what was published is safe in a queue.
Rules: 1. Looking changes nothing. 2. What takes something out needs --yes: without, it says how many messages it
would be. 3. What is published and reaches no queue is an error, so that a script notices. 4. A body is octets:
nothing is added, not even the end of a line.
Not here: doing it (`amqpd/management/messages/`), emptying a queue at once (`amqpd queue purge`), many messages (any
client of AMQP).
"""

from __future__ import annotations

import re
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import click

from amqpd.commands.declaring import pair, vhost_option
from amqpd.commands.options import broker_option, data_dir_option, json_option, together
from amqpd.commands.running import ask, ask_rows
from amqpd.commands.tables import show
from amqpd.management.control.socket import Place
from amqpd.management.messages.property_names import NUMBERS, TEXTS
from amqpd.vocabulary.escapes import escaped, readable_json

COLUMNS = (
    "id",
    "position",
    "state",
    "holder",
    "exchange",
    "routing_key",
    "redelivered",
    "delivery_count",
    "age_s",
    "expires_in_s",
    "properties",
    "bytes",
    "body",
)
SHORTENED = ("exchange", "routing_key", "holder", "properties", "body")
"""columns of which a terminal shows what fits; --json shows all"""
BODY_BYTES_DEFAULT = 60

_ID = re.compile(r"(\d+)(?:-(\d+))?")


@click.group()
def message() -> None:
    """Look at the messages in the queues of a running broker; publish one, delete some, or move them elsewhere.

    A message's id is its own as long as it is in the queue. Its position is its place among those that are
    ready: 1 is delivered next.

    \b
    Examples:
      amqpd message list jobs --count 10 --body 200
      amqpd message list jobs --header x-first-death-reason=rejected
      amqpd message delete jobs --id 17-20 --yes
      amqpd message move failed jobs --all --yes
      amqpd message quarantine jobs --yes
      amqpd message publish 'hello' --routing-key jobs
    """


of_queue = click.option("--vhost", default="/", show_default=True, help="The queue's virtual host.")
with_ids = click.option("--id", "ids", multiple=True, metavar="A[-B]", help="With this id, or one of A to B.")
selecting = together(
    of_queue,
    click.option("--from", "start", type=click.IntRange(1), metavar="POSITION", help="From this place on."),
    click.option("--count", type=click.IntRange(1), metavar="N", help="At most this number."),
    with_ids,
    click.option("--message-id", metavar="ID", help="With this property message_id."),
    click.option("--header", "headers", multiple=True, metavar="NAME[=VALUE]", help="With this header."),
)
"""The options that say which messages."""
acting = together(
    selecting,
    broker_option,
    click.option("--all", "every", is_flag=True, help="All that are ready."),
    click.option("--yes", is_flag=True, help="Do it. Without, only say how many messages it would be."),
)
"""The options of what changes something."""
damaged = together(
    data_dir_option,
    of_queue,
    with_ids,
    click.option("--delayed", is_flag=True, help="Instead of QUEUE: the virtual host's delayed messages."),
)
"""The options that say which damaged messages."""


@message.command("list")
@click.argument("queue")
@selecting
@click.option(
    "--state",
    type=click.Choice(("ready", "unacked", "all")),
    default="ready",
    show_default=True,
    help="Ready for delivery, or delivered and not acknowledged.",
)
@click.option(
    "--body",
    type=click.IntRange(0, 65536),
    default=BODY_BYTES_DEFAULT,
    show_default=True,
    metavar="BYTES",
    help="At most this much of each body.",
)
@json_option
@broker_option
def list_messages(queue: str, state: str, body: int, as_json: bool, broker: Place, **selected: Any) -> None:
    """List messages of QUEUE without taking them: the first 50, or --count.

    Nobody notices: they stay where they are, and are not marked as redelivered. A message that is consumed
    meanwhile is not in the list. A body that is no text is shown in hexadecimal digits. Of those that are
    unacked, the list says who has them.

    \b
    Examples:
      amqpd message list jobs --from 1001 --count 20
      amqpd message list jobs --state unacked
      amqpd message list jobs --message-id 4711 --body 65536 --json
    """
    request = {**_request(queue, **selected), "state": state, "body": body}
    rows = ask_rows(broker, "message list", request, ())
    if as_json:
        show(rows, (), True)
        return
    shown = [_row(row) for row in rows]
    empty = {name for name in COLUMNS if shown and all(row[name] == "" for row in shown)}
    if sys.stdout.isatty():
        # What was asked for, or is so for most messages, costs no columns of a terminal.
        usual = {"state": state, "redelivered": False}
        empty |= {name for name in usual if all(row[name] == usual[name] for row in shown)}
    show(shown, [name for name in COLUMNS if name not in empty], False, shorten=SHORTENED)


@message.command()
@click.argument("queue")
@acting
def delete(queue: str, every: bool, yes: bool, broker: Place, **selected: Any) -> None:
    """Delete ready messages of QUEUE: they are not dead-lettered, and nobody gets them.

    What a consumer has is left alone. When the answer comes, they are gone from the disk too.

    \b
    Examples, the first says what the second does:
      amqpd message delete jobs --header tenant=old
      amqpd message delete jobs --header tenant=old --yes
      amqpd message delete jobs --from 1 --count 100 --yes
    """
    request = {**_request(queue, **selected), "all": every, "yes": yes}
    _check(request)
    done = ask_rows(broker, "message delete", request, ())[-1]
    _tell("deleted", done, yes)


@message.command()
@click.argument("queue")
@click.argument("to_queue")
@click.option("--to-vhost", help="The virtual host of TO_QUEUE.  [default: that of QUEUE]")
@acting
def move(
    queue: str, to_queue: str, to_vhost: str | None, every: bool, yes: bool, broker: Place, **selected: Any
) -> None:
    """Move ready messages of QUEUE to the end of TO_QUEUE, as they were published.

    Each is in one queue or the other, whatever happens on the way. TO_QUEUE's limits and its TTL hold, from
    now on; when it takes no more, the rest stays.

    \b
    Examples:
      amqpd message move jobs.failed jobs --all
      amqpd message move jobs.failed jobs --all --yes
      amqpd message move jobs parked --id 17 --yes
    """
    request = {**_request(queue, **selected), "to_queue": to_queue, "to_vhost": to_vhost, "all": every, "yes": yes}
    _check(request)
    done = ask_rows(broker, "message move", request, ())[-1]
    _tell("moved", done, yes)
    if done.get("damaged"):
        first, last = done["damaged"]
        raise click.ClickException(
            f"messages {first} to {last} of the queue '{queue}' are damaged: the rest is where it was; amqpd message "
            "quarantine sets them aside"
        )
    if done["full"]:
        raise click.ClickException(f"the queue '{to_queue}' takes no more: the rest is where it was")


@message.command()
@click.argument("queue", required=False, default="")
@click.option(
    "--to",
    "file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; it must not be there yet.",
)
@damaged
def export(queue: str, file: Path, vhost: str, ids: tuple[str, ...], delayed: bool, data_dir: Path) -> None:
    """Write the bytes of a damaged row of QUEUE to a file, as they are on the disk.

    A row is what the broker wrote at once: the frames of some messages, end to end. The queue stays as it is.

    \b
    Example:
      amqpd message export jobs --to jobs-17.row
    """
    request = _damaged_request(queue, vhost, ids, delayed)
    found, *pieces = ask_rows(data_dir, "message export", request, ())
    try:
        with file.open("xb") as stream:
            for piece in pieces:
                stream.write(b64decode(piece["data"]))
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from None
    which = f"{found['first_id']} to {found['last_id']}"
    click.echo(f"wrote {found['bytes']:,} bytes of the row with the messages {which} to {file} ({found['reason']})")


@message.command()
@click.argument("queue", required=False, default="")
@click.option("--yes", is_flag=True, help="Do it. Without, only say what it would be.")
@damaged
def quarantine(queue: str, yes: bool, vhost: str, ids: tuple[str, ...], delayed: bool, data_dir: Path) -> None:
    """Set the damaged messages of QUEUE aside in files, so that the queue goes on behind them.

    The bytes and what is known of them are in the data directory, in quarantine/, and on the disk before the
    messages leave the queue. Consumers that were cancelled have to consume again.

    \b
    Examples, the first says what the second does:
      amqpd message quarantine jobs
      amqpd message quarantine jobs --yes
    """
    request = {**_damaged_request(queue, vhost, ids, delayed), "yes": yes}
    for done in ask_rows(data_dir, "message quarantine", request, ()):
        if done["whole"]:
            click.echo(f"{_messages(done)} can be read after all" + (": back in line" if yes else ""))
        elif yes:
            click.echo(f"set aside {_messages(done)} in {done['file']}")
        else:
            click.echo(f"{_messages(done)} would be set aside; --yes does it")


def _damaged_request(queue: str, vhost: str, ids: tuple[str, ...], delayed: bool) -> dict[str, Any]:
    if bool(queue) == delayed:
        raise click.UsageError("name a queue, or say --delayed")
    return {"vhost": vhost, "queue": queue, "ids": _ids(ids), "delayed": delayed}


def _request(
    queue: str,
    vhost: str,
    start: int | None,
    count: int | None,
    ids: tuple[str, ...],
    message_id: str | None,
    headers: tuple[str, ...],
) -> dict[str, Any]:
    pairs = _ids(ids)
    wanted = [[name, value if equals else None] for name, equals, value in (each.partition("=") for each in headers)]
    request = {"from": start, "count": count, "ids": pairs, "message_id": message_id, "headers": wanted}
    return {"vhost": vhost, "queue": queue, **{name: value for name, value in request.items() if value}}


def _ids(ids: tuple[str, ...]) -> list[list[int]]:
    pairs = []
    for text in ids:
        found = _ID.fullmatch(text)
        if found is None:
            raise click.BadParameter(f"'{text}' is neither an id nor two of them, as in 17-20", param_hint="'--id'")
        pairs.append([int(found[1]), int(found[2] or found[1])])
    return pairs


def _check(request: dict[str, Any]) -> None:
    selected = request.keys() & {"from", "count", "ids", "message_id", "headers"}
    if bool(selected) == request["all"]:
        raise click.UsageError("say which messages: --id, --from and --count, --message-id, --header; or --all")


def _tell(what: str, done: dict[str, Any], yes: bool) -> None:
    click.echo(f"{what} {_messages(done)}" if yes else f"{_messages(done)} would be {what}; --yes does it")


def _messages(done: dict[str, Any]) -> str:
    count = done["count"]
    if not count:
        return "no message"
    which = f"id {done['first_id']}" if count == 1 else f"ids {done['first_id']} to {done['last_id']}"
    return f"{count:,} message{'' if count == 1 else 's'} ({which})"


def _row(row: dict[str, Any]) -> dict[str, Any]:
    properties = row["properties"]
    if isinstance(properties, dict):
        properties = " ".join(f"{name}={_compact(value)}" for name, value in properties.items())
    return {
        **{name: "" if row.get(name) is None else row[name] for name in COLUMNS},
        "holder": _holder(row),
        "properties": properties or "",
        "bytes": "" if row["payload_bytes"] is None else row["payload_bytes"],
        "body": row.get("damage") or _body(row),
    }


def _holder(row: dict[str, Any]) -> str:
    if row.get("connection") is None:
        return ""
    return f"{row['connection']} ({row['channel']}) {row['consumer_tag'] or 'basic.get'}"


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else readable_json(value)


def _body(row: dict[str, Any]) -> str:
    text = row["payload"] if row["payload_encoding"] == "string" else "0x" + row["payload"]
    # One line for each message: what would break it is written as in a program.
    text = text.encode("unicode_escape").decode() if not text.isprintable() and text.isascii() else escaped(text)
    return text + ("..." if row["payload_truncated"] and row["payload"] else "")


BODY_BYTES_MAX = 2 << 20
"""A command is a line of 4 MiB at most, and a body in it a third longer than it is."""
PERSISTENT, TRANSIENT = 2, 1


@message.command()
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
    octets = _body_to_publish(body, file)
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


def _body_to_publish(body: str | None, file: Path | None) -> bytes:
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
