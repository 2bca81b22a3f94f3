"""The embedded store's file on several disks: one is worked with, the others get the same transactions.

What comes in: the calls of a store, as for one file. What goes out: outcomes, when a majority of the disks has them.
Rules: 1. What is read and decided is of the first file; what that commits, each other one commits right after it,
statement by statement. 2. A file that fails is left, and the disk with it; that is known on a majority (`left`)
before anything else is committed. When it was the first one, the next takes its place, and the call is made again. 3.
Without a majority that has space a commit is refused before it begins: `StoreFull`, and `StoreLacksDisks` where so
many were left that no space would help. When that shows only after the
first file has it, the outcome is unknown, and the node ends. 4. What another process wrote to the first file is
copied as a whole to the others. 5. What is done with a file is done in a thread of its disk. One that does not answer
for `HANG_S` is left while the others are a majority; what it may still do to its file, that thread ends.
Not here: one file (`sqlite_file.py`), which disks there are (`amqpd.datadir.disks`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from amqpd.storage import bounded
from amqpd.storage.bounded import HANG_S, BoundedCalls, Unanswered
from amqpd.storage.closing import leave_open
from amqpd.topology.metadata.sqlite.batch import Call
from amqpd.topology.metadata.sqlite.first_file import FirstFile
from amqpd.topology.metadata.sqlite.other_file import DiskHangs, OtherFile, Outside, Unknown, close_copied, free_bytes
from amqpd.topology.metadata.store import (
    Entry,
    Event,
    MetadataStoreError,
    Outcome,
    Snapshot,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StoreLacksDisks,
)

SPACE_BYTES = 1 << 20
"""What a disk must have free for a commit to begin: more than any but the largest takes."""
COPY_S = 60.0
"""For a copy of all definitions, which are some megabytes: declarations wait for it."""
CLOSE_S = 5.0
"""For files to be closed in the end. What was committed is on a majority."""

log = structlog.get_logger(component="topology")

T = TypeVar("T")


class TooFewDisks(StoreFull):
    """No majority can take the transaction: it had no effect."""


class MirroredFile(FirstFile):
    """See `SqliteFile`. One thread at a time."""

    def __init__(self, outside: Outside, paths: dict[int, Path], *, accept_loss: bool = False) -> None:
        """`paths`: by the disk's number; all have the same. The lowest number that can be opened is worked
        with."""
        self._outside = outside
        self._others: list[OtherFile] = []
        self._hanging: dict[int, BoundedCalls] = {}
        """of disks that were left while something was done with their file"""
        self._foreign = self._untold = False
        """another process has written the first file, and the others do not have that; the list of disks does not say
        yet that some were left"""
        unusable = self._open_first(paths, accept_loss=accept_loss)
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

    def require_disks(self) -> None:
        if lost := self._outside.lost:
            raise StoreLacksDisks(lost)

    def dropped(self) -> dict[int, int]:
        return self._surviving(lambda: super(MirroredFile, self).dropped())

    def journal(self) -> tuple[str, int] | None:
        return self._surviving(lambda: super(MirroredFile, self).journal())

    def set_journal(self, identity: str, index: int) -> None:
        self._surviving(lambda: self._mirror(lambda: super(MirroredFile, self).set_journal(identity, index)))

    def close(self) -> None:
        """A disk that hangs is left as it is."""
        others, self._others = self._others, []
        closing = [(other.number, other.path, other.calls, other.calls.put(other.close)) for other in others]
        closing.append((self._number, self.path, self._calls, self._calls.put(super().close)))
        end_s = time.monotonic() + CLOSE_S
        for number, path, calls, call in closing:
            try:
                calls.wait(call, lambda _: time.monotonic() >= end_s)
            except Unanswered:
                log.error("definitions do not answer: they are left as they are", path=str(path))
                leave_open((self._connection, others))
            except MetadataStoreError as error:
                if number == self._number:
                    raise
                self._outside.leave(number, str(error))
            finally:
                calls.close()

    # For those who repair

    def add(self, number: int, directory: Path) -> str | None:
        """The disk gets a copy, and what is committed from now on. Why that failed; None: it has it."""
        self._leave_left()
        if (reason := self._drop(number)) is not None:
            return reason
        if (hanging := self._hanging.get(number)) is not None:  # maybe since it was dropped
            if not hanging.ended(0):
                return f"{directory / self.path.name} still hangs"
            del self._hanging[number]
        return self._copy_to(number, directory / self.path.name)

    def prefer_first(self) -> None:
        """The one with the lowest number is worked with: commands look for it there."""
        if self._others and self._others[0].number < self._number:
            self._replace()

    # Inside

    def _join(self, number: int, path: Path) -> str | None:
        """At the start. A new node has made the first file only."""
        if not path.exists():
            return self._copy_to(number, path)
        calls = BoundedCalls(str(path))
        try:
            other = calls.call(lambda: OtherFile(number, path, calls), COPY_S)
        except Unanswered as error:
            self._abandon(number, calls)
            return str(error)
        except MetadataStoreError as error:
            calls.close()
            return str(error)
        if other.opened.identity != self.identity:
            self._close(other)
            return self._copy_to(number, path)
        self._others.append(other)
        return None

    def _copy_to(self, number: int, path: Path) -> str | None:
        source, calls = self.path, BoundedCalls(str(path))

        def copy() -> OtherFile:
            self._outside.copy(source, path.parent)
            return OtherFile(number, path, calls)

        copying = calls.put(copy)
        try:
            other = calls.wait(copying, lambda waited_s: waited_s >= COPY_S or self._outside.ending)
        except Unanswered as error:
            self._abandon(number, calls, lambda: close_copied(copying))
            return str(error)
        except (MetadataStoreError, sqlite3.Error, OSError) as error:
            calls.close()
            return str(error)
        self._others.append(other)
        self._others.sort(key=lambda other: other.number)
        return None

    def _drop(self, number: int) -> str | None:
        """What is still open of a disk, whose file may be another one by now. Why that cannot be."""
        if number == self._number:
            if not self._others:
                return f"no other data directory has what {self.path} has"
            self._replace()
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
        unsure = ""  # why the last one was left, if it may have committed
        while True:
            self._leave_left()
            self._fan_out.may_have_committed = False
            try:
                result = work()
                if self._foreign:
                    self._copy_again()
                return result
            except (StoreBusy, StoreFull, StoreClosed) as error:
                if isinstance(error, StoreFull) and self._others_may_have_space(error):
                    self._outside.leave(self._number, str(error))
                    continue
                if unsure:
                    raise Unknown(f"a data directory may have the last change ({unsure}): {error}") from error
                raise
            except MetadataStoreError as error:
                if not self._others or isinstance(error, Unknown):
                    raise
                unsure = str(error) if self._fan_out.may_have_committed else unsure
                self._outside.leave(self._number, str(error), damaged=not isinstance(error, DiskHangs))

    def _others_may_have_space(self, error: StoreFull) -> bool:
        too_few = isinstance(error, (TooFewDisks, StoreLacksDisks))
        return not too_few and len(self._others) + 1 > self._outside.majority

    def _mirror(self, work: Callable[[], T]) -> T:
        """Work that writes."""
        self.require_disks()
        spacious = self._spacious()
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
        if statements:
            if self._foreign:
                self._copy_again()
            else:
                self._replay(statements)
            self._require_majority()
        return result

    def _replay(self, statements: list[tuple[str, Any, bool]]) -> None:
        writing = [
            (other, other.calls.put(partial(other.write, statements, self.identity, self._seen)))
            for other in self._others
        ]
        for other, call in writing:
            try:
                self._wait(other.number, other.calls, call, self._enough([each for _, each in writing], 1))
            except MetadataStoreError as error:
                self._outside.leave(other.number, str(error), damaged=not isinstance(error, DiskHangs))

    def _require_majority(self) -> None:
        """Has what the first file has just committed. Raises Unknown."""
        self._leave_left()
        if (count := len(self._counting())) < self._outside.majority:
            needed = self._outside.majority
            raise Unknown(f"the last change of definitions is on {count} data directories, and {needed} are needed")
        try:
            self._tell()
        except StoreFull as error:
            raise Unknown(str(error)) from error

    def _tell(self) -> None:
        """A majority knows which disks were left. Raises StoreFull."""
        if self._untold:
            self._outside.left()
            self._untold = False

    def _files(self) -> dict[int, tuple[Path, BoundedCalls]]:
        """One of each disk."""
        first = {self._number: (self.path, self._calls)}
        return first | {other.number: (other.path, other.calls) for other in self._others}

    def _counting(self) -> list[int]:
        """Those of disks that count."""
        return [number for number in self._files() if self._outside.counts(number)]

    def _spacious(self) -> list[int]:
        """Those that have space, too."""
        files = self._files()
        asked = [
            (number, calls, calls.put(partial(free_bytes, path)))
            for number, (path, calls) in files.items()
            if self._outside.counts(number)
        ]
        found = []
        for number, calls, call in asked:
            try:
                if self._wait(number, calls, call, self._enough([each for *_, each in asked])) >= SPACE_BYTES:
                    found.append(number)
            except DiskHangs:
                if number == self._number:
                    raise
        self._leave_left()
        return found

    # Disks that may hang

    def _enough(self, asked: Sequence[bounded.Call[Any]], done: int = 0) -> Callable[[], bool]:
        """Whether a majority has answered: while two of three hang it is not known which one will do so first."""
        return lambda: done + sum(each.ended for each in asked) >= self._outside.majority

    def _others_suffice(self) -> bool:
        return len([number for number in self._counting() if number != self._number]) >= self._outside.majority

    def _wait(self, number: int, calls: BoundedCalls, call: bounded.Call[T], enough: Callable[[], bool]) -> T:
        """See `FirstFile`."""

        def gives_up(waited_s: float) -> bool:
            if self._outside.ending:
                return True
            others = [each for each in self._files() if each != number and self._outside.takes(each)]
            if not others:
                return False  # the last one is waited for: nothing else has the definitions
            if waited_s >= HANG_S and enough():
                self._outside.leave(number, f"its definitions did not answer for {HANG_S:g} s", damaged=False)
            return not self._outside.takes(number)

        try:
            return calls.wait(call, gives_up)
        except Unanswered as error:
            if number == self._number:
                self._fan_out.hangs = True
            raise DiskHangs(str(error)) from error

    def _abandon(self, number: int, calls: BoundedCalls, last: Callable[[], object] = lambda: None) -> None:
        """Its thread ends, and closes what is open, when the disk answers."""
        self._hanging[number] = calls
        calls.close(last)

    def _leave_left(self) -> None:
        """Disks that were left behind, for whatever reason, are not worked with."""
        gone = [other for other in self._others if not self._outside.takes(other.number)]
        for other in gone:
            self._others.remove(other)
            self._close(other)
            self._untold = True
        # The last one is worked with whatever is known of it: what it says is the reason for what follows.
        if not self._outside.takes(self._number) and self._others:
            self._replace()
            self._close(self._others.pop())
            self._untold = True

    def _replace(self) -> None:
        """The first of the others takes the place of the one that is worked with, which is the last of them then."""
        other = self._others.pop(0)
        self._exchange(other)
        self._others.append(other)

    def _copy_again(self) -> None:
        others, self._others = self._others, []
        for other in others:
            self._close(other)
            if (reason := self.add(other.number, other.path.parent)) is not None:
                self._outside.leave(other.number, reason)
                self._untold = True
        self._foreign = False
        self._leave_left()

    def _close(self, other: OtherFile) -> None:
        """Whatever its disk says: it was left, or all ends."""
        try:
            self._close_file(other)
        except MetadataStoreError as error:
            self._outside.leave(other.number, str(error))

    def _close_file(self, other: OtherFile) -> None:
        if other.calls.busy_s():  # it was left because of that
            self._abandon(other.number, other.calls, other.close_late)
            return
        try:
            other.calls.call(other.close)
        except Unanswered:
            self._hanging[other.number] = other.calls
        finally:
            other.calls.close(other.close_late)

    def _catch_up(self) -> tuple[int, int]:
        before = self._seen
        found = super()._catch_up()
        self._foreign = self._foreign or (self._seen != before and bool(self._others))
        return found
