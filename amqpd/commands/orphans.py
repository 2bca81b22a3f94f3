"""`amqpd orphans`: messages whose queue is unknown, because the metadata store has lost it or is an older copy.

What comes in: the number of an orphan, and what to do with it. What goes out: a list; messages in a queue, in a file,
or gone.
Rules: 1. Nothing is gone but by `delete --yes`. 2. An export is a file only when it is whole.
Not here: doing it (`amqpd/management/damage/orphan_operations.py`), why there are any (docs/damage.md).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from amqpd.commands.options import data_dir_option, json_option
from amqpd.commands.running import ask_each, ask_rows
from amqpd.commands.tables import show

COLUMNS = ("id", "messages", "bytes", "oldest", "newest", "exchange", "routing_key", "damage")


@click.group()
def orphans() -> None:
    """Give back messages whose queue is unknown: the journal has them, the metadata do not have their queue.

    They are parked: nobody gets them and none expires, until they are adopted by a queue, or deleted.

    \b
    Examples:
      amqpd orphans list
      amqpd orphans adopt 4611686018427387904 --queue jobs
      amqpd orphans export 4611686018427387904 jobs.jsonl
      amqpd orphans delete 4611686018427387904 --yes
    """


@orphans.command("list")
@json_option
@data_dir_option
def list_orphans(as_json: bool, data_dir: Path) -> None:
    """List what is parked. An orphan is what is left of one queue, and its id that queue's number.

    Exchange and routing key are those of its first message: with the default exchange (an empty name) the
    routing key is the name of the queue that it was in.

    \b
    Example:
      amqpd orphans list --json
    """
    rows = sorted(ask_rows(data_dir, "orphans list", {}, ()), key=lambda row: int(row["id"]))
    if as_json:
        show(rows, (), True)
        return
    shown = [{name: "" if row[name] is None else row[name] for name in COLUMNS} for row in rows]
    damaged = any(row["damage"] for row in rows)
    show(shown, COLUMNS if damaged else COLUMNS[:-1], False)


@orphans.command()
@click.argument("orphan_id", metavar="ID")
@click.option("--queue", metavar="NAME", help="The queue that gets the messages; declare it first.")
@click.option("--vhost", default="/", show_default=True, help="The queue's virtual host.")
@click.option("--delayed", is_flag=True, help="They were delayed messages of this virtual host: they wait again.")
@data_dir_option
def adopt(orphan_id: str, queue: str | None, vhost: str, delayed: bool, data_dir: Path) -> None:
    """Move the messages of the orphan ID to the end of a queue, in their order.

    Each is in the orphan or in the queue, whatever happens on the way. The queue's limits and its TTL hold, from
    now on; when it takes no more, the rest stays parked, and the command can be given again.

    Delayed messages go into the queue at once, without waiting. With --delayed in place of --queue they keep their
    times: declare their exchanges, queues and bindings first.

    \b
    Examples:
      amqpd orphans adopt 4611686018427387904 --queue jobs
      amqpd orphans adopt 8070450532247928832 --delayed --vhost orders
    """
    if delayed == (queue is not None):
        raise click.UsageError("say where the messages go: --queue NAME, or --delayed")
    request: dict[str, Any] = {"id": orphan_id, "vhost": vhost}
    request |= {"delayed": True} if delayed else {"queue": queue}
    done = ask_rows(data_dir, "orphans adopt", request, ())[-1]
    where = f"virtual host '{vhost}', which delays them again" if delayed else f"queue '{queue}'"
    click.echo(f"{_messages(done['count'])} moved to {where}; {done['left']:,} left")
    if done["stopped"]:
        raise click.ClickException(done["stopped"])


@orphans.command()
@click.argument("orphan_id", metavar="ID")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@data_dir_option
def export(orphan_id: str, file: Path, data_dir: Path) -> None:
    """Write the messages of the orphan ID to FILE, a JSON object in a line for each. They stay parked.

    A body that is no text is in base64. Of a row of messages that is damaged on the disk there is a line with the
    reason, the ids, and the bytes that could be read.

    \b
    Example:
      amqpd orphans export 4611686018427387904 jobs.jsonl
    """
    if file.exists():
        raise click.ClickException(f"{file} exists already: name another file")
    part = file.with_name(f"{file.name}.part")
    done: dict[str, Any] = {}
    try:
        with part.open("w", encoding="utf-8") as written:
            for row in ask_each(data_dir, "orphans export", {"id": orphan_id}):
                if "text" in row:
                    written.write(row["text"])
                else:
                    done = row
            written.flush()
            os.fsync(written.fileno())
        part.rename(file)
    except (OSError, click.ClickException) as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise click.ClickException(f"cannot write {part}: {error.strerror}") from error
        raise
    click.echo(f"{_messages(done['count'])} written to {file}")
    if done["damaged"]:
        raise click.ClickException(
            f"{_messages(done['missing'])} could not be read: {done['damaged']:,} of the journal's rows are damaged "
            f'(the lines of {file} with "damage")'
        )


@orphans.command()
@click.argument("orphan_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do it. Without, only say how many messages it would be.")
@data_dir_option
def delete(orphan_id: str, yes: bool, data_dir: Path) -> None:
    """Delete the messages of the orphan ID: when the answer comes, they are gone from the disk too.

    \b
    Example:
      amqpd orphans delete 4611686018427387904 --yes
    """
    done = ask_rows(data_dir, "orphans delete", {"id": orphan_id, "yes": yes}, ())[-1]
    if yes:
        click.echo(f"deleted {_messages(done['count'])}")
    else:
        click.echo(f"{_messages(done['count'])} would be deleted; --yes does it")


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"
