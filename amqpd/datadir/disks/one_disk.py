"""One of several data directories: its journal and its definitions, changed in one order.

What comes in: calls of the disk's thread; questions of any thread. What goes out: the same as of a journal alone, and
what the definitions answer.
Rules: 1. The journal says how far the definitions are (`METADATA_REVISION`): the call that changes them writes that
down before it ends. So (incarnation, index, revision) is how far a directory is in the one order, and of two
directories of one incarnation the one that is further has all that the other one has. 2. What others want noted of
the definitions may be late; what is written is what this directory has. 3. The definitions are used by one thread at
a time.
Not here: which changes there are (`mirrored_file.py`), the thread (`worker.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from amqpd.datadir.disks.election import Position
from amqpd.datadir.opening import METADATA_DB
from amqpd.datadir.pairing import METADATA, METADATA_REVISION
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.schema import SOURCE
from amqpd.topology.metadata.sqlite.batch import LEASED_BITS
from amqpd.topology.metadata.sqlite.sqlite_file import Leased, SqliteFile

T = TypeVar("T")


class OneDisk(SqliteDisk):
    """One of several data directories: its journal (`SqliteDisk`) and its `definitions`, which are opened later,
    if they are in the directory."""

    def __init__(self, directory: Path, *, keep_free_bytes: int = 0, accept_loss: bool = False) -> None:
        """Raises as `SqliteDisk`."""
        super().__init__(directory, keep_free_bytes=keep_free_bytes, accept_loss=accept_loss, one_of_several=True)
        self.definitions_path = directory / METADATA_DB
        """whether they are there, or not"""
        self._definitions: SqliteFile | None = None
        self._turn = threading.Lock()

    @property
    def position(self) -> Position:
        return (*self.head(SOURCE).position, int(self.names.get(METADATA_REVISION, "0")))

    @property
    def has_definitions(self) -> bool:
        """Whether the disk's definitions are open."""
        return self._definitions is not None

    def open_definitions(self, leased: Leased | None = None) -> None:
        """`leased`: of a file that is equal, and in use. Raises MetadataStoreError."""
        file = SqliteFile(self.definitions_path, one_of_several=True)
        if leased is not None:
            file.take_leased(leased)
        self._definitions = file

    def ask(self, question: Callable[[SqliteFile], T]) -> T:
        """The definitions. Raises what the question raises."""
        with self._turn:
            assert self._definitions is not None
            return question(self._definitions)

    def note_definitions(self) -> None:
        """How far they are, in the journal. Raises as `set_names`."""
        names = self._true({METADATA: "", METADATA_REVISION: ""})
        if any(self.names.get(name) != value for name, value in names.items()):
            super().set_names(**names)

    def set_names(self, **names: str) -> None:
        """Sets names in the journal, as `SqliteDisk.set_names` (rule 2)."""
        super().set_names(**self._true(names))

    def note(self, **names: str) -> None:
        """Writes names down with the next transaction, as `SqliteDisk.note` (rule 2)."""
        super().note(**self._true(names))

    def close(self) -> None:
        """Both; of a disk that failed nothing more is written than closing the files does."""
        try:
            super().close()
        finally:
            if self._definitions is not None:
                self._definitions.close(forget=self._failure is None)
                self._definitions = None

    def _true(self, names: dict[str, str]) -> dict[str, str]:
        file = self._definitions
        if file is None:
            return names
        true = {METADATA: file.identity, METADATA_REVISION: str(file.revision >> LEASED_BITS)}
        return {name: true.get(name, value) for name, value in names.items()}
