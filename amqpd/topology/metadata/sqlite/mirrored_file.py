"""The embedded store's file on several disks: one is worked with, the others get the same transactions.

What comes in: the calls of a store, as for one file. What goes out: outcomes, when a majority of the disks has them.
Rules: 1. What is read and decided is of the first file; what that commits, each other one commits right after it,
statement by statement. 2. A file that fails is left, and the disk with it; that is known on a majority (`left`)
before anything else is committed. When it was the first one, the next takes its place, and the call is made again. 3.
Without a majority that has space a commit is refused before it begins: `StoreFull`. When that shows only after the
first file has it, the outcome is unknown, and the node ends. 4. What another process wrote to the first file is
copied as a whole to the others.
Not here: one file (`sqlite_file.py`), which disks there are (`amqpd.datadir.disks`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from amqpd.storage.files import mark_path
from amqpd.storage.mark import Mark
from amqpd.topology.metadata.sqlite.batch import Call
from amqpd.topology.metadata.sqlite.database import (
    Opened,
    close_database,
    driver_of,
    explained,
    open_database,
    transaction,
)
from amqpd.topology.metadata.sqlite.fan_out import FanOut
from amqpd.topology.metadata.sqlite.sqlite_file import HISTORY_REVISIONS_MAX, SqliteFile
from amqpd.topology.metadata.store import (
    Entry,
    Event,
    MetadataStoreError,
    NewerFormat,
    Outcome,
    Snapshot,
    StoreBusy,
    StoreClosed,
    StoreFull,
)

SPACE_BYTES = 1 << 20
"""What a disk must have free for a commit to begin: more than any but the largest takes."""

log = structlog.get_logger(component="topology")

T = TypeVar("T")


class TooFewDisks(StoreFull):
    """No majority can take the transaction: it had no effect."""


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

    def leave(self, number: int, reason: str) -> None:
        """The disk counts no more."""
        ...

    def left(self) -> None:
        """A majority is to know now which disks do not count. Raises StoreFull."""
        ...

    def copy(self, source: Path, directory: Path) -> None:
        """The database as a whole into another directory. Raises sqlite3.Error, OSError."""
        ...


class _Other:
    """The file of another disk."""

    def __init__(self, number: int, path: Path) -> None:
        self.number = number
        self.path = path
        self.opened: Opened = open_database(path)
        self.driver = driver_of(self.opened.connection)
        self.mark: Mark | None = self.opened.mark


class MirroredFile(SqliteFile):
    """See `SqliteFile`. One thread at a time."""

    def __init__(self, outside: Outside, paths: dict[int, Path], *, accept_loss: bool = False) -> None:
        """`paths`: by the disk's number; all have the same. The lowest number that can be opened is worked
        with."""
        self._outside = outside
        self._others: list[_Other] = []
        self._foreign = self._untold = False
        """another process has written the first file, and the others do not have that; the list of disks does not say
        yet that some were left"""
        unusable = self._open_first(paths, accept_loss=accept_loss)
        self._fan_out = FanOut(self._driver)
        self._driver = self._fan_out  # type: ignore[assignment]
        for number in sorted(paths):
            if number == self._number:
                continue
            reason = unusable.get(number) or self._join(number, paths[number])
            if reason is not None:
                self._outside.leave(number, reason)
                self._untold = True

    # As the file of one disk

    def get(self, key: str) -> Entry | None:
        return self._surviving(lambda: super(MirroredFile, self).get(key))

    def range(self, prefix: str) -> Snapshot:
        return self._surviving(lambda: super(MirroredFile, self).range(prefix))

    def refresh(self) -> int:
        return self._surviving(lambda: super(MirroredFile, self).refresh())

    def look(self) -> None:
        self._surviving(lambda: super(MirroredFile, self).look())

    def past(self, after: int, until: int) -> list[Event]:
        return self._surviving(lambda: super(MirroredFile, self).past(after, until))

    def commit(self, calls: Sequence[Call]) -> list[Outcome]:
        return self._surviving(lambda: self._mirror(lambda: super(MirroredFile, self).commit(calls)))

    def dropped(self) -> frozenset[int]:
        return self._surviving(lambda: super(MirroredFile, self).dropped())

    def journal(self) -> tuple[str, int] | None:
        return self._surviving(lambda: super(MirroredFile, self).journal())

    def set_journal(self, identity: str, index: int) -> None:
        self._surviving(lambda: self._mirror(lambda: super(MirroredFile, self).set_journal(identity, index)))

    def close(self) -> None:
        for other in self._others:
            self._close(other)
        self._others = []
        super().close()

    # For those who repair

    def add(self, number: int, directory: Path) -> str | None:
        """The disk gets a copy, and what is committed from now on. Why that failed; None: it has it."""
        self._leave_left()
        if (reason := self._drop(number)) is not None:
            return reason
        return self._copy_to(number, directory / self.path.name)

    def prefer_first(self) -> None:
        """The one with the lowest number is worked with: commands look for it there."""
        if self._others and self._others[0].number < self._number:
            self._exchange()

    @property
    def number(self) -> int:
        """Of the disk that is worked with."""
        return self._number

    # Inside

    def _open_first(self, paths: dict[int, Path], *, accept_loss: bool) -> dict[int, str]:
        """Why those could not be opened that were tried before: losses are accepted when each has some. Raises as
        `SqliteFile`, of the first one."""
        unusable: dict[int, str] = {}
        failed: MetadataStoreError | None = None
        for accepting in (False, True) if accept_loss else (False,):
            for self._number in sorted(paths):
                if failed is not None and not paths[self._number].exists():
                    continue  # it would be begun, empty
                try:
                    super().__init__(paths[self._number], HISTORY_REVISIONS_MAX, accepting)
                except (NewerFormat, StoreBusy):
                    raise
                except MetadataStoreError as error:
                    failed = failed or error
                    unusable[self._number] = str(error)
                else:
                    return {number: reason for number, reason in unusable.items() if number != self._number}
        assert failed is not None
        raise failed

    def _join(self, number: int, path: Path) -> str | None:
        """At the start. A new node has made the first file only."""
        if not path.exists():
            return self._copy_to(number, path)
        try:
            other = _Other(number, path)
        except MetadataStoreError as error:
            return str(error)
        if other.opened.identity != self.identity:
            self._close(other)
            return self._copy_to(number, path)
        self._others.append(other)
        return None

    def _copy_to(self, number: int, path: Path) -> str | None:
        try:
            self._outside.copy(self.path, path.parent)
            self._others.append(_Other(number, path))
        except (MetadataStoreError, sqlite3.Error, OSError) as error:
            return str(error)
        self._others.sort(key=lambda other: other.number)
        return None

    def _drop(self, number: int) -> str | None:
        """What is still open of a disk, whose file may be another one by now. Why that cannot be."""
        if number == self._number:
            if not self._others:
                return f"no other data directory has what {self.path} has"
            self._exchange()
        for other in [each for each in self._others if each.number == number]:
            self._others.remove(other)
            self._untold = True
            try:
                self._close_file(other)
            except MetadataStoreError as error:
                log.warning("definitions could not be closed", path=str(other.path), reason=str(error))
        return None

    def _surviving(self, work: Callable[[], T]) -> T:
        """The disk that is worked with may fail, as long as there are others."""
        while True:
            self._leave_left()
            try:
                result = work()
                if self._foreign:
                    self._copy_again()
                return result
            except (StoreBusy, StoreClosed, TooFewDisks):
                raise
            except MetadataStoreError as error:
                if isinstance(error, StoreFull) and len(self._others) + 1 <= self._outside.majority:
                    raise
                if not self._others or isinstance(error, _Unknown):
                    raise
                self._outside.leave(self._number, str(error))

    def _mirror(self, work: Callable[[], T]) -> T:
        """Work that writes."""
        spacious = [path for path in self._counting() if _free_bytes(path) >= SPACE_BYTES]
        if len(spacious) < self._outside.majority:
            raise TooFewDisks(
                f"{len(spacious)} data directories can take definitions, and {self._outside.majority} are needed"
            )
        self._tell()
        self._fan_out.statements = []
        try:
            result = work()
        finally:
            statements, self._fan_out.statements = self._fan_out.committed(), None
        if statements and not self._foreign:
            self._replay(statements)
        return result

    def _replay(self, statements: list[tuple[str, Any, bool]]) -> None:
        for other in list(self._others):
            try:
                with explained(other.path), transaction(other.driver, "BEGIN IMMEDIATE"):
                    for sql, given, many in statements:
                        (other.driver.executemany if many else other.driver.execute)(sql, given)
                with explained(other.path):
                    other.mark = other.mark or Mark(mark_path(other.path), self.identity, self._seen)
                    other.mark.promise(self._seen)
            except MetadataStoreError as error:
                self._outside.leave(other.number, str(error))
        self._leave_left()
        if (count := len(self._counting())) < self._outside.majority:
            needed = self._outside.majority
            raise _Unknown(f"the last change of definitions is on {count} data directories, and {needed} are needed")
        try:
            self._tell()
        except StoreFull as error:
            raise _Unknown(str(error)) from error

    def _tell(self) -> None:
        """A majority knows which disks were left. Raises StoreFull."""
        if self._untold:
            self._outside.left()
            self._untold = False

    def _counting(self) -> list[Path]:
        """Files of disks that count, one of each."""
        files = {self._number: self.path} | {other.number: other.path for other in self._others}
        return [path for number, path in files.items() if self._outside.counts(number)]

    def _leave_left(self) -> None:
        """Disks that were left behind, for whatever reason, are not worked with."""
        gone = [other for other in self._others if not self._outside.takes(other.number)]
        for other in gone:
            self._others.remove(other)
            self._close(other)
            self._untold = True
        # The last one is worked with whatever is known of it: what it says is the reason for what follows.
        if not self._outside.takes(self._number) and self._others:
            self._exchange()
            self._close(self._others.pop())
            self._untold = True

    def _exchange(self) -> None:
        """The first of the others takes the place of the one that is worked with, which is the last of them then."""
        before = self._number, self.path, self._connection, self._fan_out.driver, self._mark
        other = self._others.pop(0)
        self._number, self.path, self._mark = other.number, other.path, other.mark
        self._connection, self._fan_out.driver = other.opened.connection, other.driver
        self._data_version = None
        other.number, other.path, other.opened.connection, other.driver, other.mark = before
        self._others.append(other)

    def _copy_again(self) -> None:
        others, self._others = self._others, []
        for other in others:
            self._close(other)
            if (reason := self.add(other.number, other.path.parent)) is not None:
                self._outside.leave(other.number, reason)
        self._foreign = False
        self._leave_left()

    def _close(self, other: _Other) -> None:
        """Whatever its disk says: it was left, or all ends."""
        try:
            self._close_file(other)
        except MetadataStoreError as error:
            self._outside.leave(other.number, str(error))

    def _close_file(self, other: _Other) -> None:
        try:
            close_database(other.opened.connection, other.path)
        finally:
            if other.mark is not None:
                other.mark.close()
                other.mark = None

    def _catch_up(self) -> tuple[int, int]:
        before = self._seen
        found = super()._catch_up()
        self._foreign = self._foreign or (self._seen != before and bool(self._others))
        return found


class _Unknown(MetadataStoreError):
    """The first file has it, and too few others."""


def _free_bytes(path: Path) -> int:
    """0: the disk does not say."""
    try:
        file_system = os.statvfs(path.parent)
    except OSError:
        return 0
    return file_system.f_bavail * file_system.f_frsize
