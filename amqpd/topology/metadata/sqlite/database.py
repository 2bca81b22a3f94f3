"""Opening `metadata.db`: its tables, its format, and every way in which opening can go wrong as one
sentence.

What comes in: the file's path. What goes out: a connection that is ready for the store.
Rules: 1. A file that a newer amqpd wrote is refused before anything is opened for writing. 2. Migrations
run under the file's write lock, so two processes may open a new file at the same moment. 3. Transactions
are begun and ended by explicit statements (`transaction`), never by the driver. 4. The file is readable by
its owner only: it holds password hashes. 5. While a connection is open the file is opened by SQLite alone: a
process that closes any other descriptor of it loses all its locks on it (fcntl(2)), and then another one that
closes it last, as it believes, removes the log that this one writes to.
Not here: what is done with the tables (`store.py`), the steps of the format (`migrations/`).
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from amqpd.storage.files import cannot_be_written, has_log, keep_log, mark_path, wal_path
from amqpd.storage.mark import Mark, Promise
from amqpd.topology.metadata.sqlite import copies, promises
from amqpd.topology.metadata.sqlite.verification import (
    DatabaseContents,
    check_header,
    check_pages,
    contents_of,
    verify,
)
from amqpd.topology.metadata.store import (
    MetadataStoreError,
    NewerMetadataFormat,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    StoreIncomplete,
)

# How long a transaction waits for other processes (the command line holds the lock for milliseconds; a disk
# under load may take seconds). After it the caller is told, and tries again if it may.
BUSY_TIMEOUT_S = 30.0
# What SQLite says where there is no space. The second: for the index of the write-ahead log, 32 KiB, which the first
# process makes when it opens the file. Later a commit may have come half of its way then.
_FULL = ("SQLITE_FULL",)
_FULL_AT_OPENING = (*_FULL, "SQLITE_IOERR_SHMSIZE")
# Of the many meanings of SQLITE_ERROR those that are of the file: its tables are not ours.
_NOT_OURS = re.compile(r"no such (table|column)|malformed|duplicate column|.* already exists")
_FORMAT = re.compile(r"metadata_[0-9]{4}\Z")
# Those whose rows have checksums.
SEALED_FORMATS = {"metadata_0004"}

log = structlog.get_logger(component="topology")


@dataclass(slots=True)
class OpenedDatabase:
    """A database that is whole, and has everything that it promised; or less, and the operator has accepted it."""

    connection: sa.Connection
    identity: str
    mark: Mark | None
    """None: the one that is there says what is true, and is not written before the next commit"""
    accepted: list[str]
    """what is lost, and where the rest is kept: sentences"""


def open_database(path: Path, *, accept_loss: bool = False, mark_by_calls: bool = False) -> OpenedDatabase:
    """Create or migrate the file when necessary, and connect. Blocking. `mark_by_calls`: see `Mark`. Raises
    NewerMetadataFormat, StoreDamaged, StoreFull, MetadataStoreError: then no file has changed."""
    if not path.parent.is_dir():
        raise MetadataStoreError(f"cannot open {path}: there is no directory {path.parent}")
    with _with_way_out(path), explained(path, _FULL_AT_OPENING):
        opened = _open(_Opening(path, accept_loss), mark_by_calls)
    for sentence in opened.accepted:
        log.warning("the loss of metadata is accepted", what=sentence)
    return opened


def _open(opening: _Opening, mark_by_calls: bool) -> OpenedDatabase:
    path = opening.path
    with ExitStack() as looking:
        if opening.exists():
            opening.look(looking)
        else:
            opening.begin()
        connection = _connect(f"file:{_quoted(path)}?mode=rw")
        try:
            _set_up(connection, path, opening.steps)
            contents = contents_of(driver_of(connection), path)
            mark = None
            if opening.promise != Promise(contents.identity, contents.revision):
                mark = Mark(mark_path(path), contents.identity, contents.revision, by_calls=mark_by_calls)
        except BaseException:
            _close(connection)
            raise
    return OpenedDatabase(connection, contents.identity, mark, opening.accepted)


def examine_database(path: Path) -> DatabaseContents | None:
    """What it has, if that is all that it promised. None: there is none, or none whose rows have checksums. Nothing
    is changed. Raises as `open_database`."""
    opening = _Opening(path, accept_loss=False)
    with explained(path), ExitStack() as looking:
        return opening.look(looking) if opening.exists() else None


def refuse_incomplete(path: Path) -> None:
    """Raise as `open_database` would if the operator accepts no loss. Nothing is changed."""
    with _with_way_out(path):
        examine_database(path)


@contextmanager
def _with_way_out(path: Path) -> Iterator[None]:
    """Damage is told with what the operator can do."""
    try:
        yield
    except StoreDamaged as damage:
        way_out = copies.way_out(path, accept_loss=isinstance(damage, StoreIncomplete))
        raise type(damage)(f"{damage}; {way_out}") from damage


def close_database(connection: sa.Connection, path: Path) -> None:
    """Closes the connection and what it is made by. Raises as `explained`."""
    with explained(path):
        _close(connection)


class _Opening:
    """An opening of `metadata.db` up to the moment when it is opened for writing: what is looked at and decided."""

    def __init__(self, path: Path, accept_loss: bool) -> None:
        self.path = path
        self.steps = ScriptDirectory.from_config(_migrations())
        self.accepted: list[str] = []
        self.promise: Promise | None = None
        self._formats: set[str] = set()
        self._accept_loss = accept_loss

    def exists(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def begin(self) -> None:
        """There is no database yet, or there is none any more."""
        if lost := promises.missing(self.path, promises.traces_of(self.path)):
            self._accept(lost)
            # SQLite would take the log for the new database's.
            self.accepted += keep_log(self.path, move=True)
            self.accepted += promises.keep_copies_aside(self.path)
            mark_path(self.path).unlink(missing_ok=True)
        if not self.path.exists():
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))

    def look(self, looking: ExitStack) -> DatabaseContents | None:
        """Read everything. What is opened for it is closed with `looking`: a connection that may not write does not
        empty the log into the database, and none does that while this one is open."""
        # Before the database: what it promises then is less than what is read, never more.
        traces = promises.traces_of(self.path)
        self.promise = traces.promise
        if traces.unknown:
            log.warning("what was committed to the metadata is not known", reason=traces.unknown)
        # It opens the file: before any connection does (rule 5).
        for_reading_only = cannot_be_written(self.path)
        contents = self._contents(looking)
        if for_reading_only:
            raise StoreDamaged(f"{self.path} is damaged: its header is (byte 18)")
        identity, revision = (contents.identity, contents.revision) if contents is not None else ("", -1)
        lost = promises.losses(self.path, identity, revision, traces)
        if not self._formats and not lost:
            lost = promises.emptied(self.path)
        if lost:
            self._accept(lost)
            self.accepted += keep_log(self.path)
            if not self._formats:
                self.accepted += promises.keep_copies_aside(self.path)
        return contents

    def _contents(self, looking: ExitStack) -> DatabaseContents | None:
        # `immutable` makes no file beside the database, and is right while there is no write-ahead log. Should a
        # process write at this very moment, what is read may look damaged, and the ordinary way is taken.
        before = self.path.stat()
        if not wal_path(self.path).exists():
            try:
                with ExitStack() as closing:
                    return self._read("immutable=1", closing)
            except (sa.exc.DBAPIError, sqlite3.Error, StoreDamaged):
                now = self.path.stat()
                same = (before.st_size, before.st_mtime_ns) == (now.st_size, now.st_mtime_ns)
                if same and not wal_path(self.path).exists():
                    raise
        return self._read("mode=ro", looking)

    def _read(self, how: str, closing: ExitStack) -> DatabaseContents | None:
        """None: it is of an older format, whose rows have no checksums."""
        connection = _connect(f"file:{_quoted(self.path)}?{how}")
        closing.callback(_close, connection)
        driver = driver_of(connection)
        with transaction(driver, "BEGIN"):
            found = MigrationContext.configure(connection).get_current_heads()
            _check_known(found, self.path, self.steps)
            self._formats = set(found)
            check_pages(driver, self.path)
            check_header(driver, self.path, whole=how != "mode=ro")
            return verify(driver, self.path) if SEALED_FORMATS & self._formats else None

    def _accept(self, lost: list[str]) -> None:
        if not self._accept_loss:
            raise StoreIncomplete(lost[0])
        self.accepted += lost


def empty_log(driver: sqlite3.Connection) -> bool:
    """Take what is in the log over into the database, and cut the log to nothing: unless somebody is using it just
    now. A log that was taken over and stays would be read again after a crash, and one that is damaged then would put
    old pages over new ones. Whether it is empty."""
    (timeout_ms,) = driver.execute("PRAGMA busy_timeout").fetchone()
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        driver.execute(f"PRAGMA busy_timeout = {timeout_ms}")
    return not busy


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
        if not code and str(reason).startswith("Could not decode"):
            raise StoreDamaged(f"{path} is damaged (a text in it is not UTF-8)") from error
        foreign = code == "SQLITE_ERROR" and _NOT_OURS.match(str(reason))
        if foreign or code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise StoreDamaged(f"{path} is damaged or is not amqpd's metadata ({reason})") from error
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreBusy(f"{path} is locked by another process ({reason})") from error
        if code.startswith(full):
            raise StoreFull(f"there is no space on the disk for {path}") from error
        if code.startswith("SQLITE_IOERR"):
            raise MetadataStoreError(f"the disk of {path} failed: {reason} ({code})") from error
        raise MetadataStoreError(f"{path} cannot be read or written ({reason})") from error
    except UnicodeDecodeError as error:
        raise StoreDamaged(f"{path} is damaged (a name in it is not UTF-8)") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"there is no space on the disk for {path}") from error
        raise MetadataStoreError(f"{path} cannot be opened ({error.strerror or error})") from error


def newer_formats(found: Iterable[object], steps: ScriptDirectory | None = None) -> str:
    """Those of these formats that a newer amqpd wrote, as a part of a sentence; empty: none. What is no name of a
    format is none."""
    steps = steps or ScriptDirectory.from_config(_migrations())
    known = {step.revision for step in steps.walk_revisions()}
    newer = sorted({str(each) for each in found if _FORMAT.match(str(each))} - known)
    return f"format {', '.join(newer)}; this one knows {steps.get_current_head()}" if newer else ""


def written_by_newer(path: Path) -> str:
    """As `newer_formats`, of a database that nobody writes to. One that cannot be read is damaged, or of none."""
    try:
        driver = sqlite3.connect(f"file:{_quoted(path)}?{'mode=ro' if has_log(path) else 'immutable=1'}", uri=True)
        with closing(driver):
            return newer_formats(name for (name,) in driver.execute("SELECT version_num FROM alembic_version"))
    except (sqlite3.Error, UnicodeDecodeError):
        return ""


def _check_known(found: tuple[str, ...], path: Path, steps: ScriptDirectory) -> None:
    if len(found) > 1 or not all(_FORMAT.match(str(each)) for each in found):
        raise StoreDamaged(f"{path} is damaged (its format is {', '.join(map(repr, found))})")
    if newer := newer_formats(found, steps):
        raise NewerMetadataFormat(
            f"{path} was written by a newer amqpd ({newer}): run that version, or restore a backup"
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
    if found != (steps.get_current_head(),):
        # What is no revision of the store is not promised by its mark.
        empty_log(driver_of(connection))


def _connect(uri: str) -> sa.Connection:
    def connect() -> sqlite3.Connection:
        # One connection, used by one thread at a time (the store sees to that), but not always the same one.
        return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.pool.StaticPool)
    try:
        return engine.connect()
    except BaseException:
        engine.dispose()
        raise


def _close(connection: sa.Connection) -> None:
    connection.close()
    connection.engine.dispose()


def _migrations(connection: sa.Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "amqpd.topology.metadata.sqlite:migrations")
    return config


def _quoted(path: Path) -> str:
    # A question mark or a number sign in a directory's name would end the path of a file: URI.
    return path.absolute().as_uri().removeprefix("file://")
