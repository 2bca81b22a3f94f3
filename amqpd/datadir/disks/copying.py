"""The journal and the definitions of one directory, made those of another one.

What comes in: connections that hold a moment of the source's journal, and of its definitions; the target's directory.
What goes out: its files, on stable storage, closed.
Rules: 1. A target that is whole becomes another in one transaction, so that it always counts. One that is not is
emptied first, and copied in parts of bounded size. 2. What the target promised of itself before (its mark) goes.
Not here: which directories (`opening.py`, `repair.py`), comparing (`journal/sqlite/likeness.py`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from amqpd.datadir.opening import METADATA_DB
from amqpd.journal.sqlite.database import JOURNAL, connect_to_read, connect_to_write, create_file
from amqpd.journal.sqlite.likeness import Likeness
from amqpd.storage.files import has_log, mark_path, sync_directory, sync_file, wal_path
from amqpd.storage.moment import connect, hold_moment
from amqpd.topology.metadata.sqlite.database import examine_database
from amqpd.topology.metadata.sqlite.glance import glance
from amqpd.topology.metadata.sqlite.verification import contents_of, read_journal
from amqpd.topology.metadata.store import MetadataStoreError

PAGES = 256
"""Of the definitions, copied at a time."""
_BODY = "SELECT data FROM batch WHERE queue_id = ? AND last_seq = ? AND first_seq = ?"


def open_moment(journal: Path) -> sqlite3.Connection:
    """A connection that holds the journal as it is now, to be closed by the caller. Raises sqlite3.Error."""
    return hold_moment(connect_to_read(journal), "source")


def copy_journal(
    source: sqlite3.Connection,
    directory: Path,
    *,
    whole: bool,
    new: bool = True,
    goes_on: Callable[[], None] = lambda: None,
    others: Sequence[Path] = (),
) -> Likeness:
    """What was copied. `new`: one that is not whole is emptied first; else it is what an earlier call has made.
    `others`: journals that have the same messages; a body that is damaged comes from one of them. Raises
    sqlite3.Error, OSError, what `create_file` raises, and what `goes_on` raises."""
    path = directory / JOURNAL
    if new and not whole:
        remove(path)
        create_file(path)
    with closing(connect_to_write(path)) as target:
        likeness = Likeness(source, target, goes_on, whole=whole, elsewhere=partial(_bodies, others))
        likeness.make()
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    mark_path(path).unlink(missing_ok=True)
    sync_directory(directory)
    return likeness


def _bodies(others: Sequence[Path], queue_id: int, first_seq: int, last_seq: int) -> Iterator[bytes]:
    """Those that can be read."""
    for each in others:
        with suppress(sqlite3.Error), closing(connect_to_read(each)) as connection:
            for (data,) in connection.execute(_BODY, (queue_id, last_seq, first_seq)):
                yield data


def definitions_moment(definitions: Path) -> sqlite3.Connection:
    """As `open_moment`, of a metadata database. Raises sqlite3.Error."""
    how = "mode=ro" if has_log(definitions) else "mode=rw"
    return hold_moment(connect(definitions, how, any_thread=True), "state")


def has_definitions_of(moment: sqlite3.Connection, directory: Path) -> bool:
    """The directory has the same, whole. Raises StoreDamaged, sqlite3.Error, of the moment."""
    path = directory / METADATA_DB
    try:
        contents, seen = examine_database(path), glance(path)
    except (MetadataStoreError, OSError):
        return False
    of = contents_of(moment, path), read_journal(moment, path)
    return seen is not None and (contents, seen.journal) == of


def copy_definitions(moment: sqlite3.Connection, directory: Path, goes_on: Callable[[], None] = lambda: None) -> None:
    """What the directory had is replaced when all is copied. Raises sqlite3.Error, OSError, and what `goes_on`
    raises."""
    target = directory / METADATA_DB
    new = target.with_name(f"{target.name}.new")
    remove(new)
    os.close(os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(new)) as to_here:
        moment.backup(to_here, pages=PAGES, progress=lambda *_: goes_on())
    sync_file(new)
    remove(target)
    os.replace(new, target)
    sync_directory(directory)


def remove(database: Path) -> None:
    """And what is beside it. Raises OSError."""
    for each in (mark_path(database), wal_path(database), database.with_name(f"{database.name}-shm"), database):
        each.unlink(missing_ok=True)
    database.with_name(f"{database.name}-journal").unlink(missing_ok=True)


def bytes_of(directory: Path) -> int:
    """What a copy of it takes. Raises OSError."""
    found = 0
    for name in (JOURNAL, METADATA_DB):
        for each in (directory / name, wal_path(directory / name)):
            found += each.stat().st_size if each.exists() else 0
    return found
