"""Publisher confirms of one channel: which publishes are safe, and which of those the client was told of.

What comes in: accepted publishes, each with the journal's index to wait for, or none; the journal's number. What
goes out: the delivery tag up to which everything is confirmed.
Rules: 1. Tags count publishes from 1 on after confirm.select. 2. Confirms keep tag order: what is safe waits for
what was published before it; so one `multiple` acknowledges all of a tick. 3. Each tag once; a multiple covers those
refused only after their basic.nack.
Not here: the frame (`channels.py`), when something is durable (`journal/buffer.py`).

Source: https://www.rabbitmq.com/docs/confirms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator


class Confirms:
    __slots__ = ("_acknowledged", "_waiting", "confirmed", "published", "unsaid")

    def __init__(self) -> None:
        self.published = 0
        self.confirmed = 0
        self._acknowledged = 0
        self.unsaid: list[tuple[int, int]] = []
        """(first, last) publish numbers that were refused, and no basic.nack has told of it yet"""
        self._waiting: deque[tuple[int, int]] = deque()
        """(publish number, journal index): up to that number is confirmed when the index is durable"""

    def accept(self, count: int, index: int | None) -> bool:
        """`count` more publishes; they are safe when the journal's `index` is durable, at once with None. True when
        something is confirmed already, False when it waits."""
        if not count:
            return False
        self.published += count
        waiting = self._waiting
        if not waiting and index is None:
            self.confirmed = self.published
            return True
        if index is not None and not (waiting and waiting[-1][1] == index):
            waiting.append((self.published, index))
            return False
        # It rides along with what was published before it.
        waiting[-1] = (self.published, waiting[-1][1])
        return False

    def refuse(self, count: int) -> None:
        """`count` more publishes that a queue did not take."""
        self.unsaid.append((self.published + 1, self.published + count))
        self.published += count

    def refused(self) -> Iterator[int]:
        """The publishes to tell of with a basic.nack each, before anything else is confirmed; told once. One by one,
        since a `multiple` would refuse what waits before it."""
        refused, self.unsaid = self.unsaid, []
        for first, last in refused:
            yield from range(first, last + 1)

    def durable(self, index: int) -> bool:
        """Everything up to the journal's `index` is on disk; True when nothing waits any more."""
        waiting = self._waiting
        while waiting and waiting[0][1] <= index:
            self.confirmed = waiting.popleft()[0]
        return not waiting

    def due(self) -> int:
        """How many publishes, `confirmed` the last of them, the client was not told of yet; from now on it counts as
        told. No basic.ack is due for 0."""
        count = self.confirmed - self._acknowledged
        self._acknowledged = self.confirmed
        return count
