"""One backup, from the first look to the manifest. Blocking: it runs in a thread, or in a command of its own.

What comes in: a data directory whose journal this process has open, or may open; the target. What goes out: a
complete folder and its manifest; or `BackupError`, and no folder.
Rules: 1. The journal's moment comes first, the metadata is copied then: a queue of the journal is known to the
metadata unless it was deleted, a queue that came later is empty. 2. While the journal's moment is held its
write-ahead log only grows; it ends as soon as the pages are copied, before anything is checked. 3. What the log grew
by is copied into the journal here, beside the commits: the writer would do it in one go, with a commit waiting. 4. A
copy that is damaged is no backup: it is checked before it gets its name. 5. The folder must be new or empty; files
have other names until each is whole, the manifest comes last, and after a failure what was made here is removed. 6.
The journal is opened as the broker opens it (`journal/sqlite/database.py`), in the broker's process; where no broker
runs, in a way that changes none of its files: its log may be evidence. The metadata is opened for reading: other
processes may have it open.
Not here: pages (`copying.py`), the running broker (`running.py`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from amqpd import __version__
from amqpd.backup.copying import copy, explained, size_of
from amqpd.backup.manifest import FILES, MANIFEST, METADATA, BackupError, FileFacts, Manifest, digest
from amqpd.backup.progress import Progress
from amqpd.backup.soundness import check_pages, check_pair, check_promises, metadata_traces
from amqpd.journal.errors import DiskFull
from amqpd.journal.sqlite import queries
from amqpd.journal.sqlite.database import JOURNAL, READ_CACHE_BYTES, meaning
from amqpd.journal.sqlite.schema import REVISIONS
from amqpd.storage.files import log_bytes, sync_directory
from amqpd.storage.moment import connect, hold_moment
from amqpd.topology.metadata.sqlite.database import SEALED_FORMATS
from amqpd.topology.metadata.sqlite.verification import read_journal, write_journal
from amqpd.topology.metadata.store import StoreDamaged

PART = ".part"
"""The end of a file's name until it is whole."""


class TargetFolder:
    """The folder that a backup is written to, new or empty; what a failed backup made in it is removed. Its
    methods raise BackupError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made = False

    def make(self) -> None:
        """Make it, or take an empty one."""
        path = self.path
        try:
            self._made = _make(path)
            if not self._made and any(path.iterdir()):
                raise BackupError(
                    f"{path} is not empty: a backup goes to a new folder; "
                    f"name another one, or remove what is there{_unfinished(path)}"
                )
        except FileNotFoundError:
            raise BackupError(f"there is no folder {path.parent}: make it, or name another one") from None
        except NotADirectoryError:
            raise BackupError(f"{path} is no folder, or is not in one: a backup goes to a new folder") from None
        except OSError as error:
            raise BackupError(
                f"cannot write {path}: {error.strerror}; "
                f"make it a folder that user {os.geteuid()} can write, or name another one"
            ) from None

    @contextlib.contextmanager
    def kept_if_whole(self) -> Iterator[None]:
        """What raises in the block leaves nothing behind."""
        try:
            yield
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """What was made here, after `make`. That it cannot be removed is no news: the manifest is missing, and the
        reason is on its way up."""
        for name in (MANIFEST, *FILES):
            for each in (name, name + PART):
                with contextlib.suppress(OSError):
                    (self.path / each).unlink(missing_ok=True)
        if self._made:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def part(self, name: str) -> Path:
        """Where a file is written until it is whole."""
        return self.path / (name + PART)

    def finish(self, name: str) -> None:
        """The file is whole and synced. Raises OSError."""
        self.part(name).rename(self.path / name)

    def free_bytes(self) -> int:
        """What the file system has for this user. Raises OSError."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


