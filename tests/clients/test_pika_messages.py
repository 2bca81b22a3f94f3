"""pika, blocking: publish, consume, get, and every way to settle a delivery."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .brokers import Connect

MakeQueue = Callable[..., str]


def publish(channel: BlockingChannel, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body)


def ready(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def take(channel: BlockingChannel, queue: str) -> tuple[bytes, bool]:
    """Body and redelivered of one message, taken for good."""
    method, _properties, body = channel.basic_get(queue, auto_ack=True)
    assert method is not None, "the queue is empty"
    return body, method.redelivered


def test_published_messages_are_consumed_in_order(channel: BlockingChannel, make_queue: MakeQueue) -> None:
    queue = make_queue()
    bodies = [b"%d" % number for number in range(500)]
    publish(channel, queue, *bodies)
    got = []
    for method, _properties, body in channel.consume(queue):
        assert not method.redelivered
        assert method.exchange == ""
        assert method.routing_key == queue
        got.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(got) == len(bodies):
            break
    channel.cancel()
    assert got == bodies
    assert ready(channel, queue) == 0


def test_get_tells_what_is_left_and_finds_nothing_at_the_end(channel: BlockingChannel, make_queue: MakeQueue) -> None:
    queue = make_queue()
    publish(channel, queue, b"one", b"two")
    method, _properties, body = channel.basic_get(queue)
    assert (body, method.message_count, method.redelivered, method.delivery_tag) == (b"one", 1, False, 1)
    method, _properties, body = channel.basic_get(queue)
    assert (body, method.message_count, method.delivery_tag) == (b"two", 0, 2)
    assert channel.basic_get(queue) == (None, None, None)
    channel.basic_ack(0, multiple=True)
    channel.queue_declare(queue, passive=True)


def test_ack_with_multiple_takes_all_up_to_the_tag(
    channel: BlockingChannel, connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    publish(channel, queue, b"1", b"2", b"3", b"4")
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(4)]
    channel.basic_ack(tags[2], multiple=True)
    channel.close()
    other = connect().channel()
    assert take(other, queue) == (b"4", True)
    assert ready(other, queue) == 0


@pytest.mark.parametrize("how", ["nack", "reject", "nack multiple", "recover", "channel close", "connection close"])
def test_what_is_given_back_returns_to_its_place_and_is_redelivered(
    channel: BlockingChannel, connect: Connect, make_queue: MakeQueue, how: str
) -> None:
    queue = make_queue()
    publish(channel, queue, b"1", b"2", b"3", b"4", b"5")
    connection = connect()
    taking = connection.channel()
    tags = [taking.basic_get(queue)[0].delivery_tag for _ in range(3)]
    if how == "nack":
        for tag in reversed(tags):
            taking.basic_nack(tag, requeue=True)
    elif how == "reject":
        for tag in tags:
            taking.basic_reject(tag, requeue=True)
    elif how == "nack multiple":
        taking.basic_nack(tags[-1], multiple=True, requeue=True)
    elif how == "recover":
        taking.basic_recover(requeue=True)
    elif how == "channel close":
        taking.close()
    else:
        connection.close()
    if taking.is_open:
        taking.queue_declare(queue, passive=True)  # its answer says that the methods before it are done
    assert [take(channel, queue) for _ in range(5)] == [
        (b"1", True),
        (b"2", True),
        (b"3", True),
        (b"4", False),
        (b"5", False),
    ]


@pytest.mark.parametrize("how", ["nack", "reject"])
def test_what_is_refused_without_requeue_is_gone(
    channel: BlockingChannel, connect: Connect, make_queue: MakeQueue, how: str
) -> None:
    queue = make_queue()
    publish(channel, queue, b"1", b"2")
    tag = channel.basic_get(queue)[0].delivery_tag
    if how == "nack":
        channel.basic_nack(tag, requeue=False)
    else:
        channel.basic_reject(tag, requeue=False)
    channel.close()
    other = connect().channel()
    assert take(other, queue) == (b"2", False)
    assert other.basic_get(queue) == (None, None, None)


def test_a_requeued_message_comes_again_to_the_same_consumer(channel: BlockingChannel, make_queue: MakeQueue) -> None:
    queue = make_queue()
    publish(channel, queue, b"again")
    seen = []
    for method, _properties, _body in channel.consume(queue):
        seen.append(method.redelivered)
        if method.redelivered:
            channel.basic_ack(method.delivery_tag)
            break
        channel.basic_nack(method.delivery_tag, requeue=True)
    assert seen == [False, True]


def test_recover_delivers_again_on_the_same_channel_with_new_tags(
    channel: BlockingChannel, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    publish(channel, queue, b"1", b"2")
    got: list[tuple[int, bool, bytes]] = []
    for method, _properties, body in channel.consume(queue):
        got.append((method.delivery_tag, method.redelivered, body))
        if len(got) == 2:
            channel.basic_recover(requeue=True)
        if len(got) == 4:
            break
    assert got == [(1, False, b"1"), (2, False, b"2"), (3, True, b"1"), (4, True, b"2")]


def test_auto_ack_takes_messages_when_they_are_sent(
    channel: BlockingChannel, connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    publish(channel, queue, b"1", b"2")
    connection = connect()
    for count, _message in enumerate(connection.channel().consume(queue, auto_ack=True), 1):
        if count == 2:
            break
    connection.close()
    assert channel.basic_get(queue) == (None, None, None)


def test_purge_takes_the_ready_and_leaves_the_unacknowledged(channel: BlockingChannel, make_queue: MakeQueue) -> None:
    queue = make_queue()
    publish(channel, queue, b"1", b"2", b"3")
    tag = channel.basic_get(queue)[0].delivery_tag
    assert channel.queue_purge(queue).method.message_count == 2
    assert ready(channel, queue) == 0
    channel.basic_nack(tag, requeue=True)
    assert take(channel, queue) == (b"1", True)


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 1_000_000, 10_000_000])
def test_bodies_of_any_size_come_out_as_they_went_in(
    channel: BlockingChannel, make_queue: MakeQueue, size: int
) -> None:
    queue = make_queue()
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    channel.basic_publish("", queue, body)
    channel.basic_publish("", queue, b"after it")
    for expected in (body, b"after it"):
        _method, _properties, got = next(channel.consume(queue, auto_ack=True))
        assert got == expected
    channel.cancel()


def test_a_big_body_reaches_several_queues_whole(
    channel: BlockingChannel, make_queue: MakeQueue, make_exchange: Callable[..., str]
) -> None:
    exchange = make_exchange("fanout")
    queues = [make_queue() for _ in range(3)]
    for queue in queues:
        channel.queue_bind(queue, exchange)
    bodies = [bytes([fill]) * 300_000 for fill in b"abc"]
    for body in bodies:
        channel.basic_publish(exchange, "", body)
    for queue in queues:
        assert [take(channel, queue)[0] for _ in bodies] == bodies


def test_many_channels_of_one_connection_are_apart(
    connection: pika.BlockingConnection, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    channels = [connection.channel() for _ in range(100)]
    for number, channel in enumerate(channels):
        channel.basic_publish("", queue, b"%d" % number)
    tags = [channel.basic_get(queue)[0].delivery_tag for channel in channels]
    assert set(tags) == {1}, "delivery tags are scoped to the channel"
    for channel in channels[::2]:
        channel.basic_ack(1)
        channel.close()
    for channel in channels[1::2]:
        channel.close()
    assert ready(connection.channel(), queue) == 50
