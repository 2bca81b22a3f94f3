"""Consumers that wait for credit which they share with others: space in an outbox, the prefetch of a channel.

What comes in: parked consumers (`queues/turns.py`); word that there may be space again. What goes out: consumers that
are back in the rotation of their queues, in the order in which they began to wait.
Rules: 1. Whoever waits is looked at one after the other, and only as long as there is space: with space for one
message ten thousand consumers are not asked. 2. Who was served and wants more waits behind the others, so that one
queue does not take it all. 3. A consumer waits at one place at most; one whose own prefetch is used up waits at none,
its acknowledgements find it.
Not here: how much credit a consumer has (`consumers.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amqpd.session.consumers import Consumer


class CreditQueue:
    """Parked consumers that wait for one thing; `has_space` says whether it lets anything through now."""

    __slots__ = ("_consumers", "_has_space")

    def __init__(self, has_space: Callable[[], bool]) -> None:
        self._has_space = has_space
        # An ordered dictionary finds its first entry at once also when many before it are gone; others do not.
        self._consumers: OrderedDict[Consumer, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._consumers)

    def __len__(self) -> int:
        return len(self._consumers)

    def add(self, consumer: Consumer) -> None:
        self._consumers[consumer] = None

    def remove(self, consumer: Consumer) -> None:
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
    """Queues of consumers in which somebody may have credit again."""

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
