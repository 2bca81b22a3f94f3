"""The tables of `metadata.db`, and the checksums of what is in them.

What comes in: the values of a row. What goes out: SQLAlchemy's tables; a row's checksum (crc32).
Rules: 1. A checksum is made from the values as they were given, before SQLite has them, and compared with the values
as SQLite gives them back: so it covers what is on the disk and what SQLite makes of it. 2. `state` has the number of
the entries and the sum of their checksums: one that is missing, or that came back with an old page, is seen though
each checksum fits. 3. Rows of `history` cover the number of rows of their transaction, so one of them cannot be
missing.
Not here: opening the file (`database.py`), looking at all of it (`verification.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import sqlalchemy as sa

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


def fits(made: Callable[..., int], *values: Any, checksum: Any) -> bool:
    """Whether the row's values have this checksum; a damaged row may have values of any type."""
    try:
        return bool(made(*values) == checksum)
    except (TypeError, AttributeError, ValueError):
        return False
