"""The disk of one forwarder: batches of writes, one after the other, each of them whole or not at all.

What can go wrong: it takes long, or stalls; a crash loses the batches that are not done, or keeps some of them; a bit
flips; somebody puts an empty one in its place.
"""

from __future__ import annotations

import pickle
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from amqpd.replication import seal as seals
from amqpd.replication.entry import START, LogEntry, Position
from amqpd.replication.log import Link, Log
from amqpd.replication.replica import (
    Appended,
    Completed,
    Dropped,
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


ROWS_MAX = 7
"""of one part of a state"""


def live_after(rows: dict[bytes, Position], entry: LogEntry) -> None:
    """What an entry makes of the live rows: it has values that are published, and, with a minus before them, values
    that are settled."""
    for value in entry.payload.split():
        if value.startswith(b"-"):
            rows.pop(value[1:], None)
        else:
            rows[value] = entry.position


class Staging:
    """What goes beside what stands there."""

    def __init__(self, after: Position) -> None:
        self.after = after
        self.rows: dict[bytes, Position] = {}
        self.alive: set[bytes] = set()
        """of what stands up to `after`"""
        self.tail: list[LogEntry] = []
        self.base: Position = START


class Kept:
    """What is on it of one source."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Position] = {}
        """what lives of all that is committed, with the entry that it came by"""
        self.base: Position = START
        self.tail: list[LogEntry] = []
        """what follows the base"""
        self.seal: Seal = seals.NONE
        self.staged: Staging | None = None
        self.damaged = False
        """some entry of the tail is not what its checksum says"""
        self.rows_damaged = False
        self.committed: Callable[[list[LogEntry]], None] = _nobody
        """hears which entries are known to be committed since now"""

    def copy(self) -> Kept:
        """Of what a process finds on it when it begins."""
        made = Kept()
        made.rows, made.base, made.tail, made.seal = dict(self.rows), self.base, list(self.tail), self.seal
        return made

    def replica(self, source: int) -> Replica:
        return Replica(source, Log(self.base, [Link(e.position, e.before, e.checksum) for e in self.tail]), self.seal)

    def start(self) -> bool:
        """A process begins with it, and looks at all of it; False if something is damaged. From the first damaged
        entry on the tail goes, and damaged rows take everything with them."""
        self.staged = None
        if self.rows_damaged:
            self.rows, self.base, self.tail, self.seal = {}, START, [], seals.NONE
        elif self.damaged:
            at = next(at for at, entry in enumerate(self.tail) if not entry.sound)
            del self.tail[at:]
        whole = not (self.damaged or self.rows_damaged)
        self.damaged = self.rows_damaged = False
        return whole

    def damage(self, chance: random.Random) -> bool:
        """A bit flips in an entry, and nobody notices. False: there is none."""
        if not self.tail:
            return False
        at = chance.randrange(len(self.tail))
        self.tail[at] = replace(self.tail[at], payload=self.tail[at].payload + b"0")
        self.damaged = True
        return True

    def apply(self, write: AnyWrite) -> None:
        filling = self if self.staged is None else self.staged
        if isinstance(write, Sealed):
            self.seal = write.seal
        elif isinstance(write, Based):
            self._commit(write.position)
        elif isinstance(write, Undone):
            filling.tail = [each for each in filling.tail if each.position <= write.position]
            self.damaged = self.damaged and not all(each.sound for each in self.tail)
        elif isinstance(write, Appended):
            filling.tail.append(write.entry)
        elif isinstance(write, Staged):
            self._commit(max(self.base, write.after))
            self.staged = Staging(write.after)
        elif isinstance(write, Dropped):
            self.staged = None
        elif self.staged is not None:
            self._apply_state(write, self.staged)

    def _apply_state(self, write: StatePart | StateEnd | Completed, staged: Staging) -> None:
        if isinstance(write, StatePart):
            rows, alive = pickle.loads(write.part)
            staged.rows.update(rows)
            staged.alive.update(alive)
        elif isinstance(write, StateEnd):
            staged.base = write.base
        else:
            stays = {v: at for v, at in self.rows.items() if at <= staged.after and v in staged.alive}
            self.rows, self.base, self.tail, self.staged = stays | staged.rows, staged.base, staged.tail, None
            self.damaged = False

    def _commit(self, base: Position) -> None:
        if base == self.base:
            return
        known = [each for each in self.tail if each.position <= base]
        for entry in known:
            live_after(self.rows, entry)
        self.committed(known)
        self.tail = [each for each in self.tail if each.position > base]
        if self.damaged:
            self.rows_damaged |= not all(each.sound for each in known)
            self.damaged = not all(each.sound for each in self.tail)
        self.base = base

    def entries_after(self, position: Position) -> list[LogEntry]:
        """As far as they are kept as such."""
        return [each for each in self.tail if each.position > position]

    def state_parts(self, after: Position) -> list[bytes]:
        """What is committed here, for a disk that has everything up to `after`."""
        rows = [(value, at) for value, at in self.rows.items() if at > after]
        alive = [value for value, at in self.rows.items() if at <= after]
        parts = [(rows[at : at + ROWS_MAX], ()) for at in range(0, len(rows), ROWS_MAX)]
        return [pickle.dumps(part) for part in [*parts, ((), alive)]]


def _nobody(entries: list[LogEntry]) -> None:
    pass


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
        self._under_way = 0
        """of the queue, what is in the transaction"""
        self._life = 0
        self.slow = 1.0
        self.stalls_until_ms = 0.0
        self.keeps_seals = True

    def submit(self, writes: list[AnyWrite], then: Then, index: int = 0) -> None:
        self._queue.append((writes, index, then))
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        self._busy, life = True, self._life
        # What gathered meanwhile becomes one transaction, or some of it.
        self._under_way = min(len(self._queue), self._clock.chance.choice([1, 3, 100]))
        stalls_ms = max(0.0, self.stalls_until_ms - self._clock.now_ms)
        self._clock.after(stalls_ms + 0.1 * self.slow, stalls_ms + 2.0 * self.slow, lambda: self._done(life))

    def _done(self, life: int) -> None:
        if life != self._life:
            return
        done = [self._queue.popleft() for _ in range(self._under_way)]
        for writes, index, _ in done:
            self._apply(writes, index)
        self._busy = False
        if self._queue:
            self._begin()
        for _, _, then in done:
            then()

    def _apply(self, writes: list[AnyWrite], index: int) -> None:
        self.index = max(self.index, index)
        for write in writes:
            if isinstance(write, Sealed) and not self.keeps_seals:
                continue
            self.kept[source_of(write)].apply(write)

    def start(self) -> None:
        """A process begins with it: if something is damaged, it is another disk."""
        whole = [kept.start() for kept in self.kept.values()]
        if not all(whole):
            self._clock.counts["damage found at restart"] += 1
            self.generation += 1

    @property
    def damaged(self) -> bool:
        return any(kept.damaged or kept.rows_damaged for kept in self.kept.values())

    def damage(self) -> None:
        for kept in self.kept.values():
            self._clock.counts["disk damaged"] += kept.damage(self._clock.chance)

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
