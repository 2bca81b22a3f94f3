"""Opens databases for a look that changes nothing, and reads what can be read of them.

What comes in: a database's path. What goes out: a connection; rows, and the reason where reading ended.
Rules: 1. Where there is a log SQLite has to read it, so the database is opened for reading only; without one it is
taken as it stands (`immutable`), and no file beside it is made. 2. Whatever a damaged page makes of a value, a row
comes out or the reason does, never an exception of the driver.
Not here: what is asked (`journal.py`, `metadata.py`, `salvage.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import error as struct_error
from typing import Any

from amqpd.storage.files import has_log
from amqpd.storage.moment import connect

LINES_MAX = 100
"""of SQLite's own check"""

Row = tuple[Any, ...]


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads a database and changes nothing of it. Raises sqlite3.Error."""
    shared = path.with_name(path.name + "-shm")
    with_log = has_log(path)
    before = shared.exists()
    how = "mode=ro" if with_log else "immutable=1"
    connection = connect(path, how)
    connection.text_factory = _text
    try:
        connection.execute("PRAGMA query_only = ON")
        yield connection
    finally:
        connection.close()
        if with_log and not before:
            # SQLite makes it of the log.
            shared.unlink(missing_ok=True)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def has_columns(connection: sqlite3.Connection, *columns: str) -> bool:
    """`columns`: as in "names.value"."""
    try:
        for column in columns:
            table, _, name = column.partition(".")
            connection.execute(f"SELECT {name} FROM {table} WHERE false").fetchall()
    except sqlite3.Error:
        return False
    return True


def each(connection: sqlite3.Connection, sql: str, ended: Callable[[str], None]) -> Iterator[Row]:
    """The rows; `ended` is told why they end early, if they do."""
    try:
        cursor = connection.execute(sql)
        while (row := cursor.fetchone()) is not None:
            yield row
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # The driver takes SQLite's error for UTF-8, and a damaged name in it may be none.
        ended(str(error))


def structure(connection: sqlite3.Connection, table: str = "") -> list[str]:
    """What SQLite's own check says, a line each; empty: nothing."""
    argument = f"'{table}'" if table else str(LINES_MAX)
    lines: list[str] = []
    for (said,) in each(connection, f"PRAGMA integrity_check({argument})", lines.append):
        lines += [line for line in str(said).splitlines() if line != "ok" and not line.startswith("***")]
    return list(dict.fromkeys(lines))[:LINES_MAX]


def checksum_matches(made: Callable[..., int], *values: Any, crc: Any) -> bool:
    """Whether the checksum is of these values; a damaged record may have values of any type."""
    try:
        return bool(made(*values) == crc)
    except (struct_error, TypeError, ValueError, AttributeError):
        return False
