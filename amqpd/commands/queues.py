"""`amqpd queue`: queues of a running broker: what is in them, declared, purged, deleted.

What comes in: names, filters, properties. What goes out: lists, of durable queues and transient ones; what was done.
Rules: 1. The running broker is asked, because only it knows depths, consumers, and what is not durable. 2. A figure
that nobody knows, of a queue whose leader is silent, is a question mark and not 0.
Not here: many at once (`many_queues.py`), making and deleting them from a file (`definitions.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from amqpd.commands import many_queues
from amqpd.commands.declaring import (
    arguments_options,
    ask_to_declare,
    auto_delete_option,
    durable_option,
    say,
    vhost_option,
)
from amqpd.commands.many_queues import QueuesRequest
from amqpd.commands.options import broker_option, json_option, together
from amqpd.commands.queue_picture import picture
from amqpd.commands.running import ask, ask_rows
from amqpd.commands.tables import show
from amqpd.management.control.arguments import CONDITIONS
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


UNKNOWN = "?"
KNOWN = ("policy", "operator_policy", "leader")
"""of these nothing is said where there is nothing; of others, in a row without figures, that nobody knows"""
LEADERS_MAX = 5
"""that are named in one line"""

Row = dict[str, Any]


@click.group()
def queue() -> None:
    """See the queues of a running broker and why they are as they are; declare, purge and delete them.

    \b
    Examples:
      amqpd queue list --vhost orders
      amqpd queue why jobs
      amqpd queue declare jobs --type quorum --argument x-delivery-limit=5
      amqpd queue purge --matching '^test\\.' --dry-run
      amqpd queue delete jobs --if-empty
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
    capacity (the share of that time in which consumers could take at once what was ready). In a cluster the
    figures are those of each queue's leader, and question marks where it does not answer; without --columns the
    leader is named, too, when there are several.

    \b
    Examples:
      amqpd queue list --vhost orders
      amqpd queue list --columns name,messages,capacity,totals.expired
      amqpd queue list --json
    """
    rows = ask_rows(broker, "queue list", {"vhost": vhost}, ("vhost", "name"))
    names = [name.strip() for name in columns.split(",") if name.strip()]
    if columns == DEFAULT_COLUMNS and len({row.get("leader") for row in rows}) > 1:
        names.append("leader")
    shown = [{name: _cell(row, name) for name in names} for row in rows] if not as_json else rows
    show(shown, names, as_json)
    note_silent(rows)


def note_silent(rows: Sequence[Row]) -> None:
    """Why some of a list's figures are question marks, on standard error."""
    silent = [row for row in rows if row["messages"] is None]
    if not silent:
        return
    leaders = sorted({row["leader"] for row in silent if row.get("leader")})
    named = f" ({', '.join(leaders[:LEADERS_MAX])}{', ...' * (len(leaders) > LEADERS_MAX)})" if leaders else ""
    count = "1 queue has" if len(silent) == 1 else f"{len(silent):,} queues have"
    click.echo(
        escaped(f"(?: {count} a leader that does not answer{named}, or none: `amqpd cluster status` says more)"),
        err=True,
    )


def _cell(row: dict[str, Any], column: str) -> Any:
    value: Any = row
    for member in SHORT.get(column, column).split("."):
        if value is None and row["messages"] is None:
            return UNKNOWN
        if not isinstance(value, dict) or member not in value:
            raise click.BadParameter(
                f"there is no column '{column}': there are {', '.join([*SHORT, *row])}", param_hint="'--columns'"
            )
        value = value[member]
    if value is None:
        return UNKNOWN if row["messages"] is None and column not in KNOWN else ""
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
    request = {"vhost": vhost, "queue": name}
    consumers = ask_rows(broker, "consumer list", request, ("connection_id", "channel", "consumer_tag"))
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


@queue.command()
@click.argument("name")
@vhost_option
@click.option("--type", "kind", metavar="TYPE", help="classic or quorum.  [default: as the virtual host has it]")
@durable_option
@auto_delete_option
@arguments_options
@broker_option
def declare(broker: Place, kind: str | None, **properties: Any) -> None:
    """Make the queue NAME, if it is not there.

    One that is there stays as it is: it is refused when it has other properties than those asked for. In a
    cluster a quorum queue is led by the node that is asked, unless x-queue-leader-locator says otherwise.

    \b
    Examples:
      amqpd queue declare jobs
      amqpd queue declare jobs --type quorum --vhost orders
      amqpd queue declare jobs --argument x-max-length=1000 --argument x-overflow=reject-publish
    """
    ask_to_declare(broker, "queue", more={} if kind is None else {"x-queue-type": kind}, **properties)


