"""The SQL of sources that are replicated: an entry in, a tail back, and what is written beside. Built with SQLAlchemy
Core, once, when this is imported.

What comes in: the tables of `schema.py`. What goes out: SQL text; named parameters where something is deleted or
taken in, positions where records are put.
Rules: 1. By (epoch, idx), never by idx alone. 2. What every entry has (rows, settled records, its own record) is one
statement for each: each call of the driver costs what `statements.py` says. What few entries have (counts, marks,
drops) is a statement of its own. 3. A row of an entry has a number that is chosen here, above all that there are: so
its place is known, and rows that are staged can be told from others.
Not here: who calls them, and in which order (`entries.py`, `undoing.py`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Integer, Table, delete, insert, literal_column, select, tuple_, update

from amqpd.journal.sqlite.schema import (
    SOURCE,
    STAGED_ENTRY,
    batch,
    deadline,
    discard,
    former,
    former_operation_mark,
    operation_mark,
    queue,
    returned,
    settled,
    source,
    staged,
    tail,
    vote,
)
from amqpd.journal.sqlite.statements import (
    count,
    create_view,
    insert_deadlines,
    insert_rows,
    insert_settled,
    insert_through_view,
    new,
    text,
)

# --- an entry

_ENTRY = (
    "source",
    "epoch",
    "idx",
    "first_row",
    "inserted",
    "rows",
    "numbers",
    "deadlines",
    "data",
    "settled",
    "before_epoch",
    "before_idx",
    "checksum",
    "control",
    "entry_rows",
    "entry_first_row",
    "tail_crc",
)


def _program() -> list[str]:
    of, first_row = [new("source"), new("epoch"), new("idx")], new("first_row")
    said = [
        *of,
        new("before_epoch"),
        new("before_idx"),
        new("checksum"),
        new("entry_first_row"),
        new("entry_rows"),
        literal_column("NEW.control"),
        new("tail_crc"),
    ]
    keep = insert(tail).from_select(
        [each.name for each in tail.c], select(*said).where(literal_column("NEW.control").is_not(None))
    )
    return [
        text(insert_rows(of, first_row)),
        text(insert_deadlines(of, first_row)),
        text(count("rows", new("inserted"))),
        *map(text, insert_settled(of)),
        text(keep),
    ]


CREATE = create_view("entry_view", _ENTRY, _program())
APPEND = insert_through_view("entry_view", _ENTRY)
"""A part of an entry, or all of it: rows and deadlines as `statements.COMMIT` wants them, the first with the number
`first_row`; with the last part settled (as there), and the record of the entry in `tail`. Without `control` there is
none, and nothing is settled."""
PARAMETERS: dict[str, Any] = dict.fromkeys(_ENTRY)
LAST_ROW = "SELECT coalesce(max(batch_id), 0) FROM batch"


def _put(of: Table) -> str:
    """Over what has the same key."""
    names = [each.name for each in of.c]
    return f"INSERT OR REPLACE INTO {of.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


PUT_RETURNED, PUT_MARK, PUT_FORMER, PUT_VOTE, PUT_STAGED = map(_put, (returned, queue, former, vote, staged))
PUT_OPERATION_MARK, PUT_FORMER_OPERATION_MARK = map(_put, (operation_mark, former_operation_mark))
DROP_OPERATION_MARK = "DELETE FROM operation_mark WHERE source = ? AND forwarder = ?"
PUT_ROW, PUT_DEADLINE = map(_put, (batch, deadline))
PUT_SETTLED = _put(settled).replace("REPLACE", "IGNORE")
DROP_MARK = "DELETE FROM queue WHERE queue_id = ?"

# --- a tail

_given = tuple_(literal_column(":epoch"), literal_column(":idx"))


def _of_source(of: Table) -> ColumnElement[bool]:
    return of.c.source == literal_column(":source")


def _undone(of: Table) -> str:
    """Records of the source above the (epoch, idx)."""
    return text(delete(of).where(_of_source(of), tuple_(of.c.epoch, of.c.idx) > _given))


def _forget(of: Table) -> str:
    """Records of the source up to the (epoch, idx), which is committed."""
    return text(delete(of).where(_of_source(of), tuple_(of.c.epoch, of.c.idx) <= _given))


# What is above the last committed entry is in the tail, which has the place of its rows.
UNDONE = text(
    select(tail.c.first_row, tail.c.rows).where(_of_source(tail), tuple_(tail.c.epoch, tail.c.idx) > _given)
)
"""Of the entries of a tail above the (epoch, idx)."""


def _rows_of(of: Table, chosen: ColumnElement[bool]) -> str:
    return text(delete(of).where(_of_source(of), chosen))


def _between(of: Table) -> ColumnElement[bool]:
    return of.c.batch_id.between(literal_column(":first_row", Integer), literal_column(":last_row", Integer))


UNDO_ROWS, UNDO_DEADLINES = (_rows_of(of, _between(of)) for of in (batch, deadline))
"""Those from one number to another."""
# By the index: the table has the bodies.
_standing_above = (
    select(batch.c.batch_id)
    .with_hint(batch, "INDEXED BY batch_index", "sqlite")
    .where(
        _of_source(batch),
        tuple_(batch.c.epoch, batch.c.idx) > _given,
        literal_column("+batch_id", Integer) < literal_column(":below_row", Integer),
    )
)
REPLACE_DEADLINES, REPLACE_ROWS = (_rows_of(of, of.c.batch_id.in_(_standing_above)) for of in (deadline, batch))
"""Those above the (epoch, idx), committed or not, whose numbers are below one."""
UNDO_SETTLED, UNDO_RETURNED, UNDO_DISCARDS, UNDO_MARKS, UNDO_FORMER, UNDO_TAIL = map(
    _undone, (settled, returned, discard, queue, former, tail)
)
UNDO_OPERATION_MARKS, UNDO_FORMER_OPERATION_MARKS = map(_undone, (operation_mark, former_operation_mark))
FORGET_FORMER, FORGET_TAIL, FORGET_OPERATION_MARKS = map(_forget, (former, tail, former_operation_mark))
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

# --- what is staged

DROP_STAGED = text(delete(staged).where(_of_source(staged)))
UNDO_STAGED = text(
    delete(staged).where(
        _of_source(staged),
        staged.c.kind == literal_column(str(STAGED_ENTRY)),
        tuple_(staged.c.epoch, staged.c.idx) > _given,
    )
)
_from_row = literal_column(":first_row", Integer)
DROP_ROWS, DROP_DEADLINES = (_rows_of(of, of.c.batch_id >= _from_row) for of in (batch, deadline))
"""Rows of the source, from one on."""
