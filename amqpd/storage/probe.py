"""Whether a database that looks damaged can be read at all: a disk that fails is not damage.

What comes in: a data directory or a database in it, after SQLite said that it is malformed. What goes out: one
sentence with the system's reason, if it gives one.
Rules: 1. SQLite says "malformed" for a page that the system could not read too (it turns EIO, SQLITE_IOERR_CORRUPTFS,
into SQLITE_CORRUPT), so the files are read once by the system's own calls. 2. Nothing is changed, and no more than
`BYTES_MAX` is read: this is done on the way to an error, once. 3. A read that failed once and succeeds now is not
noticed; SQLite's own check says that it could not get a page (`could_not_read`).
Not here: what is wrong with what can be read (`journal/sqlite/trust.py`, `topology/metadata/sqlite/verification.py`).
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from amqpd.storage.files import wal_path

BYTES_MAX = 4 << 30
PIECE_BYTES = 1 << 20
# In a line of PRAGMA quick_check; the code's low byte is SQLite's primary one.
_CODE = re.compile(r"unable to get the page\. error code=(\d+)")
_SQLITE_IOERR = 10
# What a missing or foreign file says is for others to tell.
_FAILING = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.EBADMSG, errno.ETIMEDOUT})


def disk_error(directory: Path) -> str | None:
    """One sentence, when a database in the data directory, or its log, cannot be read as a whole."""
    for name in ("journal.db", "metadata.db"):
        if (sentence := disk_error_of(directory / name)) is not None:
            return sentence
    return None


def disk_error_of(database: Path) -> str | None:
    for path in (database, wal_path(database)):
        try:
            _read_through(path)
        except OSError as error:
            if error.errno in _FAILING:
                return f"the disk of {path} failed: {error.strerror}; see what the system's log says of it"
    return None


def could_not_read(said: str) -> bool:
    """This line of SQLite's check is of a page that could not be read, not of one that is wrong."""
    return any(int(code) & 0xFF == _SQLITE_IOERR for code in _CODE.findall(said))


def _read_through(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        at = 0
        while at < BYTES_MAX and (piece := os.pread(descriptor, PIECE_BYTES, at)):
            at += len(piece)
    finally:
        os.close(descriptor)
