"""Opens a journal's file: checks whose it is before it is touched, creates or migrates it, sets SQLite up.

What comes in: a data directory. What goes out: connections of SQLite's driver, what the file says of itself, and
exceptions with one sentence.
Rules: 1. A file that is not ours, or is of a newer amqpd, is refused after a look that changes no byte.
2. A new journal is built under another name and renamed when it is whole, so `journal.db` is never half made.
3. All connections of a journal are in one process, by SQLite's `unix-excl`: a second process is refused, and the
index of the WAL is in memory, not in a file that a full disk could keep from growing (SQLITE_IOERR_SHMSIZE).
4. One connection writes and checkpoints, the other only reads. 5. A journal that is refused is left as it was, byte
for byte.
Not here: tables (`schema.py`), transactions (`disk.py`), what is a loss (`trust.py`).
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from amqpd.journal.errors import DiskFailure, DiskFull, JournalInUse, NewerJournalFormat, NotAJournal
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import checksums, entry_statements, one_row, statements, trust
from amqpd.journal.sqlite.schema import APPLICATION_ID, PAGE_BYTES, REVISIONS, SAME_TABLES
from amqpd.storage.closing import close_unchanged
from amqpd.storage.files import has_log, sync_directory, wal_path
from amqpd.storage.mark import Promise
from amqpd.storage.wal import WalEnd

JOURNAL = "journal.db"
MIGRATIONS = Path(__file__).parent / "migrations"

CACHE_BYTES = 16 << 20
"""The writer's page cache: holds the inner pages and the index of a backlog of some hundred thousand rows."""
READ_CACHE_BYTES = 2 << 20
"""The reader reads bodies once each; a large cache would only hold what is never asked for again."""
SPACE_BYTES = 256 << 20
"""With so much free space no deletion finds the disk full."""
PROBE_PAGES = 4
"""What a start takes and gives back, to see that it can."""
WAL_KEPT_BYTES = 64 << 20
"""The WAL's file is cut to this after a larger transaction; below it the file is overwritten in place."""


VFS = "unix-excl"
_FORMAT = re.compile(r"[0-9]{4}\Z")


@dataclass(slots=True)
class OpenedJournal:
    """A journal that is open, and what it says of itself."""

    writer: sqlite3.Connection
    reader: sqlite3.Connection
    names: dict[str, str]
    """see `schema.names`"""
    source: trust.Source | None
    """None: nothing was ever committed"""
    created: bool = False
    """there was none before"""
    had_log: bool = True
    """there was a log beside it, if only an empty one"""
    accepted: list[str] = field(default_factory=list)
    """what is lost, and the operator has accepted: sentences"""


def open_journal(directory: Path, *, accept_loss: bool = False) -> OpenedJournal:
    """The journal in the directory, which is created when there is none.

    Raises NotAJournal, NewerFormat, JournalInUse, JournalDamaged, DiskFull, DiskFailure."""
    path = directory / JOURNAL
    with translated(path):
        promise, unknown = trust.promise_of(path)
        accepted = [unknown] if unknown else []
        created = not path.exists()
        if not created:
            check_untouched(path)
        else:
            if promise is not None and promise.number:
                accepted += _accepted(accept_loss, [trust.missing(path)])
            _create(path)
            promise = None
        end = trust.log_end(path)
        had_log = wal_path(path).exists()
        writer = _connect(path)
        opened = [writer]
        try:
            _set_up_writer(writer)
            if (revision := _known_revision(path, writer)) != REVISIONS[-1]:
                if revision in SAME_TABLES:
                    before = OpenedJournal(
                        writer, writer, trust.read_names(path, writer), trust.read_source(path, writer)
                    )
                    accepted += _judged(path, before, end, promise, accept_loss=accept_loss)
                elif end.damage:
                    accepted += _accepted(accept_loss, trust.losses(path, "", -1, end, None), path)
                migrate(writer)
                # So that the look at the bare file in `check_untouched` sees the new revision.
                writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                end, promise = WalEnd(0), None
            writer.executescript(
                ";".join(
                    ("BEGIN", *statements.CREATE_COMMIT_VIEWS, *one_row.CREATE, *entry_statements.CREATE, "COMMIT")
                )
            )
            reader = connect_to_read(path)
            opened.append(reader)
            journal = OpenedJournal(writer, reader, trust.read_names(path, reader), trust.read_source(path, reader))
            journal.created = created
            journal.accepted = accepted + _judged(path, journal, end, promise, accept_loss=accept_loss)
        except BaseException:
            close_unchanged(path, opened, vfs=VFS, had_log=had_log)
            raise
    journal.had_log = had_log
    return journal


