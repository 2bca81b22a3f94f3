"""When the write-ahead log is copied into the database, and how.

What comes in: how much each transaction wrote. What goes out: a log that stays small.
Rules: 1. The log is copied here, when it has grown enough; a reader can delay that only for the time of one read.
2. What was committed stays so, whatever happens: a full disk leaves the log as it is, to grow until a commit finds no
space (and is refused) or there is space again.
Not here: what is written (`disk.py`).
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from amqpd.journal.errors import DiskFull
from amqpd.journal.sqlite.database import meaning
from amqpd.journal.sqlite.schema import PAGE_BYTES

CHECKPOINT_BYTES = 8 << 20
"""WAL bytes after which a commit copies the WAL into the database. Measured: with 2 MB a commit of 200 kB costs up to
twice as much, because a page is copied each time; with 32 MB nothing is won, and recovery would read it all."""
WAL_BYTES_MAX = 2 * CHECKPOINT_BYTES
"""WAL bytes after which that waits for the reader to finish, instead of leaving pages for the next time; half of
the reserve, which must be enough for the WAL and a transaction (`reserve.py`)."""


class Checkpoints:
    def __init__(self, writer: sqlite3.Connection, path: Path, reading: AbstractContextManager[Any]) -> None:
        """`reading`: held by whoever reads."""
        self._writer = writer
        self._path = path
        self._reading = reading
        self._wal_bytes = 0
        """estimate of what is in the WAL and not in the database; exact after a checkpoint"""
        self._at = CHECKPOINT_BYTES

    def wrote(self, pages: int, nbytes: int) -> None:
        """A transaction changed so many pages, beside rows of so many bytes."""
        self._wal_bytes += pages * PAGE_BYTES + nbytes

    def is_due(self) -> bool:
        return self._wal_bytes >= self._at

    def is_worthwhile(self) -> bool:
        """When there is nothing else to do."""
        return self._wal_bytes >= CHECKPOINT_BYTES // 4

    def run(self) -> None:
        """Raises sqlite3.Error, but none for a full disk."""
        try:
            _, pages, copied = self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages * PAGE_BYTES > WAL_BYTES_MAX:
                with self._reading:
                    _, pages, copied = self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            if not isinstance(meaning(error, self._path), DiskFull):
                raise
            self._at = self._wal_bytes + CHECKPOINT_BYTES // 8
            return
        # A WAL that is copied as a whole, and that no reader uses, is begun from its start by the next commit.
        self._wal_bytes = (pages - copied) * PAGE_BYTES
        self._at = self._wal_bytes + CHECKPOINT_BYTES

    def run_after_release(self) -> None:
        """Space was given back to a full disk. Raises as `run`."""
        self._at = CHECKPOINT_BYTES
        self.run()
