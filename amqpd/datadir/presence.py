"""Whether the data directory is still the one that was opened.

What comes in: the data directory, with its files open. What goes out: a sentence when the directory, or one of the
files, was removed, replaced, or hidden by another volume; then the node stops.
Rules: 1. What is compared is the device and the number of the file (stat(2)) under its name with that of the one that
was opened: the broker would go on for ever with files that cannot be found any more. 2. Noticed within
`LOOK_S` seconds; a failure of the disk meanwhile is said to be this. 3. Nothing is written, renamed or removed in the
directory from then on. SQLite, when a connection is closed, copies its log into the database and removes the log, by
name: it may be another's by then. So the connections stay open until the process ends, and are not collected.
Not here: what happens with a file that is there and damaged (`journal/`, `topology/`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import trio

from amqpd.errors import NodeFailure
from amqpd.storage.closing import leave_open

LOOK_S = 1.0
# What a broker has open for as long as it runs. Others may be replaced under it: it makes them itself, or opens them
# each time.
FILES = ("amqpd.lock", "journal.db", "journal.db-wal", "metadata.db", "metadata.db-wal")
# What stat(2) says when nothing is there any more, or the volume was taken away.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ENOTCONN)

Identity = tuple[int, int]


class Presence:
    """Watches that the data directory and the files in it are still those that were opened."""

    def __init__(self, directory: Path, files: Iterable[str] = FILES) -> None:
        """Everything in it is open."""
        self._directory = directory.absolute()
        self._opened = _identity(self._directory)
        self._files: dict[Path, Identity | None] = {self._directory / name: None for name in files}
        self.lost()

    def lost(self) -> str | None:
        """What is not there any more, in one sentence. A log that SQLite makes later is noted when first seen."""
        try:
            return self._compare()
        except OSError:
            # A file system that fails says nothing about what it holds; the next read or write says that.
            return None

    def _compare(self) -> str | None:
        if (found := _identity(self._directory)) != self._opened:
            what = "is gone: it was removed, or" if found is None else "is not the directory that was opened:"
            return (
                f"the data directory {self._directory} {what} its volume was taken away while the node ran; bring "
                "back the one that was there, or restore a backup, before it is started again"
            )
        for path, opened in self._files.items():
            found = _identity(path)
            if opened is None:
                self._files[path] = found
            elif found != opened:
                what = "was removed" if found is None else "was replaced"
                return (
                    f"{path} {what} while the node ran; put the right file back, or restore a backup, before it is "
                    "started again"
                )
        return None

    async def run(self, stop: trio.Event) -> None:
        """Until cancelled; a look also when `stop` is set, before anything is written because of it. Raises
        NodeFailure."""
        stopping = False
        while True:
            with trio.move_on_after(LOOK_S):
                if stopping:
                    await trio.sleep_forever()
                await stop.wait()
                stopping = True
            if (sentence := self.lost()) is not None:
                raise NodeFailure(sentence)


@contextmanager
def unless_lost(presence: Presence, stack: AsyncExitStack, *opened: object) -> Iterator[None]:
    """However what is inside ends: when the data directory is lost by then, that is the failure, and nothing of the
    `stack`, which would close what was `opened`, is called."""
    try:
        yield
    except BaseException:
        if (sentence := presence.lost()) is None:
            raise
        _leave_open(stack, opened)
        # Whatever else failed did so because of it.
        raise NodeFailure(sentence) from None
    if (sentence := presence.lost()) is not None:
        _leave_open(stack, opened)
        raise NodeFailure(sentence)


def _leave_open(stack: AsyncExitStack, opened: tuple[object, ...]) -> None:
    stack.pop_all()
    for each in opened:
        leave_open(each)


def _identity(path: Path) -> Identity | None:
    """None: nothing is there. Raises OSError."""
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return None
    return found.st_dev, found.st_ino
