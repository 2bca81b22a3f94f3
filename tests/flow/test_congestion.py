"""A queue over its limit: whether its publishers wait, or its backlog goes to disk."""

from __future__ import annotations

import pytest
from pamqp import commands

from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness, Message

LIMITS = Limits(queue_memory_bytes=40_000, backlog_memory_bytes=40_000, small_queue_bytes=500)


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqpd.queues.store.SEGMENT_BYTES_MAX", 1000)


@pytest.fixture
def harness() -> Harness:
    return Harness(LIMITS)


def fill(publisher: Client, count: int) -> None:
    for number in range(count):
        if publisher.connection.reading_paused:
            return
        publisher.publish(b"%05d" % number + bytes(1000), "q")


def consumer_of(harness: Harness, prefetch: int) -> Client:
    consumer = harness.client()
    consumer.declare("q")
    consumer.call(commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk)
    consumer.consume("q")
    return consumer


def backlog_bytes(harness: Harness) -> int:
    return harness.node.queues["/", "q"].messages.memory_bytes


def test_without_consumers_nobody_waits_and_the_backlog_goes_to_disk(harness: Harness) -> None:
    publisher = harness.client()
    publisher.declare("q")
    fill(publisher, 200)
    assert not publisher.connection.reading_paused
    assert harness.node.queues["/", "q"].backlog.ready == 200
    assert backlog_bytes(harness) <= LIMITS.queue_memory_bytes


def test_a_queue_that_drains_slows_its_publishers_and_nothing_is_written(harness: Harness) -> None:
    consumer, publisher = consumer_of(harness, 10), harness.client()
    fill(publisher, 200)
    assert publisher.connection.reading_paused, "it has consumers: it is given a measurement to show how fast it is"
    held = backlog_bytes(harness)
    assert LIMITS.queue_memory_bytes < held < 2 * LIMITS.queue_memory_bytes
    for _ in range(3):
        consumer.send(commands.Basic.Ack(consumer.messages()[-1].tag, True))
    harness.node.measure()
    harness.step()
    assert not publisher.connection.reading_paused, "it is below its limit again"
    assert not any(transaction.rows for transaction in harness.transactions)


def test_a_queue_with_slow_consumers_takes_everything(harness: Harness) -> None:
    consumer, publisher = consumer_of(harness, 1), harness.client()
    fill(publisher, 200)
    assert publisher.connection.reading_paused
    harness.node.measure()  # nothing was acknowledged meanwhile
    harness.step()
    assert not publisher.connection.reading_paused
    fill(publisher, 200)
    assert harness.node.queues["/", "q"].backlog.ready > 200
    assert backlog_bytes(harness) <= LIMITS.queue_memory_bytes
    assert consumer.expect(Message).body.startswith(b"00000")


def test_who_publishes_and_consumes_on_one_connection_does_not_lock_itself_up(harness: Harness) -> None:
    client = consumer_of(harness, 1)
    fill(client, 200)
    assert client.connection.reading_paused
    harness.node.measure()
    assert not client.connection.reading_paused


def test_other_publishers_are_not_slowed(harness: Harness) -> None:
    consumer_of(harness, 1)
    publisher, other = harness.client(), harness.client()
    other.declare("elsewhere")
    fill(publisher, 200)
    other.publish(key="elsewhere")
    assert publisher.connection.reading_paused
    assert not other.connection.reading_paused
