"""What goes to very many queues, and whether the disk has space for all of its copies.

What comes in: how much is free, now and then; messages that go to several durable queues. What goes out: whether to
take them.
Rules: 1. A transaction of the journal that does not fit keeps every later one waiting, acknowledgements too, which
alone could make space: so what cannot fit is refused before anybody has it. 2. Each copy needs its size twice for a
while: in the write-ahead log, and in the database. 3. What was taken counts until it is on disk and a newer reading
has seen that.
Not here: an alarm when space gets short (`process/alarms.py`), a disk that is full all the same
(`journal/writer.py`).

Small fan-outs are not counted: what gathers for one transaction of them is bounded by `JournalBuffer.full`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.queues.port import QueuePort

# Copies that take less together are not looked at: a quarter of what may gather for the journal.
LARGE_BYTES_MIN = 8 * 1024 * 1024
# In the write-ahead log and in the database.
PLACES = 2


class DiskSpace:
    """The free space of the journal's disk, less what was taken for copies that are on their way there."""

    def __init__(self, journal: JournalBuffer, log: Callable[..., None]) -> None:
        self._journal = journal
        self._log = log
        self._free_bytes: int | None = None
        """as last told; None: it is not known, and everything is taken"""
        self._taken: deque[tuple[int, int]] = deque()
        """(the journal's index, bytes) that the reading does not know of"""

    def told(self, free_bytes: int) -> None:
        """So much is free beside what is to stay free, now that the journal has stored what it has."""
        self._free_bytes = free_bytes
        while self._taken and self._taken[0][0] <= self._journal.stored_index:
            self._taken.popleft()

    def _take(self, nbytes: int) -> bool:
        """Whether this many bytes fit; then they count, as part of the journal's transaction that gathers."""
        if self._free_bytes is None:
            return True
        if (nbytes + sum(each for _, each in self._taken)) * PLACES > self._free_bytes:
            return False
        self._taken.append((self._journal.index, nbytes))
        # Even if consumers settle all of it before it is written: it counts until the transaction is on the disk.
        self._journal.force()
        return True

    def fits(self, run: Run, queues: Sequence[QueuePort], properties: Properties) -> bool:
        """Whether the run may go to all these queues. What does not is in the log."""
        nbytes = run.nbytes
        if nbytes * len(queues) < LARGE_BYTES_MIN:
            return True
        stored = 0
        for queue in queues:
            if queue.record.durable and (properties.persistent or queue.quorum):
                stored += nbytes
        if stored < LARGE_BYTES_MIN or self._take(stored):
            return True
        self._log("does_not_fit_on_disk", bytes=stored, queues=len(queues))
        return False
