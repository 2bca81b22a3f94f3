"""`NodeDisk`: the disk of a node's journal, as the node's shell uses it.

What comes in, what goes out: nothing.
Not here: its two implementations, one data directory (`disk.py`) and several (`amqpd.datadir.disks.mirror`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from amqpd.journal.disk import SourcesDisk
from amqpd.journal.sqlite.sources import SourceHead


class NodeDisk(SourcesDisk, Protocol):
    """The disk of a node's journal, on one data directory or on several; `SqliteDisk` says what each method does."""

    accepted: list[str]

    @property
    def path(self) -> Path:
        """Of the journal; of one that has everything, where there are several."""
        ...

    @property
    def index(self) -> int: ...

    @property
    def stored_index(self) -> int:
        """Of the last transaction that is safe; `index` may be of one that waits for space."""
        ...

    @property
    def names(self) -> dict[str, str]: ...

    def head(self, source: int) -> SourceHead: ...

    def examine(self) -> None: ...

    def forsake(self) -> None: ...

    def set_names(self, **names: str) -> None: ...

    def note(self, **names: str) -> None: ...

    def sharing(self) -> AbstractContextManager[None]: ...
