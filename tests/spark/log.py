"""An audit log written by hand, for tests: rows as dictionaries, what is left out being null or 0."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2026, 11, 22, 5, 0, tzinfo=UTC)
"""of a log that says nothing else"""

TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(
        ("event", "node", "vhost", "queue", "exchange", "routing_key", "user", "connection"), pa.string()
    ),
    **dict.fromkeys(
        ("consumer", "reason", "message_id", "correlation_id", "address", "object", "detail"), pa.string()
    ),
    **dict.fromkeys(("number", "queue_id", "first", "count", "publication", "confirm_tag", "body_bytes"), pa.int64()),
    **dict.fromkeys(("life", "epoch", "channel", "source", "source_epoch"), pa.int32()),
    **dict.fromkeys(("persistent", "redelivered", "auto"), pa.bool_()),
    "time": pa.timestamp("us", tz="UTC"),
}
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("queue_id", "epoch", "first", "publication", "confirm_tag", "body_bytes", "channel"), 0),
    **dict.fromkeys(("persistent", "redelivered", "auto"), False),
    "node": "n1",
    "vhost": "/",
    "count": 1,
}


class Log:
    """Rows get the numbers 1, 2, 3 ... of their life; `path` is what jobs take as their input."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: list[dict[str, Any]] = []
        self._numbers: dict[tuple[str, int], int] = defaultdict(int)
        self._files = 0

    def add(self, event: str, at: float = 0.0, life: int = 1, **columns: Any) -> dict[str, Any]:
        """An event `at` seconds after START; of a queue's message, `epoch` is the life if nothing else is said."""
        row = {**DEFAULTS, "event": event, "time": START + timedelta(seconds=at), "life": life, **columns}
        if row["queue_id"] and "epoch" not in columns:
            row["epoch"] = life
        key = row["node"], life
        self._numbers[key] += 1
        row.setdefault("number", self._numbers[key])
        self._rows.append(row)
        return row

    def write(self) -> str:
        """A file for each hour, of the rows since the last call; the folder."""
        hours: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows:
            hours[row["time"].strftime("%Y-%m-%d"), row["time"].strftime("%H")].append(row)
        for (date, hour), rows in hours.items():
            self._files += 1
            folder = self.path / f"date={date}" / f"hour={hour}"
            folder.mkdir(parents=True, exist_ok=True)
            columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in TYPES.items()}
            pq.write_table(pa.table(columns), folder / f"n1-1-{self._files:06}.parquet")
        self._rows = []
        return str(self.path)
