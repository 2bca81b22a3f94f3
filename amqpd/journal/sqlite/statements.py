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
    Insert,
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

from amqpd.journal.sqlite.schema import (
    HEAD_COLUMNS,
    SOURCE,
    batch,
    deadline,
    discard,
    names,
    queue,
    returned,
    settled,
    source,
)

_dialect = sqlite.dialect(paramstyle="named")
_positional = sqlite.dialect(paramstyle="qmark")

NUMBER_BYTES = 20
"""Digits of each number of a row, with a sign. SQLite finds one in 0.1 us, and a number in a JSON array in 0.3 us:
with ten a row, that is an eighth of what a commit of many small rows costs."""
NUMBERS = 10
"""Of a row."""


def text(statement: ClauseElement) -> str:
    """Parameters are `literal_column(":name")`; every other value is part of the text.

    Without RETURNING, which SQLAlchemy adds to an insert of one row: a statement that returns a row is carried out,
    and is committed only when its cursor goes, where the driver drops the error."""
    if isinstance(statement, Insert):
        statement = statement.inline()
    return str(statement.compile(dialect=_dialect, compile_kwargs={"literal_binds": True}))


def _each(name: str, count: int) -> tuple[Any, list[Any]]:
    """The elements of the list `name` of the transaction, each a JSON array of this many numbers: (from clause, its
    numbers)."""
    elements = func.json_each(literal_column(f"NEW.{name}")).table_valued("value", name=f"{name}_each")
    items = [func.json_extract(elements.c.value, literal_column(f"'$[{at}]'"), type_=Integer) for at in range(count)]
    return elements, items


def _each_row() -> tuple[Any, list[Any]]:
    """The rows of the transaction: as `each`."""
    offsets = func.json_each(literal_column("NEW.rows")).table_valued(
        column("key", Integer), column("value", Integer), name="rows_each"
    )
    numbers = [
        cast(func.substr(literal_column("NEW.numbers"), offsets.c.value + at * NUMBER_BYTES, NUMBER_BYTES), Integer)
        for at in range(NUMBERS)
    ]
    return offsets, numbers


def new(name: str) -> Any:
    return literal_column(f"NEW.{name}", Integer)


def _piece(at: Any, nbytes: Any) -> Any:
    # coalesce: a piece of length 0 of an empty blob is NULL for SQLite
    return func.coalesce(
        func.substr(literal_column("NEW.data"), at, nbytes), literal_column("x''"), type_=LargeBinary
    )


def _origin() -> list[Any]:
    return [literal_column(str(SOURCE)), new("epoch"), new("idx")]


def insert_rows(of: list[Any], first_row: Any = None) -> Any:
    """`of`: source, epoch, idx; `first_row`: the batch_id of the first one, if SQLite does not choose it."""
    rows, (queue_id, first, last, persistent, at, nbytes, crc, *facts) = _each_row()
    chosen = {} if first_row is None else {"batch_id": first_row + rows.c.key}
    return insert(batch).from_select(
        [
            *chosen,
            "queue_id",
            "first_seq",
            "last_seq",
            "nbytes",
            "persistent",
            "source",
            "epoch",
            "idx",
            "crc",
            "body_bytes",
            "published_ms",
            "deadline_bytes",
            "data",
        ],
        select(
            *chosen.values(), queue_id, first, last, nbytes, persistent, *of, crc, *facts, _piece(at, nbytes)
        ).select_from(rows),
    )


def insert_deadlines(of: list[Any], first_row: Any = None) -> Any:
    """After the rows."""
    _, (queue_id, first, last, at, nbytes, crc) = _each("deadlines", 6)
    this = and_(
        batch.c.queue_id == queue_id,
        batch.c.last_seq == last,
        batch.c.first_seq == first,
        batch.c.epoch == of[1],
        batch.c.idx == of[2],
        *([] if first_row is None else [batch.c.batch_id >= first_row]),
    )
    return insert(deadline).from_select(
        ["batch_id", "source", "epoch", "idx", "crc", "data"],
        select(batch.c.batch_id, *of, crc, _piece(at, nbytes)).where(this),
    )


def _delete_rows(name: str, of: Table, *, bounded: bool) -> Any:
    """The same for the rows themselves and, before that, for their deadlines. `bounded`: up to an (epoch, idx)."""
    _, (queue_id, first, last, *upto) = _each(name, 5 if bounded else 3)
    gone = batch.alias("gone")
    inside = and_(
        gone.c.queue_id == queue_id,
        gone.c.last_seq.between(first, last),
        gone.c.first_seq >= first,
        *([tuple_(gone.c.epoch, gone.c.idx) <= tuple_(*upto)] if bounded else []),
    )
    return delete(of).where(of.c.batch_id.in_(select(gone.c.batch_id).where(inside)))


