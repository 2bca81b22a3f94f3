"""SQLite's driver for the first of several files, which notes what a transaction writes.

What comes in: statements. What goes out: the same, to the driver; those of the last committed transaction.
Rules: 1. What is rolled back, and what only reads, is not noted. 2. Each is executed in the thread of its disk, and
what it finds is read there: a caller can go away from a disk that hangs.
Not here: writing them to the other files (`mirrored_file.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

Row = tuple[Any, ...]


class Found:
    """What a statement found, as a cursor gives it."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> Row | None:
        return next(self._rows, None)

    def fetchall(self) -> list[Row]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return self._rows


class FanOut:
    """See above. One thread at a time."""

    def __init__(self, driver: sqlite3.Connection, run: Callable[[Callable[[], list[Row]]], list[Row]]) -> None:
        """`run`: in the thread of the disk; raises when that hangs."""
        self.driver = driver
        self.hangs = False
        """the driver is not used any more"""
        self._run = run
        self.statements: list[tuple[str, Any, bool]] | None = None
        """since the last BEGIN; None: nothing is noted"""
        self._committed: list[tuple[str, Any, bool]] = []
        self.may_have_committed = False
        """the last transaction wrote something, and its COMMIT was begun, whatever became of it"""

    @property
    def in_transaction(self) -> bool:
        return not self.hangs and self.driver.in_transaction

    def execute(self, sql: str, given: Any = ()) -> Found:
        driver = self.driver
        if sql == "COMMIT":
            self.may_have_committed = bool(self.statements)
        elif sql.startswith("BEGIN"):
            self.may_have_committed = False
        found = Found(self._run(lambda: driver.execute(sql, given).fetchall()))
        if self.statements is not None:
            word = sql.split(None, 1)[0].upper()
            if word == "BEGIN":
                self.statements, self._committed = [], []
            elif word == "COMMIT":
                self._committed, self.statements = self.statements, []
            elif word not in ("SELECT", "PRAGMA", "ROLLBACK", "WITH"):
                self.statements.append((sql, given, False))
        return found

    def executemany(self, sql: str, given: Any) -> None:
        driver, rows = self.driver, list(given)
        if self.statements is not None:
            self.statements.append((sql, rows, True))
        self._run(lambda: driver.executemany(sql, rows).fetchall())

    def committed(self) -> list[tuple[str, Any, bool]]:
        """What the last transaction wrote, if it was committed."""
        found, self._committed = self._committed, []
        return found
