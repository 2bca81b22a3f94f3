"""The file of the store that is worked with, where there are several: everything is done in the thread of its disk.

What comes in: the calls of a store, as for one file. What goes out: the same; `DiskHangs` when the disk does not
answer and need not be waited for.
Rules: 1. What the store knows in memory changes in the caller's thread only, between two statements: so a disk that
hangs is left, with its connection, and another file takes its place. What is done in a disk's thread is given all
that it needs: it may be late, and another file be the first one by then.
Not here: when a disk is left, what is on the others (`mirrored_file.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from amqpd.storage import bounded
from amqpd.storage.bounded import BoundedCalls
from amqpd.storage.files import mark_path
from amqpd.storage.mark import Mark
from amqpd.topology.metadata.sqlite.fan_out import FanOut
from amqpd.topology.metadata.sqlite.other_file import DiskHangs, OtherFile
from amqpd.topology.metadata.sqlite.sqlite_file import HISTORY_REVISIONS_MAX, SqliteFile
from amqpd.topology.metadata.store import MetadataStoreError, NewerFormat, StoreBusy

T = TypeVar("T")


class FirstFile(SqliteFile):
    """See `SqliteFile`. One thread at a time."""

    one_of_several = True
    _number: int
    """of its disk"""

    def _open(self, number: int, path: Path, *, accept_loss: bool) -> None:
        """Raises as `SqliteFile`."""
        super().__init__(path, HISTORY_REVISIONS_MAX, accept_loss)
        self._number = number
        self._calls = BoundedCalls(str(path))
        self._fan_out = FanOut(self._driver, lambda work: self._on_first(work))
        self._driver = self._fan_out  # type: ignore[assignment]
        if self._mark is not None:
            self._mark.by_calls()

    @property
    def number(self) -> int:
        """Of the disk that is worked with."""
        return self._number

    def _open_first(self, paths: dict[int, Path], *, accept_loss: bool) -> dict[int, str]:
        """Why those could not be opened that were tried before: losses are accepted when each has some. Raises as
        `SqliteFile`, of the first one."""
        unusable: dict[int, str] = {}
        failed: MetadataStoreError | None = None
        for accepting in (False, True) if accept_loss else (False,):
            for number in sorted(paths):
                if failed is not None and not paths[number].exists():
                    continue  # it would be begun, empty
                try:
                    self._open(number, paths[number], accept_loss=accepting)
                except (NewerFormat, StoreBusy):
                    raise
                except MetadataStoreError as error:
                    failed = failed or error
                    unusable[number] = str(error)
                else:
                    return {at: reason for at, reason in unusable.items() if at != number}
        assert failed is not None
        raise failed

    def _wait(self, number: int, calls: BoundedCalls, call: bounded.Call[T], enough: Callable[[], bool]) -> T:
        """`enough`: the disk may be left because it does not answer. Raises DiskHangs, after which the file is not
        used any more, and what the call raises."""
        raise NotImplementedError

    def _others_suffice(self) -> bool:
        """The other files that count are a majority."""
        raise NotImplementedError

    def _on_first(self, work: Callable[[], T]) -> T:
        """Something with the file that is worked with."""
        if self._calls.mine:
            return work()
        return self._wait(self._number, self._calls, self._calls.put(work), self._others_suffice)

    def _select(self, query: sa.Select[Any]) -> list[tuple[Any, ...]]:
        connection = self._connection
        return self._on_first(lambda: [tuple(row) for row in connection.execute(query)])

    def _open_mark(self) -> Mark:
        if self._mark is None:
            making = _Making(partial(Mark, mark_path(self.path), self.identity, self._seen))
            try:
                self._mark = self._on_first(making.make)
            except DiskHangs:
                self._mark = making.give_up()
                raise
        return self._mark

    def _promise(self, mark: Mark, revision: int) -> None:
        self._on_first(partial(mark.promise, revision))

    def _sync_mark(self) -> None:
        if (mark := self._mark) is not None:
            self._on_first(mark.sync)

    def _exchange(self, other: OtherFile) -> None:
        """This one takes the place of the one that is worked with, which is the other one then."""
        before = self._number, self.path, self._connection, self._fan_out.driver, self._mark, self._calls
        self._number, self.path, self._mark, self._calls = other.number, other.path, other.mark, other.calls
        self._connection, self._fan_out.driver = other.opened.connection, other.driver
        self._data_version, self._fan_out.hangs = None, False
        other.number, other.path, other.opened.connection, other.driver, other.mark, other.calls = before


class _Making:
    """A mark that is made in the thread of its disk, for a caller who may not wait until it is."""

    def __init__(self, make: Callable[[], Mark]) -> None:
        self._make = make
        self._turn = threading.Lock()
        self._made: Mark | None = None
        self._given_up = False

    def make(self) -> Mark:
        """In the thread of the disk. Raises OSError."""
        made = self._make().by_calls()
        with self._turn:
            if not self._given_up:
                self._made = made
                return made
        made.close()
        return made

    def give_up(self) -> Mark | None:
        """The caller does not wait any more: what was made all the same until now, to be closed with its file."""
        with self._turn:
            self._given_up = True
            return self._made
