"""The firehose: copies of all messages of a virtual host, for whoever looks at them.

What comes in: publishes and deliveries while an operator has tracing on. What goes out: copies at amq.rabbitmq.trace.
Rules: each test has a virtual host of its own, since tracing is of one.
Not here: the messages themselves (`test_basic_publish.py`, `test_basic_consume.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pamqp import commands

from conformance.admin import Admin
from conformance.broker import Broker
from conformance.conftest import Names, OpenWire
from conformance.rules import rule
from conformance.talk import ask, check_close, confirmed, consume, get, new_queue, publish
from tests.clients.wire import Message, Wire

Basic, Queue = commands.Basic, commands.Queue
EXCHANGE = "amq.rabbitmq.trace"


class Traced:
    """A client whose messages are looked at, and one that gets the copies."""

    def __init__(self, client: Wire, watcher: Wire, trace: Callable[[bool], None]) -> None:
        self.client = client
        self.watcher = watcher
        self.trace = trace

    def copies(self, count: int) -> list[Message]:
        return [self.watcher.read_message()[1] for _ in range(count)]


@pytest.fixture
def traced(wire: OpenWire, admin: Admin, broker: Broker, unique: Names) -> Iterator[Traced]:
    vhost = str(unique)
    admin.add_vhost(vhost)
    admin.set_permissions(vhost, broker.user, ".*", ".*", ".*")
    client, watcher = wire(vhost=vhost), wire(vhost=vhost)
    for each in (client, watcher):
        each.open_channel()
    ask(client, Queue.Declare(queue="q"))
    copies = new_queue(watcher)
    ask(watcher, Queue.Bind(queue=copies, exchange=EXCHANGE, routing_key="#"))
    consume(watcher, copies, no_ack=True)
    yield Traced(client, watcher, lambda on: admin.set_trace(vhost, on))
    admin.set_trace(vhost, False)


@rule(
    "RabbitMQ: firehose", "A publish is copied with its body, its exchange, keys and properties, and where it went."
)
def test_a_publish_is_copied(traced: Traced) -> None:
    traced.trace(True)
    properties = Basic.Properties(content_type="text/plain", headers={"a": 1}, delivery_mode=2, priority=3)
    confirmed(traced.client, "amq.fanout", "key", b"nobody", properties=properties)
    confirmed(traced.client, "", "q", b"somebody")
    nobody, somebody = traced.copies(2)
    assert (nobody.method.exchange, nobody.method.routing_key, nobody.body) == (
        EXCHANGE,
        "publish.amq.fanout",
        b"nobody",
    )
    headers = nobody.properties.headers
    assert {
        name: headers[name] for name in ("exchange_name", "routing_keys", "routed_queues", "channel", "user")
    } == {
        "exchange_name": "amq.fanout",
        "routing_keys": ["key"],
        "routed_queues": [],
        "channel": 1,
        "user": "guest",
    }
    assert headers["properties"] == {
        "content_type": "text/plain",
        "headers": {"a": 1},
        "delivery_mode": 2,
        "priority": 3,
    }
    assert headers["connection"] == traced.client.name
    assert set(headers) == {
        *("exchange_name", "routing_keys", "properties", "node", "vhost", "connection", "channel", "user"),
        "routed_queues",
    }
    assert (somebody.method.routing_key, somebody.properties.headers["routed_queues"]) == ("publish.", ["q"])


@rule("RabbitMQ: firehose", "A delivery is copied, and says whether it is the first one.")
@pytest.mark.parametrize("how", ["consume", "get"])
def test_a_delivery_is_copied(traced: Traced, how: str) -> None:
    confirmed(traced.client, "", "q", b"x")
    traced.trace(True)
    if how == "consume":
        consume(traced.client, "q")
        tag = traced.client.read_message()[1].method.delivery_tag
    else:
        message = get(traced.client, "q", no_ack=False)
        assert message is not None
        tag = message.method.delivery_tag
    traced.client.send(Basic.Reject(tag, True), channel=1)
    if how == "get":
        assert get(traced.client, "q") is not None
    first, again = traced.copies(2)
    assert [copy.method.routing_key for copy in (first, again)] == ["deliver.q"] * 2
    assert [copy.properties.headers["redelivered"] for copy in (first, again)] == [0, 1]
    assert set(first.properties.headers) == {
        *("exchange_name", "routing_keys", "properties", "node", "vhost", "connection", "channel", "user"),
        "redelivered",
    }


@rule("RabbitMQ: firehose", "Copies are not copied, and none are made when tracing is off again.")
def test_copies_are_not_copied(traced: Traced) -> None:
    traced.trace(True)
    confirmed(traced.client, "", "q", b"1")
    traced.trace(False)
    confirmed(traced.client, "", "q", b"2")
    traced.trace(True)
    confirmed(traced.client, "", "q", b"3")
    assert [copy.body for copy in traced.copies(2)] == [b"1", b"3"]


@rule("RabbitMQ: firehose", "Nobody but the broker publishes to the exchange of the copies.")
def test_the_exchange_is_internal(traced: Traced) -> None:
    publish(traced.client, EXCHANGE, "publish.")
    check_close(traced.client.closed("channel"), 403)
