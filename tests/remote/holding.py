"""A client's consumer that holds all that it gets."""

from __future__ import annotations

from amqpd.audit.book import Book
from amqpd.kernel import Run
from amqpd.queues.consumer import Subscriber


class Holding(Subscriber):
    """A consumer that holds what it gets, and settles nothing."""

    def __init__(self) -> None:
        self.no_ack = self.exclusive = self.parked = False
        self.priority = self.unacked = 0
        self.got: list[int] = []
        """places"""

    def credit(self) -> int:
        return 0

    def wait_for_credit(self) -> None:
        pass

    def deliver(self, run: Run, low: int, high: int, seq: int, redelivered: bool) -> None:
        assert 0 <= low < high <= run.count
        self.got += range(seq, seq + high - low)

    def pass_on(self, runs: list[Run], seq: int) -> int:
        return 0

    def record(self, book: Book, first: int, count: int, redelivered: bool, body_bytes: int) -> None:
        pass

    def cancelled(self) -> None:
        pass
