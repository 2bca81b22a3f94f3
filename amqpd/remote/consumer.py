"""A consumer of this node, as its edge knows it: deliveries go through to it, and what it leaves becomes credit.

What comes in: deliveries; that it may have credit again. What goes out: absolute limits for the leader.
Rules (10 and 11 of docs/decisions/remote-protocol.md): 1. The limits are what its client has received and what
prefetch and outbox leave, at most `WINDOW_MESSAGES` and `WINDOW_BYTES` of what is on its way. 2. They only grow here.
3. They are told when a quarter of what the client leaves has not been told yet, or the leader has nothing left: not
with each acknowledgement of a large prefetch, and never too late for a small one.
Not here: lowering, for a prefetch that several leaders share (`edge.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from amqpd.audit.book import Book
from amqpd.kernel import Run
from amqpd.queues.consumer import Subscriber
from amqpd.remote.edge import Edge

WINDOW_BYTES = 1 << 20
"""On its way to one consumer: the product of delay and rate of a network of 10 Gbit/s and 0.8 ms."""
WINDOW_MESSAGES = 1 << 15


class EdgeConsumer(Subscriber):
    """A consumer of this node that has a subscription at another one."""

    __slots__ = (
        "_ended",
        "_messages",
        "_nbytes",
        "_received",
        "_received_bytes",
        "_renewing",
        "consumer",
        "is_cancelled",
        "number",
    )

    def __init__(
        self, consumer: Subscriber, renewing: dict[EdgeConsumer, None], ended: Callable[[Subscriber], object]
    ) -> None:
        """`renewing`: those whose limits are looked at before the next messages are sent. `ended`: is told of
        `consumer` that the leader has ended its subscription."""
        self.consumer = consumer
        self._ended = ended
        self.no_ack, self.exclusive, self.priority = consumer.no_ack, consumer.exclusive, consumer.priority
        self.unacked = 0
        self.parked = self.is_cancelled = False
        self.number = 0
        """of its subscription"""
        self._renewing = renewing
        self._received = self._received_bytes = 0
        self._messages = self._nbytes = 0
        """the limits that were told"""

    def first_limits(self) -> tuple[int, int]:
        """Messages and bytes."""
        credit = self._credit()
        self._messages, self._nbytes = credit, WINDOW_BYTES if credit else 0
        return self._messages, self._nbytes

    def renew(self, edge: Edge) -> None:
        """Tell the leader what the client leaves now, if that is worth a message."""
        if self.is_cancelled:
            return
        credit = self._credit()
        if not credit:
            return
        told = self._messages - self._received, self._nbytes - self._received_bytes
        if credit - told[0] >= max(1, credit // 4) or WINDOW_BYTES - told[1] >= WINDOW_BYTES // 4:
            self._messages = max(self._messages, self._received + credit)
            self._nbytes = max(self._nbytes, self._received_bytes + WINDOW_BYTES)
            edge.limit(self.number, self._messages, self._nbytes)

    def _credit(self) -> int:
        """What it takes now; without any it says when that has changed."""
        consumer = self.consumer
        credit = min(consumer.credit(), WINDOW_MESSAGES)
        if credit > 0:
            return credit
        if not consumer.parked:
            consumer.parked = True
            consumer.wait_for_credit()
        return 0

    def credited(self) -> None:
        """Its client may have credit again."""
        self.consumer.parked = False
        self._renewing[self] = None

    # The edge's side

    def credit(self) -> int:
        raise AssertionError("a remote leader is told limits")

    def wait_for_credit(self) -> None:
        raise AssertionError("a remote leader is told limits")

    def deliver(self, run: Run, low: int, high: int, seq: int, redelivered: bool) -> None:
        self._received += high - low
        self._received_bytes += run.bytes_in(low, high)
        self._renewing[self] = None
        self.consumer.deliver(run, low, high, seq, redelivered)

    def pass_on(self, runs: list[Run], seq: int) -> int:
        raise AssertionError("only a queue of this node passes on what has just come")

    def record(self, book: Book, first: int, count: int, redelivered: bool, body_bytes: int) -> None:
        raise AssertionError("its leader has the book")

    def cancelled(self) -> None:
        self.is_cancelled = True
        self._ended(self.consumer)
        self.consumer.cancelled()
