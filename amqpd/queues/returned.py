"""The messages of a queue that were delivered and came back, and are ready again.

What comes in: stretches of sequence numbers. What goes out: the next one to serve; which of some messages are among
them.
Rules: 1. A stretch lies inside one segment. 2. They are served in the order of their numbers, or, with `fifo`, in the
order in which they came back. 3. Serving one, and adding one behind the others, costs nothing that grows with their
number.
Not here: messages that were never delivered (`backlog.py`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

# So many that were served are cut off together.
SERVED_MAX = 256

Stretch = tuple[int, int]
"""first and last sequence number"""


class Returned:
    def __init__(self, fifo: bool = False) -> None:
        self._fifo = fifo
        self._stretches: list[Stretch] = []
        self._start = 0
        """those before it are served"""

    def __bool__(self) -> bool:
        return self._start < len(self._stretches)

    def __iter__(self) -> Iterator[Stretch]:
        """In the order in which they are served."""
        return iter(self._stretches[self._start :])

    @property
    def first(self) -> Stretch:
        """To be served next."""
        return self._stretches[self._start]

    def lowest(self) -> int:
        """The smallest number among them."""
        return min(self)[0] if self._fifo else self.first[0]

    def serve(self, count: int) -> None:
        """The first `count` messages of the first stretch are not here any more."""
        first, last = self._stretches[self._start]
        if first + count <= last:
            self._stretches[self._start] = (first + count, last)
            return
        self._start += 1
        if self._start > SERVED_MAX and self._start * 2 > len(self._stretches):
            del self._stretches[: self._start]
            self._start = 0

    def add(self, first: int, last: int) -> None:
        stretches = self._stretches
        if self._fifo or not stretches or stretches[-1][0] < first:
            stretches.append((first, last))
        else:
            insort(stretches, (first, last), lo=self._start)

    def clear(self) -> None:
        self._stretches, self._start = [], 0

    def within(self, first: int, last: int) -> list[Stretch]:
        """Those of the messages first..last that are here, ascending."""
        stretches, start = self._stretches, self._start
        if self._fifo:
            return sorted((max(first, low), min(last, high)) for low, high in self if low <= last and high >= first)
        found: list[Stretch] = []
        index = max(start, bisect_left(stretches, (first, 0), lo=start) - 1)
        while index < len(stretches) and stretches[index][0] <= last:
            low, high = max(first, stretches[index][0]), min(last, stretches[index][1])
            if low <= high:
                found.append((low, high))
            index += 1
        return found

    def cut(self, first: int, last: int) -> None:
        """Take out first..last, which lie in one stretch."""
        stretches, start = self._stretches, self._start
        if self._fifo:
            index = next(i for i in range(start, len(stretches)) if stretches[i][0] <= first <= stretches[i][1])
        else:
            index = bisect_left(stretches, (first + 1, 0), lo=start) - 1
        low, high = stretches[index]
        stretches[index : index + 1] = [part for part in ((low, first - 1), (last + 1, high)) if part[0] <= part[1]]
