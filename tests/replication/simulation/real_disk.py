"""The journal of SQLite in the place of the simulated disk: what ships, on a temporary directory.

What comes in, what goes out: as with `disk.py`. Rules: 1. A transaction is on it when `commit` returns; a crash
leaves the files as they are then. 2. It is not damaged here: that is `tests/faults/damage`.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from amqpd.journal.sqlite.disk import SqliteDisk
from tests.replication.simulation.contents import Content, read_real

RESERVE_BYTES = 4096


class RealDisk(SqliteDisk):
    def content(self, payload: bytes) -> Content:
        return read_real(payload)


class RealDrive:
    """The place of a disk in a machine."""

    damaged = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._copies = 0
        self._disk: RealDisk | None = None

    def open(self) -> RealDisk:
        self._close()
        self._disk = RealDisk(self._directory, reserve_bytes=RESERVE_BYTES)
        return self._disk

    def _close(self) -> None:
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def wipe(self) -> None:
        self._close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def copy(self) -> Any:
        """As `SimulatedDrive.copy`; of a journal that may be in use, by SQLite's own way."""
        self._copies += 1
        to = self._directory.with_suffix(f".{self._copies}")
        to.mkdir(parents=True)
        if self._disk is not None:
            self._disk._writer.execute("VACUUM INTO ?", (str(to / self._disk.path.name),))
        return to

    def restore(self, copy: Any) -> None:
        self.wipe()
        shutil.copytree(copy, self._directory)

    def damage(self, chance: random.Random) -> int:
        return 0

    def power_loss(self) -> None:
        pass

    def end(self) -> None:
        self._close()
