"""What the simulated disk of one forwarder has of one source: messages, settles, the tail of entries; all of it may
be undone until it is committed.

Rules: 1. Nothing leaves before its settle is committed. 2. What is staged stands beside that. 3. A start notices
damage, and forgets what was staged.
Not here: batches of writes, and what a crash does to them (`disk.py`).
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace

from amqpd.journal.disk import ReplicaState
from amqpd.journal.records import RecoveredQueue, RecoveredRow
from amqpd.peers.entry import NO_VOTE, START, LogEntry, Position, Vote
from amqpd.replication.log import EntryHead
from amqpd.replication.replica import (
    Appended,
    StateBegin,
    StateDiscard,
    StateEnd,
    StateInstall,
    StatePart,
    Undone,
    VoteCast,
    Write,
)
from tests.replication.simulation.contents import FRAMES_BYTES, Content, read_short

ROWS_MAX = 7
"""of one part of a state"""

Rows = dict[int, tuple[Position, bytes]]
"""number -> the entry that it came by, value"""


class Staging:
    """What goes beside what stands there."""

    def __init__(self, after: Position) -> None:
        self.after = after
        self.rows: Rows = {}
        self.alive: set[int] = set()
        """of what stands up to `after`"""
        self.tail: list[LogEntry] = []
        self.base: Position = START
        self.reserved = 0


class Kept:
    """Of one source."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.rows: Rows = {}
        self.settled: dict[int, Position] = {}
        """number -> the entry that settled it first"""
        self.base: Position = START
        self.tail: list[LogEntry] = []
        """what follows the base"""
        self.vote: Vote = NO_VOTE
        self.reserved = 0
        self.staged: Staging | None = None
        self.damaged = False
        """some entry of the tail is not what its checksum says"""
        self.rows_damaged = False

    @property
    def last(self) -> Position:
        return self.tail[-1].position if self.tail else self.base

    # What is read

    def replica(self) -> ReplicaState:
        tail = [EntryHead(each.position, each.before, each.checksum) for each in self.tail]
        return ReplicaState(self.source, self.vote, self.base, tail, self.reserved)

    def recovered(self) -> RecoveredQueue:
        """As a leader builds it."""
        rows = [RecoveredRow(seq, seq, FRAMES_BYTES, [], 8, 1) for seq in sorted(self.rows.keys() - self.settled)]
        return RecoveredQueue(rows, max(self.reserved, max(self.rows, default=-1) + 1), 0)

    def state_parts(self, after: Position, base: Position) -> Iterator[bytes]:
        """What is live at `base`, for a disk that has everything up to `after`. A row that leaves meanwhile is passed
        over: an entry above the base tells."""
        live = [
            (seq, at)
            for seq, (at, _) in self.rows.items()
            if at <= base and not (seq in self.settled and self.settled[seq] <= base)
        ]
        yield pickle.dumps(({}, [seq for seq, at in live if at <= after], self.reserved))
        above = [seq for seq, at in live if at > after]
        for first in range(0, len(above), ROWS_MAX):
            some = {seq: self.rows[seq] for seq in above[first : first + ROWS_MAX] if seq in self.rows}
            yield pickle.dumps((some, (), 0))

    # What is written

    def apply(self, write: Write) -> None:
        """Raises ValueError for what does not follow."""
        staged = self.staged
        if isinstance(write, Appended):
            if staged is None:
                self._append(write.entry)
            else:
                staged.tail.append(write.entry)
        elif isinstance(write, VoteCast):
            self.vote = write.vote
        elif isinstance(write, Undone):
            if staged is None:
                self._undo(write.position)
            else:
                staged.tail = [each for each in staged.tail if each.position <= write.position]
        elif isinstance(write, StateBegin):
            self.commit(max(self.base, write.after))
            self.staged = Staging(write.after)
        elif isinstance(write, StateDiscard):
            self.staged = None
        elif staged is None:
            raise ValueError(f"nothing is staged of source {self.source}")
        elif isinstance(write, StatePart):
            rows, alive, reserved = pickle.loads(write.part)
            staged.rows.update(rows)
            staged.alive.update(alive)
            staged.reserved = max(staged.reserved, reserved)
        elif isinstance(write, StateEnd):
            staged.base = write.base
        elif isinstance(write, StateInstall):
            self._complete(staged)

    def _append(self, entry: LogEntry) -> None:
        if entry.before != self.last:
            raise ValueError(f"entry {entry.position} of source {self.source} follows {entry.before}")
        self.tail.append(entry)
        content = read_short(entry.payload)
        for seq, value in content.rows:
            self.rows[seq] = entry.position, value
        for seq in content.numbers():
            self.settles(seq, entry.position)
        self.reserved = max(self.reserved, content.reserved)

    def settles(self, seq: int, position: Position) -> None:
        self.settled.setdefault(seq, position)

    def _undo(self, position: Position) -> None:
        if position < self.base:
            raise ValueError(f"source {self.source} is committed up to {self.base}: no undo to {position}")
        undone = self.undone(position)
        self.tail = [each for each in self.tail if each not in undone]
        for entry in undone:
            content = read_short(entry.payload)
            for seq, _ in content.rows:
                self.rows.pop(seq, None)
            for seq in content.numbers():
                if self.settled.get(seq) == entry.position:
                    del self.settled[seq]
        self.damaged = self.damaged and not all(each.sound for each in self.tail)

    def undone(self, position: Position) -> list[LogEntry]:
        """What goes."""
        return [each for each in self.tail if each.position > position]

    def commit(self, base: Position) -> None:
        """It is known to be committed so far: what is settled by that leaves."""
        if base <= self.base:
            return
        known = [each for each in self.tail if each.position <= base]
        self.tail = self.tail[len(known) :]
        for entry in known:
            self.lets_go(read_short(entry.payload))
        if self.damaged:
            self.rows_damaged |= not all(each.sound for each in known)
            self.damaged = not all(each.sound for each in self.tail)
        self.base = base

    def lets_go(self, content: Content) -> None:
        for seq in content.numbers():
            self.rows.pop(seq, None)
            self.settled.pop(seq, None)

    def _complete(self, staged: Staging) -> None:
        stays = {seq: row for seq, row in self.rows.items() if self.stays(seq, row[0], staged)}
        self.rows, self.settled, self.base = stays | staged.rows, {}, staged.base
        self.reserved = max(self.reserved, staged.reserved)
        self.tail, self.staged, self.damaged = [], None, False
        for entry in staged.tail:
            self._append(entry)

    def stays(self, seq: int, at: Position, staged: Staging) -> bool:
        return at <= staged.after and seq in staged.alive

    # Faults

    def start(self) -> bool:
        """A process begins with it, and looks at all of it; False if something is damaged. From the first damaged
        entry on the tail goes, and damaged rows take everything with them."""
        self.staged = None
        whole = not (self.damaged or self.rows_damaged)
        if self.rows_damaged:
            self.__init__(self.source)  # type: ignore[misc]
        elif self.damaged:
            at = next(at for at, entry in enumerate(self.tail) if not entry.sound)
            self._undo(self.tail[at - 1].position if at else self.base)
        self.damaged = self.rows_damaged = False
        return whole

    def damage(self, chance: random.Random) -> bool:
        """A bit flips in an entry, and nobody notices. False: there is none."""
        if not self.tail or self.damaged:
            return False
        at = chance.randrange(len(self.tail))
        self.tail[at] = replace(self.tail[at], payload=self.tail[at].payload + b"0")
        self.damaged = True
        return True
