"""Exchanges of all four types, and what connects them: bindings, exchange to exchange, alternate
exchanges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .brokers import Connect

Make = Callable[..., str]


def everything_in(channel: BlockingChannel, queue: str) -> list[bytes]:
    bodies = []
    while (found := channel.basic_get(queue, auto_ack=True))[0] is not None:
        bodies.append(found[2])
    return bodies


def test_default_exchange_reaches_the_queue_of_that_name(channel: BlockingChannel, make_queue: Make) -> None:
    one, other = make_queue("one"), make_queue("other")
    channel.basic_publish("", one, b"1")
    assert everything_in(channel, one) == [b"1"]
    assert everything_in(channel, other) == []


def test_direct_compares_whole_keys(channel: BlockingChannel, make_queue: Make, make_exchange: Make) -> None:
    exchange, queue = make_exchange("direct"), make_queue()
    channel.queue_bind(queue, exchange, "red")
    channel.queue_bind(queue, exchange, "blue")
    for key in ("red", "blue", "re", "red.", "", "RED"):
        channel.basic_publish(exchange, key, key.encode())
    assert everything_in(channel, queue) == [b"red", b"blue"]


def test_fanout_ignores_keys_and_gives_each_queue_one(
    channel: BlockingChannel, make_queue: Make, make_exchange: Make
) -> None:
    exchange, queues = make_exchange("fanout"), [make_queue() for _ in range(3)]
    for queue in queues:
        channel.queue_bind(queue, exchange, "a")
        channel.queue_bind(queue, exchange, "b")
    channel.basic_publish(exchange, "whatever", b"1")
    assert [everything_in(channel, queue) for queue in queues] == [[b"1"]] * 3


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "a.B", "ab", "a."]),
        ("a.*", ["a.b", "a.cc", "a."], ["a", "a.b.c", "b.a"]),
        ("*.b", ["a.b", ".b"], ["b", "a.a.b"]),
        ("#", ["", "a", "a.b.c", ".", "..."], []),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "", "b.a"]),
        ("#.z", ["z", "a.z", "a.b.z"], ["", "z.a"]),
        ("a.#.z", ["a.z", "a.b.z", "a.z.z", "a.b.c.z"], ["a", "z", "a.b"]),
        ("#.a.#", ["a", "b.a", "a.b", "b.a.b"], ["", "b"]),
        ("*.#", ["a", "a.b"], [""]),
        ("#.*", ["a", "a.b"], [""]),
        ("*.#.*", ["a.b", "a.b.c"], ["", "a"]),
        ("a.*.#", ["a.b", "a.b.c"], ["a"]),
        ("", [""], ["a"]),
    ],
)
def test_topic_patterns(
    channel: BlockingChannel,
    make_queue: Make,
    make_exchange: Make,
    pattern: str,
    fits: list[str],
    does_not: list[str],
) -> None:
    exchange, queue = make_exchange("topic"), make_queue()
    channel.queue_bind(queue, exchange, pattern)
    for key in [*does_not, *fits]:
        channel.basic_publish(exchange, key, key.encode())
    assert everything_in(channel, queue) == [key.encode() for key in fits]


def test_topic_gives_one_copy_however_many_patterns_fit(
    channel: BlockingChannel, make_queue: Make, make_exchange: Make
) -> None:
    exchange, queue = make_exchange("topic"), make_queue()
    for pattern in ("a.b", "a.*", "#", "*.b"):
        channel.queue_bind(queue, exchange, pattern)
    channel.basic_publish(exchange, "a.b", b"1")
    channel.queue_unbind(queue, exchange, "#")
    channel.basic_publish(exchange, "c", b"2")
    channel.basic_publish(exchange, "a.b", b"3")
    assert everything_in(channel, queue) == [b"1", b"3"]


@pytest.mark.parametrize(
    ("arguments", "headers", "fits"),
    [
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 0}, True),
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
        ({"a": 1, "b": "x"}, {"a": 1}, False),
        ({"a": 1, "b": "x"}, {"a": 1, "b": "x"}, True),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, True),
        ({"x-match": "any", "a": 1, "b": "x"}, {"a": 2, "b": "y"}, False),
        ({"x-match": "any", "a": 1}, None, False),
        ({"x-match": "all"}, {"a": 1}, True),
        ({"x-match": "all"}, None, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "all", "a": 1}, {"a": "1"}, False),
        ({"x-match": "all", "a": None}, {"a": "anything"}, True),
        ({"x-match": "all", "a": None}, {"b": 1}, False),
        ({"x-match": "all", "x-a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2}, False),
        ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"x-a": 1, "b": 2}, True),
        ({"x-match": "any", "x-a": 1, "b": 2}, {"x-a": 1}, False),
        ({"x-match": "any-with-x", "x-a": 1, "b": 2}, {"x-a": 1}, True),
    ],
)
def test_headers_matching(
    channel: BlockingChannel,
    make_queue: Make,
    make_exchange: Make,
    arguments: dict[str, Any],
    headers: dict[str, Any] | None,
    fits: bool,
) -> None:
    exchange, queue = make_exchange("headers"), make_queue()
    channel.queue_bind(queue, exchange, "", arguments)
    channel.basic_publish(exchange, "", b"1", pika.BasicProperties(headers=headers))
    assert everything_in(channel, queue) == ([b"1"] if fits else [])


def test_bindings_that_differ_in_arguments_are_two(
    channel: BlockingChannel, make_queue: Make, make_exchange: Make
) -> None:
    exchange, queue = make_exchange("headers"), make_queue()
    channel.queue_bind(queue, exchange, "", {"x-match": "all", "a": 1})
    channel.queue_bind(queue, exchange, "", {"x-match": "all", "a": 2})
    channel.queue_unbind(queue, exchange, "", {"x-match": "all", "a": 1})
    for value in (1, 2):
        channel.basic_publish(exchange, "", b"%d" % value, pika.BasicProperties(headers={"a": value}))
    assert everything_in(channel, queue) == [b"2"]


def test_exchange_to_exchange_also_in_a_circle(
    channel: BlockingChannel, make_queue: Make, make_exchange: Make
) -> None:
    first, second, queue = make_exchange("topic"), make_exchange("direct"), make_queue()
    channel.exchange_bind(second, first, "#.x")
    channel.exchange_bind(first, second, "a.x")
    channel.queue_bind(queue, second, "a.x")
    channel.queue_bind(queue, first, "a.*")
    channel.basic_publish(first, "a.x", b"both ways")
    channel.basic_publish(first, "a.y", b"straight")
    channel.basic_publish(second, "a.x", b"from the second")
    channel.exchange_unbind(second, first, "#.x")
    channel.queue_unbind(queue, first, "a.*")
    channel.basic_publish(first, "a.x", b"nowhere")
    assert everything_in(channel, queue) == [b"both ways", b"straight", b"from the second"]


def test_the_alternate_exchange_gets_what_found_no_queue(
    channel: BlockingChannel, make_queue: Make, make_exchange: Make
) -> None:
    spare = make_exchange("fanout")
    exchange = make_exchange("direct", arguments={"alternate-exchange": spare})
    queue, rest = make_queue(), make_queue()
    channel.queue_bind(queue, exchange, "known")
    channel.queue_bind(rest, spare)
    channel.confirm_delivery()
    for key in ("known", "unknown"):
        channel.basic_publish(exchange, key, key.encode(), mandatory=True)
    assert everything_in(channel, queue) == [b"known"]
    assert everything_in(channel, rest) == [b"unknown"]


def test_an_auto_delete_exchange_goes_with_its_last_binding(
    channel: BlockingChannel, make_queue: Make, unique: Callable[[str], str], connect: Connect
) -> None:
    exchange, queue = unique("going"), make_queue()
    channel.exchange_declare(exchange, "fanout", auto_delete=True)
    channel.queue_bind(queue, exchange)
    channel.exchange_declare(exchange, passive=True)
    channel.queue_unbind(queue, exchange)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.exchange_declare(exchange, passive=True)


@pytest.mark.parametrize(
    "name", ["amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"], ids=lambda name: name
)
def test_the_predeclared_exchanges_are_there(
    channel: BlockingChannel, make_queue: Make, unique: Callable[[str], str], name: str
) -> None:
    channel.exchange_declare(name, passive=True)
    queue, key = make_queue(), unique("key")
    channel.queue_bind(queue, name, key, {"k": key} if name in ("amq.headers", "amq.match") else None)
    channel.basic_publish(name, key, b"1", pika.BasicProperties(headers={"k": key}))
    assert everything_in(channel, queue) == [b"1"]


def test_deleting_an_exchange_takes_its_bindings(
    channel: BlockingChannel, make_queue: Make, make_exchange: Make
) -> None:
    exchange, queue = make_exchange("fanout"), make_queue()
    channel.queue_bind(queue, exchange)
    channel.exchange_delete(exchange)
    channel.exchange_delete(exchange)  # deleting what is not there succeeds
    channel.exchange_declare(exchange, "fanout")
    channel.basic_publish(exchange, "", b"1")
    assert everything_in(channel, queue) == []
