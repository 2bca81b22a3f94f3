"""Consumer timeout: who keeps a delivery too long loses its channel.

What comes in and goes out: queues and consumers with x-consumer-timeout; the close of the channel.
Rules: RabbitMQ looks once a minute and takes no timeout below that, so nothing here can be asked of it quickly.
Not here: that the argument is accepted (`test_ext_arguments.py`).
"""

from __future__ import annotations

import time

import pika
import pytest

from conformance.extensions import Reader, take
from conformance.rules import rule

SOURCE = "RabbitMQ: consumers#acknowledgement-timeout"
TIMEOUT_MS = 300
KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


@pytest.fixture(autouse=True)
def _quick(broker):
    if broker.name == "rabbitmq":
        pytest.skip("RabbitMQ looks for timeouts once a minute")


@pytest.fixture
def queue(channel, unique):
    channel.confirm_delivery()

    def declare(kind: str, **arguments: object) -> str:
        channel.queue_declare(unique("q"), durable=True, arguments={"x-queue-type": kind, **arguments})
        return unique("q")

    return declare


def closed_with(reader: Reader) -> str:
    """The text with which the reader's channel was closed."""
    closed: list[pika.exceptions.ChannelClosedByBroker] = []
    reader.channel._impl.add_on_close_callback(lambda _, reason: closed.append(reason))
    reader.wait_for(lambda: bool(closed), "the close of the channel")
    return str(closed[0].reply_text)


def told(channel_number: int) -> str:
    return (
        f"PRECONDITION_FAILED - delivery acknowledgement on channel {channel_number} timed out. Timeout value used: "
        f"{TIMEOUT_MS} ms. This timeout value can be configured, see consumers doc guide to learn more"
    )


@rule(SOURCE, "A delivery that is not acknowledged in time closes its channel with 406 and goes back to its queue.")
@KINDS
def test_a_consumer_that_keeps_a_delivery_too_long(connection, channel, queue, kind):
    name = queue(kind, **{"x-consumer-timeout": TIMEOUT_MS})
    reader = Reader(connection.channel(), name)
    before = time.monotonic()
    channel.basic_publish("", name, b"x")
    reader.wait(1)
    assert closed_with(reader) == told(reader.channel.channel_number)
    assert time.monotonic() - before >= TIMEOUT_MS / 1000
    got = take(channel, name)
    assert (got.body, got.method.redelivered) == (b"x", True)


@rule(SOURCE, "A consumer that acknowledges in time keeps its channel.")
def test_a_consumer_that_acknowledges_in_time(connection, channel, queue):
    slow_queue = queue("classic", **{"x-consumer-timeout": TIMEOUT_MS})
    reader = Reader(connection.channel(), slow_queue)
    end = time.monotonic() + 3 * TIMEOUT_MS / 1000
    count = 0
    while time.monotonic() < end:
        channel.basic_publish("", slow_queue, b"x")
        count += 1
        reader.wait(count)
        reader.ack()
    assert reader.channel.is_open


@rule(SOURCE, "Deliveries without acknowledgement know no timeout.")
def test_deliveries_without_acknowledgement(connection, channel, queue):
    name = queue("classic", **{"x-consumer-timeout": TIMEOUT_MS})
    free = Reader(connection.channel(), name, auto_ack=True)
    channel.basic_publish("", name, b"free")
    free.wait(1)
    free.channel.basic_cancel(free.tag)
    held = Reader(connection.channel(), name)
    channel.basic_publish("", name, b"held")
    held.wait(1)
    assert closed_with(held) == told(held.channel.channel_number)
    assert free.channel.is_open  # its delivery was older


@rule(SOURCE, "A consumer's own x-consumer-timeout counts too.")
def test_a_timeout_of_the_consumer(connection, channel, queue):
    name = queue("quorum")
    reader = Reader(connection.channel(), name, arguments={"x-consumer-timeout": TIMEOUT_MS})
    channel.basic_publish("", name, b"x")
    reader.wait(1)
    assert closed_with(reader) == told(reader.channel.channel_number)
