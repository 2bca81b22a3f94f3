"""What the node dispatches within the budget of a tick: queues, delayed messages, copies that wait to be published.

What comes in: a look, when something happened to one of them (`to_dispatch.py`). What goes out: deliveries, deaths,
messages that go on to queues; of those that have messages in the journal, what must be read, and what leaves memory.
Rules: 1. Nothing here is for clients: what they reach is a `QueuePort`, which is dispatched too. 2. Compiled traits:
each look at a queue goes by them. A trait has no `__init__`: what is named here, the class itself sets.
Not here: the rounds and their budget (`node/dispatching.py`), what each of them does (`queue.py`, `delayed.py`,
`publishing/copies.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mypy_extensions import mypyc_attr, trait

from amqpd.audit.book import Book
from amqpd.journal.lane import Lane
from amqpd.journal.records import Row
from amqpd.queues.backlog import Backlog
from amqpd.queues.damage import DamagedSegment, QueueDamage, damaged_segments, queue_damage
from amqpd.queues.facts import Facts
from amqpd.queues.levels import Levels
from amqpd.queues.messages import Messages, RowsWanted
from amqpd.queues.states import FOLLOWING, SERVED, QueueState
from amqpd.vocabulary.records import QueueRecord

# A look at what has nothing to do, in the unit of `flow/turns.py`; a priority queue has a backlog for each level.
LOOK_WORK: Final = 1
LEVELS_LOOK_WORK: Final = 8


@trait
@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatchable:
    """Something that the node looks at when something happened to it, until a bug takes it out of service."""

    record: QueueRecord
    """what it is called in the log; of a queue, what the topology has of it"""
    state: QueueState
    crash_reason: str | None
    """why it is out of service (`amqpd/node/quarantine.py`), also when it has been deleted since"""
    look_work: int
    """what a look at it takes, beside what it does then"""
    dead_letters_under_way: int
    """what it has begun and goes on in later ticks, dead letters most of all: until then it is not dispatched, or it
    would begin ever more"""

    @abstractmethod
    def dispatch(self) -> None:
        """Do what there is to do now, as far as the budget reaches; ask the host to be looked at again for the rest.
        What is asked of it next is as of now."""

    @property
    @abstractmethod
    def paged(self) -> Paged | None:
        """Itself, while it has messages that may be in memory or on the disk only."""

    def abandoned(self) -> Iterator[Callable[[None], object]]:
        """Those who wait for it, to be told that it is gone; nobody does, if it is no queue."""
        return iter(())

    def enter(self, state: QueueState) -> None:
        """From now on it is not served any more: it is not dispatched, takes nothing and gives nothing back. Raises
        ValueError for what does not follow its state (`states.py`)."""
        if state not in FOLLOWING[self.state]:
            raise ValueError(f"queue '{self.record.name}' is {self.state.value} and cannot be {state.value}")
        self.state = state

    def quarantine(self, reason: str) -> None:
        """Out of service from now on: nothing that follows may come back into it."""
        self.enter(QueueState.CRASHED)
        self.crash_reason = reason

    @property
    def is_served(self) -> bool:
        """It takes and gives messages."""
        return self.state is SERVED

    @property
    def is_deleted(self) -> bool:
        """It left the topology, or is not wanted any more."""
        return self.state is QueueState.DELETED


@trait
@mypyc_attr(allow_interpreted_subclasses=True)
class MessageHolder(Dispatchable):
    """Something that has messages, here or at another node."""

    @property
    @abstractmethod
    def ready_count(self) -> int:
        """Messages that nobody has yet."""

    @property
    @abstractmethod
    def unacked_count(self) -> int:
        """Messages that somebody has, or that wait for what is needed to let them go: to be dead-lettered, say."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """What its messages take in memory, at its leader."""

    @property
    @abstractmethod
    def damage_summary(self) -> QueueDamage | None:
        """Its damage, as far as it is known; None: there is none."""


@trait
@mypyc_attr(allow_interpreted_subclasses=True)
class Paged(MessageHolder):
    """Messages that this node keeps in its journal, and as many of them in memory as may be."""

    lane: Lane
    """what makes them safe"""
    messages: Messages | Levels
    """all that there is of them; what is asked for each message is the backlog's"""
    backlog: Backlog | Levels
    reading: bool
    """a read of some is under way"""
    damage: bool
    """some are damaged, and that was told (`damage.py`)"""
    damage_told: int
    """in this many lines of the log, since there was none"""
    facts: Facts
    wake_ms: int | None
    """the host's: when it will look at them by itself"""
    audit_level: str | None
    """their own, by a policy"""
    recorded_share: int
    """of them, that the audit log has"""

    @property
    def paged(self) -> Paged | None:
        return self if self.backlog.ready or self.backlog.unacked else None

    @property
    def ready_count(self) -> int:
        return self.backlog.ready

    @property
    def unacked_count(self) -> int:
        return self.backlog.unacked

    @property
    def memory_bytes(self) -> int:
        return self.messages.memory_bytes

    @property
    def released_bytes(self) -> int:
        """What left memory since the start because it was settled."""
        return self.messages.released_bytes

    @property
    @abstractmethod
    def is_consumed(self) -> bool:
        """Somebody is there who takes them."""

    def levels(self) -> Iterable[Messages]:
        """All of them; of a priority queue, those of each priority that occurred."""
        return self.messages.levels()

    def keep_books(self, open_book: Callable[[Messages], Book] | None) -> None:
        """Record them in these books from now on; None: do not."""
        self.messages.keep_books(open_book)

    @abstractmethod
    def delete(self) -> None:
        """They are gone, also on the disk, and those who wait for one are told so."""

    # Between memory and disk

    def next_read(self, space: bool) -> RowsWanted | None:
        """What has to be read now, if anything is; no other read until `loaded` is told of it. Without `space` in
        memory nothing is read ahead: it would have to leave again at once."""
        messages = self.messages
        if self.reading or self.state is QueueState.DELETED:
            return None
        if isinstance(messages, Messages) and not messages.store.segments:
            return None
        request = messages.next_copies() or messages.next_read(self.read_ahead if space else 0)
        self.reading = request is not None
        return request

    @property
    @abstractmethod
    def read_ahead(self) -> int:
        """This many segments of what is not wanted yet are to be in memory."""

    def loaded(self, request: RowsWanted, rows: list[Row]) -> None:
        """The rows that were to be read."""
        self.reading = False
        if self.state is SERVED:
            request.loaded(rows)
            if self.messages.damaged:
                self.look_for_damage()

    @abstractmethod
    def shrink(self, bytes_max: int) -> int:
        """Messages leave memory until they take no more than this, in several dispatches if they are many. What it
        took, in the unit of `flow/turns.py`."""

    # Damage

    @property
    def damage_summary(self) -> QueueDamage | None:
        return queue_damage(self.messages) if self.damage else None

    def damaged(self) -> list[DamagedSegment]:
        """The same row by row, in the order of the line."""
        return damaged_segments(self.messages)

    @abstractmethod
    def withdrawn(self, count: int) -> None:
        """An operator took this many of them out."""

    @abstractmethod
    def look_for_damage(self) -> None:
        """After damage may have been found, or have gone: the log is told once, and the consumers of a queue that is
        blocked are cancelled."""
