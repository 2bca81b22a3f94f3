"""Space on the disk that is held back, so that settles can still be committed when everything else is full.

What comes in: a data directory. What goes out: a file `reserve` that is there or is not.
Rules: 1. It is larger than the WAL can be between two checkpoints plus a transaction, so that giving it up lets the
checkpoint through, and with it the pages that deleted rows have freed. 2. It is taken back only when there is twice
its size: else the next publish would find the disk full again.
Not here: who blocks publishers meanwhile (the shell).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from amqpd.journal.errors import DiskFailure
from amqpd.storage.files import sync_directory

RESERVE_BYTES = 32 << 20


class Reserve:
    """A file of zeros beside the journal, which is given up when a commit finds no space."""

    def __init__(self, directory: Path, nbytes: int = RESERVE_BYTES) -> None:
        self._path = directory / "reserve"
        self._nbytes = nbytes

    @property
    def held(self) -> bool:
        try:
            return self._path.stat().st_size >= self._nbytes
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Give the space back to the file system. Nothing happens when it is not held."""
        try:
            self._path.unlink(missing_ok=True)
            sync_directory(self._path.parent)
        except OSError as error:
            raise DiskFailure(f"{self._path} cannot be removed: {error}") from error

    def restore(self) -> bool:
        """Hold the space again. False: there is too little, nothing has changed."""
        held = self.held
        try:
            file_system = os.statvfs(self._path.parent)
            if file_system.f_bavail * file_system.f_frsize < (1 if held else 2) * self._nbytes:
                return False
            if held:
                return True
            with self._path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, self._nbytes)
                os.fsync(file.fileno())
            sync_directory(self._path.parent)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFailure(f"{self._path} cannot be written: {error}") from error
            self._path.unlink(missing_ok=True)
            return False
        return True
