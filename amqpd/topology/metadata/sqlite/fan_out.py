"""SQLite's driver for the first of several files, which notes what a transaction writes.

What comes in: statements. What goes out: the same, to the driver; those of the last committed transaction.
Rules: 1. What is rolled back, and what only reads, is not noted.
Not here: writing them to the other files (`mirrored_file.py`).
"""

from __future__ import annotations

import sqlite3
from typing import Any


class FanOut:
    """See above. One thread at a time."""

    def __init__(self, driver: sqlite3.Connection) -> None:
        self.driver = driver
        self.statements: list[tuple[str, Any, bool]] | None = None
        """since the last BEGIN; None: nothing is noted"""
        self._committed: list[tuple[str, Any, bool]] = []

    @property
    def in_transaction(self) -> bool:
        return self.driver.in_transaction

    def execute(self, sql: str, given: Any = ()) -> sqlite3.Cursor:
        cursor = self.driver.execute(sql, given)
        if self.statements is not None:
            word = sql.split(None, 1)[0].upper()
            if word == "BEGIN":
                self.statements, self._committed = [], []
            elif word == "COMMIT":
                self._committed, self.statements = self.statements, []
            elif word not in ("SELECT", "PRAGMA", "ROLLBACK", "WITH"):
                self.statements.append((sql, given, False))
        return cursor

    def executemany(self, sql: str, given: Any) -> sqlite3.Cursor:
        rows = list(given)
        if self.statements is not None:
            self.statements.append((sql, rows, True))
        return self.driver.executemany(sql, rows)

    def committed(self) -> list[tuple[str, Any, bool]]:
        """What the last transaction wrote, if it was committed."""
        found, self._committed = self._committed, []
        return found
