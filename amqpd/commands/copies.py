"""`amqpd metadata`: the copies of what exists (queues, users, policies...) that a broker keeps beside its metadata.

What comes in: a data directory that no broker uses. What goes out: a list of the copies; what was done, in sentences.
Not here: what is done (`amqpd/management/metadata/copies.py`), the messages (`amqpd restore`).
"""

from __future__ import annotations

from pathlib import Path

import click

from amqpd.commands.options import data_dir_option, json_option, refuse_one_of_several
from amqpd.commands.refusals import refusals
from amqpd.commands.tables import show
from amqpd.management.metadata import copies as metadata_copies
from amqpd.management.metadata.copies import NUMBERS, moment

COLUMNS = ("copy", "made", "revision", "entries", "state")


@click.group()
def metadata() -> None:
    """Look at the copies of the metadata, and put one in its place.

    A broker keeps two copies of metadata.db in its data directory: metadata.db.1, from its last start or its
    last end, and metadata.db.2, the one before. A broker that finds metadata.db damaged does not start, and names
    these commands.

    \b
    Examples:
      amqpd metadata copies
      amqpd metadata restore-copy
    """


@metadata.command("copies")
@json_option
@data_dir_option
def list_copies(as_json: bool, data_dir: Path) -> None:
    """List the copies, and whether they are good.

    \b
    Example:
      amqpd metadata copies
    """
    show(metadata_copies.listed(data_dir), COLUMNS, as_json)


@metadata.command("restore-copy")
@click.option(
    "--copy", "number", type=click.IntRange(min(NUMBERS), max(NUMBERS)), help="Which one.  [default: the newest]"
)
@data_dir_option
def restore_copy(number: int | None, data_dir: Path) -> None:
    """Put a copy of the metadata in the place of metadata.db. No broker may run.

    What was declared since the copy was made is not in it, and what was deleted since is there again. Messages
    of queues that it does not know are not lost: the broker keeps them apart, see `amqpd orphans`.

    \b
    Examples:
      amqpd metadata restore-copy
      amqpd metadata restore-copy --copy 2
    """
    refuse_one_of_several(
        data_dir, "start the broker once with this one alone (--accept-loss), and stop it, before that"
    )
    with refusals():
        done = metadata_copies.restore(data_dir, number)
    for sentence in done.said:
        click.echo(sentence)
    click.echo(
        f"{done.path} is as it was on {moment(done.made)} ({done.entries} entries, revision {done.revision}); start "
        "the broker"
    )
