"""Publisher confirms, returns, and transactions."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pika.exceptions
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from .brokers import Connect
from .wire import Wire, publish_bytes

MakeQueue = Callable[..., str]
PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


def test_confirmed_messages_are_in_the_queue(channel: BlockingChannel, make_queue: MakeQueue) -> None:
    queue = make_queue(durable=True)
    channel.confirm_delivery()
    for number in range(50):
        channel.basic_publish("", queue, b"%d" % number, properties=PERSISTENT, mandatory=True)
    assert channel.queue_declare(queue, passive=True).method.message_count == 50


def test_unroutable_and_mandatory_is_returned_as_it_was(
    channel: BlockingChannel, make_exchange: Callable[..., str]
) -> None:
    exchange = make_exchange("direct")
    channel.confirm_delivery()
    sent = pika.BasicProperties(message_id="m", headers={"a": 1})
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish(exchange, "nowhere", b"body", properties=sent, mandatory=True)
    (returned,) = caught.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == (exchange, "nowhere")
    assert returned.properties == sent
    assert returned.body == b"body"


def test_unroutable_and_not_mandatory_is_confirmed_and_dropped(
    channel: BlockingChannel, make_exchange: Callable[..., str]
) -> None:
    exchange = make_exchange("direct")
    channel.confirm_delivery()
    channel.basic_publish(exchange, "nowhere", b"body")


def test_returns_without_confirms(channel: BlockingChannel, make_queue: MakeQueue, unique: Callable) -> None:
    returned: list[bytes] = []
    channel.add_on_return_callback(lambda _channel, _method, _properties, body: returned.append(body))
    channel.basic_publish("", unique("nobody"), b"lost", mandatory=True)
    channel.basic_publish("", make_queue(), b"kept", mandatory=True)
    channel.connection.process_data_events(0)
    while not returned:
        channel.connection.process_data_events(time_limit=1)
    assert returned == [b"lost"]


def test_every_tag_is_confirmed_once_and_a_return_comes_before_its_confirm(
    broker_url: str, make_queue: MakeQueue
) -> None:
    queue = make_queue(durable=True)
    persistent = commands.Basic.Properties(delivery_mode=2)
    with Wire(pika.URLParameters(broker_url).port) as wire:
        wire.open()
        wire.open_channel()
        for _ in range(2):  # a second select changes nothing
            assert isinstance(wire.call(commands.Confirm.Select(), channel=1), commands.Confirm.SelectOk)
        due = set(range(1, 301))
        wire.send_bytes(
            b"".join(
                publish_bytes(1, "", queue if tag % 10 else "nowhere", b"%d" % tag, persistent, mandatory=True)
                for tag in sorted(due)
            )
        )
        returned: set[int] = set()
        while due:
            kind, _, payload = wire.read_frame()
            if kind == 3:
                returned.add(int(payload))
            if kind != 1 or payload[:4] == b"\x00\x3c\x00\x32":
                continue
            assert payload[:4] == b"\x00\x3c\x00\x50", "an ack was due"
            tag, multiple = int.from_bytes(payload[4:12], "big"), payload[12] & 1
            confirmed = {other for other in due if other <= tag} if multiple else {tag}
            assert confirmed, f"{tag} was confirmed before"
            assert confirmed <= due, f"{confirmed - due} was confirmed before"
            unroutable = {other for other in confirmed if other % 10 == 0}
            assert unroutable <= returned, "a return comes before the confirm"
            due -= confirmed
        assert len(returned) == 30
        wire.close()


def test_committed_publishes_appear_and_rolled_back_ones_do_not(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue()
    working, looking = connect().channel(), connect().channel()
    working.tx_select()
    working.basic_publish("", queue, b"dropped")
    working.tx_rollback()
    working.basic_publish("", queue, b"kept 1")
    working.basic_publish("", queue, b"kept 2")
    # The answer to this says that the publishes before it were taken in.
    working.queue_declare(queue, passive=True)
    assert looking.basic_get(queue) == (None, None, None)
    working.tx_commit()
    assert [looking.basic_get(queue, auto_ack=True)[2] for _ in range(2)] == [b"kept 1", b"kept 2"]
    assert looking.basic_get(queue) == (None, None, None)


def test_acks_are_part_of_the_transaction(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue()
    working, looking = connect().channel(), connect().channel()
    for body in (b"1", b"2"):
        looking.basic_publish("", queue, body)
    looking.queue_declare(queue, passive=True)
    working.tx_select()
    working.basic_ack(working.basic_get(queue)[0].delivery_tag)
    working.tx_commit()
    tag = working.basic_get(queue)[0].delivery_tag
    working.basic_ack(tag)
    working.tx_rollback()  # takes the ack back; the delivery stays with this channel
    assert looking.basic_get(queue) == (None, None, None)
    working.basic_ack(tag)
    working.tx_rollback()
    working.close()
    method, _properties, body = looking.basic_get(queue, auto_ack=True)
    assert (body, method.redelivered) == (b"2", True)


def test_a_transaction_dies_with_its_channel(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue()
    working, looking = connect().channel(), connect().channel()
    working.tx_select()
    working.basic_publish("", queue, b"never committed")
    working.close()
    assert looking.basic_get(queue) == (None, None, None)


def test_an_unroutable_mandatory_publish_is_returned_before_commit_ok(
    connect: Connect, unique: Callable[[str], str]
) -> None:
    channel = connect().channel()
    returned: list[bytes] = []
    channel.add_on_return_callback(lambda _channel, _method, _properties, body: returned.append(body))
    channel.tx_select()
    channel.basic_publish("", unique("nobody"), b"lost", mandatory=True)
    channel.tx_commit()
    channel.connection.process_data_events(0)
    assert returned == [b"lost"]
