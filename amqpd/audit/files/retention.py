"""How long the audit log is kept: by age, and by size.

What comes in: the folder of its files. What goes out: fewer files.
Rules: 1. Whole files go, oldest first; a file is as old as its folder says, and within an hour they go as they were
written. 2. What others put into the folder is not touched. 3. How far it went is on disk before a file goes
(`edges.py`); where there is no space for that, behind it, since it makes space.
Not here: when (`writer.py`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from amqpd.audit.files.edges import Edges
from amqpd.audit.files.footer import named

_HOUR = re.compile(r"date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})$")


class Retention:
    """Deletes Parquet files that are too old, and the oldest while there are too many bytes."""

    def __init__(self, events: Path, days: float, nbytes: int, edges: Edges) -> None:
        """0: no bound."""
        self._events = events
        self._edges = edges
        self._days = days
        self._nbytes = nbytes

    def apply(self, now: datetime | None = None) -> int:
        """How many files went. Raises OSError."""
        now = now or datetime.now(UTC)
        files = sorted(self._files(), key=_age)
        total = sum(size for _, _, size in files)
        old: list[Path] = []
        for begun, path, size in files:
            aged = self._days and now - begun > timedelta(days=self._days, hours=1)
            if not aged and not (self._nbytes and total > self._nbytes):
                break
            old.append(path)
            total -= size
        if old:
            edges = self._edges
            nodes = edges.removing(old)
            told = edges.write(nodes)
            for path in old:
                self._remove(path)
            if not told:
                edges.write(nodes)
        return len(old)

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        for folder in (path.parent, path.parent.parent):
            if not any(folder.iterdir()):
                folder.rmdir()

    def _files(self) -> list[tuple[datetime, Path, int]]:
        found = []
        for path in self._events.glob("date=*/hour=*/*.parquet"):
            hour = _HOUR.search(path.parent.as_posix())
            if hour is not None:
                begun = datetime.fromisoformat(f"{hour[1]}T{hour[2]}:00+00:00")
                found.append((begun, path, path.stat().st_size))
        return found


def _age(file: tuple[datetime, Path, int]) -> tuple[datetime, int, int, str]:
    begun, path, _ = file
    try:
        _, incarnation, number = named(path.stem)
    except ValueError:
        incarnation = number = 0
    return begun, incarnation, number, path.name
