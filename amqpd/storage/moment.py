"""A connection to an SQLite database, and one moment of it: what is read from then on is as it is then.

What comes in: a path; a connection that is in no transaction. What goes out: a connection; the same, in a read
transaction, or closed.
Rules: 1. Only what has read has a moment: BEGIN alone waits for the first read. 2. Transactions are begun and ended
by statements, never by the driver.
Not here: which databases are read so (`datadir/disks/copying.py`, `backup/job.py`).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote


def connect(path: Path, how: str, *, timeout_s: float = 5.0, any_thread: bool = False) -> sqlite3.Connection:
    """`how`: the parameters of SQLite's URI. `any_thread`: one at a time uses it. Raises sqlite3.Error."""
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{how}",
        uri=True,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=not any_thread,
    )


def hold_moment(connection: sqlite3.Connection, table: str = "sqlite_schema") -> sqlite3.Connection:
    """The connection, which reads the database as it is now until its transaction is ended. `table` is read for that:
    a database that lacks it raises. Raises sqlite3.Error, and closes the connection then."""
    try:
        connection.execute("BEGIN")
        connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
