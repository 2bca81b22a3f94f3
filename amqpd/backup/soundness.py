"""Whether a database is sound and has all that it once promised: of a stopped node before it is copied, of a copy.

What comes in: a copy's path; a connection to a stopped node's database. What goes out: nothing, or `BackupError`.
Rules: 1. SQLite's own check of pages and indexes runs without the interpreter's lock, and is made of every copy. 2.
What is looked at record by record would hold a running node up: it is done where none runs, before a restore and of a
stopped node. 3. What lacks something that was confirmed is not copied as if it were whole.
Not here: the checks themselves (`journal/sqlite/trust.py`, `journal/sqlite/recovery.py`,
`topology/metadata/sqlite/verification.py`).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from amqpd.backup.copying import REMEDY, explained
from amqpd.backup.manifest import METADATA, BackupError
from amqpd.datadir.pairing import JournalFacts, MetadataFacts, misfits
from amqpd.journal.errors import DiskFailure, NewerJournalFormat, NotAJournal
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import trust
from amqpd.journal.sqlite.database import JOURNAL, check_untouched
from amqpd.journal.sqlite.recovery import examine
from amqpd.journal.sqlite.schema import REVISIONS
from amqpd.storage.moment import connect
from amqpd.topology.metadata.sqlite import promises
from amqpd.topology.metadata.sqlite.database import SEALED_FORMATS, newer_formats
from amqpd.topology.metadata.sqlite.glance import glance
from amqpd.topology.metadata.sqlite.verification import verify
from amqpd.topology.metadata.store import StoreDamaged


def check_pages(path: Path, name: str) -> None:
    """Of a copy that nobody uses: `immutable` takes no lock and makes no file beside it. `name` is what it is called
    for people. Raises BackupError."""
    with explained(name, path), closing(connect(path, "immutable=1")) as connection:
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise BackupError(f"{name} is damaged ({' '.join(str(found).split())}): {REMEDY}")


def check_journal(path: Path, name: str) -> None:
    """Every record of a copy but the bodies, as a start does. Raises BackupError."""
    try:
        check_untouched(path)
        with explained(name, path), closing(connect(path, "immutable=1")) as connection:
            if _format_of(connection) == REVISIONS[-1]:
                trust.read_names(path, connection)
                examine(path, connection)
    except (NotAJournal, NewerJournalFormat, JournalDamaged) as error:
        sentence = str(error).replace(str(path), name)
        raise BackupError(sentence if name in sentence else f"{name} is damaged: {sentence}") from error


def check_metadata(path: Path, name: str) -> None:
    """Every record of a copy. Raises BackupError."""
    with explained(name, path), closing(connect(path, "immutable=1")) as connection:
        found = _format_of(connection)
        if newer := newer_formats([found]):
            raise BackupError(f"{name} was written by a newer amqpd ({newer}): restore it with that version")
        if found in SEALED_FORMATS:
            try:
                verify(connection, path)
            except StoreDamaged as error:
                raise BackupError(str(error).replace(str(path), name)) from error


def check_pair(journal: Path, metadata: Path, of: Path) -> None:
    """Whether two copies belong together: else a broker would not start on them. `of` is the folder that they were
    copied from. Raises BackupError."""
    with explained(str(of / JOURNAL), journal), closing(connect(journal, "immutable=1")) as connection:
        if _format_of(connection) != REVISIONS[-1]:
            return
        try:
            names, source = trust.read_names(journal, connection), trust.read_source(journal, connection)
        except JournalDamaged as error:
            raise BackupError(str(error).replace(str(journal), str(of / JOURNAL))) from error
    seen = glance(metadata)
    if seen is None:
        raise BackupError(f"{of / METADATA} cannot be read: {REMEDY}")
    facts = JournalFacts(str(of / JOURNAL), names["identity"], source.idx if source is not None else 0, names)
    if lost := misfits(facts, MetadataFacts(str(of / METADATA), *seen)):
        raise BackupError(f"{lost[0]}; restore an older backup of both, or start the broker once with --accept-loss")


def metadata_traces(data_dir: Path) -> promises.Traces:
    """To be called before the metadata is opened: a command may commit at any time, and what is promised must not be
    more than what is seen then. Raises BackupError."""
    try:
        return promises.traces_of(data_dir / METADATA)
    except OSError as error:
        raise BackupError(f"{data_dir / METADATA} cannot be read: {error.strerror}; {REMEDY}") from error


def check_promises(
    data_dir: Path, traces: promises.Traces, journal: sqlite3.Connection, metadata: sqlite3.Connection
) -> None:
    """Of a stopped node: a log that is damaged, or a database that has less than was confirmed, would give a backup
    that lacks it without a word. Raises BackupError, sqlite3.Error."""
    path = data_dir / JOURNAL
    lost: list[str] = []
    try:
        if _format_of(journal) == REVISIONS[-1]:
            end, (promise, _) = trust.log_end(path), trust.promise_of(path)
            source = trust.read_source(path, journal)
            index = source.idx if source is not None else 0
            lost += trust.losses(path, trust.read_names(path, journal)["identity"], index, end, promise)
        if _format_of(metadata) in SEALED_FORMATS:
            path = data_dir / METADATA
            contents = verify(metadata, path)
            lost += promises.losses(path, contents.identity, contents.revision, traces)
    except (JournalDamaged, DiskFailure, StoreDamaged) as error:
        raise BackupError(str(error)) from error
    if lost:
        raise BackupError(
            f"{lost[0]}; a backup would lack that: restore an older one, or start the broker once with --accept-loss "
            "and make the backup then"
        )


def _format_of(connection: sqlite3.Connection) -> str:
    (found,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(found)