def insert_settled(of: list[Any]) -> list[Any]:
    """A range that was settled before stays as it is: the older settle counts. `of`: source, epoch, idx."""
    ranges, (*items, crc) = _each("settled", 4)
    statement = upsert(settled).from_select(
        ["queue_id", "first_seq", "last_seq", "source", "epoch", "idx", "crc"],
        select(*items, *of, crc).select_from(ranges).where(true()),
    )
    return [statement.on_conflict_do_nothing(), count("settled", func.changes())]


def _delete_settled(name: str, *, bounded: bool) -> list[Any]:
    if bounded:
        _, (queue_id, first, until, last, *upto) = _each(name, 6)
    else:
        _, (queue_id, first, last) = _each(name, 3)
        until = last
    gone = settled.alias("gone")
    inside = and_(
        gone.c.queue_id == queue_id,
        gone.c.first_seq.between(first, until),
        gone.c.last_seq <= last,
        *([tuple_(gone.c.epoch, gone.c.idx) <= tuple_(*upto)] if bounded else []),
    )
    statement = delete(settled).where(
        tuple_(settled.c.queue_id, settled.c.first_seq, settled.c.last_seq).in_(
            select(gone.c.queue_id, gone.c.first_seq, gone.c.last_seq).where(inside)
        )
    )
    return [statement, count("settled", -func.changes())]


def _settled_again() -> list[Any]:
    """Before them: the record of the same range that is there may be of a dropped queue with the same id, and wait
    to leave."""
    again, (queue_id, first, last) = _each("settled_again", 3)
    replaced = delete(settled).where(
        tuple_(settled.c.queue_id, settled.c.first_seq, settled.c.last_seq).in_(
            select(queue_id, first, last).select_from(again)
        )
    )
    return [replaced, count("settled", -func.changes())]


def count(what: str, by: Any) -> Any:
    """Keep the number of records, behind the statement that put in or deleted some (SQLite's changes())."""
    return (
        update(source)
        .where(source.c.source == SOURCE)
        .values({what: source.c[what] + by, f"{what}_check": source.c[f"{what}_check"] - by})
    )


def _returned() -> list[Any]:
    """Counts of returned messages, in and out."""
    counts, (*items, crc) = _each("returned", 4)
    raise_counts = upsert(returned).from_select(
        ["queue_id", "seq", "count", "source", "epoch", "idx", "crc"],
        select(*items, *_origin(), crc).select_from(counts).where(true()),
    )
    raise_counts = raise_counts.on_conflict_do_update(
        index_elements=["queue_id", "seq"],
        set_={name: raise_counts.excluded[name] for name in ("count", "source", "epoch", "idx", "crc")},
    )
    _, (queue_id, first, until, _last, *upto) = _each("returned_deletes", 6)
    gone = returned.alias("gone")
    inside = and_(
        gone.c.queue_id == queue_id,
        gone.c.seq.between(first, until),
        tuple_(gone.c.epoch, gone.c.idx) <= tuple_(*upto),
    )
    delete_counts = delete(returned).where(
        tuple_(returned.c.queue_id, returned.c.seq).in_(select(gone.c.queue_id, gone.c.seq).where(inside))
    )
    return [raise_counts, delete_counts]


def _put_marks() -> Any:
    marks, (*items, crc) = _each("marks", 4)
    put = upsert(queue).from_select(
        ["queue_id", "next_seq", "delivered", "source", "epoch", "idx", "crc"],
        select(*items, *_origin(), crc).select_from(marks).where(true()),
    )
    return put.on_conflict_do_update(
        index_elements=["queue_id"],
        set_={name: put.excluded[name] for name in ("next_seq", "delivered", "source", "epoch", "idx", "crc")},
    )


def _drops_and_discards() -> list[Any]:
    dropped, (queue_id,) = _each("dropped", 1)
    drop_marks = delete(queue).where(queue.c.queue_id.in_(select(queue_id).select_from(dropped)))
    begun, items = _each("discards", 8)
    begin_discards = insert(discard).from_select(
        ["discard_id", "queue_id", "first_seq", "last_seq", "source", "epoch", "idx", "crc"],
        select(*items).select_from(begun),
    )
    ended, (discard_id,) = _each("discarded", 1)
    end_discards = delete(discard).where(discard.c.discard_id.in_(select(discard_id).select_from(ended)))
    return [drop_marks, begin_discards, end_discards]


def _reached() -> Any:
    """The last transaction of the local source, and the number of rows: behind the statement that deletes some."""
    by = new("inserted") - func.changes()
    return (
        update(source)
        .where(source.c.source == SOURCE)
        .values(
            epoch=new("epoch"),
            idx=new("idx"),
            crc=new("source_crc"),
            rows=source.c.rows + by,
            rows_check=source.c.rows_check - by,
        )
    )


_COUNTS = ("rows", "rows_check", "settled", "settled_check")


