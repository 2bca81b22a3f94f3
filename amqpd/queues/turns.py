"""Whose turn it is: the consumers of a queue, by priority, and in turn among equals.

What comes in: consumers that come and go, that were found without credit, that may have credit again. What goes out:
groups of consumers, in the order in which they are served.
Rules: 1. Consumers of a higher priority are served as long as they have credit. 2. A consumer found without credit is
*parked*: it leaves the rotation, so that no dispatch visits it again, and comes back at the end of the rotation when
its channel says so. 3. With a single active consumer the others wait until it is gone; the next one is the one with
the highest priority, and of those the first that came. 4. An active consumer stays active when one of a higher
priority comes; that of a quorum queue (`gives_way`) gets nothing more then, and hands over when it has settled what
it has. 5. No step costs what grows with the number of consumers or of their priorities.
Not here: credit, and which consumers have it again (`amqpd/session/credit.py`), how much one turn is (`queue.py`).

Source: https://www.rabbitmq.com/docs/consumer-priority, https://www.rabbitmq.com/docs/consumers#single-active-consumer;
rabbit_queue_consumers.erl has the same two places, active and blocked consumers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from amqpd.queues.consumer import Subscriber
from amqpd.queues.sorted_keys import SortedKeys


class PriorityGroup:
    """The consumers of one priority, each in one of two places: the rotation, or parked."""

    __slots__ = ("key", "parked", "rotation")

    def __init__(self, key: int) -> None:
        self.key = key
        """-priority"""
        # Ordered dictionaries find their first entry at once also when many before it are gone; others do not.
        self.rotation: OrderedDict[Subscriber, None] = OrderedDict()
        """they may have credit; the first one is next, and goes to the end when it was served"""
        self.parked: dict[Subscriber, None] = {}


class ConsumerTurns:
    """The consumers of one queue, in the order in which they are served."""

    def __init__(self, single_active: bool = False, gives_way: bool = False) -> None:
        self._single_active = single_active
        self.gives_way = gives_way and single_active
        self._groups: dict[int, PriorityGroup] = {}
        self._keys = SortedKeys()
        """of all groups"""
        self._rotating = SortedKeys()
        """of those whose rotation is not empty; with a single active consumer it is not looked at"""
        self._acting: PriorityGroup | None = None
        """of the single active consumer alone"""
        self.count = 0
        self.sole: Subscriber | None = None
        """the only consumer, if there is no other"""
        self.active: Subscriber | None = None
        """the single active consumer, if there is to be only one"""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Subscriber]:
        """Highest priority first."""
        return _in_order(self._keys, self._groups)

    def __contains__(self, consumer: object) -> bool:
        return any(each is consumer for each in self)

    @property
    def next_group(self) -> PriorityGroup | None:
        """To be served now: its rotation is not empty. None when no consumer can have credit."""
        if self._single_active:
            acting = self._acting
            return acting if acting is not None and acting.rotation else None
        return self._groups[self._rotating.first] if self._rotating else None

    @property
    def served(self) -> bool:
        """There are consumers that are served as soon as they have credit."""
        return self._acting is not None if self._single_active else self.count > 0

    def credit(self, count: int) -> int:
        """How many messages those of the rotations take together, counted up to `count`; one without credit is
        parked."""
        found = 0
        for key in [0] if self._single_active else list(self._rotating):
            group = self._acting if self._single_active else self._groups[key]
            for consumer in list(group.rotation) if group is not None else ():
                credit = consumer.credit()
                if credit > 0:
                    found += credit
                    if found >= count:
                        return found
                elif group is not None:
                    self.park(group, consumer)
        return found

    def add(self, consumer: Subscriber) -> None:
        key = -consumer.priority
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = PriorityGroup(key)
            self._keys.add(key)
        if not group.rotation:
            self._rotating.add(key)
        group.rotation[consumer] = None
        self.count += 1
        self.sole = consumer if self.count == 1 else None
        if self._single_active:
            self._choose()

    def remove(self, consumer: Subscriber) -> bool:
        """Whether it was there."""
        group = self._groups.get(-consumer.priority)
        if group is None:
            return False
        if consumer in group.rotation:
            del group.rotation[consumer]
            if not group.rotation:
                self._rotating.remove(group.key)
        elif consumer in group.parked:
            del group.parked[consumer]
        else:
            return False
        if not group.rotation and not group.parked:
            del self._groups[group.key]
            self._keys.remove(group.key)
        self.count -= 1
        self.sole = next(iter(self)) if self.count == 1 else None
        if self._single_active:
            if consumer is self.active:
                self.active = None
            self._choose()
        return True

    def clear(self) -> Iterator[Subscriber]:
        """All of them, which are not here any more, highest priority first. They are not gathered at once: it is a
        step of the caller, which would look at each."""
        keys, groups = self._keys, self._groups
        self._groups, self._keys, self._rotating, self._acting = {}, SortedKeys(), SortedKeys(), None
        self.count, self.active, self.sole = 0, None, None
        return _in_order(keys, groups)

    def park(self, group: PriorityGroup, consumer: Subscriber) -> None:
        """One of the group's rotation was found without credit: it is not visited until `restore`."""
        consumer.parked = True
        consumer.wait_for_credit()
        del group.rotation[consumer]
        if group is not self._acting:
            group.parked[consumer] = None
            if not group.rotation:
                self._rotating.remove(group.key)

    def restore(self, consumer: Subscriber) -> None:
        """The parked consumer may have credit again."""
        consumer.parked = False
        if self._single_active:
            if self._acting is not None and consumer is self.active:
                self._acting.rotation[consumer] = None
            return
        group = self._groups.get(-consumer.priority)
        if group is not None and consumer in group.parked:
            del group.parked[consumer]
            if not group.rotation:
                self._rotating.add(group.key)
            group.rotation[consumer] = None

    def hand_over(self) -> None:
        """An active consumer that gives way may have settled everything."""
        if self.gives_way and self.active is not None and self._acting is None:
            self._choose()

    def _choose(self) -> None:
        """The single active consumer, and whether it is served."""
        active, best = self.active, None
        if self.count:
            # With a single active consumer nobody is parked here: one that is not active is not visited.
            best = next(iter(self._groups[self._keys.first].rotation))
        if active is None or (
            self.gives_way and best is not None and best.priority > active.priority and not active.unacked
        ):
            self.active = active = best
        waits = self.gives_way and active is not None and best is not None and best.priority > active.priority
        self._acting = None
        if active is not None and not waits:
            self._acting = PriorityGroup(0)
            if not active.parked:
                self._acting.rotation[active] = None


def _in_order(keys: SortedKeys, groups: dict[int, PriorityGroup]) -> Iterator[Subscriber]:
    for key in keys:
        yield from groups[key].rotation
        yield from groups[key].parked
