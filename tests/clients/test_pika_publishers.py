"""pika: what a publisher may say beside exchange and key (copies, replies), and the exchange types of RabbitMQ's
plugins. Where RabbitMQ runs without a plugin, the tests of its type are skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .conftest import Connect

MakeQueue = Callable[..., str]
Properties = pika.BasicProperties
REPLY_TO = "amq.rabbitmq.reply-to"


def drained(channel: BlockingChannel, queue: str) -> list[tuple[bytes, Any]]:
    """Body and headers of all messages."""
    found: list[Any] = []
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((body, properties.headers))


@pytest.fixture
def make_exchange(connect: Connect) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def make(kind: str, **arguments: Any) -> str:
        channel = connect().channel()
        name = f"plugin-types-{len(made)}"
        given = {key.replace("_", "-"): value for key, value in arguments.items()}
        try:
            channel.exchange_declare(name, kind, arguments=given)
        except pika.exceptions.AMQPError as error:
            if "unknown exchange type" in str(error):
                pytest.skip(f"this broker has no plugin for {kind}")
            raise
        made.append(name)
        return name

    yield make
    channel = connect().channel()
    for name in made:
        channel.exchange_delete(name)


def test_copies_go_to_all_keys_and_blind_ones_are_hidden(channel: BlockingChannel, make_queue: MakeQueue) -> None:
    to, cc, bcc = make_queue(), make_queue(), make_queue()
    channel.confirm_delivery()
    channel.basic_publish("", to, b"x", Properties(headers={"CC": [cc], "BCC": [bcc, to], "n": 7}), mandatory=True)
    expected = [(b"x", {"CC": [cc], "n": 7})]
    assert [drained(channel, queue) for queue in (to, cc, bcc)] == [expected] * 3


def test_a_reply_comes_back_on_the_channel_of_the_request(
    connect: Connect, channel: BlockingChannel, make_queue: MakeQueue
) -> None:
    requests = make_queue()
    replies: list[tuple[str, str | None, bytes]] = []

    def on_reply(_: Any, method: Any, properties: Any, body: bytes) -> None:
        replies.append((method.routing_key, properties.correlation_id, body))

    channel.basic_consume(REPLY_TO, on_reply, auto_ack=True)
    channel.basic_publish("", requests, b"ping", Properties(reply_to=REPLY_TO, correlation_id="42"))
    server = connect().channel()
    _, request, body = next(server.consume(requests, auto_ack=True))
    assert (body, request.correlation_id) == (b"ping", "42")
    assert request.reply_to.startswith(REPLY_TO + ".")
    alive = server.queue_declare(request.reply_to, passive=True).method
    assert (alive.message_count, alive.consumer_count) == (0, 1)
    server.basic_publish("", request.reply_to, b"pong", Properties(correlation_id="42"))
    while not replies:
        channel.connection.process_data_events(time_limit=1)
    assert replies == [(request.reply_to, "42", b"pong")]
    channel.close()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue") as gone:
        server.queue_declare(request.reply_to, passive=True)
    assert gone.value.reply_code == 404


def test_a_consistent_hash_keeps_keys_together(
    channel: BlockingChannel, make_queue: MakeQueue, make_exchange: Callable[..., str]
) -> None:
    exchange = make_exchange("x-consistent-hash", hash_header="customer")
    queues = [make_queue() for _ in range(3)]
    for queue in queues:
        channel.queue_bind(queue, exchange, "10")
    channel.confirm_delivery()
    for i in range(120):
        channel.basic_publish(exchange, f"{i}", b"%d" % (i % 40), Properties(headers={"customer": f"c{i % 40}"}))
    found = [Counter(body for body, _ in drained(channel, queue)) for queue in queues]
    assert all(count == 3 for each in found for count in each.values())
    assert sum(map(len, found)) == 40
    assert all(found)


def test_random_uses_every_queue(
    channel: BlockingChannel, make_queue: MakeQueue, make_exchange: Callable[..., str]
) -> None:
    exchange = make_exchange("x-random")
    queues = [make_queue() for _ in range(2)]
    for queue in queues:
        channel.queue_bind(queue, exchange, "")
    channel.confirm_delivery()
    for _ in range(100):
        channel.basic_publish(exchange, "", b"x")
    found = [len(drained(channel, queue)) for queue in queues]
    assert sum(found) == 100
    assert min(found) > 10


def test_modulus_hash_keeps_keys_together(
    channel: BlockingChannel, make_queue: MakeQueue, make_exchange: Callable[..., str]
) -> None:
    exchange = make_exchange("x-modulus-hash")
    queues = [make_queue() for _ in range(2)]
    for queue in queues:
        channel.queue_bind(queue, exchange, "")
    channel.confirm_delivery()
    for i in range(60):
        channel.basic_publish(exchange, f"{i % 20}", b"%d" % (i % 20))
    found = [Counter(body for body, _ in drained(channel, queue)) for queue in queues]
    assert all(count == 3 for each in found for count in each.values())
    assert sum(map(len, found)) == 20


def test_history_comes_to_whoever_is_bound_later(
    channel: BlockingChannel, make_queue: MakeQueue, make_exchange: Callable[..., str]
) -> None:
    exchange = make_exchange("x-recent-history", x_recent_history_length=2)
    channel.confirm_delivery()
    for i in range(4):
        headers = {"x-recent-history-no-store": True} if i == 2 else {"n": i}
        channel.basic_publish(exchange, "k", b"%d" % i, Properties(headers=headers))
    late = make_queue()
    channel.queue_bind(late, exchange, "")
    assert drained(channel, late) == [(b"1", {"n": 1}), (b"3", {"n": 3})]


def test_a_delayed_exchange_routes_as_the_type_that_it_names(
    channel: BlockingChannel, make_queue: MakeQueue, make_exchange: Callable[..., str]
) -> None:
    exchange = make_exchange("x-delayed-message", x_delayed_type="topic")
    queue = make_queue()
    channel.queue_bind(queue, exchange, "a.*")
    channel.confirm_delivery()
    for key in ("a.b", "b.b"):
        channel.basic_publish(exchange, key, key.encode())
    assert drained(channel, queue) == [(b"a.b", None)]
