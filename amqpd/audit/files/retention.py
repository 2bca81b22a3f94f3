"""How long the audit log is kept: by age, and by size.

What comes in: the folder of its files. What goes out: fewer files.
Rules: 1. Whole files go, oldest first; a file is as old as its folder says. 2. What others put into the folder is not
touched.
Not here: when (`writer.py`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

_HOUR = re.compile(r"date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})$")


class Retention:
    """Deletes Parquet files that are too old, and the oldest while there are too many bytes."""

    def __init__(self, events: Path, days: float, nbytes: int) -> None:
        """0: no bound."""
        self._events = events
        self._days = days
        self._nbytes = nbytes

    def apply(self, now: datetime | None = None) -> int:
        """How many files went. Raises OSError."""
        now = now or datetime.now(UTC)
        files = sorted(self._files())
        total = sum(size for _, _, size in files)
        removed = 0
        for begun, path, size in files:
            old = self._days and now - begun > timedelta(days=self._days, hours=1)
            if not old and not (self._nbytes and total > self._nbytes):
                break
            path.unlink(missing_ok=True)
            total -= size
            removed += 1
            for folder in (path.parent, path.parent.parent):
                if not any(folder.iterdir()):
                    folder.rmdir()
        return removed

    def _files(self) -> list[tuple[datetime, Path, int]]:
        found = []
        for path in self._events.glob("date=*/hour=*/*.parquet"):
            hour = _HOUR.search(path.parent.as_posix())
            if hour is not None:
                begun = datetime.fromisoformat(f"{hour[1]}T{hour[2]}:00+00:00")
                found.append((begun, path, path.stat().st_size))
        return found
