"""Single active consumer: one at a time, and who is next.

What comes in and goes out: consumers of a queue with x-single-active-consumer; who gets the messages.
Rules: classic and quorum queues keep the same rules, so each test runs on both.
Not here: exclusive consumers (`test_ext_consumers.py`).
"""

from __future__ import annotations

import pytest

from conformance.extensions import Reader, named, refused
from conformance.rules import differs, rule

SAC = {"x-single-active-consumer": True}
QUORUM_PRIORITIES = differs(
    on="rabbitmq<4", why="priorities in single active consumers of quorum queues came with 4.0"
)
KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


@pytest.fixture
def queue(channel, unique):
    channel.confirm_delivery()

    def declare(kind: str) -> str:
        channel.queue_declare(unique(kind), durable=True, arguments={**SAC, "x-queue-type": kind})
        return unique(kind)

    return declare


def publish(channel, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body)


@rule("RabbitMQ: consumers#single-active-consumer", "The first consumer is active, the others get nothing.")
@KINDS
def test_the_first_consumer_is_active(connection, channel, queue, kind):
    name = queue(kind)
    first, second = (Reader(connection.channel(), name, auto_ack=True) for _ in range(2))
    publish(channel, name, b"1", b"2", b"3")
    first.wait(3)
    assert second.settle() == []


@rule("RabbitMQ: consumers#single-active-consumer", "When the active consumer is cancelled the next one takes over.")
@KINDS
def test_the_next_one_takes_over(connection, channel, queue, kind):
    name = queue(kind)
    first, second, third = (Reader(connection.channel(), name, auto_ack=True) for _ in range(3))
    publish(channel, name, b"1")
    first.wait(1)
    first.channel.basic_cancel(first.tag)
    publish(channel, name, b"2")
    second.wait(1)
    assert (second.bodies, third.settle()) == ([b"2"], [])


@rule(
    "RabbitMQ: consumers#single-active-consumer",
    "When its channel or connection closes, the next one gets its messages too.",
)
@KINDS
@pytest.mark.parametrize("what", ["channel", "connection"])
def test_the_next_one_inherits(connection, connect, channel, queue, kind, what):
    name = queue(kind)
    leaving = connect()
    first = Reader(leaving.channel(), name)
    second = Reader(connection.channel(), name)
    publish(channel, name, b"1", b"2")
    first.wait(2)
    if what == "channel":
        first.channel.close()
    else:
        leaving.close()
    got = second.wait(2)
    assert [message.body for message in got] == [b"1", b"2"]
    assert [message.method.redelivered for message in got] == [True, True]


@rule("RabbitMQ: consumers#single-active-consumer", "The active consumer's full prefetch does not wake the others.")
@KINDS
def test_a_full_prefetch_does_not_wake_the_others(connection, channel, queue, kind):
    name = queue(kind)
    reading = connection.channel()
    reading.basic_qos(prefetch_count=1)
    first = Reader(reading, name)
    second = Reader(connection.channel(), name)
    publish(channel, name, b"1", b"2")
    first.wait(1)
    assert second.settle() == []
    first.ack()
    first.wait(2)
    assert (first.bodies, second.settle()) == ([b"1", b"2"], [])


@rule(
    "RabbitMQ: consumers#single-active-consumer",
    "What a cancelled consumer holds stays with its channel until it settles it.",
)
@KINDS
def test_a_cancelled_consumer_keeps_what_it_has(connection, channel, queue, kind):
    name = queue(kind)
    first, second = (Reader(connection.channel(), name) for _ in range(2))
    publish(channel, name, b"1")
    first.wait(1)
    first.channel.basic_cancel(first.tag)
    publish(channel, name, b"2")
    second.wait(1)
    assert second.bodies == [b"2"]
    first.channel.basic_nack(first.got[0].method.delivery_tag, requeue=True)
    second.wait(2)
    assert second.bodies == [b"2", b"1"]


@rule("RabbitMQ: consumers#single-active-consumer", "No exclusive consumer on a queue with a single active one.")
def test_no_exclusive_consumer(broker, connection, queue):
    name = queue("classic")
    with refused(f"ACCESS_REFUSED - {named(broker, 'queue', name)} in exclusive use"):
        Reader(connection.channel(), name, exclusive=True)


@rule("RabbitMQ: consumers#single-active-consumer", "A waiting consumer can leave without a trace.")
@KINDS
def test_a_waiting_consumer_may_leave(connection, channel, queue, kind):
    name = queue(kind)
    first, second, third = (Reader(connection.channel(), name, auto_ack=True) for _ in range(3))
    second.channel.basic_cancel(second.tag)
    first.channel.close()
    publish(channel, name, b"1")
    third.wait(1)
    assert third.bodies == [b"1"]


@rule("RabbitMQ: consumer-priority", "Among waiting consumers the highest priority is next.")
@pytest.mark.parametrize("kind", ["classic", pytest.param("quorum", marks=QUORUM_PRIORITIES)])
def test_the_highest_priority_is_next(connection, channel, queue, kind):
    name = queue(kind)
    first = Reader(connection.channel(), name, auto_ack=True)
    low = Reader(connection.channel(), name, auto_ack=True, arguments={"x-priority": 1})
    high = Reader(connection.channel(), name, auto_ack=True, arguments={"x-priority": 2})
    first.channel.close()
    publish(channel, name, b"1")
    high.wait(1, within_s=5)
    assert low.settle() == []


@rule("RabbitMQ: consumer-priority", "A consumer of a higher priority takes over when the active one holds nothing.")
@QUORUM_PRIORITIES
def test_a_higher_priority_takes_over(connection, channel, queue):
    name = queue("quorum")
    low = Reader(connection.channel(), name, arguments={"x-priority": 1})
    publish(channel, name, b"1")
    low.wait(1)
    high = Reader(connection.channel(), name, auto_ack=True, arguments={"x-priority": 2})
    publish(channel, name, b"2")
    low.ack(0)
    high.wait(1, within_s=5)
    assert (low.bodies, high.bodies) == ([b"1"], [b"2"])


@rule("RabbitMQ: consumers#single-active-consumer", "basic.get works beside the active consumer.")
def test_get_beside_the_active_consumer(connection, channel, queue):
    name = queue("classic")
    reading = connection.channel()
    reading.basic_qos(prefetch_count=1)
    first = Reader(reading, name)
    publish(channel, name, b"1", b"2")
    first.wait(1)
    assert channel.basic_get(name, auto_ack=True)[2] == b"2"
