"""What a consumer of another node's queue leaves becomes credit: early enough, and not with each acknowledgement."""

from __future__ import annotations

from typing import Any

from amqpd.audit.book import Book
from amqpd.kernel import Run
from amqpd.queues.consumer import CREDIT_UNLIMITED, Subscriber
from amqpd.remote.consumer import WINDOW_BYTES, WINDOW_MESSAGES, EdgeConsumer
from tests.remote.simulation.queue import make_run


class Client(Subscriber):
    """With a prefetch; it settles when a test says so."""

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.no_ack = self.exclusive = self.parked = self.waits = False
        self.priority = self.unacked = 0

    def credit(self) -> int:
        return self.prefetch - self.unacked if self.prefetch else CREDIT_UNLIMITED

    def wait_for_credit(self) -> None:
        self.waits = True

    def deliver(self, run: Run, low: int, high: int, seq: int, redelivered: bool) -> None:
        self.unacked += high - low

    def pass_on(self, runs: list[Run], seq: int) -> int:
        raise AssertionError("it is remote")

    def record(self, book: Book, first: int, count: int, redelivered: bool, body_bytes: int) -> None:
        raise AssertionError("it is remote")

    def cancelled(self) -> None:
        pass


class Limits:
    """In the place of an edge: what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def limit(self, number: int, messages: int, nbytes: int) -> None:
        self.told.append((messages, nbytes))


def consuming(prefetch: int) -> tuple[Client, EdgeConsumer, dict[EdgeConsumer, None], Any]:
    client, renewing = Client(prefetch), dict[EdgeConsumer, None]()
    consumer = EdgeConsumer(client, renewing, lambda _: None)
    return client, consumer, renewing, Limits()


def test_first_limits_are_the_prefetch_and_the_window() -> None:
    assert consuming(10)[1].first_limits() == (10, WINDOW_BYTES)
    assert consuming(0)[1].first_limits() == (WINDOW_MESSAGES, WINDOW_BYTES)


def test_an_acknowledgement_of_the_only_message_that_may_come_is_told_at_once() -> None:
    client, consumer, renewing, limits = consuming(3)
    consumer.first_limits()
    consumer.deliver(make_run([1, 2, 3]), 0, 3, 0, False)
    assert list(renewing) == [consumer]
    consumer.renew(limits)
    assert limits.told == []
    assert client.parked
    assert client.waits
    client.unacked -= 1
    consumer.credited()
    consumer.renew(limits)
    assert limits.told == [(4, WINDOW_BYTES + 24)]


def test_acknowledgements_of_a_large_prefetch_are_told_together() -> None:
    client, consumer, _, limits = consuming(100)
    consumer.first_limits()
    consumer.deliver(make_run(list(range(40))), 0, 40, 0, False)
    for _ in range(40):
        client.unacked -= 1
        consumer.renew(limits)
    assert [messages for messages, _ in limits.told] == [119], "a quarter of what it leaves, and not the rest"


def test_limits_never_go_down() -> None:
    client, consumer, _, limits = consuming(4)
    consumer.first_limits()
    client.prefetch = 1
    consumer.deliver(make_run([1]), 0, 1, 0, False)
    client.unacked = 0
    consumer.renew(limits)
    assert all(messages >= 4 for messages, _ in limits.told)