many_options = together(
    click.argument("name", required=False),
    broker_option,
    click.option("--vhost", help="The virtual host.  [default: / for NAME, else all]"),
    click.option("--matching", metavar="REGEX", help="Those in whose name this is found; ^ and $ are its ends."),
    click.option(
        "--only",
        multiple=True,
        type=click.Choice(CONDITIONS),
        help="Those without messages, with some, without consumers, with some; once for each condition.",
    ),
    click.option("--dry-run", is_flag=True, help="Only show which queues it would be."),
    click.option("--yes", is_flag=True, help="Do it without asking."),
    click.option("--full", is_flag=True, help="Show each queue, however many there are."),
    json_option,
)
"""Which queues, where no NAME says it, and how."""


@queue.command()
@many_options
def purge(name: str | None, vhost: str | None, broker: Place, **how: Any) -> None:
    """Delete all ready messages of the queue NAME, or of all queues that --matching and --only mean.

    What consumers have and did not acknowledge stays. Of many queues it shows first which ones, and asks.

    \b
    Examples:
      amqpd queue purge jobs
      amqpd queue purge --matching '^test\\.' --dry-run
      amqpd queue purge --vhost staging --only backlog --yes
    """
    if (request := _of_many("purge", name, vhost, **how)) is not None:
        many_queues.carry_out(broker, request)
        return
    vhost = vhost or "/"
    count = ask(broker, "queue purge", {"vhost": vhost, "name": name})["messages"]
    say("purged", "queue", str(name), vhost, f": {_ready(count)} gone")


@queue.command()
@many_options
@click.option("--if-empty", is_flag=True, help="Not if NAME has ready messages.")
@click.option("--if-unused", is_flag=True, help="Not if NAME has consumers.")
def delete(name: str | None, vhost: str | None, broker: Place, if_empty: bool, if_unused: bool, **how: Any) -> None:
    """Delete the queue NAME with ITS MESSAGES, or all queues that --matching and --only mean.

    Messages are not dead-lettered, and consumers are cancelled. Of many queues it shows first which ones, and
    asks. RabbitMQ knows no conditions for quorum queues, and --if-empty and --if-unused are refused for them;
    --only empty and --only unused hold for all: each queue's leader looks again when it asks for the deletion. What
    is published in the milliseconds until the store has deleted it goes with the queue: end publishers first.

    \b
    Examples:
      amqpd queue delete jobs --if-empty
      amqpd queue delete --matching '^amq\\.gen-' --only unused --dry-run
      amqpd queue delete --vhost staging --only empty --only unused --yes
    """
    if (request := _of_many("delete", name, vhost, **how)) is not None:
        if if_empty or if_unused:
            raise click.UsageError("--if-empty and --if-unused are for NAME: say --only empty, --only unused")
        many_queues.carry_out(broker, request)
        return
    vhost = vhost or "/"
    wanted = {"vhost": vhost, "name": name, "if_empty": if_empty, "if_unused": if_unused}
    count = ask(broker, "queue delete", wanted)["messages"]
    say("deleted", "queue", str(name), vhost, "" if count is None else f": {_ready(count)} gone with it")


def _of_many(act: str, name: str | None, vhost: str | None, **how: Any) -> QueuesRequest | None:
    """None: only NAME is meant. Raises UsageError."""
    many = how["matching"] is not None or bool(how["only"])
    if name is not None:
        if many or how["dry_run"] or how["as_json"]:
            raise click.UsageError("NAME is one queue: --matching, --only, --dry-run and --json are for many")
        return None
    if not many:
        raise click.UsageError("say which queues: NAME, or --matching REGEX, or --only CONDITION")
    return QueuesRequest(act, vhost, **how)


def _ready(count: int) -> str:
    return "1 ready message is" if count == 1 else f"{count:,} ready messages are"
