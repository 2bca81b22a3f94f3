"""The data directory: made private, and held by one process at a time.

What comes in: its path. What goes out: a `DataDirectory` that holds the lock until it is closed.
Rules: 1. The lock is flock(2) on `amqpd.lock`: the kernel releases it when the process dies, however it dies.
What is in the file is for people, and never decides: the process, and what it does while it answers no commands.
2. The lock file is never deleted: a second process
could lock the new file while the first still holds the old one. 3. Nothing else in the directory is touched
before the lock is held. 4. A directory that others may write is used, because volumes of containers often are so,
and the operator is told: a user who may write it can replace what is in it.
Not here: the formats inside (journal, metadata store), the control socket (`management/control/socket.py`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import structlog

from amqpd.errors import StartupError

LOCK_NAME = "amqpd.lock"
DOING_MAX = 500
"""It fits into the block that the file has."""

log = structlog.get_logger(component="datadir")


class Unusable(StartupError):
    """The data directory cannot be made, or written."""


class DataDirectory:
    """A locked data directory; `with` closes it. Made by `open_data_directory`."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd

    def say(self, doing: str) -> None:
        """What the process does, for people who ask while it does not answer commands. From any thread."""
        with suppress(OSError):  # a disk that fails is told by what has to be written
            _note_holder(self._lock_fd, doing)

    def close(self) -> None:
        """Releases the lock. Calling it again does nothing."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> DataDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_data_directory(path: Path) -> DataDirectory:
    """Creates the directory (mode 0700: it holds password hashes and everyone's messages) if it is missing,
    and locks it.

    Raises StartupError when another process holds it, Unusable when it cannot be used."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # O_NOFOLLOW: the file is emptied, so it must not be a link to another one.
        lock_fd = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _note_holder(lock_fd)
    except BlockingIOError:
        holder = os.pread(lock_fd, 20, 0).decode("ascii", "replace").partition("\n")[0].strip()
        os.close(lock_fd)
        raise StartupError(
            f"data directory {path} is in use by another amqpd (process {holder or 'unknown'}): "
            "stop that one, or choose another directory with --data-dir"
        ) from None
    except OSError as error:
        os.close(lock_fd)
        raise _unusable(path, error) from None
    if stat.S_IMODE(path.stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        log.warning("others may write the data directory", data_dir=str(path), advice="chmod go-w")
    return DataDirectory(path, lock_fd)


def holder_of(path: Path) -> tuple[int, str] | None:
    """The process that holds the directory, and what it does, as it says. None: there is none, or it cannot be seen.
    Nothing is locked for it."""
    import psutil  # 30 ms, for a command that has nobody to talk to

    file = path.absolute() / LOCK_NAME
    try:
        number, _, doing = file.read_text(errors="replace").partition("\n")
        opened = {each.path for each in psutil.Process(int(number)).open_files()}
    except (OSError, ValueError, psutil.Error):
        return None
    return (int(number), doing.strip()) if os.path.realpath(file) in opened else None


def _note_holder(lock_fd: int, doing: str = "") -> None:
    """Raises OSError, but not for want of space: it is for people."""
    note = f"{os.getpid()}\n{doing[:DOING_MAX]}".encode() + (b"\n" if doing else b"")
    try:
        # Emptied first, it would give its block away: on a full disk to another process.
        os.pwrite(lock_fd, note, 0)
        os.ftruncate(lock_fd, len(note))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _unusable(path: Path, error: OSError) -> Unusable:
    return Unusable(
        f"cannot use data directory {path}: {error.strerror}; "
        "make it a directory on a local disk that this user can write, or choose another one with --data-dir"
    )
