"""Quorum queues: what is counted, in which order messages come back, what is not supported.

What comes in and goes out: durable queues of type quorum; returned messages.
Rules: messages come back by basic.reject, which counts towards the limit in every version of RabbitMQ.
Not here: arguments (`test_ext_arguments.py`), dead letters (`test_ext_dead_letter*.py`), single active consumer.
"""

from __future__ import annotations

import pika
import pytest

from conformance.extensions import Reader, bodies, depth, named, refused, take, wait_until
from conformance.rules import differs, rule

POISON = "RabbitMQ: quorum-queues#poison-message-handling"
COUNT = "x-delivery-count"


@pytest.fixture
def channel(channel):
    channel.confirm_delivery()
    return channel


@pytest.fixture
def quorum(channel, unique):
    def declare(**arguments: object) -> str:
        channel.queue_declare(unique("q"), durable=True, arguments={"x-queue-type": "quorum", **arguments})
        return unique("q")

    return declare


def held(channel, queue: str):
    return take(channel, queue, auto_ack=False)


def give_back(channel, got) -> None:
    channel.basic_reject(got.method.delivery_tag, requeue=True)


@rule(POISON, "x-delivery-count tells how often a message came back; redelivered is set from the first return on.")
def test_deliveries_are_counted(channel, quorum):
    queue = quorum(**{"x-delivery-limit": 10})
    channel.basic_publish("", queue, b"x")
    for turn in range(4):
        got = held(channel, queue)
        assert (got.headers.get(COUNT, 0), got.method.redelivered) == (turn, turn > 0)
        give_back(channel, got)


@rule(POISON, "A consumer sees the count as a basic.get does, beside the message's own headers.")
def test_a_consumer_sees_the_count(channel, quorum):
    queue = quorum(**{"x-delivery-limit": 10})
    channel.basic_publish("", queue, b"x", pika.BasicProperties(headers={"mine": 1}))
    reader = Reader(channel, queue)
    for turn in range(3):
        reader.wait(turn + 1)
        assert reader.got[turn].headers.get(COUNT, 0) == turn
        assert reader.got[turn].headers["mine"] == 1
        give_back(channel, reader.got[turn])


@rule(POISON, "A message that was on a channel that closes has been delivered once more.")
def test_a_closed_channel_counts(connection, channel, quorum):
    queue = quorum(**{"x-delivery-limit": 10})
    channel.basic_publish("", queue, b"x")
    for turn in range(3):
        other = connection.channel()
        assert held(other, queue).headers.get(COUNT, 0) == turn
        other.close()


@rule(POISON, "basic.nack with requeue counts towards the limit as basic.reject does.")
@differs(
    on="rabbitmq>=4.3", why="what is returned by basic.nack may come back as often as it likes since RabbitMQ 4.3"
)
def test_a_nack_counts_towards_the_limit(channel, quorum):
    queue = quorum(**{"x-delivery-limit": 1})
    channel.basic_publish("", queue, b"poison")
    for _ in range(2):
        channel.basic_nack(held(channel, queue).method.delivery_tag, requeue=True)
    channel.basic_publish("", queue, b"next")
    assert held(channel, queue).body == b"next"


@rule(POISON, "x-delivery-limit is how often a message may come back: one time more, and it is gone.")
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_message_is_dropped_beyond_the_limit(channel, quorum, limit):
    queue = quorum(**{"x-delivery-limit": limit})
    channel.basic_publish("", queue, b"poison")
    for _ in range(limit + 1):
        got = held(channel, queue)
        assert got.body == b"poison"
        give_back(channel, got)
    channel.basic_publish("", queue, b"next")
    assert held(channel, queue).body == b"next"


@rule(POISON, "Without an argument the limit is 20.")
@differs(on="rabbitmq<4", why="the default of 20 came with RabbitMQ 4.0")
def test_the_default_limit(channel, quorum):
    queue = quorum()
    channel.basic_publish("", queue, b"poison")
    for turn in range(21):
        got = held(channel, queue)
        assert got.headers.get(COUNT, 0) == turn
        give_back(channel, got)
    channel.basic_publish("", queue, b"next")
    assert held(channel, queue).body == b"next"


@rule(POISON, "A negative limit is no limit.")
@differs(on="rabbitmq<4", why="-1 means no limit since RabbitMQ 4.0; 3.10 drops at the first return")
def test_a_negative_limit_is_none(channel, quorum):
    queue = quorum(**{"x-delivery-limit": -1})
    channel.basic_publish("", queue, b"x")
    for _ in range(25):
        give_back(channel, take(channel, queue, auto_ack=False, within_s=2))


