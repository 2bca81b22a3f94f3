"""The folder that a backup is written to: made private, and never left with half a backup that looks whole.

What comes in: its path. What goes out: the folder while the copy is made; after a failure nothing that was made here.
Rules: 1. It must be new or empty: no backup overwrites another one. 2. Files have other names until each is whole,
and the manifest comes last (`manifest.py`). 3. After a failure what was made here is removed, as far as that is
possible.
Not here: what is copied (`job.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from amqpd.backup.manifest import FILES, MANIFEST, BackupError
from amqpd.storage.files import sync_directory

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
