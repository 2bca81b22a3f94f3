"""What a recorder wrote, as rows: by way of a spool file and its Parquet file, as in a running broker.

What comes in: blocks of a recorder's buffer. What goes out: rows, dictionaries of columns.
Not here: what the rows have to say (`ledger.py`, the tests).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from amqpd.audit.files.damage import Reached
from amqpd.audit.files.edges import Edges
from amqpd.audit.files.footer import named
from amqpd.audit.files.parquet import convert
from amqpd.audit.recorder import Recorder

Row = dict[str, Any]


def rows_of(recorder: Recorder) -> list[Row]:
    """What waits in its buffer, which is empty then."""
    return rows_in([recorder.buffer.take()], recorder.incarnation)


def rows_in(blocks: Iterable[bytes], incarnation: int = 1, node: str = "node") -> list[Row]:
    """Of the blocks of one spool file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spool = folder / f"{node}-{incarnation}-1.spool"
        spool.write_bytes(b"".join(blocks))
        return rows_at(convert(spool, folder))


def rows_at(path: Path | None) -> list[Row]:
    """Of a Parquet file; without one, none."""
    rows: list[Row] = [] if path is None else pq.ParquetFile(path).read().to_pylist()
    return rows


def rows_below(folder: Path) -> list[Row]:
    """Of all files of the log, in the order in which things happened."""
    rows = [row for path in folder.rglob("*.parquet") for row in rows_at(path)]
    return sorted(rows, key=lambda row: (row["incarnation"], row["number"]))


def only(rows: Iterable[Row], *events: str) -> list[Row]:
    return [row for row in rows if row["event"] in events]


def told(rows: Iterable[Row], *columns: str) -> list[tuple[Any, ...]]:
    """These columns of each."""
    return [tuple(row[column] for column in columns) for row in rows]


def finish_spool(audit: Path) -> None:
    """Of a broker that has ended: what it left, as the next start makes it files."""
    edges, reached = Edges(audit / "events"), Reached()
    for path in sorted((audit / "spool").glob("*.spool"), key=lambda path: named(path.stem)):
        convert(path, audit / "events", reached, edges)
        edges.ended(*named(path.stem)[:2])
