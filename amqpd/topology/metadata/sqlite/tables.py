"""The tables of `metadata.db`, the checksums of what is in them, and the SQL of the embedded store.

What comes in: the values of a row. What goes out: SQLAlchemy's tables; a row's checksum (crc32); statements with
named parameters, as text for the driver.
Rules: 1. A checksum is made from the values as they were given, before SQLite has them, and compared with the values
as SQLite gives them back: so it covers what is on the disk and what SQLite makes of it. 2. `state` has the number of
the entries and the sum of their checksums: one that is missing, or that came back with an old page, is seen though
each checksum fits. 3. Rows of `history` cover the number of rows of their transaction, so one of them cannot be
missing. 4. Parameters of an UPDATE's new values are called `new_...`; what is read is a whole row, with its checksum.
Not here: opening the file (`database.py`), what is done with it (`sqlite_file.py`, `verification.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert

tables = sa.MetaData()

# The present: one row a key; `revision` is the transaction that put it.
entries = sa.Table(
    "entries",
    tables,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("checksum", sa.Integer, nullable=False),
)
# The past: the operations of each transaction in their order; no value means: deleted.
history = sa.Table(
    "history",
    tables,
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("value", sa.Text),
    sa.Column("checksum", sa.Integer, nullable=False),
)
# One row: the last transaction's revision, the last one that is gone from the history; how many entries there are,
# and the sum of their checksums.
state = sa.Table(
    "state",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("compacted", sa.Integer, nullable=False),
    sa.Column("entries", sa.Integer, nullable=False),
    sa.Column("total", sa.Integer, nullable=False),
    sa.Column("checksum", sa.Integer, nullable=False),
)
# Tombstones: numbers of the journal whose queue was deleted by the transaction `revision`
# (`topology/metadata/tombstones.py`).
dropped = sa.Table(
    "dropped",
    tables,
    sa.Column("queue_id", sa.Integer, primary_key=True),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("checksum", sa.Integer, nullable=False),
)
# What this database is called, and which journal it belongs to.
names = sa.Table(
    "names",
    tables,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("checksum", sa.Integer, nullable=False),
)

IDENTITY = "identity"
JOURNAL = "journal"
"""names of `names`"""


def entry_checksum(key: str, value: str, revision: int) -> int:
    octets = key.encode()
    return crc32(value.encode(), crc32(b"entry %d %d %s" % (revision, len(octets), octets)))


def history_checksum(revision: int, position: int, rows: int, key: str, value: str | None) -> int:
    """`rows`: how many the transaction has."""
    octets = key.encode()
    begun = crc32(b"history %d %d %d %d %s" % (revision, position, rows, len(octets), octets))
    return crc32(b"-", begun) if value is None else crc32(value.encode(), crc32(b"+", begun))


def state_checksum(revision: int, compacted: int, count: int, total: int, identity: str) -> int:
    """`identity`: of the database. Pages of two databases in one file do not fit each other."""
    return crc32(b"state %d %d %d %d %s" % (revision, compacted, count, total, identity.encode()))


def dropped_checksum(queue_id: int, revision: int) -> int:
    return crc32(b"dropped %d %d" % (queue_id, revision))


def name_checksum(name: str, value: str) -> int:
    return crc32(f"name {name} {value}".encode())


def checksum_matches(made: Callable[..., int], *values: Any, checksum: Any) -> bool:
    """Whether the row's values have this checksum; a damaged row may have values of any type."""
    try:
        return bool(made(*values) == checksum)
    except (TypeError, AttributeError, ValueError):
        return False


def history_matches(rows: Sequence[tuple[Any, ...]]) -> bool:
    """`rows`: all of one transaction, as they are read."""
    return all(
        position == at and checksum_matches(history_checksum, revision, at, len(rows), key, value, checksum=checksum)
        for at, (revision, position, key, value, checksum) in enumerate(rows)
    )


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
