"""Whose turn it is: the consumers of a queue, by priority, and in turn among equals.

What comes in: consumers that come and go. What goes out: groups of consumers, in the order in which they are served.
Rules: 1. Who has a higher priority is served as long as he has credit. 2. With a single active consumer the others
wait until it is gone; the next one is the one with the highest priority, and of those the first that came. 3. An
active consumer stays active when one of a higher priority comes; that of a quorum queue (`gives_way`) gets nothing
more then, and hands over when it has settled what it has.
Not here: credit (`amqpd/consumers.py`), how much one turn is (`queue.py`).

Source: https://www.rabbitmq.com/docs/consumer-priority, https://www.rabbitmq.com/docs/consumers#single-active-consumer.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator

from amqpd.queues.consumer import Subscriber


class Turns:
    def __init__(self, single_active: bool = False, gives_way: bool = False) -> None:
        self._single_active = single_active
        self.gives_way = gives_way and single_active
        self._groups: list[tuple[int, deque[Subscriber]]] = []
        """(-priority, consumers)"""
        self.served: list[deque[Subscriber]] = []
        """to be served in this order; who was served goes to the end of its group"""
        self.count = 0
        self.sole: Subscriber | None = None
        """the only consumer, if there is no other"""
        self.active: Subscriber | None = None
        """the single active consumer, if there is to be only one"""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Subscriber]:
        """Highest priority first."""
        for _, group in self._groups:
            yield from group

    def __contains__(self, consumer: object) -> bool:
        return any(each is consumer for each in self)

    def add(self, consumer: Subscriber) -> None:
        for key, group in self._groups:
            if key == -consumer.priority:
                group.append(consumer)
                break
        else:
            insort(self._groups, (-consumer.priority, deque((consumer,))), key=lambda each: each[0])
        self.count += 1
        self._choose()

    def remove(self, consumer: Subscriber) -> bool:
        """Whether it was there."""
        for index, (_, group) in enumerate(self._groups):
            if consumer in group:
                group.remove(consumer)
                if not group:
                    del self._groups[index]
                self.count -= 1
                if consumer is self.active:
                    self.active = None
                self._choose()
                return True
        return False

    def clear(self) -> list[Subscriber]:
        """All of them, who are not here any more."""
        consumers = list(self)
        self._groups, self.served, self.count, self.active, self.sole = [], [], 0, None, None
        return consumers

    def hand_over(self) -> None:
        """An active consumer that gives way may have settled everything."""
        if self.gives_way and self.active is not None and not self.served:
            self._choose()

    def _choose(self) -> None:
        self.sole = next(iter(self)) if self.count == 1 else None
        if not self._single_active:
            self.served = [group for _, group in self._groups]
            return
        best, active = next(iter(self), None), self.active
        if active is None or (
            self.gives_way and best is not None and best.priority > active.priority and not active.unacked
        ):
            self.active = active = best
        waits = self.gives_way and active is not None and best is not None and best.priority > active.priority
        self.served = [deque((active,))] if active is not None and not waits else []
