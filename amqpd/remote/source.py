"""What the leader's end needs of what it leads: a log, queues, and what the log says when a leader begins.

What comes in: nothing. What goes out: interfaces. The records of the log that are of remote queues, and what they
make, are the journal's (`amqpd.journal.operation_marks`).
Rules: 1. What is done between two calls of the leader's end gathers in one entry of the log: so a mark and its
effects are committed together, or neither is (rule 2 of docs/decisions/remote-protocol.md). 2. A queue is asked as
`QueuePort` and `LeaderQueue` are; what it has to be able to do beside that, it does by `hold` and `give_back`. 3. The
state of a new leader is made of committed and uncommitted entries alike: all of the log that it won with.
Not here: the log itself (`amqpd.journal`), who leads (`amqpd.cluster`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pamqp.exceptions import AMQPSoftError

from amqpd.journal.operation_marks import MarkRecord, Member
from amqpd.kernel import Run
from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import Getter
from amqpd.remote.held import Range

"""of the log, beside what it has of messages"""


class SourceLog(ABC):
    """The log of a source, as its leader appends to it."""

    @property
    @abstractmethod
    def position(self) -> int:
        """When the entry with this number is committed, everything is that was handed in until now."""

    @abstractmethod
    def note(self, record: MarkRecord) -> None:
        """It will be in the entry that gathers now."""

    @abstractmethod
    def force(self) -> None:
        """Somebody waits for `position`: it is committed soon, also if nothing is noted."""


class LedQueue(ABC):
    """A queue, as the leader's end serves remote clients from it. Messages are named by sequence numbers."""

    @abstractmethod
    def publish(self, run: Run, redelivered: bool) -> int:
        """How many of the run's messages have come in, from the first on: the others are turned away. `redelivered`:
        they may have been here, and delivered, before (rule 5)."""

    def keeps(self, run: Run) -> bool:
        """The run is in the log, if it comes in; else it is lost with the leader's process."""
        return True

    @abstractmethod
    def settle(self, first: int, last: int) -> None:
        """Acknowledged, by who holds them."""

    @abstractmethod
    def reject(self, first: int, last: int) -> None:
        """Not to be requeued."""

    @abstractmethod
    def requeue(self, first: int, last: int) -> None:
        """Ready again in their places, redelivered, and counted as delivered (rule 26)."""

    @abstractmethod
    def give_back(self, first: int, last: int) -> None:
        """As `requeue`, not counted: no client has seen them; one behind them may have gone out (rule 16)."""

    @abstractmethod
    def hold(self, first: int, last: int) -> list[tuple[int, int]]:
        """Those of the messages that are ready are somebody's from now on, as if they had been delivered: (first,
        last) of what there was (rule 16)."""

    @abstractmethod
    def purge(self, gone: Callable[[int, bool], object]) -> None:
        """All that is ready now leaves, in steps. `gone` is told within each step how many have left with it, and
        whether it was the last one; never again, when the queue is led here no more."""

    @property
    @abstractmethod
    def ready_count(self) -> int: ...

    @property
    @abstractmethod
    def consumer_count(self) -> int: ...

    @abstractmethod
    def consume(self, consumer: Subscriber, answer: Callable[[AMQPSoftError | None], object]) -> None:
        """See `QueuePort.consume`."""

    @abstractmethod
    def cancel(self, consumer: Subscriber, answer: Callable[[None], object]) -> None:
        """See `QueuePort.cancel`."""

    @abstractmethod
    def credited(self, consumer: Subscriber) -> None:
        """It was found without credit, and may have some now."""

    @abstractmethod
    def get(self, no_ack: bool, answer: Getter) -> None:
        """See `QueuePort.get`."""

    @abstractmethod
    def redelivered(self) -> list[tuple[int, int]]:
        """(first, last) of those that were delivered before, or may have been: what a hand-over passes (rule 19)."""

    @abstractmethod
    def mark_redelivered(self, first: int, last: int) -> None:
        """These may have been delivered before."""

    @abstractmethod
    def forget_redelivered(self) -> None:
        """What its log says of that is not needed: the last leader has passed it."""


class HandedSubscription(NamedTuple):
    """A subscription, as one leader passes it to the next."""

    number: int
    queue: int
    is_get: bool
    held: tuple[Range, ...]
    giving: tuple[Range, ...]
    """what it holds by claims that give way"""


class HandedIncarnation(NamedTuple):
    """What one leader passes of an edge to the next: what is not in the log."""

    member: Member
    mark: int
    session: int
    subscriptions: tuple[HandedSubscription, ...]


@dataclass(frozen=True, slots=True)
class SessionHandOver:
    """What one leader passes to the next beside the log (rule 19). It is of the log as it was then: after any other
    entry it is void, and the hand-over is a take-over."""

    position: int
    """0: it was compared before (`amqpd.cluster`)"""
    incarnations: tuple[HandedIncarnation, ...]
    waits_for: frozenset[str]
    """forwarders that have not attached yet since the take-over before"""
    wait_ends_ms: float
    redelivered: dict[int, tuple[tuple[int, int], ...]]
    """queue -> ranges of messages that were delivered before"""
