"""Opening `metadata.db`: its tables, its format, and every way in which opening can go wrong as one
sentence.

What comes in: the file's path. What goes out: a connection that is ready for the store.
Rules: 1. A file that a newer amqpd wrote is refused before anything is opened for writing. 2. Migrations
run under the file's write lock, so two processes may open a new file at the same moment. 3. Transactions
are begun and ended by explicit statements (`transaction`), never by the driver. 4. The file is readable by
its owner only: it holds password hashes.
Not here: what is done with the tables (`sqlite.py`), the steps of the format (`migrations/`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from amqpd.topology.store import MetadataStoreError, NewerFormat, StoreBusy, StoreDamaged, StoreFull

# How long a transaction waits for other processes (the command line holds the lock for milliseconds; a disk
# under load may take seconds). After it the caller is told, and tries again if it may.
BUSY_TIMEOUT_S = 30.0
# What SQLite says where there is no space. The second: for the index of the write-ahead log, 32 KiB, which the first
# process makes when it opens the file. Later a commit may have come half of its way then.
_FULL = ("SQLITE_FULL",)
_FULL_AT_OPENING = (*_FULL, "SQLITE_IOERR_SHMSIZE")

tables = sa.MetaData()

# The present: one row a key; `revision` is the transaction that put it.
entries = sa.Table(
    "entries",
    tables,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
)
# The past: the operations of each transaction in their order; no value means: deleted.
history = sa.Table(
    "history",
    tables,
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("value", sa.Text),
)
# One row: the last transaction's revision, and the last one that is gone from the history.
state = sa.Table(
    "state",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("compacted", sa.Integer, nullable=False),
)


def open_database(path: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sa.Connection:
    """Create or migrate the file when necessary, and connect. Blocking. Raises NewerFormat, StoreDamaged,
    StoreFull, MetadataStoreError."""
    if not path.parent.is_dir():
        raise MetadataStoreError(f"cannot open {path}: there is no directory {path.parent}")
    steps = ScriptDirectory.from_config(_migrations())
    with explained(path, _FULL_AT_OPENING):
        if path.exists():
            _check_format(path, steps, busy_timeout_s)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = _connect(f"file:{_quoted(path)}?mode=rw", busy_timeout_s)
    try:
        with explained(path, _FULL_AT_OPENING):
            _set_up(connection, path, steps)
    except BaseException:
        connection.close()
        connection.engine.dispose()
        raise
    return connection


def driver_of(connection: sa.Connection) -> sqlite3.Connection:
    """The driver's connection under SQLAlchemy's."""
    driver: Any = connection.connection.dbapi_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


@contextmanager
def transaction(driver: sqlite3.Connection, begin: str) -> Iterator[None]:
    """`begin` is BEGIN for a consistent read, BEGIN IMMEDIATE for a write. A transaction that wrote nothing
    costs no fsync."""
    driver.execute(begin)
    try:
        yield
        driver.execute("COMMIT")
    except BaseException:
        if driver.in_transaction:
            driver.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path, full: tuple[str, ...] = _FULL) -> Iterator[None]:
    """Turn the errors of the database and of the file system into one sentence each. `full`: those of SQLite that
    mean StoreFull."""
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        reason = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        code = getattr(reason, "sqlite_errorname", "") or ""
        if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_SCHEMA")):
            raise StoreDamaged(f"{path} is damaged or is not amqpd's metadata ({reason})") from error
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreBusy(f"{path} is locked by another process ({reason})") from error
        if code.startswith(full):
            raise StoreFull(f"there is no room on the disk for {path}") from error
        raise MetadataStoreError(f"{path} cannot be read or written ({reason})") from error
    except OSError as error:
        raise MetadataStoreError(f"{path} cannot be opened ({error.strerror or error})") from error


def _check_format(path: Path, steps: ScriptDirectory, busy_timeout_s: float) -> None:
    if path.stat().st_size == 0:
        return
    # `immutable` makes no file beside the database, and is right while there is no write-ahead log. Should
    # a process make one at this very moment, the read may fail, and the ordinary way is taken.
    if not path.with_name(path.name + "-wal").exists():
        try:
            _check_format_of(f"file:{_quoted(path)}?immutable=1", path, steps, busy_timeout_s)
            return
        except sa.exc.DBAPIError:
            pass
    _check_format_of(f"file:{_quoted(path)}?mode=ro", path, steps, busy_timeout_s)


def _check_format_of(uri: str, path: Path, steps: ScriptDirectory, busy_timeout_s: float) -> None:
    connection = _connect(uri, busy_timeout_s)
    try:
        _check_known(MigrationContext.configure(connection).get_current_heads(), path, steps)
    finally:
        connection.close()
        connection.engine.dispose()


def _check_known(found: tuple[str, ...], path: Path, steps: ScriptDirectory) -> None:
    known = {step.revision for step in steps.walk_revisions()}
    if newer := sorted(set(found) - known):
        raise NewerFormat(
            f"{path} was written by a newer amqpd (format {', '.join(newer)}; this one knows "
            f"{steps.get_current_head()}): run that version, or restore a backup"
        )


def _set_up(connection: sa.Connection, path: Path, steps: ScriptDirectory) -> None:
    if connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
        mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar()
        if mode != "wal":
            raise MetadataStoreError(f"{path} cannot have a write-ahead log here (journal mode {mode})")
    connection.exec_driver_sql("PRAGMA synchronous = FULL")
    with transaction(driver_of(connection), "BEGIN IMMEDIATE"):
        found = MigrationContext.configure(connection).get_current_heads()
        _check_known(found, path, steps)
        if found != (steps.get_current_head(),):
            command.upgrade(_migrations(connection), "head")
    if (damage := connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()) != "ok":
        raise StoreDamaged(f"{path} is damaged ({damage})")


def _connect(uri: str, busy_timeout_s: float) -> sa.Connection:
    def connect() -> sqlite3.Connection:
        # One connection, used by one thread at a time (the store sees to that), but not always the same one.
        return sqlite3.connect(uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.pool.StaticPool)
    try:
        return engine.connect()
    except BaseException:
        engine.dispose()
        raise


def _migrations(connection: sa.Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "amqpd.topology:migrations")
    return config


def _quoted(path: Path) -> str:
    # A question mark or a number sign in a directory's name would end the path of a file: URI.
    return path.absolute().as_uri().removeprefix("file://")
