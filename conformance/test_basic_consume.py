"""Consuming: deliveries, acknowledgements, redelivery, cancellation."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pamqp import base, commands

from conformance.broker import Broker
from conformance.conftest import Names, OpenWire
from conformance.rules import rule
from conformance.talk import alive, ask, bodies, consume, filled, get, new_queue, publish, read, refused
from tests.clients.wire import CAPABILITIES, PROTOCOL_HEADER, Wire

Basic, Channel, Confirm, Connection, Exchange, Queue = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Connection,
    commands.Exchange,
    commands.Queue,
)


# Deliveries


@rule("AMQP 0-9-1 section 1.8.3.9", "A delivery names consumer, exchange and routing key; its tags count from 1.")
def test_deliver(client: Wire) -> None:
    queue = new_queue(client)
    ask(client, Queue.Bind(queue=queue, exchange="amq.direct", routing_key="key"))
    consume(client, queue, "me")
    for number in (1, 2):
        publish(client, "amq.direct", "key", b"x")
        method = client.read_message()[1].method
        assert isinstance(method, Basic.Deliver)
        assert (method.consumer_tag, method.delivery_tag, method.redelivered) == ("me", number, False)
        assert (method.exchange, method.routing_key) == ("amq.direct", "key")


@rule("AMQP 0-9-1 section 1.8.3.3", "An empty consumer tag asks for one of the broker's.")
def test_a_tag_of_the_broker(client: Wire) -> None:
    queue = new_queue(client)
    tags = {consume(client, queue, "") for _ in range(3)}
    assert len(tags) == 3
    assert all(re.fullmatch(r"amq\.ctag-[\w-]{22}", tag) for tag in tags)


@rule("AMQP 0-9-1 section 1.8.3.3", "A consumer tag is used once on a channel: 530; on another it is free.")
def test_a_tag_twice(client: Wire) -> None:
    queue = new_queue(client)
    consume(client, queue, "c")
    client.open_channel(2)
    assert isinstance(client.call(Basic.Consume(queue=queue, consumer_tag="c"), channel=2), Basic.ConsumeOk)
    text = "NOT_ALLOWED - attempt to reuse consumer tag 'c'"
    refused(client, Basic.Consume(queue=queue, consumer_tag="c"), 530, text, "connection")


@rule("AMQP 0-9-1 section 1.8.3.3", "With nowait consume is not answered; deliveries come.")
def test_consume_nowait(client: Wire) -> None:
    queue = filled(client, 1)
    client.send(Basic.Consume(queue=queue, consumer_tag="c", nowait=True), channel=1)
    assert read(client, 1) == [(b"0", False)]


@rule("AMQP 0-9-1 section 1.8.3.3", "Consuming and getting from a queue that is not there is 404.")
@pytest.mark.parametrize("method", [Basic.Consume, Basic.Get], ids=["consume", "get"])
def test_a_missing_queue(client: Wire, unique: Names, broker: Broker, method: type) -> None:
    text = f"NOT_FOUND - no queue '{unique('missing')}' in vhost '{broker.vhost}'"
    refused(client, method(queue=unique("missing")), 404, text)


@rule("AMQP 0-9-1 section 1.8.3.3", "An exclusive consumer is alone, and others are refused with 403.")
@pytest.mark.parametrize("first", [True, False], ids=["exclusive first", "exclusive second"])
def test_an_exclusive_consumer(client: Wire, broker: Broker, first: bool) -> None:
    queue = new_queue(client)
    client.open_channel(2)
    client.call(Basic.Consume(queue=queue, consumer_tag="c", exclusive=first), channel=2)
    text = f"ACCESS_REFUSED - queue '{queue}' in vhost '{broker.vhost}' in exclusive use"
    refused(client, Basic.Consume(queue=queue, exclusive=not first), 403, text)
    client.call(Basic.Cancel(consumer_tag="c"), channel=2)
    consume(client, queue, exclusive=not first)


@rule("RabbitMQ: consumers", "Consumers of a queue take turns.")
def test_turns(client: Wire) -> None:
    queue = new_queue(client)
    for tag in ("a", "b", "c"):
        consume(client, queue, tag, no_ack=True)
    for _ in range(30):
        publish(client, "", queue)
    got = [client.read_message()[1].method.consumer_tag for _ in range(30)]
    assert {tag: got.count(tag) for tag in "abc"} == {"a": 10, "b": 10, "c": 10}


@rule("AMQP 0-9-1 section 1.8.3.10", "get-ok says how many are left; an empty queue is answered by get-empty.")
def test_get(client: Wire) -> None:
    queue = filled(client, 3)
    for left in (2, 1, 0):
        message = get(client, queue)
        assert message is not None
        assert isinstance(message.method, Basic.GetOk)
        assert (message.method.message_count, message.method.redelivered) == (left, False)
        assert (message.method.exchange, message.method.routing_key) == ("", queue)
    assert get(client, queue) is None


@rule("AMQP 0-9-1 section 1.8.3.3", "no-local is ignored: a consumer gets what its own connection publishes.")
def test_no_local(client: Wire) -> None:
    queue = new_queue(client)
    consume(client, queue, no_local=True, no_ack=True)
    publish(client, "", queue)
    assert read(client, 1) == [(b"x", False)]


# Acknowledgements


@rule("AMQP 0-9-1 section 1.8.3.13", "A delivery tag that is not known closes the channel with 406.")
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(Basic.Ack(82), id="ack"),
        pytest.param(Basic.Ack(82, True), id="ack multiple"),
        pytest.param(Basic.Nack(82), id="nack"),
        pytest.param(Basic.Nack(82, True), id="nack multiple"),
        pytest.param(Basic.Reject(82), id="reject"),
        pytest.param(Basic.Ack(0), id="ack 0"),
    ],
)
def test_an_unknown_tag(client: Wire, method: Any) -> None:
    refused(client, method, 406, f"PRECONDITION_FAILED - unknown delivery tag {method.delivery_tag}")


@rule("AMQP 0-9-1 section 1.8.3.13", "A delivery is settled once; the second time its tag is not known.")
@pytest.mark.parametrize("first", [Basic.Ack(1), Basic.Nack(1), Basic.Reject(1)], ids=["ack", "nack", "reject"])
def test_settled_twice(client: Wire, first: base.Frame) -> None:
    queue = filled(client, 1)
    get(client, queue, no_ack=False)
    client.send(first, channel=1)
    refused(client, Basic.Ack(1), 406, "PRECONDITION_FAILED - unknown delivery tag 1")


@rule("AMQP 0-9-1 section 1.8.3.3", "What is delivered with no-ack has no acknowledgement.")
def test_no_ack(client: Wire) -> None:
    queue = filled(client, 2)
    consume(client, queue, no_ack=True)
    read(client, 2)
    refused(client, Basic.Ack(1), 406, "PRECONDITION_FAILED - unknown delivery tag 1")
    assert bodies(client, queue) == []


@rule("AMQP 0-9-1 section 1.8.3.13", "multiple settles all up to the tag, 0 all there are, and none is no error.")
@pytest.mark.parametrize(("tag", "left"), [(3, [b"3", b"4"]), (0, [])])
def test_ack_multiple(client: Wire, tag: int, left: list[bytes]) -> None:
    queue = filled(client, 5)
    for _ in range(5):
        get(client, queue, no_ack=False)
    client.send(Basic.Ack(tag, True), channel=1)
    ask(client, Channel.Close(200, "", 0, 0))
    client.open_channel()
    assert bodies(client, queue) == left
    client.send(Basic.Ack(0, True), channel=1)
    assert alive(client)


@rule("AMQP 0-9-1 section 1.8.3.13", "Acknowledgements may come in any order.")
def test_acks_in_any_order(client: Wire) -> None:
    queue = filled(client, 4)
    for _ in range(4):
        get(client, queue, no_ack=False)
    client.send(Basic.Ack(3), Basic.Ack(1), Basic.Ack(4), channel=1)
    ask(client, Channel.Close(200, "", 0, 0))
    client.open_channel()
    assert bodies(client, queue) == [b"1"]


@rule("RabbitMQ: nack", "What is rejected without requeue is gone.")
@pytest.mark.parametrize("method", [Basic.Reject(1, False), Basic.Nack(1, False, False)], ids=["reject", "nack"])
def test_rejected_for_good(client: Wire, method: base.Frame) -> None:
    queue = filled(client, 1)
    get(client, queue, no_ack=False)
    client.send(method, channel=1)
    ask(client, Channel.Close(200, "", 0, 0))
    client.open_channel()
    assert bodies(client, queue) == []


# Redelivery


@rule("RabbitMQ: semantics#ordering", "What is requeued goes back to its place, and is marked as redelivered.")
@pytest.mark.parametrize(
    "methods",
    [
        pytest.param([Basic.Nack(0, True, True)], id="nack all"),
        pytest.param([Basic.Nack(2, True, True)], id="nack two"),
        pytest.param([Basic.Reject(2, True), Basic.Reject(1, True)], id="reject backwards"),
        pytest.param([Basic.Nack(1, False, True), Basic.Nack(2, False, True)], id="nack forwards"),
    ],
)
def test_requeue(client: Wire, methods: list[base.Frame]) -> None:
    queue = filled(client, 4)
    for _ in range(2):
        get(client, queue, no_ack=False)
    client.send(*methods, channel=1)
    got = [get(client, queue) for _ in range(4)]
    seen = [(each.body, each.method.redelivered) for each in got if each is not None]
    assert seen == [(b"0", True), (b"1", True), (b"2", False), (b"3", False)]


@rule("AMQP 0-9-1 section 1.8.3.16", "recover with requeue gives back all that the channel has unacknowledged.")
@pytest.mark.parametrize("how", ["recover", "recover-async"])
@pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")
def test_recover(client: Wire, how: str) -> None:
    queue = filled(client, 3)
    for _ in range(2):
        get(client, queue, no_ack=False)
    if how == "recover":
        ask(client, Basic.Recover(requeue=True))
    else:
        client.send(Basic.RecoverAsync(requeue=True), channel=1)
    got = [get(client, queue) for _ in range(3)]
    seen = [(each.body, each.method.redelivered) for each in got if each is not None]
    assert seen == [(b"0", True), (b"1", True), (b"2", False)]
    refused(client, Basic.Ack(1), 406)


@rule("RabbitMQ: specification", "recover without requeue is not implemented: 540.")
@pytest.mark.parametrize("method", [Basic.Recover, Basic.RecoverAsync], ids=["recover", "recover-async"])
@pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")
def test_recover_without_requeue(client: Wire, method: type) -> None:
    refused(client, method(requeue=False), 540, "NOT_IMPLEMENTED - requeue=false", "connection")


@rule("AMQP 0-9-1 section 1.8.3.5", "A cancelled consumer's deliveries stay unacknowledged, and can be settled.")
def test_cancel_leaves_what_was_delivered(client: Wire) -> None:
    queue = filled(client, 3)
    ask(client, Basic.Qos(prefetch_count=2))
    consume(client, queue)
    read(client, 2)
    ask(client, Basic.Cancel(consumer_tag="c"))
    client.send(Basic.Nack(1, False, True), Basic.Ack(2), channel=1)
    assert bodies(client, queue) == [b"0", b"2"]


# Cancellation


@rule("AMQP 0-9-1 section 1.8.3.5", "cancel is answered by cancel-ok, also for a tag that is not there.")
def test_cancel(client: Wire) -> None:
    queue = new_queue(client)
    consume(client, queue)
    for tag in ("c", "c", "never"):
        assert ask(client, Basic.Cancel(consumer_tag=tag)).consumer_tag == tag
    publish(client, "", queue)
    assert bodies(client, queue) == [b"x"]


@rule("AMQP 0-9-1 section 1.8.3.5", "With nowait cancel is not answered, and the tag is free.")
def test_cancel_nowait(client: Wire) -> None:
    queue = new_queue(client)
    consume(client, queue)
    client.send(Basic.Cancel(consumer_tag="c", nowait=True), channel=1)
    consume(client, queue)


@rule("RabbitMQ: consumer-cancel", "When its queue is deleted a consumer that can be told is told.")
def test_cancel_notification(client: Wire, unique: Names) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue))
    consume(client, queue)
    client.open_channel(2)
    client.send(Queue.Delete(queue=queue), channel=2)
    seen = {type(method).__name__: method for _, method in (client.read_method() for _ in range(2))}
    assert set(seen) == {"Cancel", "DeleteOk"}
    assert (seen["Cancel"].consumer_tag, seen["Cancel"].nowait) == ("c", True)
    consume(client, new_queue(client))  # the tag is free


@rule("RabbitMQ: consumer-cancel", "A client without the capability is told nothing.")
def test_no_cancel_notification(wire: OpenWire, broker: Broker, unique: Names) -> None:
    bare = wire(handshake=False)
    bare.send_bytes(PROTOCOL_HEADER)
    capabilities = {**CAPABILITIES, "consumer_cancel_notify": False}
    bare.expect(Connection.Start)
    login = f"\0{broker.user}\0{broker.password}"
    bare.call(Connection.StartOk({"capabilities": capabilities}, "PLAIN", login))  # type: ignore[dict-item]
    bare.send(Connection.TuneOk(10, 131072, 0), Connection.Open(broker.vhost))
    bare.expect(Connection.OpenOk)
    bare.open_channel()
    ask(bare, Queue.Declare(queue=unique("queue")))
    consume(bare, unique("queue"))
    ask(bare, Queue.Delete(queue=unique("queue")))
    assert alive(bare)


@rule("AMQP 0-9-1 section 4.7", "Deliveries to a consumer keep the order of the queue.")
def test_order(client: Wire) -> None:
    queue = filled(client, 300)
    ask(client, Basic.Qos(prefetch_count=7))
    consume(client, queue)
    for number in range(300):
        message = client.read_message()[1]
        assert message.body == b"%d" % number
        client.send(Basic.Ack(message.method.delivery_tag), channel=1)
