"""Copies one SQLite database as it is at one moment, while others write it.

What comes in: a connection that holds a read transaction, the new file's path. What goes out: the file, on stable
storage, whole and without a file beside it.
Rules: 1. The read transaction is the moment: without it SQLite begins again each time that somebody commits. 2. A
bounded number of pages at a time, without the interpreter's lock. 3. What is written is synced on the way, so that
it never gathers to an fsync of gigabytes, which the journal's own would wait behind. 4. An error says on which side
it was: what cannot be read is damage, what cannot be written is the target's.
Not here: which databases, and in which order (`job.py`), whether they are sound (`soundness.py`).
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from amqpd.backup.manifest import BackupError
from amqpd.backup.progress import Progress
from amqpd.storage.moment import connect

STEP_BYTES = 2 << 20
"""Copied without a look at anything else: 1 to 3 ms. Between two steps the thread asks for the interpreter once."""
SYNC_BYTES = 32 << 20
"""Written between two syncs: what a disk of 300 MB/s takes in 0.1 s."""
REMEDY = "look at the node's log, and keep the older backups"
CACHE_BYTES = 2 << 20
"""Pages are copied once each; SQLite writes what does not fit."""


def copy(
    source: sqlite3.Connection,
    name: str,
    target: Path,
    progress: Progress,
    watch: Callable[[], None],
    then: Callable[[sqlite3.Connection], None] | None = None,
) -> None:
    """`name` is the source's for errors. `watch` is called between steps, and ends the copy by raising; `then` at the
    end with a connection to the copy, which may change it.

    Raises BackupError."""
    (page_bytes,) = source.execute("PRAGMA page_size").fetchone()
    pages = max(1, STEP_BYTES // page_bytes)
    with explained(name, target):
        sync_fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with closing(_open_target(target)) as connection:
                unsynced = 0

                def stepped(_: int, remaining: int, total: int) -> None:
                    nonlocal unsynced
                    nbytes = (total - remaining) * page_bytes - progress.done
                    progress.total = total * page_bytes
                    unsynced += nbytes
                    if unsynced >= SYNC_BYTES:
                        os.fdatasync(sync_fd)
                        unsynced = 0
                    progress.add(nbytes)
                    watch()
                    progress.pace(nbytes)

                source.backup(connection, pages=pages, progress=stepped)
                if then is not None:
                    # Out of the write-ahead log's mode, which came with the pages: nobody would take its log over.
                    connection.execute("PRAGMA journal_mode = DELETE")
                    then(connection)
            os.fsync(sync_fd)
        finally:
            os.close(sync_fd)


def size_of(source: sqlite3.Connection) -> int:
    """Bytes of the copy."""
    (pages,) = source.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = source.execute("PRAGMA page_size").fetchone()
    return int(pages * page_bytes)


def _open_target(path: Path) -> sqlite3.Connection:
    # No locks: nobody else knows the file, and closing the other descriptor would drop those of this process. No
    # journal and no sync of SQLite's: a copy that is not finished is thrown away, and is synced here.
    connection = connect(path, "vfs=unix-none")
    # Without locks it can have the write-ahead log's mode only alone.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(f"PRAGMA cache_size = -{CACHE_BYTES >> 10}")
    return connection


@contextmanager
def explained(name: str, target: Path) -> Iterator[None]:
    """Errors of SQLite and of the file system become one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", None) or ""
        if code in ("SQLITE_FULL", "SQLITE_IOERR_WRITE"):
            reason = "no space left" if code == "SQLITE_FULL" else f"{error}"
            raise BackupError(_unwritable(target, reason)) from error
        if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise BackupError(f"{name} is damaged ({error}): {REMEDY}") from error
        raise BackupError(f"{name} cannot be copied to {target} ({error}, {code or 'no code'}): {REMEDY}") from error
    except OSError as error:
        raise BackupError(_unwritable(target, error.strerror or str(error), error.errno)) from error


def _unwritable(target: Path, reason: str, code: int | None = errno.ENOSPC) -> str:
    way_out = "give it more space, or name another folder"
    if code not in (errno.ENOSPC, errno.EDQUOT):
        way_out = f"make it a folder that user {os.geteuid()} can write, or name another one"
    return f"cannot write {target}: {reason}; {way_out}"
