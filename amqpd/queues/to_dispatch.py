"""The queues to which something happened: each is dispatched before the tick ends, as far as its budget reaches.

What comes in: queues, as messages, consumers, settles and times come to them. What goes out: all of them, in that
order, each once.
Rules: 1. Whatever makes a dispatch necessary adds the queue here, and does not dispatch it. 2. What is added while
the queues of a round are looked at is in the next round.
Not here: the rounds and their budget (`node/dispatching.py`), what a queue does then (`queue.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amqpd.queues.dispatchable import Dispatchable


class ToDispatch:
    """A set that keeps its order: equal input gives equal output."""

    def __init__(self) -> None:
        self._queues: dict[Dispatchable, None] = {}

    def __bool__(self) -> bool:
        return len(self._queues) > 0

    def __contains__(self, queue: object) -> bool:
        return queue in self._queues

    def add(self, queue: Dispatchable) -> None:
        """It may be there already."""
        self._queues[queue] = None

    def add_all(self, queues: Iterable[Dispatchable]) -> None:
        """As `add`, of each."""
        self._queues.update(dict.fromkeys(queues))

    def forget(self, queue: Dispatchable) -> None:
        """It is gone, or out of service."""
        self._queues.pop(queue, None)

    def take(self) -> Iterator[Dispatchable]:
        """All of them; the next ones are of the next round."""
        queues, self._queues = self._queues, {}
        return iter(queues)
