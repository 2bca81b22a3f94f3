"""The SQL that takes back a tail, built with SQLAlchemy Core, once, when this is imported.

What comes in: the tables of `schema.py`. What goes out: SQL text; with named parameters `source`, `epoch`, `idx`
where something is deleted, with positions where a former version is put back.
Rules: by (epoch, idx), never by idx alone.
Not here: who calls them, and in which order (`undoing.py`).
"""

from __future__ import annotations

from sqlalchemy import Integer, Table, delete, literal_column, select, tuple_, update

from amqpd.journal.sqlite.schema import SOURCE, batch, deadline, discard, former, queue, returned, settled, source
from amqpd.journal.sqlite.statements import text

_given = tuple_(literal_column(":epoch"), literal_column(":idx"))


def _undone(of: Table) -> str:
    """Records of the source above the (epoch, idx)."""
    return text(delete(of).where(of.c.source == literal_column(":source"), tuple_(of.c.epoch, of.c.idx) > _given))


# By the index: the table has the bodies.
_rows_above = (
    select(batch.c.batch_id)
    .with_hint(batch, "INDEXED BY batch_index", "sqlite")
    .where(batch.c.source == literal_column(":source"), tuple_(batch.c.epoch, batch.c.idx) > _given)
)
UNDO_ROWS = text(delete(batch).where(batch.c.batch_id.in_(_rows_above)))
UNDO_DEADLINES = _undone(deadline)
UNDO_SETTLED = _undone(settled)
UNDO_RETURNED = _undone(returned)
UNDO_DISCARDS = _undone(discard)
UNDO_MARKS = _undone(queue)
UNDO_FORMER = _undone(former)
FORGET_FORMER = text(
    delete(former).where(former.c.source == literal_column(":source"), tuple_(former.c.epoch, former.c.idx) <= _given)
)
"""Of what is committed up to the (epoch, idx)."""
UNCOUNT = text(
    update(source)
    .where(source.c.source == SOURCE)
    .values(
        rows=source.c.rows - literal_column(":rows", Integer),
        rows_check=source.c.rows_check + literal_column(":rows", Integer),
        settled=source.c.settled - literal_column(":settled", Integer),
        settled_check=source.c.settled_check + literal_column(":settled", Integer),
    )
)


def _put(of: Table, *columns: str) -> str:
    """Over what has the same key."""
    names = (*columns, "source", "epoch", "idx", "crc")
    return f"INSERT OR REPLACE INTO {of.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


PUT_RETURNED = _put(returned, "queue_id", "seq", "count")
PUT_SETTLED = _put(settled, "queue_id", "first_seq", "last_seq")
PUT_MARK = _put(queue, "queue_id", "next_seq", "delivered")
