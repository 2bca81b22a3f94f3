"""When the write-ahead log is copied into the database, and how; and free pages, which go back to the file system.

What comes in: how much each transaction wrote. What goes out: a log that stays small and has its length from the
start, and a file that shrinks.
Rules: 1. The log is copied here, when it has grown enough; a reader can delay that only for the time of one read.
2. What was committed stays so, whatever happens: a full disk leaves the log as it is, to grow until a commit finds no
space (and is refused) or there is space again.
Not here: what is written (`disk.py`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import structlog

from amqpd.journal.errors import DiskFull
from amqpd.journal.sqlite.database import meaning
from amqpd.journal.sqlite.schema import PAGE_BYTES
from amqpd.storage.files import identity_of, lengthen, log_bytes, wal_path

CHECKPOINT_BYTES = 8 << 20
"""WAL bytes after which a commit copies the WAL into the database. Measured: with 2 MB a commit of 200 kB costs up to
twice as much, because a page is copied each time; with 32 MB nothing is won, and recovery would read it all."""
VACUUM_PAGES = 256
"""Free pages that one idle step gives back to the file system: 2 MB, 1 to 3 ms."""
FREE_BYTES_KEPT = 64 << 20
"""Free pages are kept for the next backlog up to this, or a quarter of the file if that is more."""
RESTING_BYTES_KEPT = 8 << 20
"""The same, when nothing has been written for long."""
WAL_BYTES_MAX = 2 * CHECKPOINT_BYTES
"""WAL bytes after which that waits for the reader to finish, instead of leaving pages for the next time; half of
the reserve, which must be enough for the WAL and a transaction (`reserve.py`)."""

LIGHT_BYTES = 512 << 10
"""A checkpoint that copies no more may be carried out by a commit that somebody waits for."""

LOG_BYTES = CHECKPOINT_BYTES + CHECKPOINT_BYTES // 8
"""What the log's file is lengthened to, once: the bytes that are counted, and what SQLite puts around them."""
LENGTHENED_BYTES = 256 << 10
"""In so many steps that none of them lasts on a slow disk."""
LOG_FREE_BYTES_MIN = 1 << 30
"""The file system must have so much space afterwards: more than the reserve and the first alarm ask for."""

_log = structlog.get_logger("amqpd.journal")


class Checkpoints:
    """The log and the free pages of one journal."""

    def __init__(
        self,
        writer: sqlite3.Connection,
        path: Path,
        reading: AbstractContextManager[Any],
        keep_free_bytes: int,
        log_begins: Callable[[], None],
    ) -> None:
        """`reading`: held by a reader; `keep_free_bytes`: what the file system must have besides, before the log's
        file is made longer; `log_begins`: called when what is written next may be the first in the log."""
        self._writer = writer
        self._path = path
        self._reading = reading
        self._wal_bytes = 0
        """estimate of what is in the WAL and not in the database; exact after a checkpoint"""
        self._at = CHECKPOINT_BYTES
        self._log_bytes = log_bytes(path)
        """of all that is in the log, at the last checkpoint; it is begun again after that if no reader is in it"""
        self._copies_bytes = self._log_bytes  # of a process that was killed: nobody has counted what is in it
        """estimate of what the next checkpoint copies; of rows by themselves a page that is in the log often, once"""
        self._queues: set[int] = set()
        """those of `wrote_row` since the last checkpoint, while that would be a light one"""
        self._lengthened = False
        self._log = identity_of(wal_path(path))
        self._keep_free_bytes = keep_free_bytes
        self._log_begins = log_begins
        self.shared = False
        """another connection copies the log, too: each transaction may be the first of a new one"""

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """While another connection of this process may copy the log; from any thread, by one caller at a time."""
        self.shared = True
        try:
            yield
        finally:
            self._log_begins()
            self.shared = False

    def wrote(self, pages: int, nbytes: int) -> None:
        """A transaction changed this many pages, beside rows of this many bytes."""
        wrote = pages * PAGE_BYTES + nbytes
        self._wal_bytes += wrote
        self._copies_bytes += wrote

    def wrote_row(self, queue_id: int, pages: int, nbytes: int) -> None:
        """The same of a transaction that is one row: most of its pages are those of the queue's row before it."""
        self._wal_bytes += pages * PAGE_BYTES + nbytes
        self._copies_bytes += nbytes
        if queue_id not in self._queues and self._copies_bytes <= LIGHT_BYTES:
            self._queues.add(queue_id)
            self._copies_bytes += pages * PAGE_BYTES

    def is_due(self) -> bool:
        return self._wal_bytes >= self._at

    def lasts(self) -> bool:
        """It is due, and not for a commit whose caller has no time for it: much is to be copied, or a reader may have
        to be waited for."""
        much = self._copies_bytes > LIGHT_BYTES or self._log_bytes + self._wal_bytes > WAL_BYTES_MAX
        return much and self.is_due()

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
        self._log_begins()
        self._log_bytes = pages * PAGE_BYTES
        self._wal_bytes = self._copies_bytes = (pages - copied) * PAGE_BYTES
        self._queues.clear()
        self._at = self._wal_bytes + CHECKPOINT_BYTES

    def idle_step(self, rests: bool = False) -> bool:
        """Some free pages go back to the file system, or the log's file gets longer; True when there is more to do.
        `rests`: nothing has been written for long. Raises sqlite3.Error."""
        (free,) = self._writer.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self._writer.execute("PRAGMA page_count").fetchone()
        kept = RESTING_BYTES_KEPT if rests else FREE_BYTES_KEPT
        spare = int(free - max(kept // PAGE_BYTES, (pages - free) // 4))
        if spare > 0:
            # executescript: SQLite returns after each page, and `execute` would stop at the first.
            self._writer.executescript(f"PRAGMA incremental_vacuum({min(spare, VACUUM_PAGES)})")
            self.wrote(min(spare, VACUUM_PAGES), 0)
        return spare > VACUUM_PAGES or self._lengthen_log()

    def run_after_release(self) -> None:
        """Space was given back to a full disk. Raises as `run`."""
        self._at = CHECKPOINT_BYTES
        self.run()

    def _lengthen_log(self) -> bool:
        """Once, a step at a time while nothing is written: the log's file gets the length that it has before a
        checkpoint. A sync of a file that grows takes about twice as long, since its length has to be written as well.
        True when some is left."""
        if self._lengthened or self._log is None:
            return False
        log, more = wal_path(self._path), False
        try:
            length, space = log_bytes(self._path), os.statvfs(log.parent)
            keep = max(LOG_FREE_BYTES_MIN, self._keep_free_bytes)
            if length < LOG_BYTES and space.f_bavail * space.f_frsize >= keep + LOG_BYTES:
                is_ours = lengthen(log, min(length + LENGTHENED_BYTES, LOG_BYTES), self._log)
                more = is_ours and length + LENGTHENED_BYTES < LOG_BYTES
        except OSError as error:
            # It grows by what is written, then. If the disk is failing, the next commit says so.
            _log.warning("the log's file could not be lengthened", path=str(log), reason=error.strerror or str(error))
        self._lengthened = not more
        return more
