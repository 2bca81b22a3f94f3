"""The log of the source: one committed sequence, and an uncommitted tail that a lost leader may lose.

What comes in: records of the leader that appends. What goes out: entries; the state that they make, for a new leader.
Rules: 1. What gathers between two cuts is one entry: it is kept or lost as a whole. 2. Entries are committed in
order. 3. A leader that is lost loses what gathers, and any part of the tail.
Not here: how a real log is replicated (`tests/replication/simulation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from amqpd.journal.operation_marks import ForwarderGone, IncarnationEnded, Marked, MarkRecord, Marks
from amqpd.journal.transaction import JournalTransaction
from amqpd.remote.source import SourceLog


class Enqueued(NamedTuple):
    """A message came into a queue."""

    queue: int
    seq: int
    name: int


class Settled(NamedTuple):
    """Messages first..last have left the queue, as a client, or a purge, wanted."""

    queue: int
    first: int
    last: int
    purged: bool


class Returned(NamedTuple):
    """A message has come back this many times."""

    queue: int
    seq: int
    times: int


class EpochBegins(NamedTuple):
    """The first record of a leader."""

    epoch: int


AnyRecord = Enqueued | Settled | Returned | EpochBegins | MarkRecord


class Entry(NamedTuple):
    """What is committed together."""

    position: int
    epoch: int
    records: tuple[AnyRecord, ...]
    transaction: JournalTransaction | None
    """of a leader's journal, if its queues have one (`durable.py`)"""


@dataclass
class Contents:
    """What a log makes of queues and marks."""

    live: dict[int, dict[int, int]]
    """queue -> number -> name of the message"""
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)

    def apply(self, record: AnyRecord) -> None:
        if isinstance(record, Enqueued):
            self.live[record.queue][record.seq] = record.name
        elif isinstance(record, Settled):
            for seq in range(record.first, record.last + 1):
                self.live[record.queue].pop(seq, None)
        elif isinstance(record, Returned):
            self.counts[record.queue, record.seq] = record.times
        elif isinstance(record, Marked | IncarnationEnded | ForwarderGone):
            self.marks.apply(record)


class Log:
    """The log, as its replicas have it together."""

    def __init__(self) -> None:
        self.committed: list[Entry] = []
        self.tail: list[Entry] = []

    @property
    def last(self) -> int:
        """Position of the last entry."""
        entries = self.tail or self.committed
        return entries[-1].position if entries else 0

    def contents(self, queues: list[int]) -> Contents:
        found = Contents({queue: {} for queue in queues})
        for entry in (*self.committed, *self.tail):
            for record in entry.records:
                found.apply(record)
        return found


class LeaderLog(SourceLog):
    """The log, as one leader appends to it."""

    def __init__(self, log: Log, epoch: int) -> None:
        self.log, self.epoch = log, epoch
        self.gathering: list[AnyRecord] = [EpochBegins(epoch)]
        self.next = log.last + 1
        """position of the entry that gathers"""
        self.take: Callable[[], JournalTransaction] | None = None
        """what its journal has for the entry"""

    @property
    def position(self) -> int:
        return self.next if self.gathering else self.next - 1

    def note(self, record: MarkRecord) -> None:
        self.gathering.append(record)

    def force(self) -> None:
        pass  # what gathers is cut at times of its own

    def append(self, record: AnyRecord) -> None:
        self.gathering.append(record)

    def cut(self) -> bool:
        """What gathers becomes an entry of the tail: whether there is something."""
        if not self.gathering:
            return False
        transaction = None if self.take is None else self.take()
        self.log.tail.append(Entry(self.next, self.epoch, tuple(self.gathering), transaction))
        self.gathering = []
        self.next += 1
        return True
