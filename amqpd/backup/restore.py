"""Puts a backup back: from its folder into a data directory that nobody uses.

What comes in: a backup's folder, a data directory. What goes out: a data directory that a broker can start on; what
was in it before stands aside in a folder of it.
Rules: 1. Nothing is moved before all of the backup is copied, compared with its manifest and checked. 2. Nothing is
deleted but copies that an unfinished restore left. 3. The folder `restoring` is there until everything is in its
place: a broker does not start beside it. 4. Nothing of another incarnation stays beside the restored files: not their
logs, not the marks that promise a later state, not the audit log.
Not here: the audit log's own files (docs/backup.md), making a backup (`job.py`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from amqpd.backup.copying import SYNC_BYTES, explained
from amqpd.backup.manifest import FILES, METADATA, PIECE_BYTES, BackupError, FileFacts, Manifest, read_manifest
from amqpd.backup.progress import Progress
from amqpd.backup.soundness import check_journal, check_metadata, check_pages, check_pair
from amqpd.datadir.lock import open_data_directory
from amqpd.errors import StartupError
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.storage.files import free_folder, sync_directory

RESTORING = "restoring"
REPLACED = "replaced-"
# Whatever stands beside the databases and belongs to them: logs, marks, copies.
DATA_PREFIXES = ("journal.", "metadata.")
DATA_FOLDERS = ("audit", "quarantine")
# It holds space, nothing else, and belongs to no incarnation.
NO_DATA = ("metadata.reserve",)
# The metadata's first: a journal is missed beside it, while a journal without metadata has nobody to miss it.
ORDER = (METADATA, JOURNAL)


def refuse_unfinished(data_dir: Path) -> None:
    """For a broker that wants to start. Raises StartupError."""
    if (data_dir / RESTORING).exists():
        raise StartupError(
            f"a restore into {data_dir} did not end: run amqpd restore again; "
            f"or, to go on with what is there, remove the folder {data_dir / RESTORING}"
        )


def restore(
    source: Path, data_dir: Path, progress: Progress, *, replace: bool = False
) -> tuple[Manifest, Path | None]:
    """Returns what was restored, and where the data is that was there before, if any was.

    Raises BackupError; StartupError when a broker uses the directory, or it cannot be used."""
    manifest = read_manifest(source)
    # A restore makes files for the broker alone, as the broker does.
    with _umask(0o077), open_data_directory(data_dir):
        before = data_in(data_dir)
        if before and not replace:
            raise BackupError(
                f"{data_dir} has data ({', '.join(before)}): name another directory with --data-dir, "
                "or move that data aside with --replace"
            )
        staging = data_dir / RESTORING
        with explained(str(source), data_dir):
            if staging.exists():
                shutil.rmtree(staging)
            staging.mkdir(mode=0o700)
            try:
                _copy_all(source, staging, manifest, progress)
            except BaseException:
                # Nothing was moved yet.
                shutil.rmtree(staging, ignore_errors=True)
                raise
            progress.begin("moving into place")
            aside = _move_aside(data_dir, before) if before else None
            _place(staging, data_dir)
    return manifest, aside


def data_in(data_dir: Path) -> list[str]:
    """The names of what a broker's incarnation left in it."""
    names = [each.name for each in data_dir.iterdir()]
    return sorted(
        name for name in names if name in DATA_FOLDERS or (name.startswith(DATA_PREFIXES) and name not in NO_DATA)
    )


def _copy_all(source: Path, staging: Path, manifest: Manifest, progress: Progress) -> None:
    needed = sum(each.nbytes for each in manifest.files.values())
    free = shutil.disk_usage(staging).free
    if free < needed:
        raise BackupError(
            f"{staging.parent} has {free >> 20} MB of free space, and the backup needs {(needed >> 20) + 1} MB: "
            "make space, or name another directory with --data-dir"
        )
    for name in FILES:
        _copy_file(source / name, staging / name, manifest.files[name], progress)
    for name in FILES:
        progress.begin(f"checking {name}")
        check_pages(staging / name, str(source / name))
    check_journal(staging / JOURNAL, str(source / JOURNAL))
    check_metadata(staging / METADATA, str(source / METADATA))
    check_pair(staging / JOURNAL, staging / METADATA, source)
    sync_directory(staging)


def _copy_file(path: Path, target: Path, facts: FileFacts, progress: Progress) -> None:
    """Copied and summed in one go: what is compared is what is written."""
    found = hashlib.sha256()
    unsynced = 0
    try:
        file = path.open("rb", buffering=0)
    except OSError as error:
        raise BackupError(f"cannot read {path}: {error.strerror}; name another backup") from None
    with closing(file), target.open("xb", buffering=0) as copy:
        progress.begin(f"copying {path.name}", facts.nbytes)
        while piece := _read(path, file.read):
            found.update(piece)
            view = memoryview(piece)
            while view:
                view = view[copy.write(view) :]
            unsynced += len(piece)
            if unsynced >= SYNC_BYTES:
                os.fdatasync(copy.fileno())
                unsynced = 0
            progress.add(len(piece))
            progress.pace(len(piece))
        os.fsync(copy.fileno())
    if (progress.done, found.hexdigest()) != (facts.nbytes, facts.sha256):
        raise BackupError(
            f"{path} is not what the backup's manifest says it was: it is damaged, and nothing was restored; "
            "name another backup"
        )


def _read(path: Path, read: Callable[[int], bytes | None]) -> bytes:
    try:
        return read(PIECE_BYTES) or b""
    except OSError as error:
        raise BackupError(f"cannot read {path}: {error.strerror}; name another backup") from None


def _move_aside(data_dir: Path, names: list[str]) -> Path:
    """Into a folder of the directory itself: it may be a mount point, and its lock is held there."""
    folder = free_folder(data_dir, REPLACED)
    folder.mkdir(mode=0o700)
    for name in names:
        (data_dir / name).rename(folder / name)
    sync_directory(folder)
    sync_directory(data_dir)
    return folder


def _place(staging: Path, data_dir: Path) -> None:
    for name in ORDER:
        (staging / name).rename(data_dir / name)
        sync_directory(data_dir)
    staging.rmdir()
    sync_directory(data_dir)


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