def _program(*, rare: bool) -> list[str]:
    program = [insert_rows(_origin())]
    if rare:
        program += [insert_deadlines(_origin()), _delete_rows("deadline_deletes", deadline, bounded=True)]
    program += [_delete_rows("deletes", batch, bounded=False), _reached()]
    if rare:
        program += [_delete_rows("row_discards", batch, bounded=True), count("rows", -func.changes())]
        program += _settled_again()
    program += [*insert_settled(_origin()), *_delete_settled("deletes", bounded=False)]
    if rare:
        program += [*_delete_settled("settled_discards", bounded=True), *_returned()]
    program.append(_put_marks())
    if rare:
        program += _drops_and_discards()
    return [text(statement) for statement in program]


LISTS = ("rows", "deletes", "settled", "marks")
RARE_LISTS = (
    "deadlines",
    "deadline_deletes",
    "row_discards",
    "settled_discards",
    "settled_again",
    "returned",
    "returned_deletes",
    "dropped",
    "discards",
    "discarded",
)
_COLUMNS = ("epoch", "idx", "source_crc", "inserted", *LISTS, "numbers", "data")


def create_view(view: str, columns: tuple[str, ...], program: list[str]) -> tuple[str, str]:
    """The view through which a transaction comes in as one row of these columns, and the trigger that carries it
    out."""
    return (
        f"CREATE TEMP VIEW {view} AS SELECT " + ", ".join(f"NULL AS {name}" for name in columns),
        f"CREATE TEMP TRIGGER {view}_insert INSTEAD OF INSERT ON {view} BEGIN " + "; ".join(program) + "; END",
    )


def insert_through_view(view: str, columns: tuple[str, ...], positional: bool = False) -> str:
    """The statement that inserts a transaction through the view, which commits it. `positional`: its parameters are a
    sequence in the order of the columns, so the driver looks up no names."""
    statement = insert(table(view, *[column(name) for name in columns]))
    return str(statement.compile(dialect=_positional if positional else _dialect))


_RARE_COLUMNS = (*_COLUMNS, *RARE_LISTS)
CREATE_COMMIT_VIEWS = (
    *create_view("commit_view", _COLUMNS, _program(rare=False)),
    *create_view("commit_view_with_rare", _RARE_COLUMNS, _program(rare=True)),
)

COMMIT = insert_through_view("commit_view", _COLUMNS)
"""One transaction of the local source. Lists are JSON arrays of arrays, or None when empty; but `rows` holds the
offset (from 1) in `numbers` of each row's NUMBERS numbers:
rows: queue_id, first_seq, last_seq, persistent, offset of the body in `data` (from 1), nbytes, crc, body_bytes,
published_ms, deadline_bytes; deletes, of rows and of settled records: queue_id, first_seq, last_seq;
settled: queue_id, first_seq, last_seq, crc; marks: queue_id, next_seq, delivered, crc.
`inserted` is the number of `rows`; `source_crc` is of the local source's record."""

COMMIT_WITH_RARE = insert_through_view("commit_view_with_rare", _RARE_COLUMNS)
"""The same with RARE_LISTS as well: without anything to do they would cost more than all else of an empty
transaction. deadlines, of rows of this transaction: queue_id, first_seq, last_seq, offset in `data`, bytes, crc;
deadline_deletes: those of deletes and row_discards that may have some, as row_discards;
row_discards: queue_id, first_seq, last_seq, largest epoch and idx;
settled_discards: queue_id, smallest and largest first_seq, largest last_seq, largest epoch and idx;
settled_again: queue_id, first_seq, last_seq of those of settled that may be there already;
returned: queue_id, seq, count, crc;
returned_deletes: those of deletes and settled_discards that may have some, as settled_discards;
dropped: queue_id; discards: discard_id, queue_id, first_seq, last_seq, source, epoch, idx, crc; discarded:
discard_id."""

PUT_NAME = text(
    upsert(names)
    .values({each.name: literal_column(f":{each.name}") for each in names.c})
    .on_conflict_do_update(
        index_elements=["name"],
        set_={"value": literal_column("excluded.value"), "crc": literal_column("excluded.crc")},
    )
)
PROBE = text(
    insert(batch).values(
        {each.name: literal_column("0") for each in batch.c}
        | {"batch_id": literal_column("NULL"), "data": literal_column(":data")}
    )
)
"""A row that is rolled back."""
_more_rows = literal_column(":more_rows", Integer)
PUT_HEAD = text(
    upsert(source)
    .values({name: literal_column(f":{name}") for name in HEAD_COLUMNS} | dict.fromkeys(_COUNTS, literal_column("0")))
    .on_conflict_do_update(
        index_elements=["source"],
        set_={name: literal_column(f"excluded.{name}") for name in HEAD_COLUMNS if name != "source"}
        | {"rows": source.c.rows + _more_rows, "rows_check": source.c.rows_check - _more_rows},
    )
)
"""The record of a source; `more_rows` were not counted yet."""
