"""The firehose: what clients publish and get in a virtual host is copied to amq.rabbitmq.trace, while it is on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp import commands

from amqpd.publishing.copies import PENDING_BYTES_MAX
from amqpd.publishing.firehose import NAMES_BYTES_MAX
from amqpd.topology import plans
from tests.harness.harness import Client, Harness, Message, publish_bytes

Basic, Confirm, Queue, Tx = commands.Basic, commands.Confirm, commands.Queue, commands.Tx
EXCHANGE = "amq.rabbitmq.trace"


class Traced:
    """A client whose messages are looked at, and another one that sees the copies."""

    def __init__(self, vhost: str = "/") -> None:
        self.harness = Harness()
        self.client = self.harness.client()
        self.watcher = self.harness.client()
        self.watcher.declare("traces")
        self.watcher.call(Queue.Bind(queue="traces", exchange=EXCHANGE, routing_key="#"), Queue.BindOk)
        self.client.declare("q")

    def on(self) -> None:
        assert self.harness.node.firehose.start("/")

    def copies(self) -> list[Message]:
        found: list[Message] = []
        while True:
            self.harness.step()
            self.watcher.send(Basic.Get(queue="traces", no_ack=True))
            messages = self.watcher.messages()
            if not messages:
                self.watcher.take(Basic.GetEmpty)
                # The watcher gets by basic.get, and its own gets are copies: they are not copied again.
                return found
            found += messages


@pytest.fixture
def traced() -> Traced:
    return Traced()


def test_off_nothing_is_copied(traced: Traced) -> None:
    traced.client.publish(b"x", "q")
    assert traced.copies() == []


def test_a_publish_is_copied_with_what_it_was(traced: Traced) -> None:
    traced.on()
    when = datetime(2026, 1, 2, tzinfo=UTC)
    traced.client.publish(
        b"body", "q", content_type="text/plain", headers={"a": 1}, delivery_mode=2, timestamp=when, priority=3
    )
    (copy,) = traced.copies()
    assert (copy.method.exchange, copy.method.routing_key, copy.body) == (EXCHANGE, "publish.", b"body")
    assert copy.properties.headers == {
        "exchange_name": "",
        "routing_keys": ["q"],
        "properties": {
            "content_type": "text/plain",
            "headers": {"a": 1},
            "delivery_mode": 2,
            "timestamp": int(when.timestamp()),
            "priority": 3,
        },
        "node": "amqpd@test",
        "vhost": "/",
        "connection": "test",
        "channel": 1,
        "user": "guest",
        "routed_queues": ["q"],
    }
    assert copy.properties.delivery_mode is None


@pytest.mark.parametrize("how", ["consume", "get"])
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_delivery_is_copied(traced: Traced, how: str, size: int) -> None:
    traced.client.publish(bytes(size), "q", headers={"CC": ["also"]})
    traced.on()
    if how == "get":
        traced.client.send(Basic.Get(queue="q"))
    else:
        traced.client.consume("q")
    (copy,) = traced.copies()
    headers = copy.properties.headers
    assert (copy.method.routing_key, copy.body) == ("deliver.q", bytes(size))
    assert (headers["redelivered"], headers["routing_keys"], "routed_queues" in headers) == (0, ["q", "also"], False)
    (message,) = traced.client.messages()
    traced.client.send(Basic.Reject(message.tag, True))
    if how == "get":
        traced.client.send(Basic.Get(queue="q"))
    (copy,) = traced.copies()
    assert copy.properties.headers["redelivered"] == 1


def test_what_waits_for_a_consumer_in_the_tick_is_copied_when_it_comes_and_when_it_goes(traced: Traced) -> None:
    traced.client.consume("q", no_ack=True)
    traced.on()
    traced.client.raw(publish_bytes(b"x", "q") * 5)
    keys = [copy.method.routing_key for copy in traced.copies()]
    assert sorted(keys) == ["deliver.q"] * 5 + ["publish."] * 5
    assert len(traced.client.messages()) == 5


def test_copies_are_not_copied(traced: Traced) -> None:
    traced.on()
    traced.watcher.consume("traces", no_ack=True)
    traced.client.publish(b"x", "q")
    traced.harness.step()
    assert [copy.method.routing_key for copy in traced.watcher.messages()] == ["publish."]
    assert traced.harness.node.firehose.taps["/"].copies.published == 1


def test_routes_that_were_remembered_lead_to_the_firehose_and_back(traced: Traced) -> None:
    for number in range(3):
        traced.client.publish(b"%d" % number, "q")
        traced.on()
        traced.client.publish(b"traced", "q")
        assert [copy.body for copy in traced.copies()] == [b"traced"]
        assert traced.harness.node.firehose.stop("/")
    traced.client.publish(b"after", "q")
    assert traced.copies() == []
    assert traced.harness.node.queues["/", "q"].backlog.ready == 7


def test_what_nobody_takes_is_copied_too_and_confirms_and_returns_are_what_they_are(traced: Traced) -> None:
    traced.on()
    traced.client.call(Confirm.Select(), Confirm.SelectOk)
    traced.client.publish(b"x", "nowhere", mandatory=True)
    assert isinstance(traced.client.expect(Message).method, Basic.Return)
    traced.client.expect(Basic.Ack)
    (copy,) = traced.copies()
    assert copy.properties.headers["routed_queues"] == []


def test_a_publish_of_a_transaction_is_copied_when_it_comes(traced: Traced) -> None:
    traced.on()
    traced.client.call(Tx.Select(), Tx.SelectOk)
    traced.client.publish(b"x", "q")
    assert len(traced.copies()) == 1
    traced.client.call(Tx.Commit(), Tx.CommitOk)
    assert traced.copies() == []


def test_only_the_virtual_host_that_was_named_is_traced_and_it_takes_the_tracing_with_it(traced: Traced) -> None:
    harness = traced.harness
    harness._apply(plans.create_vhost("other"))
    other = Client(harness)
    other.open("other")
    other.declare("q")
    assert harness.node.firehose.start("other")
    assert not harness.node.firehose.start("other")
    traced.client.publish(b"x", "q")
    other.publish(b"x", "q")
    assert traced.copies() == []
    assert harness.node.firehose.taps["other"].copies.published == 1
    other.publish(b"x", "q")
    harness._apply(plans.delete_vhost(harness.topology, "other"))
    harness.step()
    assert harness.node.firehose.taps == {}
    assert not harness.node.firehose.stop("other")
    assert harness.bugs == []


def test_headers_of_a_copy_fit_into_a_frame(traced: Traced) -> None:
    traced.on()
    keys = [f"key{number}" for number in range(8_000)]
    for number in range(1_000):
        traced.client.declare(f"queue-with-a-long-name-{number:040d}")
        method = Queue.Bind(queue=f"queue-with-a-long-name-{number:040d}", exchange="amq.fanout")
        traced.client.call(method, Queue.BindOk)
    traced.client.raw(publish_bytes(b"x", "k", "amq.fanout", headers={"CC": keys}))
    (copy,) = traced.copies()
    headers: Any = copy.properties.headers
    for name in ("routing_keys", "routed_queues"):
        assert 0 < sum(map(len, headers[name])) <= NAMES_BYTES_MAX
    assert headers["properties"]["headers"] == {}


def test_a_copy_whose_routing_key_would_be_too_long_has_a_shorter_one(traced: Traced) -> None:
    name = "q" * 255
    traced.client.declare(name)
    traced.on()
    traced.client.publish(b"x", name)
    traced.client.send(Basic.Get(queue=name))
    assert [copy.method.routing_key for copy in traced.copies()] == ["publish.", ("deliver." + name)[:255]]
    assert traced.harness.bugs == []


def test_more_than_can_be_copied_is_dropped_and_counted(traced: Traced) -> None:
    traced.on()
    tap = traced.harness.node.firehose.taps["/"].copies
    traced.harness.automatic = False
    connection = traced.client.connection
    body = publish_bytes(bytes(60_000), "q")
    while not tap.dropped:
        traced.harness.node.work_left = 0
        connection.receive(body)
        connection.intake.work_left = 5_000
    assert tap.pending_bytes <= PENDING_BYTES_MAX
    assert [event for event, _ in traced.harness.logged if event == "firehose_dropped"] == ["firehose_dropped"]
    published = traced.harness.node.queues["/", "q"].backlog.ready
    traced.harness.automatic = True
    copied = 0
    while tap.pending_bytes or tap._steps is not None:
        traced.harness.node.tick()
    copied = traced.harness.node.queues["/", "traces"].backlog.ready
    assert copied == tap.published == published - tap.dropped


def test_a_tick_copies_no_more_than_its_budget(traced: Traced) -> None:
    for number in range(200):
        traced.watcher.declare(f"more{number}")
        method = Queue.Bind(queue=f"more{number}", exchange=EXCHANGE, routing_key="publish.#")
        traced.watcher.call(method, Queue.BindOk)
    traced.on()
    traced.harness.automatic = False
    traced.client.connection.receive(b"".join(publish_bytes(b"x", f"key{number}") for number in range(60)))
    traced.harness.node.tick()
    tap = traced.harness.node.firehose.taps["/"].copies
    assert 0 < tap.published < 60
    assert traced.harness.node.behind
    traced.harness.automatic = True
    for _ in range(20):
        traced.harness.step()
    assert tap.published == 60
