"""Sources that are replicated: `tail`, entries that are not known to be committed; `staged`, what is
to take the place of what stands; `seal`, whose entries are taken.

No table that there was changes. No version before wrote entries of such sources.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def _integer(name: str, *, key: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer, primary_key=key, autoincrement=False, nullable=False)


def upgrade() -> None:
    op.create_table(
        "tail",
        *(_integer(name, key=True) for name in ("source", "epoch", "idx")),
        *(_integer(name) for name in ("before_epoch", "before_idx", "checksum", "first_row", "rows")),
        sa.Column("control", sa.LargeBinary, nullable=False),
        _integer("crc"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "staged",
        *(_integer(name, key=True) for name in ("source", "number")),
        *(_integer(name) for name in ("kind", "epoch", "idx", "before_epoch", "before_idx")),
        *(_integer(name) for name in ("checksum", "first_row", "rows")),
        sa.Column("control", sa.LargeBinary, nullable=False),
        _integer("crc"),
    )
    op.create_table(
        "seal",
        _integer("source", key=True),
        _integer("epoch"),
        sa.Column("forwarder", sa.Text, nullable=False),
        _integer("life"),
        _integer("crc"),
    )
