"""The first format: message rows, settled ranges, discards, queues, sources."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _integer(name: str, *, key: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer, primary_key=key, autoincrement=False, nullable=False)


def _origin() -> "list[sa.Column[int]]":
    return [_integer("source"), _integer("epoch"), _integer("idx")]


def upgrade() -> None:
    op.create_table(
        "batch",
        _integer("batch_id", key=True),
        _integer("queue_id"),
        _integer("first_seq"),
        _integer("last_seq"),
        _integer("nbytes"),
        _integer("persistent"),
        *_origin(),
        _integer("crc"),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index("batch_index", "batch", ["queue_id", "last_seq", "first_seq", "nbytes", "persistent", "idx"])
    op.create_table(
        "settled",
        _integer("queue_id", key=True),
        _integer("first_seq", key=True),
        _integer("last_seq", key=True),
        *_origin(),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "discard",
        _integer("discard_id", key=True),
        _integer("queue_id"),
        _integer("first_seq"),
        _integer("last_seq"),
        *_origin(),
    )
    op.create_index("discard_index", "discard", ["queue_id", "first_seq", "last_seq", "idx"])
    op.create_table("queue", _integer("queue_id", key=True), _integer("next_seq"), _integer("delivered"))
    op.create_table("source", _integer("source", key=True), _integer("epoch"), _integer("idx"))
