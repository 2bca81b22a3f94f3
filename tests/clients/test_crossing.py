"""What crosses on the wire, and what is sent without waiting: the same as with RabbitMQ; these were tried on both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pika
import pytest
from pamqp import base, commands, encode, frame

from .wire import PROTOCOL_HEADER, Wire, described, publish_bytes

Basic, Channel, Connection, Exchange, Queue = (
    commands.Basic,
    commands.Channel,
    commands.Connection,
    commands.Exchange,
    commands.Queue,
)
MakeQueue = Callable[..., str]


@pytest.fixture
def port(broker_url: str) -> int:
    return int(pika.URLParameters(broker_url).port)


def frames(*methods: base.Frame, channel: int = 1) -> bytes:
    return b"".join(frame.marshal(method, channel) for method in methods)


def count(port: int, queue: str) -> int:
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        return int(wire.call(Queue.Declare(queue=queue, passive=True), channel=1).message_count)


def test_both_sides_close_a_channel_at_once(port: int) -> None:
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(
            publish_bytes(1, "there is no such exchange", "k", b"x")
            + frames(Channel.Close(200, "", 0, 0), Channel.CloseOk(), Channel.Open())
        )
        wire.expect(Channel.Close, Channel.CloseOk, Channel.OpenOk)
        wire.close()


def test_everything_before_connection_close_takes_effect(
    port: int, make_queue: MakeQueue, unique: Callable[[str], str]
) -> None:
    queue = make_queue(durable=True)
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        # The declaration takes its time; the rest does not wait for its answer.
        wire.send_bytes(
            frames(Queue.Declare(queue=unique("new"), durable=True, auto_delete=True, nowait=True))
            + publish_bytes(1, "", queue, b"x") * 50
            + frames(Connection.Close(200, "", 0, 0), channel=0)
        )
        wire.expect(Connection.CloseOk)
    assert count(port, queue) == 50


@pytest.mark.parametrize(
    "method",
    [
        Queue.Unbind(queue="missing", exchange="amq.direct"),
        Queue.Unbind(queue="missing", exchange="missing"),
        Exchange.Unbind(destination="missing", source="amq.direct"),
        Exchange.Unbind(destination="amq.direct", source="missing"),
        Exchange.Delete(exchange="missing"),
        Queue.Delete(queue="missing"),
        Basic.Cancel(consumer_tag="missing"),
        Basic.Ack(0, True),
    ],
    ids=lambda method: f"{method.name} {' '.join(str(value) for _, value in method if value)}",
)
def test_what_is_not_there_can_be_taken_away(port: int, method: base.Frame) -> None:
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.send(method, channel=1)
        if not isinstance(method, Basic.Ack):
            assert type(wire.read_method()[1]).__name__ == f"{type(method).__name__}Ok"
        expect_open(wire)
        wire.close()


def expect_open(wire: Wire) -> None:
    assert isinstance(wire.call(Basic.Qos(prefetch_count=1), channel=1), Basic.QosOk)


def test_what_was_delivered_of_a_deleted_queue_can_be_settled(port: int, make_queue: MakeQueue) -> None:
    queue = make_queue()
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(publish_bytes(1, "", queue, b"x") * 4)
        wire.send(Basic.Consume(queue=queue, consumer_tag="c"), channel=1)
        wire.expect(Basic.ConsumeOk)
        for _ in range(4):
            wire.read_message()
        wire.open_channel(2)
        wire.send(Queue.Delete(queue=queue), channel=2)
        seen = {type(wire.read_method()[1]).__name__ for _ in range(2)}
        assert seen == {"Cancel", "DeleteOk"}
        wire.send(Basic.Ack(1), Basic.Nack(2, False, True), Basic.Reject(3, False), channel=1)
        expect_open(wire)
        wire.send(Basic.Nack(0, True, True), channel=1)
        expect_open(wire)
        wire.close()


def test_a_half_closed_socket_ends_the_connection_and_what_it_sent_counts(port: int, make_queue: MakeQueue) -> None:
    queue = make_queue(durable=True)
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(publish_bytes(1, "", queue, b"x") * 20)
        wire.socket.shutdown(1)
        with suppress(ConnectionResetError):
            assert wire.at_end()
    assert count(port, queue) == 20


def test_exclusive_queues_of_a_lost_connection_can_be_declared_again_at_once(
    port: int, unique: Callable[[str], str]
) -> None:
    name = unique("mine")
    for _ in range(5):
        wire = Wire(port)
        wire.open()
        wire.open_channel()
        answer = wire.call(Queue.Declare(queue=name, exclusive=True), channel=1)
        assert isinstance(answer, Queue.DeclareOk), described(answer)
        answer = wire.call(Queue.Bind(queue=name, exchange="amq.fanout"), channel=1)
        wire.close()


def test_publishes_right_behind_bind_ok_and_unbind_ok(
    port: int, make_queue: MakeQueue, make_exchange: MakeQueue
) -> None:
    """Routes that are remembered must follow the bindings at once."""
    queue, exchange = make_queue(), make_exchange("topic")
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Confirm.Select(), channel=1)
        for bound in (True, False) * 5:
            method = Queue.Bind if bound else Queue.Unbind
            wire.call(method(queue=queue, exchange=exchange, routing_key="a.#"), channel=1)
            wire.send_bytes(publish_bytes(1, exchange, "a.b", b"x", mandatory=True))
            if not bound:
                wire.read_message()
            wire.expect(Basic.Ack)
        wire.close()
    assert count(port, queue) == 5


def test_a_shared_prefetch_counts_what_cancelled_consumers_left(port: int, make_queue: MakeQueue) -> None:
    queue = make_queue()
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(publish_bytes(1, "", queue, b"x") * 6)
        wire.call(Basic.Qos(prefetch_count=2, global_=True), channel=1)
        wire.send(Basic.Consume(queue=queue, consumer_tag="one"), channel=1)
        wire.expect(Basic.ConsumeOk)
        wire.read_message()
        wire.read_message()
        wire.call(Basic.Cancel(consumer_tag="one"), channel=1)
        wire.send(Basic.Consume(queue=queue, consumer_tag="two"), channel=1)
        wire.expect(Basic.ConsumeOk)
        wire.send(Basic.Ack(1), channel=1)
        message = wire.read_message()[1]
        assert message.method.delivery_tag == 3
        wire.send(Basic.Ack(3, True), channel=1)
        wire.read_message()
        wire.read_message()
        wire.close()


def test_a_channel_that_closes_gives_back_and_the_other_consumer_gets_it(port: int, make_queue: MakeQueue) -> None:
    queue = make_queue()
    with Wire(port) as wire:
        wire.open()
        wire.open_channel(1)
        wire.open_channel(2)
        wire.send_bytes(publish_bytes(1, "", queue, b"x"))
        wire.send(Basic.Consume(queue=queue, consumer_tag="one"), channel=1)
        wire.expect(Basic.ConsumeOk)
        wire.read_message()
        wire.send(Basic.Consume(queue=queue, consumer_tag="two"), channel=2)
        wire.expect(Basic.ConsumeOk)
        # An error closes the channel, and gives back all the same.
        wire.send(Basic.Ack(99), channel=1)
        seen = sorted([wire.read_frame()[1] for _ in range(4)])
        assert seen == [1, 2, 2, 2]
        wire.send(Channel.CloseOk(), channel=1)
        wire.open_channel(1)
        wire.close()


def test_bindings_to_itself_and_in_a_circle_end(port: int, make_queue: MakeQueue, make_exchange: MakeQueue) -> None:
    queue, exchange = make_queue(), make_exchange("fanout")
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Confirm.Select(), channel=1)
        wire.call(Exchange.Bind(destination=exchange, source=exchange), channel=1)
        wire.call(Queue.Bind(queue=queue, exchange=exchange), channel=1)
        wire.send_bytes(publish_bytes(1, exchange, "", b"x", mandatory=True))
        wire.expect(Basic.Ack)
        wire.close()
    assert count(port, queue) == 1


def start_ok(wire: Wire, mechanism: str, response: str | bytes, **capabilities: bool) -> None:
    wire.send_bytes(PROTOCOL_HEADER)
    wire.read_method()
    wire.send(Connection.StartOk({"capabilities": capabilities}, mechanism, response))  # type: ignore[arg-type]


def test_amqplain(port: int) -> None:
    table = encode.field_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:].decode("latin-1")
    with Wire(port) as wire:
        start_ok(wire, "AMQPLAIN", table)
        wire.expect(Connection.Tune)


def test_a_refused_log_in_is_told_to_who_understands_it(port: int) -> None:
    with Wire(port) as wire:
        start_ok(wire, "PLAIN", "\0guest\0wrong")
        assert wire.at_end()
    with Wire(port) as wire:
        start_ok(wire, "PLAIN", "\0guest\0wrong", authentication_failure_close=True)
        close = wire.read_method()[1]
        assert (close.reply_code, close.class_id, close.method_id) == (403, 0, 0), described(close)


def test_a_small_frame_max_cuts_deliveries_and_returns(port: int, make_queue: MakeQueue) -> None:
    queue, body = make_queue(), bytes(range(256)) * 100
    with Wire(port) as wire:
        wire.open(frame_max=4096)
        wire.open_channel()
        wire.send(Basic.Consume(queue=queue, consumer_tag="c", no_ack=True), channel=1)
        wire.expect(Basic.ConsumeOk)
        for key in (queue, "nobody"):
            wire.send_bytes(publish_bytes(1, "", key, body, mandatory=True, frame_max=4096))
            message = wire.read_message()[1]
            assert (message.body, message.body_frames) == (body, -(-len(body) // 4088))
        with Wire(port) as large:
            large.open()
            large.open_channel()
            large.send_bytes(publish_bytes(1, "", queue, body))
            assert wire.read_message()[1].body_frames == -(-len(body) // 4088)
        wire.close()


def test_a_burst_to_many_queues_comes_through_without_anything_behind_it(port: int, make_queue: MakeQueue) -> None:
    queues = [make_queue() for _ in range(120)]
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Confirm.Select(), channel=1)
        for queue in queues:
            wire.call(Queue.Bind(queue=queue, exchange="amq.fanout"), channel=1)
        wire.send_bytes(b"".join(publish_bytes(1, "amq.fanout", f"k{n}", b"%d" % n) for n in range(400)))
        confirmed = 0
        while confirmed < 400:
            confirmed = max(confirmed, wire.expect(Basic.Ack).delivery_tag)
    assert {count(port, queue) for queue in queues[::40]} == {400}
