"""The file of the store that is worked with, where there are several: everything is done in the thread of its disk.

What comes in: the calls of a store, as for one file. What goes out: the same; `DiskHangs` when the disk does not
answer and need not be waited for.
Rules: 1. What the store knows in memory changes in the caller's thread only, between two statements: so a disk that
hangs is left, with its connection, and another file takes its place.
Not here: when a disk is left, what is on the others (`mirrored_file.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from amqpd.storage import bounded
from amqpd.storage.bounded import BoundedCalls
from amqpd.storage.mark import Mark
from amqpd.topology.metadata.sqlite.fan_out import FanOut
from amqpd.topology.metadata.sqlite.other_file import OtherFile
from amqpd.topology.metadata.sqlite.sqlite_file import HISTORY_REVISIONS_MAX, SqliteFile

T = TypeVar("T")


class FirstFile(SqliteFile):
    """See `SqliteFile`. One thread at a time."""

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

    def _wait(
        self, number: int, calls: BoundedCalls, call: bounded.Call[T], enough: Callable[[], bool] = lambda: True
    ) -> T:
        """Raises DiskHangs, after which the file is not used any more, and what the call raises."""
        raise NotImplementedError

    def _on_first(self, work: Callable[[], T]) -> T:
        """Something with the file that is worked with."""
        if self._calls.mine:
            return work()
        return self._wait(self._number, self._calls, self._calls.put(work))

    def _select(self, query: sa.Select[Any]) -> list[tuple[Any, ...]]:
        return self._on_first(lambda: super(FirstFile, self)._select(query))

    def _open_mark(self) -> Mark:
        return self._on_first(lambda: super(FirstFile, self)._open_mark().by_calls())

    def _promise(self, mark: Mark, revision: int) -> None:
        self._on_first(lambda: super(FirstFile, self)._promise(mark, revision))

    def _sync_mark(self) -> None:
        self._on_first(lambda: super(FirstFile, self)._sync_mark())

    def _exchange(self, other: OtherFile) -> None:
        """This one takes the place of the one that is worked with, which is the other one then."""
        before = self._number, self.path, self._connection, self._fan_out.driver, self._mark, self._calls
        self._number, self.path, self._mark, self._calls = other.number, other.path, other.mark, other.calls
        self._connection, self._fan_out.driver = other.opened.connection, other.driver
        self._data_version, self._fan_out.hangs = None, False
        other.number, other.path, other.opened.connection, other.driver, other.mark, other.calls = before
