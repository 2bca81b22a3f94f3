"""Publishing: what is refused, what comes back, what is confirmed."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pamqp import commands, frame, header

from conformance.broker import Broker
from conformance.conftest import Names, OpenWire
from conformance.rules import differs, rule
from conformance.talk import alive, ask, bodies, check_close, confirmed, get, new_queue, publish, refused
from tests.clients.brokers import Connect
from tests.clients.wire import HEADER, Wire, frame_bytes, publish_bytes

Basic, Channel, Confirm, Exchange, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
)
PUBLISH = (60, 40)


def publish_refused(client: Wire, code: int, text: str | None = None, **options: Any) -> None:
    exchange, properties = options.get("exchange", ""), options.get("properties")
    publish(client, exchange, "k", b"x", properties)
    close = client.closed()
    check_close(close, code, text)
    assert (close.class_id, close.method_id) == PUBLISH


# What is refused


@rule("AMQP 0-9-1 section 1.8.3.7", "Publishing to an exchange that is not there closes the channel with 404.")
def test_a_missing_exchange(client: Wire, unique: Names, broker: Broker) -> None:
    text = f"NOT_FOUND - no exchange '{unique('missing')}' in vhost '{broker.vhost}'"
    publish_refused(client, 404, text, exchange=unique("missing"))


@rule("RabbitMQ: specification", "immediate is not implemented: 540.")
def test_immediate(client: Wire) -> None:
    client.send(Basic.Publish(0, "", "k", False, True), channel=1)
    client.send_bytes(frame.marshal(header.ContentHeader(0, 0, Basic.Properties()), 1))
    close = client.closed("connection")
    check_close(close, 540, "NOT_IMPLEMENTED - immediate=true")
    assert (close.class_id, close.method_id) == PUBLISH


@rule("RabbitMQ: validated-user-id", "user-id must be the user of the connection: 406.")
def test_user_id(client: Wire, broker: Broker) -> None:
    queue = new_queue(client)
    publish(client, "", queue, properties=Basic.Properties(user_id=broker.user))
    assert bodies(client, queue) == [b"x"]
    text = f"user_id property set to 'somebody' but authenticated user was '{broker.user}'"
    publish_refused(client, 406, f"PRECONDITION_FAILED - {text}", properties=Basic.Properties(user_id="somebody"))


@rule("RabbitMQ: ttl#per-message-ttl-in-publishers", "expiration is a whole decimal number, or the publish is 406.")
@pytest.mark.parametrize("expiration", ["soon", "-1", "10x", "1.5", " 5"])
def test_a_bad_expiration(client: Wire, expiration: str) -> None:
    publish(client, "", "k", properties=Basic.Properties(expiration=expiration))
    close = client.closed()
    assert close.reply_text.startswith(f"PRECONDITION_FAILED - invalid expiration '{expiration}'")


@rule("AMQP 0-9-1 section 1.8.2.4", "delivery-mode is 1 or 2; what else is published is taken as transient.")
@pytest.mark.parametrize("mode", [0, 3, 255])
@differs(on="rabbitmq<4", why="406 for other modes; 4.x compares with 2 and nothing else", asserted=True)
def test_other_delivery_modes(client: Wire, broker: Broker, mode: int) -> None:
    queue = new_queue(client)
    head = b"\x00\x3c\x00\x00" + bytes(8) + b"\x10\x00" + bytes([mode])
    client.send(Basic.Publish(0, "", queue), channel=1)
    client.send_bytes(frame_bytes(HEADER, head))
    if broker.is_("rabbitmq<4"):
        check_close(client.closed(), 406)
        return
    client.send(Basic.Get(queue=queue, no_ack=True), channel=1)
    client.expect(Basic.GetOk)
    assert client.read_frame()[2] == head


# What comes back


@rule("AMQP 0-9-1 section 1.8.3.7", "mandatory and nowhere to go: basic.return with 312, and the whole message.")
@pytest.mark.parametrize("exchange", ["", "amq.direct", "amq.fanout", "amq.topic", "amq.headers"])
def test_mandatory(client: Wire, unique: Names, exchange: str) -> None:
    key = unique("nowhere")
    properties = Basic.Properties(message_id="m", headers={"conf.nowhere": key})
    publish(client, exchange, key, b"body", properties, mandatory=True)
    message = client.read_message()[1]
    method = message.method
    assert isinstance(method, Basic.Return)
    assert (method.reply_code, method.reply_text) == (312, "NO_ROUTE")
    assert (method.exchange, method.routing_key, message.body) == (exchange, key, b"body")
    assert (message.properties.message_id, message.properties.headers) == ("m", {"conf.nowhere": key})


@rule("AMQP 0-9-1 section 1.8.3.7", "What is not mandatory and has nowhere to go is dropped.")
def test_not_mandatory(client: Wire, unique: Names) -> None:
    publish(client, "", unique("nowhere"))
    assert alive(client)


@rule("RabbitMQ: publishers#unroutable", "A mandatory message that a queue takes does not come back.")
def test_mandatory_and_routed(client: Wire) -> None:
    queue = new_queue(client)
    publish(client, "", queue, mandatory=True)
    assert bodies(client, queue) == [b"x"]


# What is confirmed


@rule("RabbitMQ: confirms", "confirm.select counts publishes from 1; each is acknowledged once, routed or not.")
def test_confirms(client: Wire, unique: Names) -> None:
    queue = new_queue(client)
    ask(client, Confirm.Select())
    for key in (queue, unique("nowhere"), queue):
        publish(client, "", key)
    settled: set[int] = set()
    while len(settled) < 3:
        ack = client.expect(Basic.Ack)
        new = set(range(1, ack.delivery_tag + 1)) - settled if ack.multiple else {ack.delivery_tag}
        assert not new & settled
        settled |= new
    assert settled == {1, 2, 3}


@rule(
    "RabbitMQ: confirms", "What was published before confirm.select is not counted; selecting again changes nothing."
)
def test_confirms_begin_with_select(client: Wire) -> None:
    queue = new_queue(client)
    publish(client, "", queue)
    ask(client, Confirm.Select())
    publish(client, "", queue)
    assert client.expect(Basic.Ack).delivery_tag == 1
    ask(client, Confirm.Select())
    publish(client, "", queue)
    assert client.expect(Basic.Ack).delivery_tag == 2


@rule("RabbitMQ: confirms", "confirm.select with nowait is not answered.")
def test_confirm_select_nowait(client: Wire) -> None:
    queue = new_queue(client)
    client.send(Confirm.Select(nowait=True), channel=1)
    publish(client, "", queue)
    assert client.expect(Basic.Ack).delivery_tag == 1


@rule("RabbitMQ: confirms", "A message that comes back does so before its confirm.")
def test_return_before_ack(client: Wire, unique: Names) -> None:
    ask(client, Confirm.Select())
    for number in range(3):
        publish(client, "", unique("nowhere"), b"%d" % number, mandatory=True)
    returned, acked = [], 0
    while acked < 3:
        kind, _, payload = client.read_frame()
        client.buffer[:0] = frame_bytes(kind, payload)
        if payload[:4] == b"\x00\x3c\x00\x32":
            returned.append(client.read_message()[1].body)
        else:
            acked = client.expect(Basic.Ack).delivery_tag
            assert len(returned) >= acked
    assert returned == [b"0", b"1", b"2"]


@rule("RabbitMQ: confirms", "A durable queue confirms what is persistent, and keeps what it confirmed.")
def test_persistent_messages_are_confirmed(client: Wire, unique: Names) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue, durable=True))
    confirmed(client, "", queue, b"kept", properties=Basic.Properties(delivery_mode=2))
    message = get(client, queue)
    assert message is not None
    assert (message.body, message.properties.delivery_mode) == (b"kept", 2)


@rule("RabbitMQ: confirms", "A mandatory message that is returned raises in pika, with confirms.")
def test_pika_raises_for_what_returns(connect: Connect, unique: Names) -> None:
    channel = connect().channel()
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", unique("nowhere"), b"x", mandatory=True)


# Order and size


@rule("AMQP 0-9-1 section 4.7", "What one channel publishes to a queue keeps its order, however it is cut.")
def test_order(client: Wire) -> None:
    queue = new_queue(client)
    data = b"".join(publish_bytes(1, "", queue, b"%d" % number * (1 + number % 7)) for number in range(500))
    for at in range(0, len(data), 1009):
        client.send_bytes(data[at : at + 1009])
    assert bodies(client, queue) == [b"%d" % number * (1 + number % 7) for number in range(500)]


@rule("AMQP 0-9-1 section 4.7", "Order holds over different exchanges that lead to one queue.")
def test_order_over_exchanges(client: Wire) -> None:
    queue = new_queue(client)
    for exchange in ("amq.direct", "amq.topic"):
        ask(client, Queue.Bind(queue=queue, exchange=exchange, routing_key=queue))
    for number in range(60):
        publish(client, ("", "amq.direct", "amq.topic")[number % 3], queue, b"%d" % number)
    assert bodies(client, queue) == [b"%d" % number for number in range(60)]


@rule("RabbitMQ: specification", "Large messages come as they went.")
@pytest.mark.parametrize("size", [131_063, 131_064, 131_065, 3_000_000])
def test_large_messages(client: Wire, size: int) -> None:
    queue, body = new_queue(client), bytes(range(251)) * (size // 251 + 1)
    publish(client, "", queue, body[:size])
    message = get(client, queue)
    assert message is not None
    assert message.body == body[:size]


@rule("AMQP 0-9-1 section 3.1.1", "Each queue gets a copy of its own.")
def test_copies(client: Wire, unique: Names) -> None:
    exchange, queues = unique("x"), [new_queue(client) for _ in range(3)]
    ask(client, Exchange.Declare(exchange=exchange, exchange_type="fanout"))
    for queue in queues:
        ask(client, Queue.Bind(queue=queue, exchange=exchange))
    publish(client, exchange, "")
    for queue in queues:
        assert bodies(client, queue) == [b"x"]


# Transactions


@rule("AMQP 0-9-1 section 1.9.2.3", "What is published counts at tx.commit.")
def test_commit(client: Wire, wire: OpenWire) -> None:
    queue = new_queue(client)
    ask(client, Tx.Select())
    publish(client, "", queue)
    assert get(client, queue) is None
    ask(client, Tx.Commit())
    assert bodies(client, queue) == [b"x"]


@rule("AMQP 0-9-1 section 1.9.2.5", "What is published before tx.rollback never was.")
@pytest.mark.parametrize("how", ["rollback", "close"])
def test_rollback(client: Wire, how: str) -> None:
    queue = new_queue(client)
    ask(client, Tx.Select())
    publish(client, "", queue)
    if how == "rollback":
        ask(client, Tx.Rollback())
        ask(client, Tx.Commit())
    else:
        ask(client, Channel.Close(200, "", 0, 0))
        client.open_channel()
    assert bodies(client, queue) == []


@rule("RabbitMQ: semantics#tx", "Acknowledgements count at tx.commit; a rollback takes them back.")
def test_acks_in_a_transaction(client: Wire) -> None:
    queue = new_queue(client)
    publish(client, "", queue)
    ask(client, Tx.Select())
    assert get(client, queue, no_ack=False) is not None
    client.send(Basic.Ack(1), channel=1)
    ask(client, Tx.Rollback())
    client.send(Basic.Ack(1), channel=1)  # it is unacknowledged again, so this is no unknown tag
    ask(client, Tx.Rollback())
    ask(client, Channel.Close(200, "", 0, 0))
    client.open_channel()
    ask(client, Tx.Select())
    message = get(client, queue, no_ack=False)
    assert message is not None
    assert message.method.redelivered is True
    client.send(Basic.Ack(1), channel=1)
    ask(client, Tx.Commit())
    ask(client, Channel.Close(200, "", 0, 0))
    client.open_channel()
    assert bodies(client, queue) == []


@rule("RabbitMQ: semantics#tx", "Rejections in a transaction are requeued at its commit.")
def test_rejections_in_a_transaction(client: Wire) -> None:
    queue = new_queue(client)
    publish(client, "", queue)
    ask(client, Tx.Select())
    assert get(client, queue, no_ack=False) is not None
    client.send(Basic.Reject(1, True), channel=1)
    assert get(client, queue, no_ack=False) is None
    ask(client, Tx.Commit())
    assert get(client, queue, no_ack=False) is not None


@rule("RabbitMQ: semantics#tx", "What a transaction returns comes back before commit-ok.")
def test_returns_of_a_transaction(client: Wire, unique: Names) -> None:
    ask(client, Tx.Select())
    publish(client, "", unique("nowhere"), mandatory=True)
    client.send(Tx.Commit(), channel=1)
    assert client.read_message()[1].body == b"x"
    client.expect(Tx.CommitOk)


@rule("AMQP 0-9-1 section 1.9.2.1", "Commit and rollback need a channel that was selected: 406.")
@pytest.mark.parametrize("method", [Tx.Commit, Tx.Rollback], ids=["commit", "rollback"])
def test_no_transaction(client: Wire, method: type) -> None:
    refused(client, method(), 406, "PRECONDITION_FAILED - channel is not transactional")


@rule("RabbitMQ: confirms", "A channel has transactions or confirms, and not both: 406.")
def test_tx_or_confirms(client: Wire) -> None:
    ask(client, Tx.Select())
    ask(client, Tx.Select())
    refused(client, Confirm.Select(), 406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode")
    ask(client, Confirm.Select())
    refused(client, Tx.Select(), 406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode")
