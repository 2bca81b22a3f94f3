"""The SQL of the embedded store, built once by SQLAlchemy and given to the driver as text.

What comes in: the tables. What goes out: statements with named parameters.
Rules: 1. Parameters of an UPDATE's new values are called `new_...`. 2. What is read is a whole row, with its
checksum.
Not here: what is done with them (`sqlite_file.py`, `verification.py`).
"""

from __future__ import annotations

import functools

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert

from amqpd.topology.metadata.sqlite.tables import dropped, entries, history, names, state

_dialect = sqlite.dialect(paramstyle="named")


def _text(statement: sa.ClauseElement) -> str:
    """SQL with named parameters, for the driver. Built once, and not run by SQLAlchemy either: both cost several
    times what SQLite takes, and a declare waits for six of them."""
    return str(statement.compile(dialect=_dialect))


READ_STATE = _text(sa.select(state.c.revision, state.c.compacted, state.c.entries, state.c.total, state.c.checksum))
READ_HISTORY = _text(
    sa.select(history)
    .where(history.c.revision > sa.bindparam("after"), history.c.revision <= sa.bindparam("until"))
    .order_by(history.c.revision, history.c.position)
)
_INSERT_ENTRY = insert(entries)
PUT_ENTRIES = _text(
    _INSERT_ENTRY.on_conflict_do_update(
        index_elements=[entries.c.key],
        set_={name: _INSERT_ENTRY.excluded[name] for name in ("value", "revision", "checksum")},
    )
)
DELETE_ENTRIES = _text(sa.delete(entries).where(entries.c.key == sa.bindparam("gone")))
_CHARS = sa.func.length(history.c.key) + sa.func.coalesce(sa.func.length(history.c.value), sa.literal_column("0"))
MEASURE_HISTORY = _text(
    sa.select(history.c.revision, sa.func.sum(_CHARS))
    .group_by(history.c.revision)
    .order_by(history.c.revision.desc())
)
ADD_HISTORY = _text(sa.insert(history))
CUT_HISTORY = _text(sa.delete(history).where(history.c.revision <= sa.bindparam("cut")))
WRITE_STATE = _text(
    sa.update(state).values({each.name: sa.bindparam(f"new_{each.name}") for each in state.c if each.name != "id"})
)
ADD_DROPPED = _text(sa.insert(dropped).prefix_with("OR REPLACE"))
DELETE_DROPPED = _text(sa.delete(dropped).where(dropped.c.queue_id == sa.bindparam("gone")))
COUNT_DROPPED = _text(sa.select(sa.func.count()).select_from(dropped))
# SQLAlchemy's LIMIT for SQLite brings a parameter of its own.
CUT_DROPPED = "DELETE FROM dropped WHERE queue_id IN (SELECT queue_id FROM dropped ORDER BY revision LIMIT :count)"


@functools.lru_cache(maxsize=32)
def read_entries(count: int) -> str:
    """The parameters are key0, key1, ..."""
    keys: list[sa.BindParameter[str]] = [sa.bindparam(f"key{at}") for at in range(count)]
    return _text(sa.select(entries).where(entries.c.key.in_(keys)))


READ_ENTRIES = _text(sa.select(entries))
READ_DROPPED = _text(sa.select(dropped))
READ_NAMES = _text(sa.select(names))
PUT_NAME = _text(sa.insert(names).prefix_with("OR REPLACE"))
