"""Every SQL statement of the journal, built with SQLAlchemy Core and compiled to text once, when this is imported.

What comes in: the tables of `schema.py`. What goes out: SQL text with named parameters, for SQLite's driver.
Rules: 1. A commit is one call of the driver: `COMMIT`. Each call of the driver gives up the interpreter lock and
has to win it back from the pump; with a busy pump that costs up to tens of milliseconds each, more than the disk
does (figures in `bench/journal_commit.py`). So a transaction travels as one row into a temporary view whose trigger
writes all tables; SQLite then wraps this single statement in a transaction of its own. 2. Lists travel as JSON,
bodies as one blob, end to end; the numbers of rows in another one, as decimal digits (why: `NUMBER_BYTES`). 3. View
and trigger belong to the connection and are code, not format: they live in the temp schema and no migration knows
them.
Not here: who calls them (`sqlite.py`, `recovery.py`, `discards.py`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Integer,
    LargeBinary,
    Table,
    and_,
    case,
    cast,
    column,
    delete,
    exists,
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

from amqpd.journal.schema import batch, deadline, discard, queue, returned, settled, source

_dialect = sqlite.dialect(paramstyle="named")

NUMBER_BYTES = 20
"""Digits of each number of a row, with a sign. SQLite finds one in 0.1 us, and a number in a JSON array in 0.3 us:
with ten a row, that is an eighth of what a commit of many small rows costs."""
NUMBERS = 10
"""Of a row."""


def _text(statement: ClauseElement) -> str:
    """Its parameters are `_given` below; every other value is part of the text."""
    return str(statement.compile(dialect=_dialect, compile_kwargs={"literal_binds": True}))


def _given(name: str) -> ColumnElement[int]:
    return literal_column(f":{name}", Integer)


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
    """Settled ranges, in and out."""
    ranges, items = _each("settled", *[Integer] * 3)
    insert_settled = upsert(settled).from_select(
        ["queue_id", "first_seq", "last_seq", "source", "epoch", "idx"],
        select(*items, *_origin()).select_from(ranges).where(true()),
    )
    # A range is settled once; the record that is there is of a dropped queue with the same id, and waits to leave.
    insert_settled = insert_settled.on_conflict_do_update(
        index_elements=["queue_id", "first_seq", "last_seq"],
        set_={name: insert_settled.excluded[name] for name in ("source", "epoch", "idx")},
    )
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
    return [insert_settled, delete_settled]


def _returned() -> list[Any]:
    """Counts of returned messages, in and out."""
    counts, items = _each("returned", *[Integer] * 3)
    raise_counts = upsert(returned).from_select(
        ["queue_id", "seq", "count", "source", "epoch", "idx"],
        select(*items, *_origin()).select_from(counts).where(true()),
    )
    raise_counts = raise_counts.on_conflict_do_update(
        index_elements=["queue_id", "seq"],
        set_={name: raise_counts.excluded[name] for name in ("count", "source", "epoch", "idx")},
    )
    _, (queue_id, first, until, _, idx) = _each("returned_deletes", *[Integer] * 5)
    gone = returned.alias("gone")
    inside = and_(gone.c.queue_id == queue_id, gone.c.seq.between(first, until), gone.c.idx <= idx)
    delete_counts = delete(returned).where(
        tuple_(returned.c.queue_id, returned.c.seq).in_(select(gone.c.queue_id, gone.c.seq).where(inside))
    )
    return [raise_counts, delete_counts]


def _bookkeeping() -> list[Any]:
    """Marks of queues, discards, the last committed index."""
    marks, items = _each("marks", *[Integer] * 3)
    raise_marks = upsert(queue).from_select(
        ["queue_id", "next_seq", "delivered"], select(*items).select_from(marks).where(true())
    )
    raise_marks = raise_marks.on_conflict_do_update(
        index_elements=["queue_id"],
        set_={
            "next_seq": func.max(queue.c.next_seq, raise_marks.excluded.next_seq),
            "delivered": case(
                (raise_marks.excluded.delivered < 0, queue.c.delivered), else_=raise_marks.excluded.delivered
            ),
        },
    )
    dropped, (queue_id,) = _each("dropped", Integer)
    drop_marks = delete(queue).where(queue.c.queue_id.in_(select(queue_id).select_from(dropped)))
    begun, items = _each("discards", *[Integer] * 5)
    *items, idx = items
    begin_discards = insert(discard).from_select(
        ["discard_id", "queue_id", "first_seq", "last_seq", "source", "epoch", "idx"],
        select(*items, _new("source"), _new("epoch"), idx).select_from(begun),
    )
    ended, (discard_id,) = _each("discarded", Integer)
    end_discards = delete(discard).where(discard.c.discard_id.in_(select(discard_id).select_from(ended)))
    count = update(source).where(source.c.source == _new("source"), _new("counts") == 1)
    count = count.values(epoch=_new("epoch"), idx=_new("idx"))
    return [raise_marks, drop_marks, begin_discards, end_discards, count]


def _program(*, rare: bool) -> list[Any]:
    timed = [_insert_deadlines(), _delete_rows("deadline_deletes", deadline)] if rare else []
    counted = _returned() if rare else []
    return [_insert_rows(), *timed, _delete_rows("row_deletes", batch), *_settled(), *counted, *_bookkeeping()]


LISTS = (
    *("rows", "row_deletes", "settled", "settled_deletes"),
    *("marks", "dropped", "discards", "discarded"),
)
RARE_LISTS = ("deadlines", "deadline_deletes", "returned", "returned_deletes")
_COLUMNS = ("source", "epoch", "idx", "counts", *LISTS, "numbers", "data")


def _create(view: str, columns: tuple[str, ...], program: list[Any]) -> tuple[str, str]:
    return (
        f"CREATE TEMP VIEW {view} AS SELECT " + ", ".join(f"NULL AS {name}" for name in columns),
        f"CREATE TEMP TRIGGER {view}_insert INSTEAD OF INSERT ON {view} BEGIN "
        + "; ".join(_text(statement) for statement in program)
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
settled: queue_id, first_seq, last_seq;
settled_deletes: queue_id, smallest and largest first_seq, largest last_seq, largest idx;
marks: queue_id, next_seq (only ever rises), delivered (negative: as it was); dropped: queue_id;
discards: discard_id, queue_id, first_seq, last_seq, idx; discarded: discard_id.
`counts` is 1 when idx becomes the last committed index, 0 for housekeeping."""

