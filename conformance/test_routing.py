"""Routing: what direct, fanout, topic and headers exchanges match."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from conformance.broker import Broker
from conformance.conftest import Names
from conformance.rules import differs, rule
from conformance.talk import ask, bodies, check_close, new_queue, publish, refused
from tests.clients.wire import HEADER, METHOD, Wire, frame_bytes, short_string

Basic, Exchange, Queue = commands.Basic, commands.Exchange, commands.Queue


@rule(
    "AMQP 0-9-1 section 3.1.3.1", "A direct exchange compares keys octet by octet; several queues may have one key."
)
def test_direct(client: Wire) -> None:
    queues = [new_queue(client) for _ in range(3)]
    for queue, key in zip(queues, ("key", "key", "KEY"), strict=True):
        ask(client, Queue.Bind(queue=queue, exchange="amq.direct", routing_key=key + queues[0]))
    publish(client, "amq.direct", "key" + queues[0], mandatory=True)
    assert [bodies(client, queue) for queue in queues] == [[b"x"], [b"x"], []]


@rule("AMQP 0-9-1 section 3.1.3.1", "The default exchange leads to the queue that has the key as its name, exactly.")
def test_default(client: Wire) -> None:
    queue = new_queue(client)
    publish(client, "", queue)
    publish(client, "", queue.upper())
    publish(client, "", queue + " ")
    assert bodies(client, queue) == [b"x"]


@rule("AMQP 0-9-1 section 3.1.3.2", "A fanout exchange leads to all its queues, whatever the key.")
def test_fanout(client: Wire, unique: Names) -> None:
    ask(client, Exchange.Declare(exchange=unique("x"), exchange_type="fanout"))
    queues = [new_queue(client) for _ in range(3)]
    for queue in queues:
        ask(client, Queue.Bind(queue=queue, exchange=unique("x"), routing_key=queue))
    for key in ("", "any", queues[0]):
        publish(client, unique("x"), key)
    assert [bodies(client, queue) for queue in queues] == [[b"x"] * 3] * 3


@rule("AMQP 0-9-1 section 3.1.3.3", "In a topic pattern * is one word, # any number of words, none too.")
@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "A.b", ""]),
        ("*", ["a"], ["a.b", ""]),
        ("a.*", ["a.b", "a."], ["a", "a.b.c"]),
        ("*.*", ["a.b", "."], ["a", "a.b.c"]),
        ("#", ["", "a", "a.b.c", ".."], []),
        ("a.#", ["a", "a.b", "a.b.c"], ["ab", "b.a", ""]),
        ("#.a", ["a", "b.a", "c.b.a"], ["ab", "a.b"]),
        ("a.#.b", ["a.b", "a.c.b", "a.c.d.b", "a.b.b"], ["a", "b", "a.b.c"]),
        ("#.a.#", ["a", "b.a", "a.b", "b.a.b"], ["b", ""]),
        ("*.#", ["a", "a.b"], [""]),
        ("#.*", ["a", "a.b"], [""]),
        ("#.#", ["", "a", "a.b"], []),
        ("*.a.#.b.*", ["x.a.b.y", "x.a.1.2.b.y"], ["a.b", "x.a.b"]),
        ("a*.b", ["a*.b"], ["ax.b"]),
        ("", [""], ["a"]),
    ],
)
def test_topic(client: Wire, unique: Names, pattern: str, matching: list[str], others: list[str]) -> None:
    ask(client, Exchange.Declare(exchange=unique("x"), exchange_type="topic"))
    queue = new_queue(client)
    ask(client, Queue.Bind(queue=queue, exchange=unique("x"), routing_key=pattern or "nothing"))
    if not pattern:  # an empty key with a queue's name is an empty key
        ask(client, Queue.Unbind(queue=queue, exchange=unique("x"), routing_key="nothing"))
        ask(client, Queue.Bind(queue=queue, exchange=unique("x"), routing_key=""))
    for key in matching + others:
        publish(client, unique("x"), key, key.encode() or b"(empty)")
    assert bodies(client, queue) == [key.encode() or b"(empty)" for key in matching]


@rule("AMQP 0-9-1 section 3.1.3.3", "A queue with several patterns that match gets one copy; each can be taken away.")
def test_topic_once(client: Wire, unique: Names) -> None:
    ask(client, Exchange.Declare(exchange=unique("x"), exchange_type="topic"))
    queue, patterns = new_queue(client), ["a.#", "a.*", "a.b", "#"]
    for pattern in patterns:
        ask(client, Queue.Bind(queue=queue, exchange=unique("x"), routing_key=pattern))
    for pattern in patterns:
        publish(client, unique("x"), "a.b")
        assert bodies(client, queue) == [b"x"]
        ask(client, Queue.Unbind(queue=queue, exchange=unique("x"), routing_key=pattern))
    publish(client, unique("x"), "a.b")
    assert bodies(client, queue) == []


HEADERS: list[tuple[str, dict[str, Any], dict[str, Any] | None, bool]] = [
    ("all: each is there", {"x-match": "all", "a": 1, "b": "t"}, {"a": 1, "b": "t", "c": 2}, True),
    ("all: one is missing", {"x-match": "all", "a": 1, "b": "t"}, {"a": 1}, False),
    ("all: one is different", {"x-match": "all", "a": 1, "b": "t"}, {"a": 1, "b": "u"}, False),
    ("any: one is there", {"x-match": "any", "a": 1, "b": "t"}, {"b": "t"}, True),
    ("any: none is there", {"x-match": "any", "a": 1, "b": "t"}, {"a": 2}, False),
    ("without x-match: all", {"a": 1, "b": 2}, {"a": 1}, False),
    ("all of nothing", {"x-match": "all"}, {}, True),
    ("any of nothing", {"x-match": "any"}, {"a": 1}, False),
    ("no headers at all", {"x-match": "any", "a": 1}, None, False),
    ("void: any value will do", {"x-match": "all", "a": None}, {"a": "whatever"}, True),
    ("void: it must be there", {"x-match": "all", "a": None}, {"b": 1}, False),
    ("widths do not matter", {"x-match": "all", "a": 5}, {"a": 5 + (1 << 40) - (1 << 40)}, True),
    ("a number is no text", {"x-match": "all", "a": 1}, {"a": "1"}, False),
    ("a number is no boolean", {"x-match": "all", "a": 1}, {"a": True}, False),
    ("case matters", {"x-match": "all", "a": "T"}, {"a": "t"}, False),
    ("x- headers are passed over", {"x-match": "all", "a": 1, "x-b": 2}, {"a": 1}, True),
    ("all-with-x: they are not", {"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1}, False),
    ("all-with-x: each is there", {"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1, "x-b": 2}, True),
    ("any-with-x", {"x-match": "any-with-x", "a": 1, "x-b": 2}, {"x-b": 2}, True),
]


@rule("AMQP 0-9-1 section 3.1.3.4", "A headers exchange compares headers with the binding's arguments, all or any.")
@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        *(pytest.param(*case[1:], id=case[0]) for case in HEADERS),
        pytest.param(
            {"x-match": "all", "a": 1},
            {"a": 1.0},
            True,
            id="an integer is equal to a float",
        ),
    ],
)
def test_headers(
    client: Wire, unique: Names, arguments: dict[str, Any], headers: dict[str, Any] | None, matches: bool
) -> None:
    ask(client, Exchange.Declare(exchange=unique("x"), exchange_type="headers"))
    queue = new_queue(client)
    ask(client, Queue.Bind(queue=queue, exchange=unique("x"), routing_key="ignored", arguments=arguments))
    publish(client, unique("x"), "other", properties=Basic.Properties(headers=headers))
    assert bodies(client, queue) == ([b"x"] if matches else [])


@rule("RabbitMQ: exchanges", "An x-match that nobody knows is refused with 406.")
@pytest.mark.parametrize("value", ["some", 1])
def test_a_bad_x_match(client: Wire, value: object) -> None:
    queue = new_queue(client)
    arguments = {"x-match": value, "a": 1}
    close = refused(client, Queue.Bind(queue=queue, exchange="amq.headers", arguments=arguments), 406)  # type: ignore[arg-type]
    assert "x-match" in close.reply_text


@rule("AMQP 0-9-1 section 1.7.2.3", "A binding counts for the next publish, and its end too.")
@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_bindings_count_at_once(client: Wire, unique: Names, kind: str) -> None:
    ask(client, Exchange.Declare(exchange=unique("x"), exchange_type=kind))
    queue = new_queue(client)
    for number in range(5):
        ask(client, Queue.Bind(queue=queue, exchange=unique("x"), routing_key="k"))
        publish(client, unique("x"), "k", b"%d" % number)
        ask(client, Queue.Unbind(queue=queue, exchange=unique("x"), routing_key="k"))
        publish(client, unique("x"), "k", b"never")
    assert bodies(client, queue) == [b"%d" % number for number in range(5)]


KEY = b"\x03\xff\x00\xfe"


@rule("AMQP 0-9-1 section 4.2.5.3", "Names and the keys of bindings are UTF-8; others close the connection.")
@differs(on="rabbitmq", why="501 FRAME_ERROR for what amqpd calls a syntax error", asserted=True)
def test_keys_of_bindings_are_text(client: Wire, broker: Broker) -> None:
    bound = b"\x00\x00" + short_string(new_queue(client)) + short_string("amq.direct") + KEY
    client.send_bytes(frame_bytes(METHOD, b"\x00\x32\x00\x14" + bound + b"\x00\x00\x00\x00\x00"))
    check_close(client.closed("connection"), 501 if broker.name == "rabbitmq" else 502)


@rule("AMQP 0-9-1 section 4.2.5.3", "The keys of publishes may be any octets, and are delivered as they are.")
def test_keys_of_publishes_are_octets(client: Wire) -> None:
    queue = new_queue(client)
    ask(client, Queue.Bind(queue=queue, exchange="amq.fanout"))
    client.send_bytes(frame_bytes(METHOD, b"\x00\x3c\x00\x28\x00\x00\x0aamq.fanout" + KEY + b"\x00"))
    client.send_bytes(frame_bytes(HEADER, b"\x00\x3c\x00\x00" + bytes(10)))
    client.send(Basic.Get(queue=queue, no_ack=True), channel=1)
    assert KEY in client.read_frame()[2]
    assert client.read_frame()[0] == 2
