"""Which rows a file of the log has, in its footer.

What comes in: what a file was written from, or a file. What goes out: the value of the footer's key, or what it says.
Rules: 1. A file says that it has all rows from the first to the last: rows that are not there are between files, and
who removes some within a file contradicts its footer. 2. A file of an earlier version says it by its name and by the
statistics of its column `number`.
Not here: the file (`parquet.py`), what the whole log has (`edges.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEY = "amqpd.audit.rows"

Range = tuple[int, int]
"""numbers of rows, the first and the last"""


@dataclass
class FileRows:
    """The rows of one file."""

    node: str
    incarnation: int
    file: int
    first: int = 0
    last: int = 0
    rows: int = 0
    from_us: int = 0
    to_us: int = 0
    declared: list[Range] = field(default_factory=list)
    """before this file: the broker knows that it did not record them"""

    def add(self, first: int, last: int, times_us: Range, rows: int) -> None:
        """A part of the file: the numbers of its first and last row, the least and the greatest time."""
        self.first = self.first or first
        self.from_us = min(self.from_us, times_us[0]) if self.rows else times_us[0]
        self.to_us = max(self.to_us, times_us[1]) if self.rows else times_us[1]
        self.last = last
        self.rows += rows

    def footer(self) -> dict[str, str]:
        assert self.rows == self.last - self.first + 1, f"{self.rows} rows from {self.first} to {self.last}"
        said: dict[str, Any] = {
            "node": self.node,
            "incarnation": self.incarnation,
            "file": self.file,
            "first": self.first,
        }
        said |= {"last": self.last, "rows": self.rows, "from_us": self.from_us, "to_us": self.to_us}
        if self.declared:
            said["declared"] = self.declared
        return {KEY: json.dumps(said, separators=(",", ":"))}


def named(stem: str) -> tuple[str, int, int]:
    """Node, incarnation and number of a file of the log or of the spool. Raises ValueError."""
    node, incarnation, number = stem.rsplit("-", 2)
    return node, int(incarnation), int(number)


def rows_in(path: Path) -> FileRows | None:
    """What the file says; None: nothing that can be read."""
    # Fifty megabytes that a broker without a file of the log does not need.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
        said = (metadata.metadata or {}).get(KEY.encode())
        if said is not None:
            known = json.loads(said)
            declared = [(int(first), int(last)) for first, last in known.pop("declared", [])]
            return FileRows(**known, declared=declared)
        node, incarnation, number = named(path.stem)
        at = metadata.schema.to_arrow_schema().get_field_index("number")
        found = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
        first, last = min(each.min for each in found), max(each.max for each in found)
        return FileRows(node, incarnation, number, first, last, metadata.num_rows)
    except (OSError, ValueError, TypeError, AttributeError, pa.ArrowException):
        return None
