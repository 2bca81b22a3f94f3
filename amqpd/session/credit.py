"""Consumers that wait for credit which they share with others: space in an outbox, the prefetch of a channel.

What comes in: parked consumers (`queues/turns.py`); word that there may be space again. What goes out: consumers that
are back in the rotation of their queues, in the order in which they began to wait.
Rules: 1. Those that wait are looked at one after the other, and only as long as there is space: with space for one
message ten thousand consumers are not asked. 2. One that was served and wants more waits behind the others, so that
one queue does not take it all. 3. A consumer waits at one place at most; one whose own prefetch is used up waits at
none, its acknowledgements find it.
Not here: how much credit a consumer has (`consumers.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable

from mypy_extensions import mypyc_attr

from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import QueuePort


@mypyc_attr(allow_interpreted_subclasses=True)
class Subscription(Subscriber):
    """A consumer, as far as its credit and its unacknowledged deliveries go."""

    __slots__ = (
        "ack_timeout_ms",
        "prefetch",
        "queue",
        "tag",
        "waits_in",
    )

    def __init__(
        self,
        queue: QueuePort,
        tag: str,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        priority: int,
        ack_timeout_ms: int | None,
    ) -> None:
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        """0: no limit"""
        self.priority = priority
        """one with a higher priority is served first (https://www.rabbitmq.com/docs/consumer-priority)"""
        self.unacked = 0
        self.parked = False
        """see `Subscriber.parked`"""
        self.waits_in: CreditQueue | None = None
        """while it is parked because of what it shares with others"""
        self.ack_timeout_ms = ack_timeout_ms
        """its own; None: the queue's or the broker's (`delivery_ages.py`)"""

    @abstractmethod
    def end(self, answer: Callable[[None], object]) -> None:
        """Its client cancelled it, or has gone; see `QueuePort.cancel`."""

    @abstractmethod
    def resume(self) -> None:
        """It may have credit again."""


class CreditQueue:
    """Parked consumers that wait for one thing; `has_space` says whether it lets anything through now."""

    __slots__ = ("_consumers", "_has_space")

    def __init__(self, has_space: Callable[[], bool]) -> None:
        self._has_space = has_space
        # An ordered dictionary finds its first entry at once also when many before it are gone; others do not. Made
        # when somebody waits: an empty one takes 128 bytes, and each channel and connection has such a queue.
        self._consumers: OrderedDict[Subscription, None] | None = None

    def __bool__(self) -> bool:
        return bool(self._consumers)

    def __len__(self) -> int:
        return len(self._consumers or ())

    def add(self, consumer: Subscription) -> None:
        if self._consumers is None:
            self._consumers = OrderedDict()
        self._consumers[consumer] = None

    def remove(self, consumer: Subscription) -> None:
        if self._consumers is not None:
            self._consumers.pop(consumer, None)

    def end(self) -> None:
        """Nobody is to be served any more. What it asked may go: it owns this, and only a garbage collection, which
        stops everybody, would free the two."""
        self._has_space = _never

    def wake(self) -> bool:
        """The next one may be served, if there is space. False when there is none, or nobody waits: until then this
        has to be called again after each dispatch."""
        if not self._consumers or not self._has_space():
            return False
        self._consumers.popitem(last=False)[0].resume()
        return True


def _never() -> bool:
    return False


class Waking:
    """The queues of parked consumers in which some may have credit again."""

    def __init__(self) -> None:
        self._queues: dict[CreditQueue, None] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, queue: CreditQueue) -> None:
        """There may be space for those in the queue."""
        self._queues[queue] = None

    def next(self) -> bool:
        """One consumer of each queue is woken, when what those before it made necessary has been done: it sees what
        they left. False when nobody was."""
        queues, self._queues = self._queues, {}
        for queue in queues:
            if queue.wake():
                self._queues[queue] = None
        return bool(self._queues)