def _make(path: Path) -> bool:
    """Whether it was made, and is on stable storage; False: it was there."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError from None
        return False
    sync_directory(path.parent)
    return True


def _unfinished(path: Path) -> str:
    parts = any((path / (name + PART)).exists() for name in FILES)
    return " (a backup that did not end)" if parts and not (path / MANIFEST).exists() else ""


LOG_BYTES_MAX = 4_000_000_000
"""How large the journal's write-ahead log may grow during a backup. Three things pay for it: the disk, a start after
a crash (which reads all of it, some 10 s for this much), and every read of the journal, which looks into an index of
16 kB for each 32 MB of it."""
LOG_BYTES_LEFT = 16 << 20
"""What may be left of it for the writer: as much as it lets gather itself (`checkpoints.WAL_BYTES_MAX`)."""
LOG_ROUNDS_MAX = 20
"""Each round leaves what was published during it. Where that does not shrink, the writer has the rest."""


class Job:
    """Copies journal and metadata as of one moment, checks the copies, and writes the manifest."""

    def __init__(
        self,
        data_dir: Path,
        target: Path,
        progress: Progress,
        *,
        running: bool,
        keep_free_bytes: int = 0,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        """`running`: the broker runs in this process; else the caller holds the data directory's lock.
        `keep_free_bytes` of the data directory's file system are not taken by the copy."""
        self._data_dir = data_dir
        self._folder = TargetFolder(target)
        self._progress = progress
        self._running = running
        self._keep_free_bytes = keep_free_bytes
        self._log_bytes_max = log_bytes_max
        self._log_at_start = 0
        self._began = ""
        self._facts: dict[str, dict[str, Any]] = {}

    def run(self) -> Manifest:
        """Raises BackupError; DiskFailure, when the journal's own disk failed in a way that ends a node."""
        self.copy()
        return self.finish()

    def copy(self) -> None:
        """The first half, in which the journal is open. Raises as `run`."""
        self._began = _now()
        self._folder.make()
        with self._folder.kept_if_whole(), explained(str(self._data_dir), self._folder.path):
            traces = None if self._running else metadata_traces(self._data_dir)
            with closing(open_journal(self._data_dir, running=self._running)) as journal:
                self._log_at_start = self._log_bytes()
                self._facts[JOURNAL] = journal_facts(journal)
                try:
                    self._check_space(journal)
                    with closing(open_metadata(self._data_dir)) as metadata:
                        if traces is not None:
                            check_promises(self._data_dir, traces, journal, metadata)
                        self._facts[METADATA] = metadata_facts(metadata)
                        self._copy(metadata, METADATA, partial(agree, index=self._facts[JOURNAL]["index"]))
                    self._copy(journal, JOURNAL)
                finally:
                    if journal.in_transaction:  # SQLite ends it by itself after some errors
                        journal.execute("COMMIT")
                    if self._running:
                        self._shrink_log(journal)
            if not self._running:
                tidy(self._data_dir)

    def finish(self) -> Manifest:
        """The second half: what was copied is checked and gets its names. Nothing but the target is used, and a check
        cannot be stopped: a broker that ends need not wait for it, and removes the folder. Raises BackupError."""
        with self._folder.kept_if_whole(), explained(str(self._data_dir), self._folder.path):
            for name in (METADATA, JOURNAL):
                self._progress.begin(f"checking {name}")
                check_pages(self._folder.part(name), f"the copy of {self._data_dir / name}")
            check_pair(self._folder.part(JOURNAL), self._folder.part(METADATA), self._data_dir)
            files = {name: self._finish(name) for name in (METADATA, JOURNAL)}
            facts = self._facts
            manifest = Manifest(__version__, self._began, _now(), facts[JOURNAL], facts[METADATA], files)
            self._progress.begin("writing the manifest")
            manifest.write(self._folder.path)
        return manifest

    def remove(self) -> None:
        """After `copy`: what was made, for a caller that does not wait for `finish`."""
        self._folder.remove()

    def _copy(
        self, source: sqlite3.Connection, name: str, then: Callable[[sqlite3.Connection], None] | None = None
    ) -> None:
        self._progress.begin(f"copying {name}", size_of(source))
        copy(source, str(self._data_dir / name), self._folder.part(name), self._progress, self._watch_log, then)

    def _watch_log(self) -> None:
        if not self._running:
            return
        nbytes = self._log_bytes()
        self._progress.held_log = max(0, nbytes - self._log_at_start)
        if nbytes > max(self._log_bytes_max, LOG_BYTES_LEFT):
            raise BackupError(
                f"the journal's write-ahead log grew to {nbytes >> 20} MB while it was copied: the backup was given "
                "up; try it when less is published, to a faster disk, or allow more with --log-max"
            )

    def _log_bytes(self) -> int:
        return log_bytes(self._data_dir / JOURNAL)

    def _check_space(self, journal: sqlite3.Connection) -> None:
        needed = size_of(journal) + (self._data_dir / METADATA).stat().st_size
        if self._folder.path.stat().st_dev == self._data_dir.stat().st_dev:
            needed += self._keep_free_bytes
        free = self._folder.free_bytes()
        if free < needed:
            raise BackupError(
                f"{self._folder.path} has {free >> 20} MB of free space, and the backup needs "
                f"{(needed >> 20) + 1} MB: make space, or name a folder on another disk"
            )

    def _finish(self, name: str) -> FileFacts:
        part = self._folder.part(name)
        nbytes = part.stat().st_size
        self._progress.begin(f"summing {name}", nbytes)
        found = FileFacts(nbytes, digest(part, self._progress.add))
        self._folder.finish(name)
        return found

    def _shrink_log(self, journal: sqlite3.Connection) -> None:
        """A checkpoint that waits for nobody, again while much is left (rule 3)."""
        journal.execute("PRAGMA synchronous = FULL")
        for _ in range(LOG_ROUNDS_MAX):
            if self._log_bytes() <= LOG_BYTES_LEFT:
                return
            try:
                busy, pages, copied = journal.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error as error:
                failure = meaning(error, self._data_dir / JOURNAL)
                if isinstance(failure, DiskFull):
                    return  # the log stays as it is, and the writer meets the full disk itself
                raise failure from error
            if not busy and (pages - copied) * _page_bytes(journal) <= LOG_BYTES_LEFT:
                return


def _page_bytes(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA page_size").fetchone()
    return int(found)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


BUSY_TIMEOUT_S = 30.0
"""How long other processes may hold the metadata."""


def open_journal(data_dir: Path, *, running: bool) -> sqlite3.Connection:
    """`running`: the broker runs in this process; else the caller holds the directory's lock. Raises BackupError:
    what is damaged is met by the node itself where it reads that."""
    path = data_dir / JOURNAL
    mode = "rw" if running else "ro"
    try:
        connection = hold_moment(connect(path, f"vfs=unix-excl&mode={mode}", timeout_s=0))
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
    return hold_moment(connect(data_dir / METADATA, "mode=ro", timeout_s=BUSY_TIMEOUT_S))


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
