"""An audit log written by hand, for tests: rows as dictionaries, what is left out being null or 0.

`Log.write` writes a file for each hour, as a log of an earlier version has it: nothing says which rows are in it.
`Log.write_as_broker` adds what the broker says of each file, and of the log (docs/decisions/audit-holes.md).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

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
    **dict.fromkeys(("incarnation", "epoch", "channel", "source", "source_epoch"), pa.int32()),
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

Row = dict[str, Any]


class Log:
    """Rows get the numbers 1, 2, 3 ... of their incarnation; `path` is what jobs take as their input."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: list[Path] = []
        """written so far"""
        self.removed: dict[str, tuple[int, int]] = {}
        """node -> (incarnation, last row) of what retention is said to have removed"""
        self._rows: list[Row] = []
        self._numbers: dict[tuple[str, int], int] = defaultdict(int)
        self._dropped: dict[tuple[str, int], list[list[int]]] = defaultdict(list)
        self._counted: dict[tuple[str, int], int] = defaultdict(int)
        self._reached: dict[str, dict[int, int]] = defaultdict(dict)

    def add(self, event: str, at: float = 0.0, incarnation: int = 1, **columns: Any) -> Row:
        """An event `at` seconds after START; of a queue's message, `epoch` is the incarnation if nothing else is
        said."""
        row = {
            **DEFAULTS,
            "event": event,
            "time": START + timedelta(seconds=at),
            "incarnation": incarnation,
            **columns,
        }
        if row["queue_id"] and "epoch" not in columns:
            row["epoch"] = incarnation
        key = row["node"], incarnation
        self._numbers[key] += 1
        row.setdefault("number", self._numbers[key])
        self._rows.append(row)
        return row

    def drop(self, rows: int, incarnation: int = 1, node: str = "n1") -> list[int]:
        """The next numbers have no rows, and the broker says so in the file that follows; the range."""
        first = self._numbers[node, incarnation] + 1
        self._numbers[node, incarnation] += rows
        self._dropped[node, incarnation].append([first, first + rows - 1])
        return [first, first + rows - 1]

    def write(self) -> str:
        """A file for each hour, of the rows since the last call; the folder."""
        hours: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self._rows:
            hours[row["time"].strftime("%Y-%m-%d"), row["time"].strftime("%H")].append(row)
        for rows in hours.values():
            self._write(rows, f"n1-1-{len(self.files) + 1:06}", {})
        self._rows = []
        return str(self.path)

    def write_as_broker(self, rows_per_file: int | None = None) -> str:
        """Files of the rows since the last call, each with what the broker says of it; then `_log` of each node. A
        file has `rows_per_file` rows of one incarnation, else those of an hour; the folder."""
        incarnations: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for row in self._rows:
            incarnations[row["node"], row["incarnation"]].append(row)
        for (node, incarnation), of_incarnation in incarnations.items():
            for rows in _split(sorted(of_incarnation, key=lambda row: int(row["number"])), rows_per_file):
                self._counted[node, incarnation] += 1
                first, last = rows[0]["number"], rows[-1]["number"]
                times = [round(row["time"].timestamp() * 1e6) for row in rows]
                said = {
                    "node": node,
                    "incarnation": incarnation,
                    "file": self._counted[node, incarnation],
                    "first": first,
                    "last": last,
                }
                said |= {"rows": len(rows), "from_us": min(times), "to_us": max(times)}
                dropped = self._dropped[node, incarnation]
                declared = [each for each in dropped if each[1] < first]
                self._dropped[node, incarnation] = [each for each in dropped if each[1] > first]
                if declared:
                    said["declared"] = declared
                footer = {"amqpd.audit.format": "1", "amqpd.audit.rows": json.dumps(said, separators=(",", ":"))}
                self._write(rows, f"{node}-{incarnation}-{self._counted[node, incarnation]}", footer)
                self._reached[node][incarnation] = max(last, self._reached[node].get(incarnation, 0))
        self._rows = []
        for node in self._reached:
            self.write_log(node)
        return str(self.path)

    def write_log(self, node: str = "n1", made_from: str = "broker") -> Path:
        """What the broker says of the whole log, from what was written and `removed`."""
        removed = self.removed.get(node)
        incarnations = {
            incarnation: last
            for incarnation, last in self._reached[node].items()
            if removed is None or (incarnation, last) > removed
        }
        known: Row = {"format": 1, "node": node}
        known["incarnations"] = {
            str(incarnation): {"last": last, "ended": incarnation < max(incarnations)}
            for incarnation, last in sorted(incarnations.items())
        }
        known["removed"] = None if removed is None else {"incarnation": removed[0], "last": removed[1]}
        known["from"] = made_from
        path = self.path / f"_log-{node}.json"
        path.write_text(json.dumps({**known, "crc": crc32(json.dumps(known).encode())}))
        return path

    def _write(self, rows: list[Row], name: str, footer: dict[str, str]) -> None:
        folder = self.path / f"date={rows[0]['time']:%Y-%m-%d}" / f"hour={rows[0]['time']:%H}"
        folder.mkdir(parents=True, exist_ok=True)
        columns = {column: pa.array([row.get(column) for row in rows], kind) for column, kind in TYPES.items()}
        self.files.append(folder / f"{name}.parquet")
        pq.write_table(pa.table(columns).replace_schema_metadata(footer), self.files[-1])


def _split(rows: list[Row], rows_per_file: int | None) -> Iterator[list[Row]]:
    """Where numbers jump a file ends, as the broker's do."""
    part: list[Row] = []
    for row in rows:
        full = (
            len(part) == rows_per_file
            if rows_per_file
            else part and f"{part[0]['time']:%F%H}" != f"{row['time']:%F%H}"
        )
        if part and (full or row["number"] != part[-1]["number"] + 1):
            yield part
            part = []
        part.append(row)
    if part:
        yield part
