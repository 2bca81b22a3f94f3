"""The last good copies of `metadata.db`: `metadata.db.1`, the newest, and `metadata.db.2`.

What comes in: the database's path. What goes out: copies that were read whole, each a complete database; which of
them may be put in its place; the words for it.
Rules: 1. A copy gets its name when it is verified and on stable storage. 2. A copy that is damaged is replaced, and
never takes the place of a good one. 3. A copy has the name of its database inside, and its revision: one that is
equal to the database is not made again. 4. The database is read through SQLite by a connection of its own: opening
the file in any other way would give up this process's locks on it when it is closed.
Not here: when copies are made (`store.py`), the use cases (`management/metadata/copies.py`).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from amqpd.storage.files import free_name, log_bytes, mark_path, sync_directory, sync_file, wal_path
from amqpd.storage.moment import connect
from amqpd.topology.metadata.sqlite.promises import COPIES, copy_path
from amqpd.topology.metadata.sqlite.verification import DatabaseContents, check_pages, contents_of, verify
from amqpd.topology.metadata.store import StoreDamaged

# A copy must not take the last of a disk from messages.
FREE_BYTES_MIN = 64 << 20

log = structlog.get_logger(component="topology")


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the database that was read whole."""

    path: Path
    number: int
    contents: DatabaseContents
    made: datetime


def keep_copy(path: Path) -> bool:
    """Make `metadata.db.1` of the database if it is not equal to it; the one before becomes `metadata.db.2`. Whether
    there is one now. What is in the way is logged: it is not for a copy that a node stops."""
    new = path.with_name(path.name + ".new")
    try:
        size = path.stat().st_size + log_bytes(path)
        status = os.statvfs(path.parent)
        if status.f_bavail * status.f_frsize < size + FREE_BYTES_MIN:
            log.warning("no copy of the metadata is made: the disk is too full", path=str(path), copy_bytes=size)
            return False
        newest = _read(path, 1)
        with closing(connect(path, "mode=ro")) as source:
            if newest is not None and newest.contents == _contents(source, path):
                return True
            _copy(source, new)
        made = _verified(new)
        if newest is not None:
            copy_path(path, 1).replace(copy_path(path, 2))
        new.replace(copy_path(path, 1))
        sync_directory(path.parent)
    except (OSError, sqlite3.Error, StoreDamaged) as error:
        log.error("no copy of the metadata could be made", path=str(path), reason=str(error))
        with suppress(OSError):
            new.unlink(missing_ok=True)
        return False
    log.debug("copied the metadata", path=str(copy_path(path, 1)), revision=made.revision)
    return True


def good_copies(path: Path) -> list[Copy]:
    """The copies that can be opened, the newest first."""
    return [copy for number in COPIES if (copy := _read(path, number)) is not None]


def way_out(path: Path, *, accept_loss: bool) -> str:
    """What the operator can do, for the end of a sentence. `accept_loss`: whether going on with what is there is
    possible."""
    ways = []
    if copies := good_copies(path):
        made, revision = copies[0].made, copies[0].contents.revision
        ways.append(
            f"put its copy of {made:%Y-%m-%d %H:%M:%S} UTC, revision {revision}, in place "
            f"(amqpd metadata restore-copy --data-dir {path.parent})"
        )
    else:
        ways.append("restore a backup (amqpd restore), there is no good copy beside it")
    if accept_loss:
        ways.append("start once with --accept-loss to go on with what is there")
    return ", or ".join(ways)


def restore(path: Path, copy: Copy) -> list[str]:
    """Put the copy in the database's place; nobody may have the database open. What was moved where, in sentences.
    Raises OSError."""
    new = path.with_name(path.name + ".new")
    shutil.copyfile(copy.path, new)
    new.chmod(0o600)
    sync_file(new)
    said = []
    database = free_name(path)
    for file in (path, wal_path(path)):
        if file.exists():
            aside = database if file == path else free_name(file)
            file.rename(aside)
            said.append(f"moved {file.name} to {aside.name}")
    for file in (path.with_name(path.name + "-shm"), mark_path(path)):
        # The one is made of the log, the other promises what the copy does not have.
        file.unlink(missing_ok=True)
    new.replace(path)
    sync_directory(path.parent)
    return [*said, f"copied {copy.path.name} to {path.name}"]


def _copy(source: sqlite3.Connection, new: Path) -> None:
    with suppress(FileNotFoundError):
        new.unlink()
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    with closing(connect(new, "mode=rw")) as target:
        # Of no use to a file that is thrown away unless it is whole.
        target.execute("PRAGMA journal_mode = OFF")
        target.execute("PRAGMA synchronous = OFF")
        source.backup(target)
    sync_file(new)


def _read(path: Path, number: int) -> Copy | None:
    """None: there is none, or it is damaged."""
    copy = copy_path(path, number)
    try:
        made = datetime.fromtimestamp(copy.stat().st_mtime, UTC)
        return Copy(copy, number, _verified(copy), made)
    except (OSError, sqlite3.Error, StoreDamaged):
        return None


def _verified(copy: Path) -> DatabaseContents:
    """Raises StoreDamaged, sqlite3.Error."""
    with closing(connect(copy, "immutable=1")) as connection:
        check_pages(connection, copy)
        return verify(connection, copy)


def _contents(source: sqlite3.Connection, path: Path) -> DatabaseContents:
    source.execute("BEGIN")
    try:
        return contents_of(source, path)
    finally:
        source.execute("ROLLBACK")