def _judged(
    path: Path, journal: OpenedJournal, end: WalEnd, promise: Promise | None, *, accept_loss: bool
) -> list[str]:
    trust.check_shape(path, journal.reader, end)
    index = journal.source.idx if journal.source is not None else 0
    return _accepted(accept_loss, trust.losses(path, journal.names["identity"], index, end, promise), path)


def _accepted(accept_loss: bool, losses: list[str], path: Path | None = None) -> list[str]:
    """The losses, with the place of the log's copy. Raises JournalDamaged if the operator has not accepted any."""
    if not losses:
        return []
    if not accept_loss:
        raise JournalDamaged(f"{losses[0]}; {trust.REMEDY}")
    return [*losses, *(trust.accept(path) if path is not None else [])]


def check_untouched(path: Path) -> None:
    """Raise NotAJournal or NewerFormat, from the bytes of the file alone: no lock, no recovery, no side file."""
    with path.open("rb") as file:
        header = file.read(100)
    if header[:16] != b"SQLite format 3\0":
        raise NotAJournal(f"{path} is not a journal of amqpd (not a database at all); give another data directory")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise NotAJournal(f"{path} is a database of another program, not a journal of amqpd; "
                          "give another data directory")  # fmt: skip
    connection = sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True)
    try:
        _known_revision(path, connection)
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        # A process that has it open may be writing just now; opening it properly tells what it is.
        pass
    finally:
        connection.close()


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to the last of REVISIONS, in one transaction. Raises what SQLite's driver raises."""
    # Alembic costs 0.2 s to import: only a new or an old journal pays.
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import StaticPool

    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    try:
        with engine.connect() as wrapped:
            # The driver's connection is in autocommit mode: the transaction is begun by hand, SQLAlchemy ends it.
            wrapped.exec_driver_sql("BEGIN IMMEDIATE")
            config.attributes["connection"] = wrapped
            command.upgrade(config, REVISIONS[-1])
            wrapped.commit()
    except DBAPIError as error:
        # A copy of every row may not find space: that is said as for a commit.
        if isinstance(error.orig, sqlite3.Error):
            raise error.orig from error
        raise


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Errors of SQLite and of the operating system become the exceptions of the journal."""
    try:
        yield
    except sqlite3.Error as error:
        raise meaning(error, path) from error
    except checksums.NOT_AS_WRITTEN as error:
        reason = trust.not_as_written(error)
        raise JournalDamaged(f"{path} is damaged: {reason}; {trust.REMEDY_OF_RECORDS}") from error
    except OSError as error:
        raise DiskFailure(f"the journal {path} cannot be opened: {error}") from error


def meaning(error: sqlite3.Error, path: Path) -> Exception:
    """The journal's exception for an error of SQLite (result codes: sqlite.org/rescode.html)."""
    if isinstance(error, sqlite3.ProgrammingError):
        return error  # our mistake, not the disk's
    code = getattr(error, "sqlite_errorcode", None) or 0
    if not code and str(error).startswith("Could not decode"):
        return JournalDamaged(f"{path} is damaged: a text in it is not UTF-8")
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return DiskFull(f"no space left on the disk of {path}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return JournalInUse(f"another process has {path} open; stop it, or give another data directory")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_FORMAT:
            return JournalDamaged(f"{path} is damaged, or cannot be read: {error} ({name})")
    return DiskFailure(f"the disk of {path} failed: {error} ({name})")


def try_to_write(connection: sqlite3.Connection, path: Path) -> None:
    """Take some pages and give them back, without a commit: a damaged list of free pages shows now, not when messages
    come. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(statements.PROBE, {"data": bytes(PROBE_PAGES * PAGE_BYTES)})
    except sqlite3.OperationalError as error:
        if not isinstance(meaning(error, path), DiskFull):
            raise
    finally:
        connection.execute("ROLLBACK")


def put_names(connection: sqlite3.Connection, names: dict[str, str]) -> None:
    """In a transaction that begins with them, unless one is open, and is open then (`schema.names`). Raises
    sqlite3.Error."""
    if not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
    for name, value in names.items():
        given = {"name": name, "value": value, "crc": checksums.of_name(name, value)}
        connection.execute(statements.PUT_NAME, given)


def is_damage(error: sqlite3.Error, path: Path) -> bool:
    """Of a deletion. SQLite says "full" too for a damaged length of a row; a disk that has space is not full."""
    said = meaning(error, path)
    if isinstance(said, DiskFull):
        file_system = os.statvfs(path.parent)
        return file_system.f_bavail * file_system.f_frsize > SPACE_BYTES
    return isinstance(said, JournalDamaged)


def create_file(path: Path) -> None:
    """A new, empty journal under this name, as `open_journal` makes one. Raises what that raises."""
    with translated(path):
        _create(path)


def _create(path: Path) -> None:
    wal = wal_path(path)
    if has_log(path):
        # SQLite would replay it into the new file.
        raise JournalDamaged(f"{path} is missing and {wal} is there; restore the one, or remove the other")
    missing = [parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for parent in missing:
        sync_directory(parent.parent)
    new = path.with_name(path.name + ".new")
    for left_over in (new, new.with_name(new.name + "-journal")):
        left_over.unlink(missing_ok=True)
    connection = _connect(new)
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        # Keeps a map from a page to its owner: freed pages at the end can be given back to the file system in small
        # steps, and rows are deleted without reading their bodies (half the time when cold, measured).
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        migrate(connection)
        _enter_wal(connection)
    finally:
        connection.close()
    os.replace(new, path)
    sync_directory(path.parent)


def _connect(path: Path) -> sqlite3.Connection:
    # isolation_level None: the driver begins no transaction of its own. Threads: `Disk` says who calls when.
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?vfs={VFS}",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=32,
    )
    # The locking VFS takes its lock with the first read; BUSY shows here.
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_write(path: Path) -> sqlite3.Connection:
    """To the tables alone, of a journal that no other connection writes. Raises sqlite3.Error."""
    connection = _connect(path)
    try:
        _set_up_writer(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Another connection of this process, which changes nothing. Raises sqlite3.Error."""
    connection = _connect(path)
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA cache_size = -{READ_CACHE_BYTES >> 10}")
    return connection


def _enter_wal(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise DiskFailure(f"SQLite keeps no write-ahead log here (journal mode {mode})")


def _set_up_writer(connection: sqlite3.Connection) -> None:
    _enter_wal(connection)
    # FULL: the WAL is synced at each commit. NORMAL would be faster and would lose confirmed messages.
    connection.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
    # Debian builds SQLite with SECURE_DELETE: freed pages would be overwritten with zeros, each in the WAL.
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute(f"PRAGMA cache_size = -{CACHE_BYTES >> 10}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
    # Nothing beside the journal's files: no spill to /tmp, which may be another, full, disk.
    connection.execute("PRAGMA temp_store = MEMORY")
    # SQLite's own checkpoints swallow I/O errors; `disk.py` runs them and sees them.
    connection.execute("PRAGMA wal_autocheckpoint = 0")


def _known_revision(path: Path, connection: sqlite3.Connection) -> str:
    found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if found is None:
        raise JournalDamaged(f"{path} is damaged: it does not say of which format it is; {trust.REMEDY_OF_RECORDS}")
    (revision,) = found
    if not isinstance(revision, str) or not _FORMAT.match(revision):
        raise JournalDamaged(f"{path} is damaged (its format is {revision!r}); {trust.REMEDY_OF_RECORDS}")
    if newer := newer_format(revision):
        sentence = f"{path} was written by a newer amqpd ({newer})"
        raise NewerJournalFormat(f"{sentence}; start that version again, or give another data directory", newer)
    return revision


def newer_format(revision: str) -> str:
    """What a newer amqpd wrote, as a part of a sentence; empty: this one knows it, or it is no name of a format."""
    newer = _FORMAT.match(revision) and revision not in REVISIONS
    return f"format {revision}, this one knows up to {REVISIONS[-1]}" if newer else ""
