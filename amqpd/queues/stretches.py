"""Stretches of messages of a queue: those that were delivered and came back, or those over and not dead-lettered yet.

What comes in: stretches of sequence numbers. What goes out: the next one to serve; which of some messages are among
them.
Rules: 1. A stretch lies inside one segment. 2. They are served in the order of their numbers, or, with `fifo`, in the
order in which they came back. 3. No step costs what grows with the number of stretches: clients choose in which order
messages come back.
Not here: what becomes of them (`backlog.py`, `expiry.py`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator

from amqpd.queues.sorted_keys import SortedKeys

Stretch = tuple[int, int]
"""first and last sequence number"""


class Stretches:
    """Ranges of sequence numbers that do not touch, in the order in which they are to be delivered."""

    def __init__(self, fifo: bool = False) -> None:
        self._fifo = fifo
        self._firsts = SortedKeys()
        self._lasts: dict[int, int] = {}
        """of each stretch, by its first number"""
        # It takes 600 bytes, and of most queues nothing ever comes back.
        self._arrivals: ReturnOrder | None = None

    def __bool__(self) -> bool:
        return bool(self._lasts)

    def __iter__(self) -> Iterator[Stretch]:
        """In the order in which they are served."""
        for first in self._firsts if self._arrivals is None else self._arrivals:
            yield first, self._lasts[first]

    @property
    def first(self) -> Stretch:
        """To be served next."""
        first = self._firsts.first if self._arrivals is None else self._arrivals.first
        return first, self._lasts[first]

    def lowest(self) -> int:
        """The smallest number among them."""
        return self._firsts.first

    def remove_first(self, count: int) -> None:
        """Remove the first `count` messages of the first stretch, or all of it if it has fewer."""
        first, last = self.first
        self.cut(first, min(first + count - 1, last))

    def add(self, first: int, last: int) -> None:
        self._firsts.add(first)
        self._lasts[first] = last
        if self._fifo:
            if self._arrivals is None:
                self._arrivals = ReturnOrder()
            self._arrivals.add(first)

    def clear(self) -> None:
        self._firsts = SortedKeys()
        self._lasts = {}
        self._arrivals = None

    def within(self, first: int, last: int) -> list[Stretch]:
        """Those of the messages first..last that are here, ascending."""
        if not self._lasts:
            return []
        found: list[Stretch] = []
        before = self._firsts.at_or_below(first - 1)
        if before is not None and self._lasts[before] >= first:
            found.append((first, min(last, self._lasts[before])))
        for low in self._firsts.between(first, last):
            found.append((low, min(last, self._lasts[low])))
        return found

    def cut(self, first: int, last: int) -> None:
        """Take out first..last, which lie in one stretch."""
        low = self._firsts.at_or_below(first)
        assert low is not None
        high = self._lasts[low]
        rest: list[int] = []
        if low < first:
            self._lasts[low] = first - 1
            rest.append(low)
        else:
            self._firsts.remove(low)
            del self._lasts[low]
        if last < high:
            self._firsts.add(last + 1)
            self._lasts[last + 1] = high
            rest.append(last + 1)
        if self._arrivals is not None:
            self._arrivals.replace(low, rest)


class ReturnOrder:
    """The first numbers of stretches in the order in which those came back; the parts of one stay at its place."""

    def __init__(self) -> None:
        self._next = 0
        self._places: dict[int, int] = {}
        """by the first number"""
        # Ordered dictionaries find their first entry at once also when many before it are gone; others do not.
        self._order: OrderedDict[int, list[int]] = OrderedDict()
        """the first numbers at each place, ascending"""

    def __iter__(self) -> Iterator[int]:
        for firsts in self._order.values():
            yield from firsts

    @property
    def first(self) -> int:
        return self._order[next(iter(self._order))][0]

    def add(self, first: int) -> None:
        self._places[first] = self._next
        self._order[self._next] = [first]
        self._next += 1

    def replace(self, first: int, rest: list[int]) -> None:
        """Of the stretch that begins at `first` these parts are left."""
        place = self._places.pop(first)
        firsts = self._order[place]
        del firsts[bisect_left(firsts, first)]
        for each in rest:
            insort(firsts, each)
            self._places[each] = place
        if not firsts:
            del self._order[place]
