"""Several sources, epochs, and what a tail that is not committed replaced: `former`, `queue` with its origin.

Until now there was one source, 0, with one epoch, 1: the checksums of its records stay as they are
(`checksums.seed`), so no row of messages is written again. The index is built again because it has the rows' origin
now; `queue` and `source` are small, and are copied.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from amqpd.journal.sqlite import checksums

revision = "0004"
down_revision = "0003"


def _integer(name: str, *, key: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer, primary_key=key, autoincrement=False, nullable=False)


def upgrade() -> None:
    op.drop_index("batch_index", "batch")
    op.create_index(
        "batch_index",
        "batch",
        [
            *("queue_id", "last_seq", "first_seq", "nbytes", "persistent", "source", "epoch", "idx"),
            *("body_bytes", "published_ms", "deadline_bytes", "crc"),
        ],
    )
    op.drop_index("discard_index", "discard")
    op.create_index("discard_index", "discard", ["queue_id", "first_seq", "last_seq", "epoch", "idx"])
    op.create_table(
        "former",
        *(_integer(name, key=True) for name in ("source", "epoch", "idx", "kind", "queue_id", "one", "two")),
        *(_integer(name) for name in ("was_epoch", "was_idx", "crc")),
        sqlite_with_rowid=False,
    )
    _sources()
    _marks()


def _sources() -> None:
    identity = str(dict(_driver().execute("SELECT name, value FROM names")).get("identity", ""))
    columns = "source, epoch, idx, crc, rows, rows_check, settled, settled_check"
    found = _driver().execute(f"SELECT {columns} FROM source").fetchall()
    op.drop_table("source")
    op.create_table(
        "source",
        _integer("source", key=True),
        *(_integer(name) for name in ("epoch", "idx", "reserved", "replicated", "committed_epoch", "committed_idx")),
        *(_integer(name) for name in ("crc", "rows", "rows_check", "settled", "settled_check")),
    )
    for source, epoch, idx, crc, *counts in found:
        said = (source, epoch, idx, 0, 0, 0, 0)
        # What does not fit its checksum does not fit the new one either: the start tells it.
        damage = crc ^ checksums.of_source_0003(source, epoch, idx, identity)
        crc = checksums.of_source(*said, identity) ^ damage
        _driver().execute("INSERT INTO source VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*said, crc, *counts))


def _marks() -> None:
    """As of a transaction before all others."""
    found = _driver().execute("SELECT queue_id, next_seq, delivered, crc FROM queue").fetchall()
    op.drop_table("queue")
    op.create_table(
        "queue",
        _integer("queue_id", key=True),
        *(_integer(name) for name in ("next_seq", "delivered", "source", "epoch", "idx", "crc")),
    )
    for queue_id, next_seq, delivered, crc in found:
        said = (queue_id, next_seq, delivered)
        damage = crc ^ checksums.of_mark_0003(*said)
        crc = checksums.of_mark(*said, 0, 1, 0) ^ damage
        _driver().execute("INSERT INTO queue VALUES (?, ?, ?, 0, 1, 0, ?)", (*said, crc))


def _driver() -> Any:
    connection = op.get_bind().connection.driver_connection
    assert connection is not None
    return connection
