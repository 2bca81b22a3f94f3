"""What is told of traced messages, by a whole node without a socket."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from pamqp import commands

from amqpd.kernel import Mixed, scan_batch
from amqpd.tracing import tracer as tracing
from amqpd.tracing.tracer import Deliveries, SentRange, SpanFact, Tracer
from tests.harness.harness import Client, Harness, publish_bytes

Basic, Confirm, Exchange, Queue, Tx = commands.Basic, commands.Confirm, commands.Exchange, commands.Queue, commands.Tx
TRACE = 0x0AF7651916CD43DD8448EB211C80319C


def parent(span: int = 0xB7AD6B7169203331, flags: str = "01") -> dict[str, Any]:
    return {"traceparent": f"00-{TRACE:032x}-{span:016x}-{flags}"}


class Told(Harness):
    """A node whose tracer keeps what it is told; its clock goes on by a microsecond at each look."""

    def __init__(self) -> None:
        self.facts: list[SpanFact] = []
        self._ids, self._clock = count(1), count(5_000_000)
        super().__init__()
        self.node.now_ms = 5_000

    def tracer(self) -> Tracer:
        return Tracer(lambda: next(self._ids), lambda: next(self._clock), self.facts.append)

    @property
    def names(self) -> list[str]:
        return [fact.name for fact in self.facts]

    def only(self, name: str) -> SpanFact:
        (found,) = [fact for fact in self.facts if fact.name == name]
        return found


@pytest.fixture
def node() -> Told:
    return Told()


@pytest.fixture
def client(node: Told) -> Iterator[Client]:
    client = node.client()
    client.declare("q")
    yield client
    assert node.bugs == []


def test_the_way_of_a_message(node: Told, client: Client) -> None:
    client.call(Exchange.Declare(exchange="shop", exchange_type="topic"), Exchange.DeclareOk)
    client.call(Queue.Bind(queue="q", exchange="shop", routing_key="order.#"), Queue.BindOk)
    client.publish(b"four", "order.new", "shop", headers=parent(), message_id="m-1", correlation_id="c-1")
    assert node.names == ["route", "publish shop"]
    route, publish = node.facts
    assert publish.context[:3] == (TRACE, 0xB7AD6B7169203331, 1)
    assert (publish.parent_id, publish.serves, publish.error) == (0xB7AD6B7169203331, True, "")
    assert publish.attributes == {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "shop:order.new",
        "messaging.rabbitmq.destination.routing_key": "order.new",
        "messaging.message.id": "m-1",
        "messaging.message.conversation_id": "c-1",
        "messaging.message.body.size": 4,
        "messaging.client.id": "test",
        "amqpd.vhost": "/",
        "amqpd.user": "guest",
        "amqpd.outcome": "routed",
    }
    assert (route.parent_id, route.serves) == (publish.span_id, False)
    assert (route.attributes["amqpd.route.queue_count"], route.attributes["amqpd.route.queues"]) == (1, ["q"])
    assert publish.start_us == route.start_us < route.end_us < publish.end_us

    node.node.now_ms = 6_000
    client.consume("q")
    deliver = node.only("deliver q")
    (message,) = client.messages()
    assert message.properties.headers == parent()
    assert (deliver.parent_id, deliver.link_id) == (0xB7AD6B7169203331, publish.span_id)
    assert deliver.start_us == publish.end_us < deliver.end_us
    assert deliver.attributes["messaging.destination.name"] == "shop:order.new:q"
    assert deliver.attributes["messaging.operation.type"] == "receive"
    assert deliver.attributes["messaging.rabbitmq.message.delivery_tag"] == message.tag
    assert deliver.attributes["amqpd.redelivered"] is False

    client.send(Basic.Ack(message.tag))
    ack = node.only("ack q")
    assert (ack.parent_id, ack.attributes["amqpd.outcome"]) == (deliver.span_id, "acknowledged")
    assert ack.attributes["messaging.operation.type"] == "settle"
    assert ack.attributes["messaging.rabbitmq.message.delivery_tag"] == message.tag
    assert node.node.tracer is not None
    assert node.node.tracer.delivered_count == 0


@pytest.mark.parametrize("headers", [None, {}, {"traceparent": "nonsense"}, parent(flags="00")])
def test_of_others_nothing_is_told(node: Told, client: Client, headers: dict[str, Any] | None) -> None:
    client.publish(headers=headers)
    client.consume("q")
    (message,) = client.messages()
    client.send(Basic.Ack(message.tag))
    assert node.facts == []
    assert message.properties.headers == headers


@pytest.mark.parametrize(
    ("settle", "name", "outcome"),
    [
        (Basic.Ack(1), "ack q", "acknowledged"),
        (Basic.Nack(1, requeue=False), "reject q", "rejected"),
        (Basic.Reject(1, requeue=False), "reject q", "rejected"),
        (Basic.Nack(1, requeue=True), "requeue q", "requeued"),
        (commands.Channel.Close(200, "bye", 0, 0), "requeue q", "requeued"),
    ],
)
def test_how_it_is_settled(node: Told, client: Client, settle: Any, name: str, outcome: str) -> None:
    client.publish(headers=parent())
    client.send(Basic.Get(queue="q"))
    client.send(settle)
    assert node.names == ["route", "publish amq.default", "get q", name]
    assert node.facts[-1].attributes["amqpd.outcome"] == outcome
    assert node.facts[-1].parent_id == node.only("get q").span_id


def test_a_lost_connection_requeues(node: Told, client: Client) -> None:
    client.publish(headers=parent())
    client.consume("q")
    client.lose()
    assert node.names[-1] == "requeue q"
    other = node.client()
    other.consume("q", no_ack=True)
    again = node.facts[-1]
    assert (again.name, again.attributes["amqpd.redelivered"]) == ("deliver q", True)
    assert node.node.tracer is not None
    assert node.node.tracer.delivered_count == 0


def test_a_dead_letter_goes_on_in_its_trace(node: Told, client: Client) -> None:
    client.declare("dead")
    client.declare("w", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.publish(key="w", headers=parent())
    client.send(Basic.Get(queue="w"))
    client.send(Basic.Reject(1, requeue=False))
    assert node.only("reject w").attributes["amqpd.outcome"] == "dead_lettered"
    dead_letter = node.only("dead-letter w")
    assert (dead_letter.attributes["amqpd.reason"], dead_letter.parent_id) == ("rejected", 0xB7AD6B7169203331)
    client.send(Basic.Get(queue="dead"))
    assert node.only("get dead").link_id == node.only("publish amq.default").span_id


def test_one_that_expires_is_told_of(node: Told, client: Client) -> None:
    client.declare("w", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    client.publish(key="w", headers=parent(), expiration="10")
    node.node.now_ms += 100
    node.step()
    assert node.only("dead-letter w").attributes["amqpd.reason"] == "expired"


def test_telling_of_dead_letters_is_charged(node: Told, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    took, dead_letter = [0], node.node.dead_letter

    def watched(*order: Any) -> tuple[int, int]:
        before = node.node.work_left
        gone = dead_letter(*order)
        took[-1] += before - node.node.work_left
        return gone

    monkeypatch.setattr(node.node, "dead_letter", watched)
    client.declare("w", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    for tracer in (None, None, node.node.tracer):  # the first makes templates
        for number in range(5):
            client.publish(key="w", headers=parent(number + 1), expiration="10")
        node.node.tracer = tracer
        took.append(0)
        node.node.now_ms += 100
        node.step()
    assert node.names.count("dead-letter w") == 5
    assert took[2] > 0
    assert took[3] - took[2] == 5 * tracing.SPAN_WORK


def test_nobody_takes_it(node: Told, client: Client) -> None:
    client.publish(key="nobody", headers=parent())
    assert node.only("publish amq.default").attributes["amqpd.outcome"] == "unroutable"
    assert node.only("route").attributes["amqpd.route.queue_count"] == 0


def test_a_full_queue_refuses_it(node: Told, client: Client) -> None:
    client.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.publish(key="full", headers=parent())
    assert node.only("publish amq.default").attributes["amqpd.outcome"] == "refused"


def test_a_delayed_one(node: Told, client: Client) -> None:
    client.publish(headers={**parent(), "x-delay": 1000})
    assert node.only("publish amq.default").attributes["amqpd.outcome"] == "delayed"


def test_an_exchange_that_is_not_there_is_an_error(node: Told, client: Client) -> None:
    client.publish(exchange="nowhere", headers=parent())
    (publish,) = node.facts
    assert publish.error == "NOT_FOUND - no exchange 'nowhere' in vhost '/'"
    assert (publish.attributes["error.type"], publish.attributes["amqpd.outcome"]) == ("NOT_FOUND", "failed")


def test_immediate_closes_the_connection_and_is_an_error(node: Told, client: Client) -> None:
    frames = bytearray(publish_bytes(headers=parent()))
    frames[frames.index(b"\xce") - 1] = 2
    client.raw(bytes(frames))
    (publish,) = node.facts
    assert publish.attributes["amqpd.outcome"] == "failed"


def test_in_a_transaction_it_is_held(node: Told, client: Client) -> None:
    client.call(Tx.Select(), Tx.SelectOk)
    client.publish(headers=parent())
    assert node.only("publish amq.default").attributes["amqpd.outcome"] == "held"
    client.call(Tx.Commit(), Tx.CommitOk)
    client.send(Basic.Get(queue="q"))
    assert node.only("get q").link_id == node.only("publish amq.default").span_id
    assert client.bodies() == [b"x"]
    client.send(Basic.Ack(1))
    assert "ack q" not in node.names, "not before the commit"
    client.call(Tx.Commit(), Tx.CommitOk)
    assert "ack q" in node.names


def test_without_acknowledgements_there_is_nothing_to_settle(node: Told, client: Client) -> None:
    client.consume("q", no_ack=True)
    client.publish(headers=parent())
    assert node.names == ["route", "publish amq.default", "deliver q"]
    assert node.node.tracer is not None
    assert node.node.tracer.delivered_count == 0


def test_each_of_a_batch_that_differ_has_its_own(node: Told, client: Client) -> None:
    client.consume("q")
    plain = publish_bytes(b"p", headers={"id": "1"}) + publish_bytes(b"pp", headers={"id": "22"})
    client.raw(b"".join(publish_bytes(b"x" * span, headers=parent(span)) for span in range(1, 5)) + plain)
    assert sorted(fact.parent_id for fact in node.facts if fact.name == "publish amq.default") == [1, 2, 3, 4]
    delivered = [fact for fact in node.facts if fact.name == "deliver q"]
    assert [(fact.parent_id, fact.attributes["messaging.message.body.size"]) for fact in delivered] == [
        (span, span) for span in range(1, 5)
    ]
    assert [fact.attributes["messaging.rabbitmq.message.delivery_tag"] for fact in delivered] == [1, 2, 3, 4]
    links = {fact.parent_id: fact.span_id for fact in node.facts if fact.name == "publish amq.default"}
    assert {fact.parent_id: fact.link_id for fact in delivered} == links
    assert [len(body) for body in client.bodies()] == [1, 2, 3, 4, 1, 2]
    client.send(Basic.Ack(6, multiple=True))
    assert [fact.parent_id for fact in node.facts if fact.name == "ack q"] == [fact.span_id for fact in delivered]


def test_a_batch_without_a_trace_stays_one(node: Told, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    assert node.node.tracer is not None
    monkeypatch.setattr(node.node.tracer, "begin", lambda *of: begun.append(of))
    client.raw(b"".join(publish_bytes(b"x", headers={"id": "x" * size}) for size in range(5)))
    assert begun == []
    client.consume("q", no_ack=True)
    assert len(client.messages()) == 5


def test_messages_that_are_alike_are_one_span(node: Told, client: Client) -> None:
    client.raw(publish_bytes(headers=parent()) * 40)
    assert node.only("publish amq.default").attributes["messaging.batch.message_count"] == 40
    client.consume("q")
    deliver = node.only("deliver q")
    assert deliver.attributes["messaging.batch.message_count"] == 40
    assert "messaging.message.body.size" not in deliver.attributes
    client.send(Basic.Ack(10, multiple=True))
    client.send(Basic.Ack(11))
    acks = [fact for fact in node.facts if fact.name == "ack q"]
    assert [fact.attributes.get("messaging.batch.message_count", 1) for fact in acks] == [10, 1]
    assert [fact.attributes["messaging.rabbitmq.message.delivery_tag"] for fact in acks] == [1, 11]
    assert {fact.parent_id for fact in acks} == {deliver.span_id}


def test_which_of_two_publishes_of_one_context_it_was_is_not_guessed(node: Told, client: Client) -> None:
    client.publish(b"first", headers=parent())
    client.publish(b"second!", headers=parent())
    client.consume("q")
    assert [fact.link_id for fact in node.facts if fact.name == "deliver q"] == [0, 0]


def test_publishes_are_forgotten_the_oldest_first(
    node: Told, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "PUBLISHES_MAX", 2)
    for span in (1, 2, 3):
        client.publish(b"x" * span, headers=parent(span))
    client.consume("q")
    linked = {fact.parent_id: bool(fact.link_id) for fact in node.facts if fact.name == "deliver q"}
    assert linked == {1: False, 2: True, 3: True}


def test_deliveries_beyond_the_bound_are_settled_without_being_told(
    node: Told, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "DELIVERIES_MAX", 2)
    for span in (1, 2, 3):
        client.publish(b"x" * span, headers=parent(span))
    client.consume("q")
    assert node.names.count("deliver q") == 3
    client.send(Basic.Ack(0, multiple=True))
    assert node.names.count("ack q") == 2
    assert node.node.tracer is not None
    assert (node.node.tracer.untold, node.node.tracer.delivered_count) == (1, 0)


def test_after_a_restart_it_has_its_parent_and_its_time(node: Told, client: Client) -> None:
    client.declare("d", durable=True)
    client.publish(key="d", headers=parent(), delivery_mode=2)
    node.restart()
    node.node.now_ms = 9_000
    node._clock = count(9_000_000)
    again = node.client()
    again.consume("d")
    deliver = node.only("deliver d")
    assert (deliver.parent_id, deliver.link_id, deliver.start_us) == (0xB7AD6B7169203331, 0, 5_000_000)
    assert deliver.end_us >= 9_000_000


@pytest.mark.parametrize("size", [1, 300_000])
def test_content_that_comes_in_pieces(node: Told, client: Client, size: int) -> None:
    frames = publish_bytes(bytes(size), headers=parent())
    client.raw(frames[:40])
    client.raw(frames[40:])
    assert node.only("publish amq.default").attributes["messaging.message.body.size"] == size


def test_the_firehose_and_its_copies(node: Told, client: Client) -> None:
    watcher = node.client()
    watcher.declare("traces")
    watcher.call(Queue.Bind(queue="traces", exchange="amq.rabbitmq.trace", routing_key="#"), Queue.BindOk)
    assert node.node.firehose.start("/")
    client.publish(headers=parent())
    client.consume("q", no_ack=True)
    watcher.consume("traces", no_ack=True)
    assert [copy.method.routing_key for copy in watcher.messages()] == ["publish.", "deliver.q"]
    assert node.names == ["route", "publish amq.default", "deliver q"]
    assert node.node.firehose.stop("/")
    client.publish(headers=parent(7))
    assert node.names[3:] == ["route", "publish amq.default", "deliver q"], "off again, it looks on"


def test_without_a_tracer_no_channel_is_watched() -> None:
    harness = Harness()
    client = harness.client()
    (channel,) = client.connection.channels.values()
    assert harness.node.tracer is None
    assert not channel.watched
    client.declare("q")
    client.publish(headers=parent())
    client.consume("q")
    (message,) = client.messages()
    assert message.properties.headers == parent()
    assert channel.deliveries is None


def test_what_is_told_is_charged(node: Told, client: Client) -> None:
    turns = node.node.turns
    left = turns.tick_left
    client.publish()
    plain = left - turns.tick_left
    client.publish(headers=parent())
    assert left - turns.tick_left >= plain + 2 * tracing.SPAN_WORK
    client.consume("q")
    left = turns.tick_left
    client.send(Basic.Ack(0, multiple=True))
    assert left - turns.tick_left >= tracing.SPAN_WORK
    channel, queue, work_left = client.connection.channels[1], node.node.queues["/", "q"], node.node.work_left
    data = publish_bytes(headers=parent())
    run = scan_batch(data, 0, len(data), 131_072)
    assert run is not None
    node.node.trace(channel, queue, SentRange(run, 0, 1, False, 9, "deliver", True))
    assert node.node.work_left == work_left - tracing.SPAN_WORK


def test_of_a_large_batch_the_beginning_is_told(node: Told, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "TOGETHER_MAX", 2)
    data = b"".join(publish_bytes(b"x", "q", headers={"n": "x" * span, **parent(span)}) for span in range(1, 6))
    batch = scan_batch(data, 0, len(data), 131_072)
    assert isinstance(batch, Mixed)
    tracer = node.node.tracer
    assert tracer is not None
    unacked: Deliveries = {}
    work = tracer.delivered(client.connection, "q", 0, SentRange(batch, 1, 5, False, 7, "deliver", False), unacked)
    assert [fact.parent_id for fact in node.facts] == [2, 3, 4]
    assert (sorted(unacked), work, tracer.untold) == ([7, 8, 9], 3 * tracing.SPAN_WORK, 1)
