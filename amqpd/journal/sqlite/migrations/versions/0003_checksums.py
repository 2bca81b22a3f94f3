"""A checksum for each record, counts of what must be there, and a name for the file.

Bodies are not touched: the checksum of a row's head stands in the upper half of its `crc`, which old rows have not.
The index is built again because it has the checksum now; the other tables are small, and are copied.
"""

from collections.abc import Callable, Iterator
from secrets import token_hex
from typing import Any

import sqlalchemy as sa
from alembic import op

from amqpd.journal.sqlite import checksums

revision = "0003"
down_revision = "0002"


def _integer(name: str, *, key: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer, primary_key=key, autoincrement=False, nullable=False)


def _origin() -> "list[sa.Column[int]]":
    return [_integer("source"), _integer("epoch"), _integer("idx")]


def upgrade() -> None:
    op.drop_index("batch_index", "batch")
    op.create_index(
        "batch_index",
        "batch",
        [
            *("queue_id", "last_seq", "first_seq", "nbytes", "persistent", "idx"),
            *("body_bytes", "published_ms", "deadline_bytes", "crc"),
        ],
    )
    _settled_and_returned()
    _discards()
    _copy(
        "queue",
        [_integer("queue_id", key=True), _integer("next_seq"), _integer("delivered"), _integer("crc")],
        lambda row: (*row, checksums.of_mark_0003(*row)),
    )
    op.create_table(
        "names",
        sa.Column("name", sa.Text, primary_key=True, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        _integer("crc"),
    )
    identity = token_hex(16)
    name = ("identity", identity, checksums.of_name("identity", identity))
    _driver().execute("INSERT INTO names VALUES (?, ?, ?)", name)
    _sources(identity)


def _settled_and_returned() -> None:
    _copy(
        "settled",
        [*(_integer(name, key=True) for name in ("queue_id", "first_seq", "last_seq")), *_origin(), _integer("crc")],
        lambda row: (*row, checksums.of_settled(*row)),
        sqlite_with_rowid=False,
    )
    _copy(
        "returned",
        [_integer("queue_id", key=True), _integer("seq", key=True), _integer("count"), *_origin(), _integer("crc")],
        lambda row: (*row, checksums.of_returned(*row)),
        sqlite_with_rowid=False,
    )


def _discards() -> None:
    op.drop_index("discard_index", "discard")
    _copy(
        "discard",
        [
            _integer("discard_id", key=True),
            *(_integer(name) for name in ("queue_id", "first_seq", "last_seq")),
            *_origin(),
            _integer("crc"),
        ],
        lambda row: (*row, checksums.of_discard(*row)),
    )
    op.create_index("discard_index", "discard", ["queue_id", "first_seq", "last_seq", "idx"])


def _sources(identity: str) -> None:
    # SQLite counts entries of the index, which is smaller.
    (rows,) = _driver().execute("SELECT count(*) FROM batch").fetchone()
    (settled,) = _driver().execute("SELECT count(*) FROM settled").fetchone()
    _copy(
        "source",
        [
            _integer("source", key=True),
            *(_integer(name) for name in ("epoch", "idx", "crc", "rows", "rows_check", "settled", "settled_check")),
        ],
        lambda row: (
            *row,
            checksums.of_source_0003(row[0], row[1], row[2], identity),
            rows,
            -rows,
            settled,
            -settled,
        ),
    )


def _copy(
    table: str,
    columns: "list[sa.Column[int]]",
    made: Callable[[Any], tuple[int, ...]],
    **options: Any,
) -> None:
    """The table with these columns, each row of it made from the old one; one row in memory at a time."""
    op.create_table(f"{table}_new", *columns, **options)
    places = ", ".join("?" * len(columns))
    _driver().executemany(f"INSERT INTO {table}_new VALUES ({places})", _made(table, made))
    op.drop_table(table)
    op.rename_table(f"{table}_new", table)


def _made(table: str, made: Callable[[Any], tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    for row in _driver().execute(f"SELECT * FROM {table}"):
        yield made(row)


def _driver() -> Any:
    connection = op.get_bind().connection.driver_connection
    assert connection is not None
    return connection
