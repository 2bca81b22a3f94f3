"""A disk that can be full, as the audit log's modules see it through `os`."""

from __future__ import annotations

import errno
import os
from typing import Any


class Disk:
    """It has `space` for this number of bytes. Without any, writes fail, and so does fsync, as on file systems that
    look for blocks then. `takes_files`: a new file can be made; an empty one needs no space."""

    def __init__(self) -> None:
        self.space = 1 << 40
        self.takes_files = True
        self.error = errno.ENOSPC

    def write(self, descriptor: int, data: bytes) -> int:
        count = min(len(data), self.space)
        if not count:
            raise self._failure()
        self.space -= count
        return os.write(descriptor, data[:count])

    def fsync(self, descriptor: int) -> None:
        if not self.space:
            raise self._failure()
        os.fsync(descriptor)

    def open(self, path: os.PathLike[str], flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not self.takes_files:
            raise self._failure()
        return os.open(path, flags, mode)

    def _failure(self) -> OSError:
        return OSError(self.error, os.strerror(self.error))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)
