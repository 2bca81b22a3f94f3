"""The files of a SQLite database and beside it: how they are made durable or set aside, what the header says, and
whether a file is private.

What comes in: a path. What goes out: the paths of the database's log and its mark; files on stable storage; a copy of
the log; a few words on what is wrong.
Rules: 1. What is set aside never replaces what was set aside before. 2. Looking at a header changes nothing.
Not here: what is in log and mark (`wal.py`, `mark.py`), what follows from what is wrong.
"""

from __future__ import annotations

import os
import shutil
import stat
from datetime import UTC, datetime
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
    return _not_taken(path.with_name(f"{path.name}.{word}"), ".")


def free_folder(directory: Path, before: str) -> Path:
    """In this directory, named by the time that it is."""
    return _not_taken(directory / (before + datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")), "-")


def _not_taken(path: Path, between: str) -> Path:
    found, number = path, 1
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}{between}{number}")
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


def exposed(path: Path) -> str:
    """Who else can read or change a file with a secret or a private key, in a few words; empty: it is private. Its
    group may read it: keys of root's are given to a service so. Links are followed. Raises OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & (stat.S_IRWXO | stat.S_IWGRP):
        return ""
    return f"others can read or change {path} (mode {mode:o})"


# sqlite.org/fileformat2.html, 1.3.
HEADER_BYTES = 100
FIXED = {
    # With a write-ahead log, to write and to read; the metadata of a backup, until they are opened, without one.
    18: (bytes((2, 2)), bytes((1, 1))),
    20: (bytes((0, 64, 32, 32)),),
    44: ((4).to_bytes(4, "big"),),  # format of the tables
    56: ((1).to_bytes(4, "big"),),  # UTF-8
    72: (bytes(20),),
}
VERSIONS_AT, VERSION_MAX = 18, 2
"""to write and to read, a byte each; a larger one to write makes SQLite open the file for reading only"""


def wrong_format(path: Path) -> str:
    """What is wrong in the bytes of the header that are the same in every database of amqpd: to read a file some of
    them do not matter, and then it cannot be written. Empty: nothing. Raises OSError."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    wrong = [at for at, allowed in FIXED.items() if not header.startswith(allowed, at)]
    return f"its header is damaged (what it says at byte {wrong[0]} is in no database of amqpd)" if wrong else ""


def cannot_be_written(path: Path) -> bool:
    """By what its header says. Raises OSError."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    return any(version > VERSION_MAX for version in header[VERSIONS_AT : VERSIONS_AT + 2])
