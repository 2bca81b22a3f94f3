"""A checksum in each row, tombstones of deleted queues, and the name of the database.

The checksums are made of what is there: damage from before this step is not found by them. The history goes: a
process that follows it reads everything again.
"""

import secrets
from zlib import crc32

import sqlalchemy as sa
from alembic import op

revision = "metadata_0004"
down_revision = "metadata_0003"

_READ = sa.text("SELECT key, value, revision FROM entries")
_SEAL = sa.text("UPDATE entries SET checksum = :checksum WHERE key = :key")
_SEAL_STATE = sa.text(
    "UPDATE state SET compacted = revision, entries = :entries, total = :total, checksum = :checksum"
)
_NAME = sa.text("INSERT INTO names (name, value, checksum) VALUES ('identity', :value, :checksum)")


def upgrade() -> None:
    connection = op.get_bind()
    op.add_column("entries", sa.Column("checksum", sa.Integer, nullable=False, server_default="0"))
    for name in ("entries", "total", "checksum"):
        op.add_column("state", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    op.drop_table("history")
    op.create_table(
        "history",
        sa.Column("revision", sa.Integer, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text),
        sa.Column("checksum", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dropped",
        sa.Column("queue_id", sa.Integer, primary_key=True),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("checksum", sa.Integer, nullable=False),
    )
    op.create_table(
        "names",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("checksum", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    # As of this step; what the running version computes may change later.
    sealed = [{"key": key, "checksum": _entry(key, value, at)} for key, value, at in connection.execute(_READ)]
    if sealed:
        connection.execute(_SEAL, sealed)
    total = sum(row["checksum"] for row in sealed)
    now = connection.execute(sa.text("SELECT revision FROM state")).scalar_one()
    identity = secrets.token_hex(16)
    checksum = crc32(b"state %d %d %d %d %s" % (now, now, len(sealed), total, identity.encode()))
    connection.execute(_SEAL_STATE, {"entries": len(sealed), "total": total, "checksum": checksum})
    connection.execute(_NAME, {"value": identity, "checksum": crc32(f"name identity {identity}".encode())})


def _entry(key: str, value: str, at: int) -> int:
    octets = key.encode()
    return crc32(value.encode(), crc32(b"entry %d %d %s" % (at, len(octets), octets)))
