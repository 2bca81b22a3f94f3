"""What a queue knows of its consumers.

What comes in: nothing. What goes out: `Subscriber`, the interface by which a queue hands messages out; how they are
told of its end.
Rules: a queue never looks at channels or connections; a queue whose leader is another node is to give to its
consumers through the same interface.
Not here: credit and delivery tags (`channels.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from mypy_extensions import mypyc_attr

from amqpd.audit.book import Book
from amqpd.kernel import Run

Piece = tuple[Run, int, int, int, bool]
"""messages low..high-1 of the run, the sequence number of the first, redelivered"""

CREDIT_UNLIMITED = 1 << 30


@mypyc_attr(allow_interpreted_subclasses=True)
class Subscriber(ABC):
    """One basic.consume, as its queue knows it. A base class: every dispatch goes by it."""

    __slots__ = ("exclusive", "no_ack", "parked", "priority", "unacked")

    no_ack: bool
    exclusive: bool
    priority: int
    unacked: int
    parked: bool
    """found without credit, and not looked at until it may have some; only `ConsumerTurns` sets it"""

    @abstractmethod
    def credit(self) -> int:
        """How many messages it takes now; 0 while its prefetch is used up or its connection is full."""

    @abstractmethod
    def wait_for_credit(self) -> None:
        """It was found without credit: when it may have some, it asks for `ConsumerTurns.restore` and a dispatch of
        the queue."""

    @abstractmethod
    def deliver(self, run: Run, low: int, high: int, seq: int, redelivered: bool) -> None:
        """Send messages low..high-1 of the run, whose sequence numbers in the queue begin at `seq`. With `no_ack`
        the queue itself settles them."""

    @abstractmethod
    def pass_on(self, runs: list[Run], seq: int) -> int:
        """Send all messages of the runs, whose sequence numbers begin at `seq`, in order, for the first time; there
        is credit for all, if there is any. The number of runs that were sent until the connection was full."""

    @abstractmethod
    def record(self, book: Book, first: int, count: int, redelivered: bool, body_bytes: int) -> None:
        """The book notes that these messages were delivered to this consumer; `body_bytes` of each."""

    @abstractmethod
    def cancelled(self) -> None:
        """The queue is gone, or may not be read any more (consumer cancel notification,
        https://www.rabbitmq.com/docs/consumer-cancel)."""


def cancelling(consumers: Iterator[Subscriber]) -> Iterator[None]:
    """Tell each of them that its queue is gone, as steps for `QueueHost.later`."""
    for consumer in consumers:
        consumer.cancelled()
        yield
