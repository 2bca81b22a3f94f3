"""What a queue must know of a row before its bodies are read: their size, their age, deadlines, delivery counts.

Every row is copied once, because the new columns have to stand in front of the body: behind it, each deletion would
walk through the body's pages to find them, for its entry in the index. The size of the bodies is taken from their
frames on the way. When a row was written is not known of old rows: 0.
"""

from struct import Struct
from zlib import crc32

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# type, channel and size of a frame; its payload follows, and an end octet (AMQP 0-9-1, 2.3.5)
_frame = Struct(">BHI")
_BODY = 3
_old = Struct("<qqq?")
_new = Struct("<qqq?qqq")


def _integer(name: str, *, key: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer, primary_key=key, autoincrement=False, nullable=False)


def _origin() -> "list[sa.Column[int]]":
    return [_integer("source"), _integer("epoch"), _integer("idx")]


def upgrade() -> None:
    op.create_table(
        "batch_new",
        _integer("batch_id", key=True),
        _integer("queue_id"),
        _integer("first_seq"),
        _integer("last_seq"),
        _integer("nbytes"),
        _integer("persistent"),
        _integer("body_bytes"),
        _integer("published_ms"),
        _integer("deadline_bytes"),
        *_origin(),
        _integer("crc"),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    _copy()
    op.drop_index("batch_index", "batch")
    op.drop_table("batch")
    op.rename_table("batch_new", "batch")
    op.create_index(
        "batch_index",
        "batch",
        [
            *("queue_id", "last_seq", "first_seq", "nbytes", "persistent", "idx"),
            *("body_bytes", "published_ms", "deadline_bytes"),
        ],
    )
    op.create_table(
        "deadline",
        _integer("batch_id", key=True),
        *_origin(),
        _integer("crc"),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "returned",
        _integer("queue_id", key=True),
        _integer("seq", key=True),
        _integer("count"),
        *_origin(),
        sqlite_with_rowid=False,
    )


def _copy() -> None:
    """One row in memory at a time."""
    connection = op.get_bind().connection.driver_connection
    assert connection is not None
    rows = connection.execute(
        "SELECT batch_id, queue_id, first_seq, last_seq, nbytes, persistent, source, epoch, idx, crc, data "
        "FROM batch ORDER BY batch_id"
    )
    for batch_id, queue_id, first, last, nbytes, persistent, source, epoch, idx, crc, data in rows:
        body_bytes = 0
        # A damaged row is copied as it is, with the checksum that does not fit: its reader is told.
        if crc32(data, crc32(_old.pack(queue_id, first, last, persistent))) == crc:
            body_bytes = _body_bytes(data)
        if body_bytes:
            crc = crc32(data, crc32(_new.pack(queue_id, first, last, persistent, body_bytes, 0, 0)))
        connection.execute(
            "INSERT INTO batch_new VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?)",
            (batch_id, queue_id, first, last, nbytes, persistent, body_bytes, source, epoch, idx, crc, data),
        )


def _body_bytes(data: bytes) -> int:
    """Bytes of the body frames' payloads; 0 when these are not frames."""
    total, at, end = 0, 0, len(data)
    while at < end:
        if end - at < _frame.size:
            return 0
        kind, _, size = _frame.unpack_from(data, at)
        at += _frame.size + size + 1
        if kind == _BODY:
            total += size
    return total if at == end else 0
