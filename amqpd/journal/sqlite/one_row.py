"""The transaction that one client makes who waits for each confirm: one row, and nothing else.

What comes in: such a transaction. What goes out: the journal, changed as by `work.write`, in less than half the time
beside the disk's: no lists, so no JSON, and one statement or two in place of eight.
Rules: 1. What is on the disk afterwards is what `statements.COMMIT` would have made of it, except the record of the
local source. 2. That is a page of its own, a third of what is written, and the row itself says of which transaction
it is (`trust.read_source`); so it is not written with each.
Not here: all other transactions (`work.py`), what happens after a failure (`disk.py`).
"""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import Integer, insert, literal_column, update

from amqpd.journal.sqlite.checksums import HEAD, HEAD_SHIFT, head_sum, seed
from amqpd.journal.sqlite.schema import SOURCE, batch, source
from amqpd.journal.sqlite.sources import SourceProgress
from amqpd.journal.sqlite.statement_parameters import checksum
from amqpd.journal.sqlite.statements import create_view, insert_through_view, text
from amqpd.journal.transaction import JournalTransaction

PAGES = 3
"""What it changes: the last page of the table and one of its index, and now and then a new one."""

_ROW = (
    "epoch",
    "idx",
    "queue_id",
    "first_seq",
    "last_seq",
    "nbytes",
    "persistent",
    "body_bytes",
    "published_ms",
    "crc",
    "data",
)
_HEAD = ("source_crc", "rows")


def _program() -> list[str]:
    columns = [each.name for each in batch.c if each.name in _ROW]
    values: dict[str, Any] = {name: literal_column(f"NEW.{name}") for name in columns}
    fixed: dict[str, Any] = {
        "batch_id": literal_column("NULL"),
        "source": literal_column(str(SOURCE)),
        "deadline_bytes": literal_column("0"),
    }
    rows = literal_column("NEW.rows", Integer)
    reached = {"epoch": "NEW.epoch", "idx": "NEW.idx", "crc": "NEW.source_crc"}
    counted = {"rows": source.c.rows + rows, "rows_check": source.c.rows_check - rows}
    return [
        text(insert(batch).values(values | fixed).inline()),
        text(
            update(source)
            .where(source.c.source == SOURCE)
            .values({name: literal_column(value) for name, value in reached.items()} | counted)
        ),
    ]


CREATE = (
    *create_view("row_view", _ROW, _program()[:1]),
    *create_view("row_and_head_view", (*_HEAD, *_ROW), _program()),
)
_COMMIT = insert_through_view("row_view", _ROW, positional=True)
_COMMIT_WITH_HEAD = insert_through_view("row_and_head_view", (*_HEAD, *_ROW), positional=True)


def write_row(
    connection: sqlite3.Connection, transaction: JournalTransaction, sources: SourceProgress, identity: str
) -> int:
    """As `work.write`, for such a transaction; the local source is then so far. How many bytes the row's data has.
    Raises sqlite3.Error."""
    local, index, row = sources.local, transaction.index, transaction.rows[0]
    row.join()
    data, queue_id, first, last = row.data, row.queue_id, row.first_seq, row.last_seq
    # SQLite's driver looks for somebody who adapts a bool.
    persistent = int(row.persistent)
    nbytes, body_bytes, published_ms = len(data), row.body_bytes, row.published_ms
    begun = seed(HEAD, SOURCE, local.epoch)
    summed = head_sum(begun, queue_id, first, last, persistent, nbytes, index, body_bytes, published_ms, 0)
    crc = summed << HEAD_SHIFT | checksum(row)
    said = (local.epoch, index, queue_id, first, last, nbytes, persistent, body_bytes, published_ms, crc, data)
    if sources.may_lag:
        connection.execute(_COMMIT, said)
        sources.lag(index)
    else:
        head = local.at((local.epoch, index))
        connection.execute(_COMMIT_WITH_HEAD, (head.record(identity)[-1], sources.behind + 1, *said))
        sources.put((head,))
    return nbytes
