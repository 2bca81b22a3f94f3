"""Delayed messages: the header x-delay and the exchange type x-delayed-message.

What comes in and goes out: messages with x-delay; when and how they arrive.
Rules: 1. Never before the delay is over, by the publisher's clock. 2. RabbitMQ needs a plugin for the type, which
Debian does not bring, and has no header; its README is what the tests of the type are after.
Not here: expiration (`test_ext_ttl.py`).
"""

from __future__ import annotations

import time

import pika
import pytest

from conformance.extensions import depth, refused, take
from conformance.rules import differs, rule

SOURCE = "RabbitMQ: scheduled-messages"
pytestmark = differs(
    on="rabbitmq", why="the type needs a plugin that Debian does not bring; the header elsewhere is amqpd's own"
)
DELAYED = "x-delayed-message"


@pytest.fixture
def channel(channel):
    channel.confirm_delivery()
    return channel


@pytest.fixture
def delayed(channel, unique):
    """A delayed exchange, and a queue that gets what comes out of it."""

    def declare(kind: str = "direct") -> tuple[str, str]:
        channel.exchange_declare(unique("ex"), DELAYED, arguments={"x-delayed-type": kind})
        channel.queue_declare(unique("q"), exclusive=True)
        channel.queue_bind(unique("q"), unique("ex"), "k")
        return unique("ex"), unique("q")

    return declare


def delay(milliseconds: object) -> pika.BasicProperties:
    return pika.BasicProperties(headers={"x-delay": milliseconds, "mine": 1})


@rule(SOURCE, "A message with x-delay arrives when its delay is over, and not before.")
def test_a_delayed_message_arrives_in_time(channel, delayed):
    exchange, queue = delayed()
    before = time.monotonic()
    channel.basic_publish(exchange, "k", b"x", delay(150))
    assert depth(channel, queue) == 0
    got = take(channel, queue, within_s=5)
    assert time.monotonic() - before >= 0.150
    assert (got.body, got.method.exchange, got.method.routing_key) == (b"x", exchange, "k")


@rule(SOURCE, "A message that was delayed arrives with x-delay negative, so that no other exchange delays it again.")
def test_the_header_is_negative_afterwards(channel, delayed):
    exchange, queue = delayed()
    channel.basic_publish(exchange, "k", b"x", delay(30))
    assert take(channel, queue, within_s=5).headers == {"x-delay": -30, "mine": 1}


@rule(SOURCE, "A shorter delay overtakes a longer one.")
def test_messages_arrive_in_the_order_of_their_times(channel, delayed):
    exchange, queue = delayed()
    for milliseconds in (500, 300, 100):
        channel.basic_publish(exchange, "k", str(milliseconds).encode(), delay(milliseconds))
    assert [take(channel, queue, within_s=5).body for _ in range(3)] == [b"100", b"300", b"500"]


@rule(SOURCE, "Without x-delay, with 0 or less, a message is not delayed.")
@pytest.mark.parametrize("value", [None, 0, -5], ids=["none", "zero", "negative"])
def test_no_delay(channel, delayed, value):
    exchange, queue = delayed()
    properties = delay(value) if value is not None else None
    channel.basic_publish(exchange, "k", b"x", properties)
    assert depth(channel, queue) == 1


@rule(SOURCE, "x-delay may be a string of digits.")
def test_a_string_of_digits(channel, delayed):
    exchange, queue = delayed()
    before = time.monotonic()
    channel.basic_publish(exchange, "k", b"x", delay("100"))
    take(channel, queue, within_s=5)
    assert time.monotonic() - before >= 0.100


@rule(SOURCE, "x-delayed-type says how the exchange routes.")
@pytest.mark.parametrize(
    ("kind", "binding", "key", "matches"),
    [
        ("direct", "a.b", "a.b", True),
        ("direct", "a.*", "a.b", False),
        ("topic", "a.*", "a.b", True),
        ("fanout", "x", "a.b", True),
    ],
)
def test_the_delayed_type_routes(channel, unique, kind, binding, key, matches):
    channel.exchange_declare(unique("ex"), DELAYED, arguments={"x-delayed-type": kind})
    for word, pattern in (("q", binding), ("marker", "marker")):
        channel.queue_declare(unique(word), exclusive=True)
        channel.queue_bind(unique(word), unique("ex"), pattern)
    channel.basic_publish(unique("ex"), key, b"x", delay(20))
    channel.basic_publish(unique("ex"), "marker", b"x", delay(60))
    take(channel, unique("marker"), within_s=5)
    assert (depth(channel, unique("q")) > 0) is matches


@rule(SOURCE, "The bindings count that there are when the delay is over.")
def test_bindings_at_the_end_of_the_delay_count(channel, delayed, unique):
    exchange, queue = delayed()
    channel.basic_publish(exchange, "late", b"x", delay(300))
    channel.queue_bind(queue, exchange, "late")
    assert take(channel, queue, within_s=5).body == b"x"


@rule(SOURCE, "x-delayed-type is required, and names another type that exists.")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": 5}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": DELAYED}, "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'"),
        ({"x-delayed-type": "bogus"}, "unknown exchange type 'bogus'"),
    ],
    ids=["missing", "number", "itself", "unknown"],
)
def test_the_delayed_type_is_checked(channel, unique, arguments, told):
    with refused(f"PRECONDITION_FAILED - {told}"):
        channel.exchange_declare(unique("ex"), DELAYED, arguments=arguments)


@rule(SOURCE, "amqpd: every exchange delays a message with x-delay, the default exchange too.")
@pytest.mark.parametrize("kind", ["default", "direct", "topic", "fanout"])
def test_every_exchange_delays(channel, unique, kind):
    queue = unique("q")
    channel.queue_declare(queue, exclusive=True)
    exchange = "" if kind == "default" else unique("ex")
    if exchange:
        channel.exchange_declare(exchange, kind)
        channel.queue_bind(queue, exchange, queue)
    before = time.monotonic()
    channel.basic_publish(exchange, queue, b"x", delay(150))
    got = take(channel, queue, within_s=5)
    assert time.monotonic() - before >= 0.150
    assert got.headers["x-delay"] == -150


@rule(SOURCE, "A delay and an expiration: the expiration begins when the message is in its queue.")
def test_a_delay_and_an_expiration(channel, unique):
    channel.queue_declare(unique("dead"), exclusive=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": unique("dead")}
    channel.queue_declare(unique("q"), exclusive=True, arguments=arguments)
    before = time.monotonic()
    properties = pika.BasicProperties(headers={"x-delay": 150}, expiration="100")
    channel.basic_publish("", unique("q"), b"x", properties)
    assert take(channel, unique("dead"), within_s=5).body == b"x"
    assert time.monotonic() - before >= 0.250
