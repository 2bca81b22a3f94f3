"""Databases as earlier versions of amqpd left them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config


def make_old(path: Path, revision: str, entries: Mapping[str, str]) -> None:
    """A database of the format `revision` (up to metadata_0003), each entry put by a transaction of its own."""
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", "amqpd.topology.metadata.sqlite:migrations")
        command.upgrade(config, revision)
        connection.commit()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")
        rows = [(key, value, number) for number, (key, value) in enumerate(entries.items(), 1)]
        database.executemany("INSERT INTO entries (key, value, revision) VALUES (?, ?, ?)", rows)
        database.executemany("INSERT INTO history (key, value, revision, position) VALUES (?, ?, ?, 0)", rows)
        database.execute("UPDATE state SET revision = ?", (len(rows),))
    database.close()
