"""The SQL that reads: recovery, pieces of discards, bodies. Built with SQLAlchemy Core, once, when this is imported.

What comes in: the tables of `schema.py`. What goes out: SQL text with named parameters, for SQLite's driver.
Rules: 1. Recovery's are one sequential scan each, of an index or of a small table; none reads a body. 2. A discarded
row is not found.
Not here: what writes (`statements.py`), who calls them (`disk.py`, `recovery.py`, `discards.py`).
"""

from __future__ import annotations

from sqlalchemy import Column, ColumnElement, Integer, and_, exists, literal_column, select, tuple_

from amqpd.journal.sqlite.schema import batch, deadline, discard, names, queue, returned, settled, source
from amqpd.journal.sqlite.statements import text as _text


def _given(name: str) -> ColumnElement[int]:
    return literal_column(f":{name}", Integer)


# --- recovery

SOURCE = _text(
    select(
        *(source.c.source, source.c.epoch, source.c.idx, source.c.crc),
        *(source.c.rows, source.c.rows_check, source.c.settled, source.c.settled_check),
    )
)
USED = _text(select(exists().select_from(batch) | exists().select_from(settled)))
NAMES = _text(select(names.c.name, names.c.value, names.c.crc))
QUEUES = _text(select(queue.c.queue_id, queue.c.next_seq, queue.c.delivered, queue.c.crc))
DISCARDS = _text(
    select(
        *(discard.c.discard_id, discard.c.queue_id, discard.c.first_seq, discard.c.last_seq, discard.c.idx),
        discard.c.crc,
    ).order_by(discard.c.discard_id)
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
            batch.c.crc,
            batch.c.batch_id,
        )
    ).order_by(batch.c.queue_id, batch.c.last_seq)
)
DEADLINES = _text(select(deadline.c.batch_id, deadline.c.crc, deadline.c.data))
SETTLED = _text(
    select(settled.c.queue_id, settled.c.first_seq, settled.c.last_seq, settled.c.idx, settled.c.crc).order_by(
        settled.c.queue_id, settled.c.first_seq, settled.c.last_seq
    )
)
RETURNED = _text(
    select(returned.c.queue_id, returned.c.seq, returned.c.count, returned.c.idx, returned.c.crc).order_by(
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
        *(batch.c.body_bytes, batch.c.published_ms, batch.c.deadline_bytes, batch.c.idx, batch.c.crc),
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


def _slice(keys: int, *columns: Column[int]) -> str:
    """Records behind the one whose key, the first columns, is given as `key0`...; at most `count_max` of them."""
    key = columns[:keys]
    behind = tuple_(*key) > tuple_(*(_given(f"key{at}") for at in range(keys)))
    return _text(select(*columns).where(behind).order_by(*key).limit(_given("count_max")))


SLICES = {
    "queue": (1, _slice(1, queue.c.queue_id, queue.c.next_seq, queue.c.delivered, queue.c.crc)),
    "discard": (
        1,
        _slice(
            *(1, discard.c.discard_id, discard.c.queue_id, discard.c.first_seq, discard.c.last_seq, discard.c.idx),
            discard.c.crc,
        ),
    ),
    "settled": (
        3,
        _slice(3, settled.c.queue_id, settled.c.first_seq, settled.c.last_seq, settled.c.idx, settled.c.crc),
    ),
    "returned": (
        2,
        _slice(2, returned.c.queue_id, returned.c.seq, returned.c.count, returned.c.idx, returned.c.crc),
    ),
}
"""By table: how many columns the key has, and the statement. The checksum is the last column."""
_entry = (
    *(batch.c.queue_id, batch.c.last_seq, batch.c.first_seq, batch.c.nbytes, batch.c.persistent, batch.c.idx),
    *(batch.c.body_bytes, batch.c.published_ms, batch.c.deadline_bytes, batch.c.crc, batch.c.batch_id),
)
ENTRIES = _slice(2, *_entry)
"""From the index alone."""
_batch_id = batch.c.batch_id == _given("batch_id")
HEAD_OF = _text(select(*_entry).where(_batch_id))
BODY_OF = _text(select(batch.c.data).where(_batch_id))
"""From the table alone."""
DEADLINES_OF = _text(select(deadline.c.crc, deadline.c.data).where(deadline.c.batch_id == _given("batch_id")))
