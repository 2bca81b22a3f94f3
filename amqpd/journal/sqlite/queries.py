"""The SQL that reads: recovery, pieces of discards, bodies. Built with SQLAlchemy Core, once, when this is imported.

What comes in: the tables of `schema.py`. What goes out: SQL text with named parameters, for SQLite's driver.
Rules: 1. Recovery's are one sequential scan each, of an index or of a small table; none reads a body. 2. A discarded
row is not found.
Not here: what writes (`statements.py`), who calls them (`disk.py`, `recovery.py`, `discards.py`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ColumnElement, Integer, Table, and_, exists, func, literal_column, select, tuple_

from amqpd.journal.sqlite.schema import SOURCE as LOCAL
from amqpd.journal.sqlite.schema import (
    batch,
    deadline,
    discard,
    former,
    former_operation_mark,
    names,
    operation_mark,
    queue,
    returned,
    settled,
    source,
    staged,
    tail,
    vote,
)
from amqpd.journal.sqlite.statements import text as _text


def _of_sources(of: Table) -> ColumnElement[bool]:
    """Of the sources in the JSON list `sources`."""
    chosen = func.json_each(literal_column(":sources")).table_valued("value", name="sources_each")
    return of.c.source.in_(select(chosen.c.value))


def _columns(of: Table, names: str) -> tuple[Column[Any], ...]:
    """Columns of the table, by their names in one text."""
    return tuple(of.c[name] for name in names.split())


def _given(name: str) -> ColumnElement[int]:
    return literal_column(f":{name}", Integer)


_queue_id, _first, _last = _given("queue_id"), _given("first_seq"), _given("last_seq")
_position = tuple_(_given("epoch"), _given("idx"))
_entry = _columns(
    batch,
    "queue_id last_seq first_seq nbytes persistent source "
    "epoch idx body_bytes published_ms deadline_bytes crc batch_id",
)

# --- recovery

SOURCE = _text(
    select(
        *_columns(
            source,
            "source epoch idx reserved replicated committed_epoch "
            "committed_idx crc rows rows_check settled settled_check",
        )
    ).order_by(source.c.source)
)
# Of the local source above an (epoch, idx), by the index, which recovery goes by.
ROWS_ABOVE = _text(
    select(batch.c.epoch, batch.c.idx)
    .with_hint(batch, "INDEXED BY batch_index", "sqlite")
    .where(
        batch.c.source == literal_column(str(LOCAL)),
        tuple_(batch.c.epoch, batch.c.idx) > _position,
    )
    .order_by(batch.c.epoch, batch.c.idx)
)
# By the table, in the order of `checksums.of_head`.
LAST_ROW = _text(
    select(
        *_columns(
            batch,
            "queue_id first_seq last_seq persistent nbytes source "
            "epoch idx body_bytes published_ms deadline_bytes crc",
        )
    )
    .order_by(batch.c.batch_id.desc())
    .limit(1)
)
USED = _text(select(exists().select_from(batch) | exists().select_from(settled)))
NAMES = _text(select(names.c.name, names.c.value, names.c.crc))
_mark = _columns(queue, "queue_id next_seq delivered source epoch idx crc")
QUEUES = _text(select(*_mark))
_kept = _columns(former, "source epoch idx kind queue_id one two was_epoch was_idx crc")
FORMER = _text(select(*_kept).order_by(*_kept[:7]))
_operations = tuple(operation_mark.c)
OPERATION_MARKS = _text(select(*_operations).order_by(*_operations[:2]))
OPERATION_MARKS_OF = _text(select(*_operations).where(_of_sources(operation_mark)).order_by(*_operations[:2]))
_former_operations = tuple(former_operation_mark.c)
FORMER_OPERATION_MARKS = _text(select(*_former_operations).order_by(*_former_operations[:4]))
_discard = _columns(discard, "discard_id queue_id first_seq last_seq source epoch idx crc")
DISCARDS = _text(select(*_discard).order_by(discard.c.discard_id))
_rows = select(*_entry).order_by(batch.c.queue_id, batch.c.last_seq)
ROWS, ROWS_OF = _text(_rows), _text(_rows.where(_of_sources(batch)))
DEADLINES = _text(select(deadline.c.batch_id, deadline.c.crc, deadline.c.data))
_settled = _columns(settled, "queue_id first_seq last_seq source epoch idx crc")
SETTLED = _text(select(*_settled).order_by(*_settled[:3]))
SETTLED_OF = _text(select(*_settled).where(_of_sources(settled)).order_by(*_settled[:3]))
_returned = _columns(returned, "queue_id seq count source epoch idx crc")
RETURNED = _text(select(*_returned).order_by(*_returned[:2]))
RETURNED_OF = _text(select(*_returned).where(_of_sources(returned)).order_by(*_returned[:2]))
"""Each of all sources, and of those in the JSON list `sources`."""

# --- replicas

_link = _columns(tail, "source epoch idx before_epoch before_idx checksum first_row rows control crc")
TAIL = _text(select(*_link).order_by(*_link[:3]))
_vote = (vote.c.source, vote.c.epoch, vote.c.forwarder, vote.c.life, vote.c.crc)
VOTES = _text(select(*_vote).order_by(vote.c.source))
ENTRIES_AFTER = _text(
    select(*_link)
    .where(tail.c.source == _given("source"), tuple_(tail.c.epoch, tail.c.idx) > _position)
    .order_by(*_link[:3])
)
DATA_OF = _text(
    select(batch.c.data, deadline.c.data)
    .select_from(batch.outerjoin(deadline, and_(deadline.c.batch_id == batch.c.batch_id, batch.c.deadline_bytes > 0)))
    .where(
        batch.c.batch_id.between(_given("first_row"), _given("last_row")),
        batch.c.source == _given("source"),
        batch.c.epoch == _given("epoch"),
        batch.c.idx == _given("idx"),
    )
    .order_by(batch.c.batch_id)
)
"""Of an entry: bodies and deadlines, row by row."""

STATE_ROW = _text(
    select(
        *_columns(
            batch,
            "queue_id first_seq last_seq nbytes persistent body_bytes published_ms deadline_bytes epoch idx crc",
        ),
        func.coalesce(deadline.c.crc, literal_column("0")),
        batch.c.data,
        func.coalesce(deadline.c.data, literal_column("x''")),
    )
    .select_from(batch.outerjoin(deadline, deadline.c.batch_id == batch.c.batch_id))
    .where(batch.c.batch_id == _given("batch_id"), batch.c.source == _given("source"))
)
"""As `state.StateRow`, with body and deadlines."""
_staged = tuple(staged.c)
STAGED = _text(select(*_staged).where(staged.c.number == literal_column("0")))
"""The first record of each source."""
STAGED_OF = _text(select(*_staged).where(staged.c.source == _given("source")).order_by(staged.c.number))


def _end(name: str) -> Column[int]:
    """Of a queue of the JSON list `queues`: of its last row."""
    last = select(batch.c[name]).where(batch.c.queue_id == _of_queues.c.value)
    found: Column[int] = last.order_by(batch.c.last_seq.desc()).limit(1).scalar_subquery()  # type: ignore[assignment]
    return found


_of_queues = func.json_each(literal_column(":queues")).table_valued("value", name="queues_each")
_owner_by_mark = select(queue.c.source).where(queue.c.queue_id == _of_queues.c.value).scalar_subquery()
QUEUE_ENDS = _text(
    select(_of_queues.c.value, _end("last_seq"), _end("source"), _owner_by_mark).select_from(_of_queues)
)
"""Of each queue: the last message and the source of its last row, the source of its mark."""
_of_places = func.json_each(literal_column(":places")).table_valued("value", name="places_each")
_place = [func.json_extract(_of_places.c.value, literal_column(f"'$[{at}]'"), type_=Integer) for at in range(3)]
# Rows are disjoint, so the first one that ends behind the begin of a place is the only one that may reach into it.
_next_first = (
    select(batch.c.first_seq)
    .where(batch.c.queue_id == _place[0], batch.c.last_seq >= _place[2])
    .order_by(batch.c.last_seq)
    .limit(1)
    .scalar_subquery()
)
OVERLAPPED = _text(select(_place[0], _place[2]).select_from(_of_places).where(_next_first <= _place[1]).limit(1))
"""Of the JSON list `places` (queue_id, last_seq, first_seq) one that another row reaches into."""
ANY_ROW = _text(
    select(batch.c.last_seq).where(batch.c.queue_id == _queue_id, batch.c.last_seq.between(_first, _last)).limit(1)
)

# --- undo

FORMER_OF = _text(
    select(*_kept)
    .where(former.c.source == _given("source"), tuple_(former.c.epoch, former.c.idx) > _position)
    .order_by(*_kept[:7])
)
"""What entries of a source above an (epoch, idx) replaced, in their order."""
FORMER_OPERATION_MARKS_OF = _text(
    select(*_former_operations)
    .where(
        former_operation_mark.c.source == _given("source"),
        tuple_(former_operation_mark.c.epoch, former_operation_mark.c.idx) > _position,
    )
    .order_by(*_former_operations[:4])
)
"""The same of operation marks."""
MARKS_ABOVE = _text(
    select(queue.c.queue_id, queue.c.next_seq).where(
        queue.c.source == _given("source"), tuple_(queue.c.epoch, queue.c.idx) > _position
    )
)

# --- what a transaction replaces, by keys as a JSON list of lists


def _among_keys(*columns: Column[int]) -> ColumnElement[bool]:
    keys = func.json_each(literal_column(":keys")).table_valued("value", name="keys_each")
    items = [func.json_extract(keys.c.value, literal_column(f"'$[{at}]'")) for at in range(len(columns))]
    return tuple_(*columns).in_(select(*items).select_from(keys))


RETURNED_NOW = _text(
    select(returned.c.queue_id, returned.c.seq, returned.c.count, returned.c.epoch, returned.c.idx).where(
        _among_keys(returned.c.queue_id, returned.c.seq)
    )
)
# --- a piece of a discard

ROWS_TO_DISCARD = _text(
    select(batch.c.last_seq, batch.c.nbytes)
    .where(
        batch.c.queue_id == _queue_id,
        batch.c.last_seq.between(_first, _last),
        batch.c.first_seq >= _first,
        tuple_(batch.c.epoch, batch.c.idx) <= _position,
    )
    .order_by(batch.c.last_seq)
    .limit(_given("count_max"))
)
SETTLED_TO_DISCARD = _text(
    select(settled.c.first_seq)
    .where(
        settled.c.queue_id == _queue_id,
        settled.c.first_seq.between(_first, _last),
        settled.c.last_seq <= _last,
        tuple_(settled.c.epoch, settled.c.idx) <= _position,
    )
    .order_by(settled.c.first_seq)
    .limit(1)
    .offset(_given("count_max"))
)
RETURNED_TO_DISCARD = _text(
    select(returned.c.seq)
    .where(
        returned.c.queue_id == _queue_id,
        returned.c.seq.between(_first, _last),
        tuple_(returned.c.epoch, returned.c.idx) <= _position,
    )
    .order_by(returned.c.seq)
    .limit(1)
    .offset(_given("count_max"))
)

# --- reading

_discarded = exists().where(
    discard.c.queue_id == batch.c.queue_id,
    discard.c.first_seq <= batch.c.first_seq,
    discard.c.last_seq >= batch.c.last_seq,
    tuple_(discard.c.epoch, discard.c.idx) >= tuple_(batch.c.epoch, batch.c.idx),
)
FIND = _text(
    select(
        *_columns(
            batch, "first_seq last_seq nbytes persistent body_bytes published_ms deadline_bytes source epoch idx crc"
        )
    )
    .where(batch.c.queue_id == _queue_id, batch.c.last_seq >= _first, ~_discarded)
    .order_by(batch.c.last_seq)
)
"""The index only: what it says is what recovery went by, so the checksum of the body is held against that. Ends with
the queue: the reader stops at the first row that it does not want."""
READ = _text(
    select(
        batch.c.last_seq,
        batch.c.crc,
        batch.c.data,
        deadline.c.crc.label("deadline_crc"),
        deadline.c.data.label("deadline_data"),
    )
    .select_from(batch.outerjoin(deadline, and_(deadline.c.batch_id == batch.c.batch_id, batch.c.deadline_bytes > 0)))
    .where(batch.c.queue_id == _queue_id, batch.c.last_seq.between(_first, _last), ~_discarded)
    .order_by(batch.c.last_seq)
)

# --- the scrub


def _slice(keys: int, *columns: Column[Any]) -> str:
    """Records behind the one whose key, the first columns, is given as `key0`...; at most `count_max` of them."""
    key = columns[:keys]
    behind = tuple_(*key) > tuple_(*(_given(f"key{at}") for at in range(keys)))
    return _text(select(*columns).where(behind).order_by(*key).limit(_given("count_max")))


SLICES = {
    "queue": (1, _slice(1, *_mark)),
    "discard": (1, _slice(1, *_discard)),
    "settled": (3, _slice(3, *_settled)),
    "returned": (2, _slice(2, *_returned)),
    "former": (7, _slice(7, *_kept)),
    "tail": (3, _slice(3, *_link)),
    "seal": (1, _slice(1, *_vote)),
    "staged": (2, _slice(2, *_staged)),
    "operation_mark": (2, _slice(2, *_operations)),
    "former_operation_mark": (4, _slice(4, *_former_operations)),
}
"""By table: how many columns the key has, and the statement. The checksum is the last column."""
ENTRIES = _slice(2, *_entry)
"""From the index alone."""
_batch_id = batch.c.batch_id == _given("batch_id")
HEAD_OF = _text(select(*_entry).where(_batch_id))
BODY_OF = _text(select(batch.c.data).where(_batch_id))
"""From the table alone."""
DEADLINES_OF = _text(select(deadline.c.crc, deadline.c.data).where(deadline.c.batch_id == _given("batch_id")))
