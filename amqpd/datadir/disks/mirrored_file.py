"""The definitions on several disks: each change is a step of the disks' one order, as a transaction of the journal.

What comes in: the calls of a store, as for one file (`topology/metadata/sqlite/store.py`). What goes out: outcomes,
when a majority of the disks has them; what is read, of a disk that has everything.
Rules: 1. Each disk decides and commits each call by itself: files that are equal and get the same calls in the same
order stay equal. One that comes to another outcome fails, and is left behind. 2. Without a majority that has space a
change is refused before it begins: `StoreFull`, and `StoreLacksDisks` where the disks that count are no majority. 3.
A change that was handed out keeps its place in the order: `OutcomeUnknown` says that a majority does not have it yet,
and what follows comes after it. 4. Events are told when a majority has them.
Not here: the order and the threads (`group.py`, `worker.py`), one disk (`one_disk.py`), which files a start has
(`opening.py`), how a disk that was left behind gets them (`repair.py`).
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from amqpd.datadir.disks.copying import copy_definitions, definitions_moment
from amqpd.datadir.disks.group import LOOK_S, DiskGroup
from amqpd.datadir.disks.one_disk import OneDisk
from amqpd.datadir.disks.questions import DiskQuestions
from amqpd.datadir.opening import METADATA_DB
from amqpd.journal.errors import DiskFailure, DiskFull, DisksLost
from amqpd.topology.metadata.sqlite.batch import CommitRequest
from amqpd.topology.metadata.sqlite.sqlite_file import QUIET_LOOKS, SqliteFile
from amqpd.topology.metadata.store import (
    Event,
    MetadataEntry,
    MetadataStoreError,
    Outcome,
    OutcomeUnknown,
    Snapshot,
    StoreDamaged,
    StoreFull,
    StoreLacksDisks,
    StoreUnavailable,
    bytes_of,
)

OPEN_S = 60.0
"""For a file to be opened, or copied, at the start: all of it is read. It has some megabytes."""
STEP_BYTES = 1024
"""What a step takes in memory beside keys and values."""
NUMBER_BYTES = 64

T = TypeVar("T")


class _Change:
    """A step: a call that writes. What comes of it is the same on each disk."""

    def __init__(self, work: Callable[[SqliteFile], Any]) -> None:
        self._work = work
        self._agreeing = threading.Lock()
        self._done: set[OneDisk] = set()
        """those that have it, and may not have noted that"""
        self.outcome: tuple[Any, int] | None = None
        """what the work returns, and the revision after it; None: no disk has it yet"""
        self.events: list[Event] = []

    def __call__(self, disk: OneDisk) -> None:
        if disk not in self._done:
            try:
                outcome, events = disk.ask(self._on)
            except StoreFull as error:
                raise DiskFull(str(error)) from error
            self._done.add(disk)
            with self._agreeing:
                if self.outcome is None:
                    self.outcome, self.events = outcome, events
                elif self.outcome != outcome:
                    raise StoreDamaged(f"{disk.definitions_path} has other definitions than the other directories")
        disk.note_definitions()

    def _on(self, file: SqliteFile) -> tuple[tuple[Any, int], list[Event]]:
        result = self._work(file)
        events, file.events = file.events, []
        return (result, file.revision), events


class MirroredFile:
    """The definitions on several disks as one `StoreFile`, each change a step on a majority; `open_definitions`
    makes it."""

    one_of_several = True

    def __init__(self, group: DiskGroup, number: int) -> None:
        """`number`: of a disk; all that count have the same, open."""
        self._group = group
        self._questions = DiskQuestions(group)
        self._number = number
        self.accepted: list[str] = []
        self.events: list[Event] = []
        self.missed_until: int | None = None
        self._pending: deque[tuple[int, _Change]] = deque()
        """what was handed out, and no majority had when it was looked last: its step, and what it is"""
        self._quiet_looks = 0
        self.identity = self._read(lambda file: file.identity)
        self._revision = self._read(lambda file: file.revision)

    @property
    def path(self) -> Path:
        """Of a file that has everything."""
        self._number = next(iter(self._group.reading()), self._number)
        return self._group.members[self._number].path / METADATA_DB

    @property
    def revision(self) -> int:
        """That a majority has."""
        return self._revision

    def get(self, key: str) -> MetadataEntry | None:
        return self._read(lambda file: file.get(key))

    def range(self, prefix: str) -> Snapshot:
        return self._read(lambda file: file.range(prefix))

    def refresh(self) -> int:
        """No other process writes these files."""
        self._take_in()
        return self._revision

    def look(self) -> None:
        self._take_in()
        self._quiet_looks += 1
        if self._quiet_looks == QUIET_LOOKS:
            self._group.hand(_rest, STEP_BYTES)

    def past(self, after: int, until: int) -> list[Event]:
        return self._read(lambda file: file.past(after, until))

    def commit(self, calls: Sequence[CommitRequest]) -> list[Outcome]:
        nbytes = sum(bytes_of(each.operations) for call in calls for each in call.transactions)
        return self._change(lambda file: file.commit(calls), nbytes)

    def require_disks(self) -> None:
        with self._group.changed:
            standings = self._group.standings
            if standings.counting < standings.majority:
                raise StoreLacksDisks(self._group.sentence())

    def dropped(self) -> dict[int, int]:
        return self._read(SqliteFile.dropped)

    def forget(self, ids: Iterable[int]) -> None:
        numbers = set(ids)
        self._group.hand(lambda disk: disk.ask(lambda file: file.forget(numbers)), NUMBER_BYTES * len(numbers))
        self._quiet_looks = 0

    def journal(self) -> tuple[str, int] | None:
        return self._read(SqliteFile.journal)

    def set_journal(self, identity: str, index: int) -> None:
        self._change(lambda file: file.set_journal(identity, index), 0)

    def close(self) -> None:
        """Each disk's thread closes its own."""

    def _change(self, work: Callable[[SqliteFile], T], nbytes: int) -> T:
        """Raises StoreFull, with no effect; OutcomeUnknown."""
        self.require_disks()
        with self._group.changed:
            able, needed = self._group.standings.able, self._group.standings.majority
        if able < needed:
            raise StoreFull(f"{able} data directories can take definitions, and {needed} are needed")
        change = _Change(work)
        step = self._group.hand(change, STEP_BYTES + nbytes)
        self._pending.append((step, change))
        self._quiet_looks = 0
        try:
            self._wait(step)
        except DiskFailure as error:
            raise MetadataStoreError(str(error)) from error
        finally:
            self._take_in()
        assert change.outcome is not None
        result: T = change.outcome[0]
        return result

    def _wait(self, step: int) -> None:
        """As long as those that hang or have no space would be a majority. Raises OutcomeUnknown, DiskFailure."""
        group = self._group
        while True:
            try:
                return group.wait(step)
            except DiskFull as error:
                with group.changed:
                    if group.ending or group.standings.counting < group.standings.majority:
                        raise OutcomeUnknown(f"too few data directories have the last change: {error}") from error
                    group.changed.wait(LOOK_S)

    def _take_in(self) -> None:
        """What a majority has by now."""
        with self._group.changed:
            stored = self._group.standings.stored
        while self._pending and self._pending[0][0] <= stored:
            _, change = self._pending.popleft()
            assert change.outcome is not None
            self._revision = change.outcome[1]
            self.events += change.events

    def _read(self, question: Callable[[SqliteFile], T]) -> T:
        """Raises StoreUnavailable while no disk has everything, and what the question raises."""
        try:
            return self._questions.ask(lambda disk: disk.ask(question))[1]
        except DisksLost as error:
            raise StoreUnavailable(str(error)) from error
        except DiskFailure as error:
            raise MetadataStoreError(str(error)) from error


def _rest(disk: OneDisk) -> None:
    disk.ask(SqliteFile.rest)


def open_definitions(group: DiskGroup) -> MirroredFile:
    """Those of all disks that count, each in its thread; they are made if there are none. A disk on which that fails
    is left behind. Blocking. Raises MetadataStoreError."""
    first: int | None = None
    failed: Exception | None = None
    for number in group.counting():
        source = None if first is None else group.members[first].path
        try:
            group.run_on(number, partial(_open, source), OPEN_S)
        except (MetadataStoreError, TimeoutError, sqlite3.Error, OSError) as error:
            failed = failed or error
            group.leave(number, str(error), damaged=not isinstance(error, (TimeoutError, StoreFull)))
        else:
            first = number if first is None else first
    if first is None:
        raise MetadataStoreError(str(failed)) from failed
    return MirroredFile(group, first)


def _open(source: Path | None, disk: OneDisk) -> None:
    """`source`: a directory that has them, for one of a new node that has none yet."""
    if source is not None and not disk.definitions_path.exists():
        with closing(definitions_moment(source / METADATA_DB)) as moment:
            copy_definitions(moment, disk.definitions_path.parent)
    disk.open_definitions()
