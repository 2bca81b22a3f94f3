"""`amqpd metadata`: the copies of what exists (queues, users, policies...) that a broker keeps beside its metadata.

What comes in: a data directory that no broker uses. What goes out: a list of the copies; a copy in the place of a
metadata store that is damaged or lost; what was done, in sentences.
Rules: 1. The data directory is locked, so no broker runs on it meanwhile. 2. Nothing is deleted but what SQLite makes
again: what was there is moved aside. 3. Only a copy that was read whole is put in place.
Not here: how copies are made and verified (`topology/metadata/sqlite/copies.py`), the messages (`amqpd restore`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from amqpd.commands.options import data_dir_option, json_option
from amqpd.commands.tables import show
from amqpd.datadir.lock import open_data_directory
from amqpd.management.stored_metadata import FILE_NAME
from amqpd.topology.metadata.sqlite.copies import Copy, good_copies, restore
from amqpd.topology.metadata.sqlite.promises import COPIES, copy_path

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
    path = data_dir / FILE_NAME
    good = {copy.number: copy for copy in good_copies(path)}
    there = [number for number in COPIES if copy_path(path, number).exists()]
    show([_row(path, number, good.get(number)) for number in there], COLUMNS, as_json)


@metadata.command("restore-copy")
@click.option(
    "--copy", "number", type=click.IntRange(min(COPIES), max(COPIES)), help="Which one.  [default: the newest]"
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
    path = data_dir / FILE_NAME
    if not data_dir.is_dir():
        raise click.ClickException(f"data directory {data_dir} does not exist: name the broker's with --data-dir")
    with open_data_directory(data_dir):
        good = [copy for copy in good_copies(path) if number in (None, copy.number)]
        if not good:
            which = "no good copy" if number is None else f"no good copy {copy_path(path, number).name}"
            raise click.ClickException(f"there is {which} of {path}: restore a backup (amqpd restore)")
        try:
            said = restore(path, good[0])
        except OSError as error:
            raise click.ClickException(
                f"{path} could not be replaced ({error.strerror or error}): when that is mended, try again"
            ) from error
    for sentence in said:
        click.echo(sentence)
    click.echo(
        f"{path} is as it was on {good[0].made:%Y-%m-%d %H:%M:%S} UTC "
        f"({good[0].contents.entries} entries, revision {good[0].contents.revision}); start the broker"
    )


def _row(path: Path, number: int, copy: Copy | None) -> dict[str, Any]:
    return {
        "copy": copy_path(path, number).name,
        "made": f"{copy.made:%Y-%m-%d %H:%M:%S} UTC" if copy else "",
        "revision": copy.contents.revision if copy else "",
        "entries": copy.contents.entries if copy else "",
        "state": "good" if copy else "damaged",
    }
