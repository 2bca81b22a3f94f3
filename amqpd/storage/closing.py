"""Closes SQLite's connections without changing the database.

What comes in: the open connections of one database. What goes out: nothing is open any more, and the files are as
they were.
Rules: 1. SQLite copies the log into the database and removes it when the last connection is closed. One that may not
write cannot, so such a one is closed last. 2. Where none can be opened, the connections are left open until the
process ends.
Not here: an orderly end, which wants the log to be copied.
"""

from __future__ import annotations

import ctypes
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from amqpd.storage.files import has_log, wal_path
from amqpd.storage.moment import connect


def close_unchanged(
    path: Path, connections: Iterable[sqlite3.Connection], *, vfs: str = "", had_log: bool = True
) -> None:
    """Close them; `vfs` is the one that they were opened with, `had_log`: there was a log before, maybe an empty one.
    Calling it for closed ones does nothing."""
    opened = [connection for connection in connections if _is_open(connection)]
    if not opened:
        return
    try:
        last = connect(path, "mode=ro" + (f"&vfs={vfs}" if vfs else ""), timeout_s=0, any_thread=True)
        # Only a connection that has read holds on to the log.
        last.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error:
        for connection in opened:
            leave_open(connection)
        return
    for connection in opened:
        with suppress(sqlite3.Error):
            connection.rollback()
        connection.close()
    last.close()
    with suppress(OSError):
        if not had_log and not has_log(path):  # opening the database made it
            wal_path(path).unlink()


def leave_open(holder: object) -> None:
    """What it has open stays so until the process ends, and even then: the interpreter closes what nothing refers to
    any more, also at its own end. (SQLite can be told so from Python 3.12 on: SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE.)"""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        _ = connection.total_changes
    except sqlite3.ProgrammingError:
        return False
    return True
