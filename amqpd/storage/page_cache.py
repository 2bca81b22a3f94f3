"""Asks the operating system to forget what it has of a file in its memory, so that the disk itself is read.

What comes in: a path. What goes out: nothing.
Rules: 1. A hint, not an order: pages that were just written, and other systems than Linux, keep theirs. 2. The file
stays open until `close`, which must come after all databases on it are closed: when a process closes any descriptor
of a file, it loses all its locks on it (fcntl(2)), SQLite's too.
Not here: SQLite's own cache.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Self


class PageCache:
    """The pages of one file that the system has in memory; `drop` makes the next read come from the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def drop(self) -> None:
        """Of the whole file."""
        if not hasattr(os, "posix_fadvise"):
            return
        with suppress(OSError):  # reading says what is wrong, if something is
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