@rule(
    "RabbitMQ: quorum-queues#returned-messages",
    "Returned messages come before others, in the order of their return.",
)
def test_returned_messages_come_first(channel, quorum):
    queue = quorum(**{"x-delivery-limit": 10})
    for body in (b"a", b"b", b"c", b"d", b"e"):
        channel.basic_publish("", queue, body)
    first, second, third = (held(channel, queue) for _ in range(3))
    for got in (third, first, second):
        give_back(channel, got)
    wait_until(lambda: depth(channel, queue) == 5)
    assert bodies(channel, queue, 5) == [b"c", b"a", b"b", b"d", b"e"]


@rule("RabbitMQ: quorum-queues#returned-messages", "Messages that are returned together keep their order.")
def test_messages_returned_together_keep_their_order(channel, quorum):
    queue = quorum(**{"x-delivery-limit": 10})
    for body in (b"a", b"b", b"c", b"d", b"e"):
        channel.basic_publish("", queue, body)
    last = [held(channel, queue) for _ in range(3)][-1]
    channel.basic_nack(last.method.delivery_tag, multiple=True, requeue=True)
    wait_until(lambda: depth(channel, queue) == 5)
    assert bodies(channel, queue, 5) == [b"a", b"b", b"c", b"d", b"e"]


@rule("RabbitMQ: quorum-queues#feature-matrix", "if-unused and if-empty are not supported when deleting.")
@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_conditional_deletion_is_not_supported(broker, connect, quorum, flag):
    queue = quorum()
    told = (
        f"cannot delete {named(broker, 'queue', queue)}. queue.delete operations with {flag.replace('_', '-')} flag"
    )
    with refused(f"NOT_IMPLEMENTED - {told} set are not supported by quorum queues"):
        connect().channel().queue_delete(queue, **{flag: True})


@rule("RabbitMQ: quorum-queues#global-qos", "A prefetch that is shared by a channel is not supported.")
def test_global_prefetch_is_not_supported(broker, connect, quorum):
    queue = quorum()
    reading = connect().channel()
    reading.basic_qos(prefetch_count=1, global_qos=True)
    with refused(f"NOT_IMPLEMENTED - {named(broker, 'queue', queue)} does not support global qos"):
        Reader(reading, queue)


@rule(
    "RabbitMQ: quorum-queues#feature-matrix",
    "Publishing, confirming, purging and deleting are as with classic queues.",
)
def test_the_ordinary_operations(channel, quorum):
    queue = quorum()
    for number in range(10):
        channel.basic_publish("", queue, str(number).encode(), mandatory=True)
    assert bodies(channel, queue, 3) == [b"0", b"1", b"2"]
    wait_until(lambda: depth(channel, queue) == 7)
    assert channel.queue_purge(queue).method.message_count == 7
    channel.basic_publish("", queue, b"x")
    assert channel.queue_delete(queue).method.message_count == 1


@rule("RabbitMQ: quorum-queues#feature-matrix", "The delivery mode is delivered as it was published.")
def test_the_delivery_mode_is_delivered(channel, quorum):
    queue = quorum()
    for mode in (1, 2, None):
        channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=mode))
    assert [take(channel, queue).properties.delivery_mode for _ in range(3)] == [1, 2, None]


@rule("RabbitMQ: quorum-queues#feature-matrix", "A prefetch for each consumer holds.")
def test_prefetch_holds(connection, channel, quorum):
    queue = quorum()
    reading = connection.channel()
    reading.basic_qos(prefetch_count=2)
    reader = Reader(reading, queue)
    for number in range(5):
        channel.basic_publish("", queue, str(number).encode())
    reader.wait(2)
    assert reader.settle() == [b"0", b"1"]
    reader.ack(0)
    reader.wait(3)
    assert reader.bodies == [b"0", b"1", b"2"]


@rule("RabbitMQ: consumer-priority", "Consumer priorities work as with classic queues.")
def test_consumer_priorities(connection, channel, quorum):
    queue = quorum()
    low = Reader(connection.channel(), queue, arguments={"x-priority": 1}, auto_ack=True)
    high = Reader(connection.channel(), queue, arguments={"x-priority": 2}, auto_ack=True)
    for _ in range(5):
        channel.basic_publish("", queue, b"x")
    high.wait(5)
    assert low.settle() == []


@rule("RabbitMQ: dlx", "A cancelled consumer, a deleted queue: quorum queues tell their consumers too.")
def test_a_deleted_quorum_queue_cancels_its_consumers(connection, channel, quorum):
    reader = Reader(connection.channel(), quorum())
    channel.queue_delete(reader.queue)
    reader.wait_for(lambda: reader.cancelled, "basic.cancel")
