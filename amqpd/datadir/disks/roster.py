"""The list of a node's disks, as all of them have it on stable storage.

What comes in: which disks joined, or were left behind. What goes out: records (`datadir/disk_record.py`) on a
majority.
Rules: 1. One list at a time: a new one, with a higher version, is in effect when a majority of its disks and one of
the list before it have it; `RosterUnwritten` says that this was not to be had, and is said
again until a list is. 2. A disk joins the list with a generation
that is new when what it had was lost meanwhile. 3. Any thread may call, one at a time. 4. A directory that does not
answer has not taken the list; nothing else is written there before it has answered. 5. A majority of the list before
is one that could be met again: a disk whose record was erased, which its open file says (no name leads to it any
more), is never met again. One that was moved, or unmounted, may be.
Not here: which disks those are (`group.py`), what a start reads of this (`election.py`).
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import structlog

from amqpd.datadir.disk_record import RECORD, DiskList, Record, write_record
from amqpd.datadir.disks.standing import majority_of
from amqpd.storage.bounded import HANG_S, BoundedCalls, Unanswered

_log = structlog.get_logger("amqpd.journal")

T = TypeVar("T")


class RosterUnwritten(Exception):
    """The list of disks was taken by too few disks; the text is one sentence."""


def draw() -> str:
    """A generation, or the name of a node."""
    return secrets.token_hex(8)


class DiskRoster:
    """The list of one node's disks, which is in effect when a majority of them has it on stable storage."""

    def __init__(self, paths: list[Path], incarnation: int, before: DiskList | None) -> None:
        """`before`: the list that is in effect; None: there is none."""
        self._paths = paths
        self._incarnation = incarnation
        self._in_effect = before
        self._list: DiskList | None = None
        """the last one that was written anywhere"""
        self._turn = threading.Lock()
        self._counter = 0
        self._writing = [BoundedCalls(str(path)) for path in paths]
        self._records: dict[str, tuple[int, int]] = {}
        """generation -> the disk that has it, and a descriptor of its record; each is used in that disk's thread"""

    @property
    def version(self) -> tuple[int, int]:
        """Of the next list."""
        return self._incarnation, self._counter

    @property
    def list(self) -> DiskList:
        assert self._list is not None
        return self._list

    def begin(self, first: DiskList, writable: Collection[int], before: DiskList) -> None:
        """The list of this incarnation. Raises RosterUnwritten."""
        known = {each.generation for each in before.disks}
        new = [at for at in writable if first.disks[at].generation not in known]
        with self._turn:
            # They are whole before any record has the new list, and those of the list before get that last: a kill
            # in between leaves a majority of one of the two.
            for at in new:
                with suppress(OSError):  # it is tried again
                    self._write(at, Record(first.disks[at].generation, True, self._incarnation, before))
            self._put(first, [*new, *(at for at in writable if at not in new)])

    def changes(self, having: Callable[[], Collection[int]], generations: dict[int, str] | None = None) -> None:
        """The disks that it names have everything from now on, the others not; `generations`: of those that are new.
        Raises RosterUnwritten. Nothing is written when nothing has changed since a list came into effect."""
        with self._turn:
            inside = having()  # now: a list of an earlier moment might undo the one of a caller who was before
            given = generations or {}
            disks = tuple(
                replace(each, inside=at in inside, generation=given.get(at, each.generation))
                for at, each in enumerate(self.list.disks)
            )
            if disks != self.list.disks or self._list is not self._in_effect:
                self._counter += 1
                self._put(DiskList(self.list.node, self.version, disks), inside)

    def mark_new(self, number: int, generation: str) -> None:
        """What the disk has counts for nothing until it is in the list with this generation. Raises OSError."""
        with self._turn:
            self._write(number, Record(generation, False, self._incarnation, self.list))

    def in_the_way(self, inside: Collection[int]) -> Sequence[Path]:
        """Directories that would be a majority without these disks, if what was in them came back: so no list may
        come into effect in which another one is new. Empty: nothing is in the way."""
        with self._turn:
            before = self._in_effect or self.list
            rivals = self._rivals(before, {self.list.disks[at].generation for at in inside})
            return [Path(before.disks[at].path) for at in rivals] if len(rivals) >= _majority(before) else []

    @property
    def busy(self) -> bool:
        """Something is being written."""
        return any(each.busy_s() for each in self._writing)

    def close(self) -> None:
        """Nothing is written any more."""
        for at, each in enumerate(self._writing):
            each.close(lambda at=at: self._forget(at, ()))  # type: ignore[misc]

    def _put(self, following: DiskList, writable: Collection[int]) -> None:
        before = self._in_effect
        took: set[str] = set()
        reasons = []
        for at in writable:
            generation = following.disks[at].generation
            try:
                self._write(at, Record(generation, True, self._incarnation, following))
            except OSError as error:
                reasons.append(f"{self._paths[at]}: {error.strerror or error}")
            else:
                took.add(generation)
        self._list = following
        taken = len([disk for disk in following.disks if disk.generation in took])
        if taken < _majority(following) or self._decides_without(before, took):
            why = f" ({'; '.join(reasons)})" if reasons else ""
            needed = _majority(following)
            raise RosterUnwritten(f"the list of the data directories could not be written to {needed} of them{why}")
        self._in_effect = following

    def _decides_without(self, before: DiskList | None, took: Collection[str]) -> bool:
        """A majority of this list may be met that knows nothing of the one that these took."""
        if before is None or len([disk for disk in before.disks if disk.generation in took]) >= _majority(before):
            return False
        return len(self._rivals(before, took)) >= _majority(before)

    def _rivals(self, before: DiskList, took: Collection[str]) -> Sequence[int]:
        """Places in the list of disks that did not take another one, and may be met again."""
        others = [(at, each.generation) for at, each in enumerate(before.disks) if each.generation not in took]
        return [at for at, generation in others if not self._is_erased(generation)]

    def _is_erased(self, generation: str) -> bool:
        """Known only of a disk on which this process has written its record."""
        if (found := self._records.get(generation)) is None:
            return False
        at, _ = found

        def look() -> bool:
            _, descriptor = self._records[generation]
            return os.fstat(descriptor).st_nlink == 0

        try:
            return self._ask(at, look)
        except (OSError, KeyError):
            return False

    def _write(self, at: int, record: Record) -> None:
        """Raises OSError, also when the directory does not answer."""
        lists = [each for each in (self._in_effect, self._list, record.list) if each is not None]
        known = {record.generation, *(disk.generation for each in lists for disk in each.disks)}

        def write() -> None:
            write_record(self._paths[at], record)
            self._forget(at, known - {record.generation})
            self._records[record.generation] = at, os.open(self._paths[at] / RECORD, os.O_RDONLY | os.O_CLOEXEC)

        self._ask(at, write)

    def _ask(self, at: int, work: Callable[[], T]) -> T:
        """In the thread of the disk. Raises OSError, also when the directory does not answer."""
        calls = self._writing[at]
        try:
            if calls.busy_s() >= HANG_S:
                raise Unanswered
            return calls.call(work)
        except Unanswered:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None

    def _forget(self, at: int, but: Collection[str]) -> None:
        """In the thread of the disk: records of other generations are looked at no more."""
        for generation in [each for each, (of, _) in list(self._records.items()) if of == at and each not in but]:
            os.close(self._records.pop(generation)[1])


def _majority(of: DiskList) -> int:
    return majority_of(len(of.disks))
