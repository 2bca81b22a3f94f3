"""The first format: entries, their history, and the store's state. See `database.py` for the columns."""

import sqlalchemy as sa
from alembic import op

revision = "metadata_0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "entries",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "history",
        sa.Column("revision", sa.Integer, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text),
        sqlite_with_rowid=False,
    )
    state = op.create_table(
        "state",
        sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("compacted", sa.Integer, nullable=False),
    )
    op.bulk_insert(state, [{"id": 1, "revision": 0, "compacted": 0}])
