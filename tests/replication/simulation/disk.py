"""The disk of one forwarder: batches of writes, one after the other, each of them whole or not at all.

What can go wrong: it takes long; a crash loses the batches that are not done, or keeps some of them.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amqpd.replication import seal as seals
from amqpd.replication.entry import START, LogEntry, Position
from amqpd.replication.log import Link, Log
from amqpd.replication.replica import (
    Appended,
    Completed,
    Replica,
    Sealed,
    Staged,
    StateEnd,
    StatePart,
    Undone,
    Write,
)
from amqpd.replication.seal import Seal
from tests.replication.simulation.clock import Clock

Then = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Based:
    """To be written, with whatever comes next: the source is committed so far."""

    source: int
    position: Position


AnyWrite = Write | Based


class Kept:
    """What is on it of one source."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.base: Position = START
        self.seal: Seal = seals.NONE
        self.staged: Kept | None = None

    def replica(self, source: int) -> Replica:
        tail = [Link(each.position, each.before, each.checksum) for each in self.entries if each.position > self.base]
        return Replica(source, Log(self.base, tail), self.seal)

    def start(self) -> None:
        """A process begins with it."""
        self.staged = None

    def apply(self, write: AnyWrite) -> None:
        filling = self if self.staged is None else self.staged
        if isinstance(write, Sealed):
            self.seal = write.seal
        elif isinstance(write, Based):
            self.base = write.position
        elif isinstance(write, Undone):
            filling.entries = [each for each in filling.entries if each.position <= write.position]
        elif isinstance(write, Appended):
            filling.entries.append(write.entry)
        elif isinstance(write, Staged):
            self.staged = Kept()
        elif isinstance(write, StatePart):
            filling.entries += pickle.loads(write.part)
        elif isinstance(write, StateEnd):
            filling.base = write.base
        elif isinstance(write, Completed):
            self.entries, self.base, self.staged = filling.entries, filling.base, None
        else:
            self.staged = None


def source_of(write: AnyWrite) -> int:
    return write.entry.source if isinstance(write, Appended) else write.source


class SimulatedDisk:
    """`submit` begins a batch; it is on the disk when `then` is called."""

    def __init__(self, clock: Clock, sources: Sequence[int]) -> None:
        self._clock = clock
        self.kept = {source: Kept() for source in sources}
        self.generation = 1
        self.index = 0
        """of the forwarder's own last transaction"""
        self._queue: deque[tuple[list[AnyWrite], int, Then]] = deque()
        self._busy = False
        self._life = 0
        self.slow = 1.0
        self.keeps_seals = True

    def submit(self, writes: list[AnyWrite], then: Then, index: int = 0) -> None:
        self._queue.append((writes, index, then))
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        self._busy, life = True, self._life
        self._clock.after(0.1 * self.slow, 2.0 * self.slow, lambda: self._done(life))

    def _done(self, life: int) -> None:
        if life != self._life:
            return
        writes, index, then = self._queue.popleft()
        self._apply(writes, index)
        self._busy = False
        if self._queue:
            self._begin()
        then()

    def _apply(self, writes: list[AnyWrite], index: int) -> None:
        self.index = max(self.index, index)
        for write in writes:
            if isinstance(write, Sealed) and not self.keeps_seals:
                continue
            self.kept[source_of(write)].apply(write)

    def wipe(self) -> None:
        """Somebody replaced it. After a crash only."""
        self.generation += 1
        self.index = 0
        self.kept = {source: Kept() for source in self.kept}

    def crash(self) -> None:
        """Some batches may be on it although nobody was told."""
        self._life += 1
        if self._queue:
            self._clock.counts["crash with writes under way"] += 1
        for _ in range(self._clock.chance.randint(0, len(self._queue))):
            writes, index, _ = self._queue.popleft()
            self._apply(writes, index)
        self._queue.clear()
        self._busy = False
