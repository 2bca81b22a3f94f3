"""The list of a node's disks, as all of them have it on stable storage.

What comes in: which disks joined, or were left behind. What goes out: records (`datadir/disk_record.py`) on a
majority.
Rules: 1. One list at a time: a new one, with a higher version, is in effect when a majority of its disks and one of
the list before it have it; `Unwritten` says that this was not to be had, and is said
again until a list is. 2. A disk joins the list with a generation
that is new when what it had was lost meanwhile. 3. Any thread may call, one at a time. 4. A directory that does not
answer has not taken the list; nothing else is written there before it has answered.
Not here: which disks those are (`group.py`), what a start reads of this (`election.py`).
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from amqpd.datadir.disk_record import DiskList, Record, write_record
from amqpd.datadir.disks.standing import majority_of
from amqpd.storage.bounded import HANG_S, BoundedCalls, Unanswered

_log = structlog.get_logger("amqpd.journal")


class Unwritten(Exception):
    """Too few disks took the list. The text is one sentence."""


def draw() -> str:
    """A generation, or the name of a node."""
    return secrets.token_hex(8)


class Roster:
    """Of one node."""

    def __init__(self, paths: list[Path], life: int, before: DiskList | None) -> None:
        """`before`: the list that is in effect; None: there is none."""
        self._paths = paths
        self._life = life
        self._in_effect = before
        self._list: DiskList | None = None
        """the last one that was written anywhere"""
        self._turn = threading.Lock()
        self._counter = 0
        self._writing = [BoundedCalls(str(path)) for path in paths]

    @property
    def version(self) -> tuple[int, int]:
        """Of the next list."""
        return self._life, self._counter

    @property
    def list(self) -> DiskList:
        assert self._list is not None
        return self._list

    def begin(self, first: DiskList, writable: Collection[int], before: DiskList) -> None:
        """The list of this life. Raises Unwritten."""
        known = {each.generation for each in before.disks}
        new = [at for at in writable if first.disks[at].generation not in known]
        with self._turn:
            # They are whole before any record has the new list, and those of the list before get that last: a kill
            # in between leaves a majority of one of the two.
            for at in new:
                with suppress(OSError):  # it is tried again
                    self._write(at, Record(first.disks[at].generation, True, self._life, before))
            self._put(first, [*new, *(at for at in writable if at not in new)])

    def changes(self, having: Callable[[], Collection[int]], generations: dict[int, str] | None = None) -> None:
        """The disks that it names have everything from now on, the others not; `generations`: of those that are new.
        Raises Unwritten. Nothing is written when nothing has changed since a list came into effect."""
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

    def is_new(self, number: int, generation: str) -> None:
        """What the disk has counts for nothing until it is in the list with this generation. Raises OSError."""
        with self._turn:
            self._write(number, Record(generation, False, self._life, self.list))

    @property
    def busy(self) -> bool:
        """Something is being written."""
        return any(each.busy_s() for each in self._writing)

    def close(self) -> None:
        """Nothing is written any more."""
        for each in self._writing:
            each.close()

    def _put(self, following: DiskList, writable: Collection[int]) -> None:
        before = self._in_effect
        took: set[str] = set()
        reasons = []
        for at in writable:
            generation = following.disks[at].generation
            try:
                self._write(at, Record(generation, True, self._life, following))
            except OSError as error:
                reasons.append(f"{self._paths[at]}: {error.strerror or error}")
            else:
                took.add(generation)
        self._list = following
        for each in (following, before) if before is not None else (following,):
            needed = majority_of(len(each.disks))
            if len([disk for disk in each.disks if disk.generation in took]) < needed:
                why = f" ({'; '.join(reasons)})" if reasons else ""
                raise Unwritten(f"the list of the data directories could not be written to {needed} of them{why}")
        self._in_effect = following

    def _write(self, at: int, record: Record) -> None:
        """Raises OSError, also when the directory does not answer."""
        calls = self._writing[at]
        try:
            if calls.busy_s() >= HANG_S:
                raise Unanswered
            calls.call(lambda: write_record(self._paths[at], record))
        except Unanswered:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
