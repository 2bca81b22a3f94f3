"""One moment of an SQLite database: what a connection reads from now on is as it is now.

What comes in: a connection that is in no transaction. What goes out: the same, in a read transaction; or closed.
Rules: 1. Only what has read has a moment: BEGIN alone waits for the first read.
Not here: which databases are read so (`datadir/disks/copying.py`, `backup/job.py`).
"""

from __future__ import annotations

import sqlite3


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
