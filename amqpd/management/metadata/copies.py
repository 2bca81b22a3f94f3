"""The last good copies of the metadata: listed, and one put in the place of what is damaged or lost.

What comes in: a data directory that no broker uses. What goes out: rows; what was done, in sentences.
Rules: 1. The data directory is locked for a restore, so no broker runs on it meanwhile. 2. Nothing is deleted but
what SQLite makes again: what was there is moved aside. 3. Only a copy that was read whole is put in place.
Not here: how copies are made and verified (`topology/metadata/sqlite/copies.py`), backups (`amqpd/backup/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypedDict

from amqpd.datadir.lock import open_data_directory
from amqpd.management.errors import Conflict, NotFound, Unavailable
from amqpd.management.metadata.stored import FILE_NAME
from amqpd.topology.metadata.sqlite import copies
from amqpd.topology.metadata.sqlite.database import written_by_newer
from amqpd.topology.metadata.sqlite.promises import COPIES, copy_path

NUMBERS = COPIES
"""of the copies, the newest first"""


class CopyRow(TypedDict):
    """A copy as lists have it. Of one that is damaged nothing but its name is known: empty texts."""

    copy: str
    made: str
    revision: int | str
    entries: int | str
    state: str
    """good or damaged"""


@dataclass(frozen=True, slots=True)
class Restored:
    """The copy of the metadata that was restored."""

    path: Path
    made: datetime
    entries: int
    revision: int
    said: list[str]
    """what was moved where, in sentences"""


def listed(data_dir: Path) -> list[CopyRow]:
    """The copies that there are."""
    path = data_dir / FILE_NAME
    good = {copy.number: copy for copy in copies.good_copies(path)}
    return [_row(path, number, good.get(number)) for number in NUMBERS if copy_path(path, number).exists()]


def restore(data_dir: Path, number: int | None = None) -> Restored:
    """Put this copy in place, or the newest good one. Raises NotFound, Conflict, Unavailable; StartupError when a
    broker runs there."""
    path = data_dir / FILE_NAME
    if not data_dir.is_dir():
        raise NotFound(f"data directory {data_dir} does not exist: name the broker's with --data-dir")
    with open_data_directory(data_dir):
        if path.exists() and (newer := written_by_newer(path)):
            raise Conflict(
                f"{path} was written by a newer amqpd ({newer}): it is not damaged, and a copy is older; run that "
                "version, or move the file away first if what it has is to be given up"
            )
        good = [copy for copy in copies.good_copies(path) if number in (None, copy.number)]
        if not good:
            which = "no good copy" if number is None else f"no good copy {copy_path(path, number).name}"
            raise NotFound(f"there is {which} of {path}: restore a backup (amqpd restore)")
        try:
            said = copies.restore(path, good[0])
        except OSError as error:
            raise Unavailable(
                f"{path} could not be replaced ({error.strerror or error}): when that is mended, try again"
            ) from error
    contents = good[0].contents
    return Restored(path, good[0].made, contents.entries, contents.revision, said)


def _row(path: Path, number: int, copy: copies.Copy | None) -> CopyRow:
    return {
        "copy": copy_path(path, number).name,
        "made": moment(copy.made) if copy else "",
        "revision": copy.contents.revision if copy else "",
        "entries": copy.contents.entries if copy else "",
        "state": "good" if copy else "damaged",
    }


def moment(made: datetime) -> str:
    return f"{made:%Y-%m-%d %H:%M:%S} UTC"
