"""The files beside a SQLite database, and how they are made durable or set aside.

What comes in: a database's path. What goes out: the paths of its log and its mark; files on stable storage; a copy of
the log.
Rules: 1. What is set aside never replaces what was set aside before.
Not here: what is in them (`wal.py`, `mark.py`).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

DAMAGED = "damaged"

FileIdentity = tuple[int, int]
"""the numbers of its device and of its inode"""


def wal_path(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def mark_path(database: Path) -> Path:
    return database.with_suffix(".mark")


def log_bytes(database: Path) -> int:
    """0: there is no log."""
    try:
        return wal_path(database).stat().st_size
    except FileNotFoundError:
        return 0


def has_log(database: Path) -> bool:
    """There is a log with something in it."""
    return log_bytes(database) > 0


def free_name(path: Path, word: str = DAMAGED) -> Path:
    """`<path>.damaged`, or the first of `<path>.damaged.2` and so on that is not taken."""
    found, number = path.with_name(f"{path.name}.{word}"), 1
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}.{word}.{number}")
    return found


def keep_log(database: Path, *, move: bool = False) -> list[str]:
    """Copy (or move) the log aside, because going on writes over it: where it is now, a sentence. Raises OSError."""
    if not has_log(database):
        return []
    log = wal_path(database)
    aside = free_name(log)
    if move:
        log.rename(aside)
    else:
        shutil.copyfile(log, aside)
        aside.chmod(0o600)
    return [f"the log as it was is kept in {aside}"]


def identity_of(path: Path) -> FileIdentity | None:
    """What tells the file from another one of its name; None: it is not there. Raises OSError."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def lengthen(path: Path, nbytes: int, of: FileIdentity) -> bool:
    """Make the file this long, with zeros that are on the disk, so that a sync of what overwrites them need not write
    the file's length as well. What it has stays. `of`: the file that is meant; another one that has its name by now
    (somebody's backup) is left as it is, and False returned. Raises OSError; the file is then as long as before.
    Where the space turns out to be missing only when it is written (a thinly provisioned disk), the next sync of the
    file by others fails, too."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != of:
            return False
        length = found.st_size
        try:
            place = length
            while place < nbytes:
                place += os.pwrite(descriptor, bytes(nbytes - place), place)
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, length)
            raise
        return True
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make its bytes durable. Raises OSError."""
    _sync(path, os.O_RDWR)


def sync_directory(directory: Path) -> None:
    """Make names that were created, renamed or removed in it durable. Raises OSError."""
    _sync(directory, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
