"""What the definitions' file asks of the disks (`mirrored_file.Outside`), answered.

What comes in: numbers of disks. What goes out: whether they count; disks that were left behind; the list, on a
majority.
Not here: the file (`topology/metadata/sqlite/mirrored_file.py`).
"""

from __future__ import annotations

from pathlib import Path

from amqpd.datadir.disks.copying import copy_definitions
from amqpd.datadir.disks.opening import OpenDisks
from amqpd.datadir.disks.roster import Unwritten
from amqpd.datadir.disks.standing import State
from amqpd.datadir.opening import METADATA_DB
from amqpd.topology.metadata.sqlite.mirrored_file import MirroredFile, TooFewDisks


class DisksOutside:
    """Of one node."""

    def __init__(self, disks: OpenDisks) -> None:
        self._disks = disks

    @property
    def majority(self) -> int:
        return self._disks.group.standings.majority

    def takes(self, number: int) -> bool:
        """See `Outside`."""
        return self._disks.group.state(number) is not State.BEHIND

    def counts(self, number: int) -> bool:
        """See `Outside`."""
        return self._disks.group.state(number) in (State.IN, State.FULL)

    @property
    def lost(self) -> str:
        """See `Outside`."""
        with self._disks.group.changed:
            standings = self._disks.group.standings
            return self._disks.group.sentence() if standings.counting < standings.majority else ""

    @property
    def ending(self) -> bool:
        """See `Outside`."""
        return self._disks.group.ending

    def leave(self, number: int, reason: str, *, damaged: bool = True) -> None:
        """See `Outside`."""
        self._disks.group.leave(number, reason, damaged=damaged)

    def left(self) -> None:
        """See `Outside`."""
        try:
            self._disks.roster.changes(self._disks.group.counting)
        except Unwritten as error:
            raise TooFewDisks(str(error)) from error

    def copy(self, source: Path, directory: Path) -> None:
        """See `Outside`."""
        copy_definitions(source, directory)


def open_definitions(disks: OpenDisks, *, accept_loss: bool) -> MirroredFile:
    """Blocking. Raises as `SqliteFile`."""
    paths = {number: disks.paths[number] / METADATA_DB for number in disks.definitions}
    return MirroredFile(DisksOutside(disks), paths, accept_loss=accept_loss)
