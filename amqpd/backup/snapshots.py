"""Opens the databases of a data directory for a copy of one moment.

What comes in: the data directory. What goes out: connections that hold a read transaction, and the facts that each
database says of itself at that moment.
Rules: 1. The moment lasts until the connection's transaction is ended. 2. The journal is opened as the broker opens
it (`journal/sqlite/database.py`), in the broker's process; where no broker runs, in a way that changes none of its
files: its log may be evidence. 3. The metadata is opened for reading: other processes may have it open.
Not here: what is copied (`job.py`).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from amqpd.backup.manifest import METADATA, BackupError
from amqpd.journal.sqlite import queries
from amqpd.journal.sqlite.database import JOURNAL, READ_CACHE_BYTES, meaning
from amqpd.journal.sqlite.schema import REVISIONS
from amqpd.storage.moment import hold_moment
from amqpd.topology.metadata.sqlite.database import SEALED_FORMATS
from amqpd.topology.metadata.sqlite.verification import read_journal, write_journal
from amqpd.topology.metadata.store import StoreDamaged

BUSY_TIMEOUT_S = 30.0
"""How long other processes may hold the metadata."""


def open_journal(data_dir: Path, *, running: bool) -> sqlite3.Connection:
    """`running`: the broker runs in this process; else the caller holds the directory's lock. Raises BackupError:
    what is damaged is met by the node itself where it reads that."""
    path = data_dir / JOURNAL
    mode = "rw" if running else "ro"
    try:
        connection = _in_transaction(f"file:{quote(str(path))}?vfs=unix-excl&mode={mode}", 0)
    except sqlite3.Error as error:
        raise BackupError(str(meaning(error, path))) from error
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA cache_size = -{READ_CACHE_BYTES >> 10}")
    return connection


def tidy(data_dir: Path) -> None:
    """After the connection to a stopped node's journal is closed: one that only reads makes an index of the log
    beside it, and leaves it. Raises OSError."""
    (data_dir / f"{JOURNAL}-shm").unlink(missing_ok=True)


def open_metadata(data_dir: Path) -> sqlite3.Connection:
    """A connection that holds the metadata as of one moment. Raises sqlite3.Error."""
    return _in_transaction(f"file:{quote(str(data_dir / METADATA))}?mode=ro", BUSY_TIMEOUT_S)


def journal_facts(connection: sqlite3.Connection) -> dict[str, Any]:
    """Format, identity and index that a journal says of itself. Raises sqlite3.Error."""
    (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    found = connection.execute("SELECT epoch, idx FROM source WHERE source = 0").fetchone()
    epoch, index = found or (0, 0)
    names: dict[str, str] = {}
    if revision == REVISIONS[-1]:
        names = dict(connection.execute("SELECT name, value FROM names"))
        if type(epoch) is type(index) is int:  # what a damaged record says is told when the copy is checked
            index += len(connection.execute(queries.ROWS_ABOVE, {"epoch": epoch, "idx": index}).fetchall())
    return {"format": revision, "identity": names.get("identity", ""), "index": index}


def metadata_facts(connection: sqlite3.Connection) -> dict[str, Any]:
    """Format, identity and revision that a metadata store says of itself. Raises sqlite3.Error."""
    (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    (state,) = connection.execute("SELECT revision FROM state").fetchone()
    sealed = revision in SEALED_FORMATS
    names = dict(connection.execute("SELECT name, value FROM names")) if sealed else {}
    return {"format": revision, "identity": names.get("identity", ""), "revision": state}


def agree(metadata: sqlite3.Connection, *, index: int) -> None:
    """In a copy of the metadata, which is newer than that of the journal: what it knows of the journal is not more
    than `index`, or a start would take the restored journal for one that lost something. Raises BackupError,
    sqlite3.Error."""
    (revision,) = metadata.execute("SELECT version_num FROM alembic_version").fetchone()
    if revision not in SEALED_FORMATS:
        return
    try:
        known = read_journal(metadata, Path(METADATA))
    except StoreDamaged as error:
        raise BackupError(str(error)) from error
    if known is not None and known[1] > index:
        write_journal(metadata, known[0], index)


def _in_transaction(uri: str, timeout_s: float) -> sqlite3.Connection:
    return hold_moment(sqlite3.connect(uri, uri=True, timeout=timeout_s, isolation_level=None))
