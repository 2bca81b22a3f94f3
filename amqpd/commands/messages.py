"""`amqpd message`: look into a queue without consuming, and take messages out of it.

What comes in: a queue, and which of its messages are meant. What goes out: a list; messages deleted or moved.
Rules: 1. Looking changes nothing. 2. Deleting and moving need --yes: without, they say how many messages it would be.
Not here: doing it (`amqpd/messages.py`), emptying a queue at once (queue.purge, which any client can).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from amqpd.commands.metadata import data_dir_option, json_option, show
from amqpd.commands.running import ask_rows
from amqpd.escapes import escaped, readable_json

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
BODY_BYTES_DEFAULT = 60

_ID = re.compile(r"(\d+)(?:-(\d+))?")


@click.group()
def message() -> None:
    """Look at the messages in the queues of a running broker; delete some, or move them to another queue.

    A message's id is its own as long as it is in the queue. Its position is its place among those that are
    ready: 1 is delivered next.

    \b
    Examples:
      amqpd message list jobs --count 10 --body 200
      amqpd message list jobs --header x-first-death-reason=rejected
      amqpd message delete jobs --id 17-20 --yes
      amqpd message move failed jobs --all --yes
    """


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which messages."""
    for option in (
        click.option("--header", "headers", multiple=True, metavar="NAME[=VALUE]", help="With this header."),
        click.option("--message-id", metavar="ID", help="With this property message_id."),
        click.option("--id", "ids", multiple=True, metavar="A[-B]", help="With this id, or one of A to B."),
        click.option("--count", type=click.IntRange(1), metavar="N", help="So many at the most."),
        click.option("--from", "start", type=click.IntRange(1), metavar="POSITION", help="From this place on."),
        click.option("--vhost", default="/", show_default=True, help="The queue's virtual host."),
    ):
        command = option(command)
    return command


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
    help="So much of each body.",
)
@json_option
@data_dir_option
def list_messages(queue: str, state: str, body: int, as_json: bool, data_dir: Path, **selected: Any) -> None:
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
    wish = {**_wish(queue, **selected), "state": state, "body": body}
    rows = ask_rows(data_dir, "message list", wish, ())
    if as_json:
        show(rows, (), True)
        return
    shown = [_row(row) for row in rows]
    empty = {name for name in COLUMNS if shown and all(row[name] == "" for row in shown)}
    show(shown, [name for name in COLUMNS if name not in empty], False)


def acting(command: Callable[..., None]) -> Callable[..., None]:
    """The options of what changes something."""
    for option in (
        click.option("--yes", is_flag=True, help="Do it. Without, only say how many messages it would be."),
        click.option("--all", "every", is_flag=True, help="All that are ready."),
    ):
        command = option(command)
    return selecting(data_dir_option(command))


@message.command()
@click.argument("queue")
@acting
def delete(queue: str, every: bool, yes: bool, data_dir: Path, **selected: Any) -> None:
    """Delete ready messages of QUEUE: they are not dead-lettered, and nobody gets them.

    What a consumer has is left alone. When the answer comes, they are gone from the disk too.

    \b
    Examples, the first says what the second does:
      amqpd message delete jobs --header tenant=old
      amqpd message delete jobs --header tenant=old --yes
      amqpd message delete jobs --from 1 --count 100 --yes
    """
    wish = {**_wish(queue, **selected), "all": every, "yes": yes}
    _check(wish)
    done = ask_rows(data_dir, "message delete", wish, ())[-1]
    if yes:
        click.echo(f"deleted {_messages(done)}")
    else:
        click.echo(f"{_messages(done)} would be deleted; --yes does it")


@message.command()
@click.argument("queue")
@click.argument("to_queue")
@click.option("--to-vhost", help="The virtual host of TO_QUEUE.  [default: that of QUEUE]")
@acting
def move(
    queue: str, to_queue: str, to_vhost: str | None, every: bool, yes: bool, data_dir: Path, **selected: Any
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
    wish = {**_wish(queue, **selected), "to_queue": to_queue, "to_vhost": to_vhost, "all": every, "yes": yes}
    _check(wish)
    done = ask_rows(data_dir, "message move", wish, ())[-1]
    if yes:
        click.echo(f"moved {_messages(done)}")
    else:
        click.echo(f"{_messages(done)} would be moved; --yes does it")
    if done["full"]:
        raise click.ClickException(f"the queue '{to_queue}' takes no more: the rest is where it was")


def _wish(
    queue: str,
    vhost: str,
    start: int | None,
    count: int | None,
    ids: tuple[str, ...],
    message_id: str | None,
    headers: tuple[str, ...],
) -> dict[str, Any]:
    pairs = []
    for text in ids:
        found = _ID.fullmatch(text)
        if found is None:
            raise click.BadParameter(f"'{text}' is neither an id nor two of them, as in 17-20", param_hint="'--id'")
        pairs.append([int(found[1]), int(found[2] or found[1])])
    wanted = [[name, value if equals else None] for name, equals, value in (each.partition("=") for each in headers)]
    wish = {"from": start, "count": count, "ids": pairs, "message_id": message_id, "headers": wanted}
    return {"vhost": vhost, "queue": queue, **{name: value for name, value in wish.items() if value}}


def _check(wish: dict[str, Any]) -> None:
    selected = wish.keys() & {"from", "count", "ids", "message_id", "headers"}
    if bool(selected) == wish["all"]:
        raise click.UsageError("say which messages: --id, --from and --count, --message-id, --header; or --all")


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
        "properties": properties,
        "bytes": row["payload_bytes"],
        "body": _body(row),
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
