"""Operations of edges: `operation_mark`, how far each forwarder's are done, and what it has not heard of them;
`former_operation_mark`, what is replaced of that until it is committed.

No table that there was changes. No version before took operations of other nodes' clients.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def _integer(name: str, *, key: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer, primary_key=key, autoincrement=False, nullable=False)


def _forwarder() -> "sa.Column[str]":
    return sa.Column("forwarder", sa.Text, primary_key=True, nullable=False)


def upgrade() -> None:
    op.create_table(
        "operation_mark",
        _integer("source", key=True),
        _forwarder(),
        *(_integer(name) for name in ("ended", "incarnation", "mark", "epoch", "idx")),
        sa.Column("outcomes", sa.LargeBinary, nullable=False),
        _integer("crc"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "former_operation_mark",
        *(_integer(name, key=True) for name in ("source", "epoch", "idx")),
        _forwarder(),
        *(_integer(name) for name in ("ended", "incarnation", "mark", "was_epoch", "was_idx")),
        sa.Column("outcomes", sa.LargeBinary, nullable=False),
        _integer("crc"),
        sqlite_with_rowid=False,
    )
