"""Publisher confirms of one channel: which publishes are safe, and which of those the client was told of.

What comes in: accepted publishes, each with the journal's index to wait for, or none; the journal's number. What
goes out: the delivery tag up to which everything is confirmed.
Rules: 1. Tags count publishes from 1 on after confirm.select. 2. Confirms keep tag order: what is safe waits for
what was published before it; so one `multiple` acknowledges all of a tick. 3. Each tag once; a multiple covers those
refused only after their basic.nack. 4. A few are acknowledged one by one: some clients count the acknowledgements
that come, and RabbitMQ, whose messages become safe one by one, hardly ever gathers so few.
Not here: the frame (`channels.py`), when something is durable (`journal/buffer.py`).

Source: https://www.rabbitmq.com/docs/confirms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from amqpd.audit.publication import Confirming

# So many are acknowledged one by one, with 21 bytes each; more with one `multiple`. Tests of clients publish two or
# three; who publishes without waiting has far more on the way.
SINGLE_ACKS_MAX = 8


class Confirms(Confirming):
    """The publishes of one channel in confirm mode: safe, refused, told."""

    __slots__ = ("_acknowledged", "_forgotten", "_refused", "_waiting", "confirmed", "unsaid")

    def __init__(self) -> None:
        super().__init__()
        self.confirmed = 0
        """the last publish that is safe; it was not refused"""
        self._acknowledged = 0
        self._refused: deque[tuple[int, int]] = deque()
        """(first, last) of the last ones that were refused"""
        self._forgotten = 0
        """up to that number some were refused that are not in `_refused` any more"""
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
        first, last = self.published + 1, self.published + count
        self.unsaid.append((first, last))
        self.published = last
        refused = self._refused
        if refused and refused[-1][1] + 1 == first:
            first = refused.pop()[0]
        refused.append((first, last))
        if len(refused) > SINGLE_ACKS_MAX:
            self._forgotten = refused.popleft()[1]

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

    def singly(self, count: int) -> list[int]:
        """The tags to acknowledge one by one, when `due` was `count`: those of the last `count` that were not
        refused. Empty when one `multiple` is to say it."""
        first = self.confirmed - count + 1
        if count > SINGLE_ACKS_MAX or first <= self._forgotten:
            return []
        refused = self._refused
        return [tag for tag in range(first, self.confirmed + 1) if not any(a <= tag <= b for a, b in refused)]
