"""The store's file on one more disk, and what is asked of the disks.

What comes in: statements that the first file has committed. What goes out: the same, committed here.
Rules: 1. What is done with the file is done in a thread of its disk (`calls`), which may hang.
Not here: which file is the first one, when a disk is left (`mirrored_file.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import structlog

from amqpd.storage.bounded import BoundedCalls, Call
from amqpd.storage.files import mark_path
from amqpd.storage.mark import Mark
from amqpd.topology.metadata.sqlite.database import (
    Opened,
    close_database,
    driver_of,
    explained,
    open_database,
    transaction,
)
from amqpd.topology.metadata.store import MetadataStoreError

log = structlog.get_logger(component="topology")


class Outside(Protocol):
    """What the file asks of the disks."""

    @property
    def majority(self) -> int: ...

    def takes(self, number: int) -> bool:
        """The disk was not left behind; it may be under repair."""
        ...

    def counts(self, number: int) -> bool:
        """It has everything, as far as is known."""
        ...

    @property
    def lost(self) -> str:
        """Why the disks that are left, whether they answer and have space or not, are no majority. Empty: they are
        one."""
        ...

    @property
    def ending(self) -> bool:
        """Nobody waits for disks any more."""
        ...

    def leave(self, number: int, reason: str, *, damaged: bool = True) -> None:
        """The disk counts no more. `damaged`: nor does what it has."""
        ...

    def left(self) -> None:
        """A majority is to know now which disks do not count. Raises StoreFull."""
        ...

    def copy(self, source: Path, directory: Path) -> None:
        """The database as a whole into another directory. Raises sqlite3.Error, OSError."""
        ...


class DiskHangs(MetadataStoreError):
    """The disk does not answer."""


class Unknown(MetadataStoreError):
    """A file has it, or may have it, and too few others."""


class OtherFile:
    """The file of another disk."""

    def __init__(self, number: int, path: Path, calls: BoundedCalls) -> None:
        """In the thread of the disk."""
        self.number = number
        self.path = path
        self.calls = calls
        self.opened: Opened = open_database(path)
        self.driver = driver_of(self.opened.connection)
        self.mark: Mark | None = self.opened.mark.by_calls() if self.opened.mark is not None else None
        self._closed = False

    def write(self, statements: Sequence[tuple[str, Any, bool]], identity: str, revision: int) -> None:
        """Raises as `explained`."""
        with explained(self.path), transaction(self.driver, "BEGIN IMMEDIATE"):
            for sql, given, many in statements:
                (self.driver.executemany if many else self.driver.execute)(sql, given)
        with explained(self.path):
            self.mark = self.mark or Mark(mark_path(self.path), identity, revision).by_calls()
            self.mark.promise(revision)

    def close(self) -> None:
        """Raises as `explained`. A second time it does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            close_database(self.opened.connection, self.path)
        finally:
            if self.mark is not None:
                self.mark.close()
                self.mark = None

    def close_late(self) -> None:
        """When nobody waits for it."""
        try:
            self.close()
        except MetadataStoreError as error:
            log.warning("definitions could not be closed", path=str(self.path), reason=str(error))


def free_bytes(path: Path) -> int:
    """0: the disk does not say."""
    try:
        file_system = os.statvfs(path.parent)
    except OSError:
        return 0
    return file_system.f_bavail * file_system.f_frsize


def close_copied(copying: Call[OtherFile]) -> None:
    """Nobody waits for it any more."""
    if copying.error is None:
        copying.answer.close_late()
