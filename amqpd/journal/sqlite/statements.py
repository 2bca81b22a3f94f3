"""The SQL that writes the journal, built with SQLAlchemy Core and compiled to text once, when this is imported.

What comes in: the tables of `schema.py`. What goes out: SQL text with named parameters, for SQLite's driver.
Rules: 1. A commit is one call of the driver: `COMMIT`. Each call of the driver gives up the interpreter lock and
has to win it back from the pump; with a busy pump that costs up to tens of milliseconds each, more than the disk
does (figures in `bench/journal_commit.py`). So a transaction travels as one row into a temporary view whose trigger
writes all tables; SQLite then wraps this single statement in a transaction of its own. 2. Lists travel as JSON,
bodies as one blob, end to end; the numbers of rows in another one, as decimal digits (why: `NUMBER_BYTES`). 3. View
and trigger belong to the connection and are code, not format: they live in the temp schema and no migration knows
them.
Not here: what reads (`queries.py`), who calls them (`disk.py`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ClauseElement,
    Integer,
    LargeBinary,
    Table,
    and_,
    cast,
    column,
    delete,
    func,
    insert,
    literal_column,
    select,
    table,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert as upsert

from amqpd.journal.sqlite.schema import batch, deadline, discard, names, queue, returned, settled, source

_dialect = sqlite.dialect(paramstyle="named")

NUMBER_BYTES = 20
"""Digits of each number of a row, with a sign. SQLite finds one in 0.1 us, and a number in a JSON array in 0.3 us:
with ten a row, that is an eighth of what a commit of many small rows costs."""
NUMBERS = 10
"""Of a row."""


def text(statement: ClauseElement) -> str:
    """Parameters are `literal_column(":name")`; every other value is part of the text."""
    return str(statement.compile(dialect=_dialect, compile_kwargs={"literal_binds": True}))


def _each(name: str, *types: type[Any]) -> Any:
    """The elements of the list `name` of the transaction, each a JSON array; (from clause, its items)."""
    elements = func.json_each(literal_column(f"NEW.{name}")).table_valued("value", name=f"{name}_each")
    return elements, [
        func.json_extract(elements.c.value, literal_column(f"'$[{at}]'"), type_=of) for at, of in enumerate(types)
    ]


def _each_row() -> tuple[Any, list[Any]]:
    """The rows of the transaction: (from clause, their numbers)."""
    offsets = func.json_each(literal_column("NEW.rows")).table_valued(column("value", Integer), name="rows_each")
    numbers = [
        cast(func.substr(literal_column("NEW.numbers"), offsets.c.value + at * NUMBER_BYTES, NUMBER_BYTES), Integer)
        for at in range(NUMBERS)
    ]
    return offsets, numbers


def _new(name: str) -> Any:
    return literal_column(f"NEW.{name}", Integer)


def _piece(at: Any, nbytes: Any) -> Any:
    # coalesce: a piece of length 0 of an empty blob is NULL for SQLite
    return func.coalesce(
        func.substr(literal_column("NEW.data"), at, nbytes), literal_column("x''"), type_=LargeBinary
    )


def _origin() -> list[Any]:
    return [_new("source"), _new("epoch"), _new("idx")]


def _insert_rows() -> Any:
    rows, (queue_id, first, last, persistent, at, nbytes, crc, *facts) = _each_row()
    return insert(batch).from_select(
        [
            *("queue_id", "first_seq", "last_seq", "nbytes", "persistent", "source", "epoch", "idx", "crc"),
            *("body_bytes", "published_ms", "deadline_bytes", "data"),
        ],
        select(
            *(queue_id, first, last, nbytes, persistent, *_origin(), crc),
            *(*facts, _piece(at, nbytes)),
        ).select_from(rows),
    )


def _insert_deadlines() -> Any:
    """After the rows."""
    _, (queue_id, first, last, at, nbytes, crc) = _each("deadlines", *[Integer] * 6)
    this = and_(
        batch.c.queue_id == queue_id,
        batch.c.last_seq == last,
        batch.c.first_seq == first,
        batch.c.idx == _new("idx"),
    )
    return insert(deadline).from_select(
        ["batch_id", "source", "epoch", "idx", "crc", "data"],
        select(batch.c.batch_id, *_origin(), crc, _piece(at, nbytes)).where(this),
    )


def _delete_rows(name: str, of: Table) -> Any:
    """The same for the rows themselves and, before that, for their deadlines."""
    _, (queue_id, first, last, idx) = _each(name, *[Integer] * 4)
    doomed = batch.alias("doomed")
    inside = and_(
        doomed.c.queue_id == queue_id,
        doomed.c.last_seq.between(first, last),
        doomed.c.first_seq >= first,
        doomed.c.idx <= idx,
    )
    return delete(of).where(of.c.batch_id.in_(select(doomed.c.batch_id).where(inside)))


def _settled() -> list[Any]:
    """Settled ranges, in and out, and their number."""
    ranges, (*items, crc) = _each("settled", *[Integer] * 4)
    insert_settled = upsert(settled).from_select(
        ["queue_id", "first_seq", "last_seq", "source", "epoch", "idx", "crc"],
        select(*items, *_origin(), crc).select_from(ranges).where(true()),
    )
    # A range that was settled before stays as it is.
    insert_settled = insert_settled.on_conflict_do_nothing()
    _, (queue_id, first, until, last, idx) = _each("settled_deletes", *[Integer] * 5)
    doomed = settled.alias("doomed")
    inside = and_(
        doomed.c.queue_id == queue_id,
        doomed.c.first_seq.between(first, until),
        doomed.c.last_seq <= last,
        doomed.c.idx <= idx,
    )
    delete_settled = delete(settled).where(
        tuple_(settled.c.queue_id, settled.c.first_seq, settled.c.last_seq).in_(
            select(doomed.c.queue_id, doomed.c.first_seq, doomed.c.last_seq).where(inside)
        )
    )
    return [insert_settled, _count("settled", func.changes()), delete_settled, _count("settled", -func.changes())]


def _settled_again() -> list[Any]:
    """Before them: the record of the same range that is there may be of a dropped queue with the same id, and wait
    to leave."""
    again, (queue_id, first, last) = _each("settled_again", *[Integer] * 3)
    replaced = delete(settled).where(
        tuple_(settled.c.queue_id, settled.c.first_seq, settled.c.last_seq).in_(
            select(queue_id, first, last).select_from(again)
        )
    )
    return [replaced, _count("settled", -func.changes())]


def _count(what: str, by: Any) -> Any:
    """Keep the number of records, behind the statement that put in or deleted some (SQLite's changes())."""
    return (
        update(source)
        .where(source.c.source == _new("source"))
        .values({what: source.c[what] + by, f"{what}_check": source.c[f"{what}_check"] - by})
    )


def _returned() -> list[Any]:
    """Counts of returned messages, in and out."""
    counts, (*items, crc) = _each("returned", *[Integer] * 4)
    raise_counts = upsert(returned).from_select(
        ["queue_id", "seq", "count", "source", "epoch", "idx", "crc"],
        select(*items, *_origin(), crc).select_from(counts).where(true()),
    )
    raise_counts = raise_counts.on_conflict_do_update(
        index_elements=["queue_id", "seq"],
        set_={name: raise_counts.excluded[name] for name in ("count", "source", "epoch", "idx", "crc")},
    )
    _, (queue_id, first, until, _, idx) = _each("returned_deletes", *[Integer] * 5)
    gone = returned.alias("gone")
    inside = and_(gone.c.queue_id == queue_id, gone.c.seq.between(first, until), gone.c.idx <= idx)
    delete_counts = delete(returned).where(
        tuple_(returned.c.queue_id, returned.c.seq).in_(select(gone.c.queue_id, gone.c.seq).where(inside))
    )
    return [raise_counts, delete_counts]


def _bookkeeping() -> list[Any]:
    """Marks of queues, discards."""
    marks, items = _each("marks", *[Integer] * 4)
    put_marks = upsert(queue).from_select(
        ["queue_id", "next_seq", "delivered", "crc"], select(*items).select_from(marks).where(true())
    )
    put_marks = put_marks.on_conflict_do_update(
        index_elements=["queue_id"],
        set_={name: put_marks.excluded[name] for name in ("next_seq", "delivered", "crc")},
    )
    dropped, (queue_id,) = _each("dropped", Integer)
    drop_marks = delete(queue).where(queue.c.queue_id.in_(select(queue_id).select_from(dropped)))
    begun, (*items, idx, crc) = _each("discards", *[Integer] * 6)
    begin_discards = insert(discard).from_select(
        ["discard_id", "queue_id", "first_seq", "last_seq", "source", "epoch", "idx", "crc"],
        select(*items, _new("source"), _new("epoch"), idx, crc).select_from(begun),
    )
    ended, (discard_id,) = _each("discarded", Integer)
    end_discards = delete(discard).where(discard.c.discard_id.in_(select(discard_id).select_from(ended)))
    return [put_marks, drop_marks, begin_discards, end_discards]


def _reached() -> Any:
    """The last committed index, and the number of rows: behind the statement that deletes some."""
    by = _new("inserted") - func.changes()
    return (
        update(source)
        .where(source.c.source == _new("source"))
        .values(
            epoch=_new("epoch"),
            idx=_new("idx"),
            crc=_new("source_crc"),
            rows=source.c.rows + by,
            rows_check=source.c.rows_check - by,
        )
    )


def _program(*, rare: bool) -> list[Any]:
    timed = [_insert_deadlines(), _delete_rows("deadline_deletes", deadline)] if rare else []
    counted = _returned() if rare else []
    again = _settled_again() if rare else []
    return [
        *(_insert_rows(), *timed, _delete_rows("row_deletes", batch), _reached()),
        *(*again, *_settled(), *counted, *_bookkeeping()),
    ]


LISTS = (
    *("rows", "row_deletes", "settled", "settled_deletes"),
    *("marks", "dropped", "discards", "discarded"),
)
RARE_LISTS = ("deadlines", "deadline_deletes", "settled_again", "returned", "returned_deletes")
_COLUMNS = ("source", "epoch", "idx", "source_crc", "inserted", *LISTS, "numbers", "data")


def _create(view: str, columns: tuple[str, ...], program: list[Any]) -> tuple[str, str]:
    return (
        f"CREATE TEMP VIEW {view} AS SELECT " + ", ".join(f"NULL AS {name}" for name in columns),
        f"CREATE TEMP TRIGGER {view}_insert INSTEAD OF INSERT ON {view} BEGIN "
        + "; ".join(text(statement) for statement in program)
        + "; END",
    )


def _commit(view: str, columns: tuple[str, ...]) -> str:
    return str(insert(table(view, *[column(name) for name in columns])).compile(dialect=_dialect))


CREATE_INTAKE = (
    *_create("intake", _COLUMNS, _program(rare=False)),
    *_create("intake_with_rare", (*_COLUMNS, *RARE_LISTS), _program(rare=True)),
)

COMMIT = _commit("intake", _COLUMNS)
"""One transaction. Lists are JSON arrays of arrays, or None when empty; but `rows` holds the offset (from 1) in
`numbers` of each row's NUMBERS numbers:
rows: queue_id, first_seq, last_seq, persistent, offset of the body in `data` (from 1), nbytes, crc, body_bytes,
published_ms, deadline_bytes; row_deletes: queue_id, first_seq, last_seq, largest idx;
settled: queue_id, first_seq, last_seq, crc;
settled_deletes: queue_id, smallest and largest first_seq, largest last_seq, largest idx;
marks: queue_id, next_seq, delivered, crc; dropped: queue_id;
discards: discard_id, queue_id, first_seq, last_seq, idx, crc; discarded: discard_id.
`inserted` is the number of `rows`."""

COMMIT_WITH_RARE = _commit("intake_with_rare", (*_COLUMNS, *RARE_LISTS))
"""The same with RARE_LISTS as well: without anything to do they would cost 10 us, a third of an empty transaction.
deadlines, of rows of this transaction: queue_id, first_seq, last_seq, offset in `data`, bytes, crc;
deadline_deletes: those of row_deletes that may have some; settled_again: queue_id, first_seq, last_seq of those of
settled that may be there already; returned: queue_id, seq, count, crc;
returned_deletes: those of settled_deletes that may have some."""

PUT_NAME = str(
    upsert(names)
    .on_conflict_do_update(
        index_elements=["name"],
        set_={"value": literal_column("excluded.value"), "crc": literal_column("excluded.crc")},
    )
    .compile(dialect=_dialect)
)
PROBE = text(
    insert(batch).values(
        {each.name: literal_column("0") for each in batch.c}
        | {"batch_id": literal_column("NULL"), "data": literal_column(":data")}
    )
)
"""A row that is rolled back."""
NEW_SOURCE = str(insert(source).prefix_with("OR IGNORE").compile(dialect=_dialect))
"""Does nothing when there is one."""
