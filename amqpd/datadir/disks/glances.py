"""Looks at each directory of a node now and then: is it still the one that was opened, and what has it free.

What comes in: the directories. What goes out: disks that are gone, left behind; bytes.
Rules: 1. Each directory is looked at in a thread of its own: stat(2) and statfs(2) of one that hangs may not come
back (NFS, FUSE). 2. The next look begins when the last one has ended. 3. What has not answered for `HANG_S` has
nothing free.
Not here: what is compared (`datadir/presence.py`), alarms (`process/alarms.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from amqpd.datadir.disks.group import DiskGroup
from amqpd.datadir.disks.standing import majority_of
from amqpd.datadir.presence import Presence
from amqpd.storage.bounded import HANG_S, BoundedCalls, Unanswered

FILES = ("amqpd.lock", "journal.db", "journal.db-wal")


class Glances:
    """Looks at the directories of one node for their presence and their free space, each in a thread of its own."""

    def __init__(self, paths: Sequence[Path], group: DiskGroup) -> None:
        self._paths = paths
        self._group = group
        self._calls = [BoundedCalls(str(path)) for path in paths]
        self._presence: dict[int, Presence] = {}
        self._free: dict[int, int] = {}

    def begin(self, number: int) -> None:
        """Everything in this directory is open. What was opened before does not matter any more."""
        self._presence.pop(number, None)

        def begin() -> None:
            self._presence[number] = Presence(self._paths[number], FILES)

        with suppress(Unanswered):
            self._calls[number].put(begin)

    def first_look(self) -> None:
        """Returns when each directory was looked at, or does not answer. Blocking."""
        for number, calls in enumerate(self._calls):
            with suppress(Unanswered):
                calls.call(lambda number=number: self._look(number))  # type: ignore[misc]

    def look(self) -> None:
        """Returns at once."""
        for number, calls in enumerate(self._calls):
            if not calls.busy_s():
                with suppress(Unanswered):
                    calls.put(lambda number=number: self._look(number))  # type: ignore[misc]

    def free_bytes(self) -> int:
        """What more than half of the directories have, at least."""
        free = [self._free.get(at, 0) * (calls.busy_s() < HANG_S) for at, calls in enumerate(self._calls)]
        return sorted(free, reverse=True)[majority_of(len(free)) - 1]

    def close(self) -> None:
        """Nothing is looked at any more."""
        for each in self._calls:
            each.close()

    def _look(self, number: int) -> None:
        presence = self._presence.get(number)
        if number in self._group.counting() and presence is not None and (sentence := presence.lost()) is not None:
            self._group.leave(number, sentence.partition(";")[0], gone=True)
        try:
            self._free[number] = shutil.disk_usage(self._paths[number]).free
        except OSError:
            self._free[number] = 0