COMMIT_WITH_RARE = _commit("intake_with_rare", (*_COLUMNS, *RARE_LISTS))
"""The same with RARE_LISTS as well: without anything to do they would cost 10 us, a third of an empty transaction.
deadlines, of rows of this transaction: queue_id, first_seq, last_seq, offset in `data`, bytes, crc;
deadline_deletes: those of row_deletes that may have some; returned: queue_id, seq, count;
returned_deletes: those of settled_deletes that may have some."""

# --- recovery: each is one sequential scan, of an index or of a small table; no body is read

SOURCE = _text(select(source.c.epoch, source.c.idx).where(source.c.source == _given("source")))
NEW_SOURCE = str(insert(source).compile(dialect=_dialect))
QUEUES = _text(select(queue.c.queue_id, queue.c.next_seq, queue.c.delivered))
DISCARDS = _text(
    select(discard.c.discard_id, discard.c.queue_id, discard.c.first_seq, discard.c.last_seq, discard.c.idx).order_by(
        discard.c.discard_id
    )
)
ROWS = _text(
    select(
        *(
            batch.c.queue_id,
            batch.c.last_seq,
            batch.c.first_seq,
            batch.c.nbytes,
            batch.c.persistent,
            batch.c.idx,
            batch.c.body_bytes,
            batch.c.published_ms,
            batch.c.deadline_bytes,
            batch.c.batch_id,
        )
    ).order_by(batch.c.queue_id, batch.c.last_seq)
)
DEADLINES = _text(select(deadline.c.batch_id, deadline.c.crc, deadline.c.data))
SETTLED = _text(
    select(settled.c.queue_id, settled.c.first_seq, settled.c.last_seq, settled.c.idx).order_by(
        settled.c.queue_id, settled.c.first_seq, settled.c.last_seq
    )
)
RETURNED = _text(
    select(returned.c.queue_id, returned.c.seq, returned.c.count, returned.c.idx).order_by(
        returned.c.queue_id, returned.c.seq
    )
)

# --- a piece of a discard

_of_discard = (_given("queue_id"), _given("first_seq"), _given("last_seq"), _given("idx"))
ROWS_TO_DISCARD = _text(
    select(batch.c.last_seq, batch.c.nbytes)
    .where(
        batch.c.queue_id == _of_discard[0],
        batch.c.last_seq.between(_of_discard[1], _of_discard[2]),
        batch.c.first_seq >= _of_discard[1],
        batch.c.idx <= _of_discard[3],
    )
    .order_by(batch.c.last_seq)
    .limit(_given("count_max"))
)
SETTLED_TO_DISCARD = _text(
    select(settled.c.first_seq)
    .where(
        settled.c.queue_id == _of_discard[0],
        settled.c.first_seq.between(_of_discard[1], _of_discard[2]),
        settled.c.last_seq <= _of_discard[2],
        settled.c.idx <= _of_discard[3],
    )
    .order_by(settled.c.first_seq)
    .limit(1)
    .offset(_given("count_max"))
)
RETURNED_TO_DISCARD = _text(
    select(returned.c.seq)
    .where(
        returned.c.queue_id == _of_discard[0],
        returned.c.seq.between(_of_discard[1], _of_discard[2]),
        returned.c.idx <= _of_discard[3],
    )
    .order_by(returned.c.seq)
    .limit(1)
    .offset(_given("count_max"))
)

# --- reading

_queue_id, _first, _last = _given("queue_id"), _given("first_seq"), _given("last_seq")
_discarded = exists().where(
    discard.c.queue_id == batch.c.queue_id,
    discard.c.first_seq <= batch.c.first_seq,
    discard.c.last_seq >= batch.c.last_seq,
    discard.c.idx >= batch.c.idx,
)
FIND = _text(
    select(
        *(batch.c.first_seq, batch.c.last_seq, batch.c.nbytes, batch.c.persistent),
        *(batch.c.body_bytes, batch.c.published_ms, batch.c.deadline_bytes),
    )
    .where(batch.c.queue_id == _queue_id, batch.c.last_seq >= _first, ~_discarded)
    .order_by(batch.c.last_seq)
)
"""The index only: what it says is what recovery went by, so the checksum of the body is held against that. Ends with
the queue: the reader stops at the first row that it does not want."""
READ = _text(
    select(batch.c.crc, batch.c.data, deadline.c.crc.label("deadline_crc"), deadline.c.data.label("deadline_data"))
    .select_from(batch.outerjoin(deadline, and_(deadline.c.batch_id == batch.c.batch_id, batch.c.deadline_bytes > 0)))
    .where(batch.c.queue_id == _queue_id, batch.c.last_seq.between(_first, _last), ~_discarded)
    .order_by(batch.c.last_seq)
)
