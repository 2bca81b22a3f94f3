"""The connection phase, heartbeats, limits and the end of a connection, on a bare socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import pika
import pytest
from pamqp import commands, frame, heartbeat

from .brokers import Connect
from .wire import BODY, HEARTBEAT, METHOD, PROTOCOL_HEADER, Wire, decode_method, described, publish_bytes


@pytest.fixture
def port(broker_url: str) -> int:
    return int(pika.URLParameters(broker_url).port)


def refused(wire: Wire, broker_product: str, code: int, text: str) -> None:
    """Before `connection.open` amqpd says why it closes. RabbitMQ waits 3 s and drops the socket."""
    try:
        close = connection_close(wire)
    except ConnectionError:
        assert broker_product == "RabbitMQ"
        return
    assert close.reply_code == code
    assert text in close.reply_text


def connection_close(wire: Wire) -> commands.Connection.Close:
    method = wire.read_method()[1]
    assert isinstance(method, commands.Connection.Close), described(method)
    return method


@pytest.mark.parametrize("header", [b"GET / HT", b"AMQP\x00\x00\x08\x00", b"AMQP\x01\x01\x00\x0a"])
def test_a_wrong_protocol_header_is_answered_with_the_right_one(
    port: int, header: bytes, broker_product: str
) -> None:
    with Wire(port) as wire:
        wire.send_bytes(header)
        answer = wire.socket.recv(8, socket.MSG_WAITALL)
        assert wire.at_end()
    # RabbitMQ answers garbage with any header that it knows (3.10: 0-9-1; 4.x: 1.0 with SASL).
    assert answer == PROTOCOL_HEADER or (broker_product == "RabbitMQ" and answer[:4] == b"AMQP")


def test_start_offers_mechanisms_and_names_the_product(port: int) -> None:
    with Wire(port) as wire:
        wire.send_bytes(PROTOCOL_HEADER)
        start = wire.read_method()[1]
    assert isinstance(start, commands.Connection.Start)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert {"PLAIN", "AMQPLAIN"} <= set(start.mechanisms.split())
    assert "en_US" in start.locales.split()
    capabilities = start.server_properties["capabilities"]
    for capability in (
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "authentication_failure_close",
        "per_consumer_qos",
    ):
        assert capabilities[capability] is True, capability
    for name in ("product", "version", "platform", "information"):
        assert start.server_properties[name], name


def test_tune_proposes_limits_that_clients_can_live_with(port: int) -> None:
    with Wire(port) as wire:
        wire.open()
        assert wire.tune is not None
        assert (wire.tune.channel_max, wire.tune.frame_max, wire.tune.heartbeat) == (2047, 131072, 60)
        wire.close()


def test_a_wrong_password_is_refused_with_403(port: int) -> None:
    with (
        Wire(port) as wire,
        pytest.raises(AssertionError, match="403 ACCESS_REFUSED - Login was refused using"),
    ):
        wire.open(password="wrong")


def test_an_unknown_mechanism_is_refused_with_503(port: int, broker_product: str) -> None:
    with Wire(port) as wire:
        wire.send_bytes(PROTOCOL_HEADER)
        wire.read_method()
        wire.send(commands.Connection.StartOk({}, "MAGIC", "please"))
        refused(wire, broker_product, 503, "unknown authentication mechanism 'MAGIC'")


@pytest.mark.parametrize("vhost", ["nowhere", ""])
def test_an_unknown_vhost_is_refused_with_530(port: int, vhost: str) -> None:
    with Wire(port) as wire, pytest.raises(AssertionError, match=f"530 NOT_ALLOWED - vhost {vhost} not found"):
        wire.open(vhost=vhost)


@pytest.mark.parametrize(
    ("channel_max", "frame_max", "text"),
    [
        (2047, 1 << 20, "negotiated frame_max = 1048576 is higher than the maximum allowed value (131072)"),
        (4000, 131072, "negotiated channel_max = 4000 is higher than the maximum allowed value (2047)"),
        (2047, 100, "negotiated frame_max = 100 is lower than the minimum allowed value (4096)"),
    ],
)
def test_limits_above_the_brokers_or_below_the_minimum_are_refused(
    port: int, broker_product: str, channel_max: int, frame_max: int, text: str
) -> None:
    with Wire(port) as wire:
        wire.send_bytes(PROTOCOL_HEADER)
        wire.read_method()
        wire.call(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest"))
        wire.send(commands.Connection.TuneOk(channel_max, frame_max, 0), commands.Connection.Open("/"))
        refused(wire, broker_product, 530, text)


def test_a_smaller_frame_max_is_kept_in_both_directions(port: int, make_queue: Callable[..., str]) -> None:
    queue, body = make_queue(), bytes(range(256)) * 64
    with Wire(port) as publisher:
        publisher.open()
        publisher.open_channel()
        publisher.send_bytes(publish_bytes(1, "", queue, body))
        publisher.call(commands.Queue.Declare(queue=queue, passive=True), channel=1)
        publisher.close()
    with Wire(port) as wire:
        wire.open(frame_max=4096)
        wire.open_channel()
        wire.send(commands.Basic.Get(queue=queue), channel=1)
        message = wire.read_message()[1]
        assert message.body == body
        assert message.body_frames == -(-len(body) // 4088)
        # 8 bytes too many are let through by RabbitMQ; this is far above.
        wire.send_bytes(publish_bytes(1, "", queue, body))
        assert connection_close(wire).reply_code == 501


def test_a_bad_frame_end_closes_with_501(port: int) -> None:
    with Wire(port) as wire:
        wire.open()
        wire.send_bytes(frame.marshal(commands.Channel.Open(), 1)[:-1] + b"\x00")
        assert connection_close(wire).reply_code == 501


def test_content_that_was_not_announced_closes_with_505(port: int) -> None:
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(struct.pack(">BHI", BODY, 1, 1) + b"x\xce")
        assert connection_close(wire).reply_code == 505


def test_one_channel_more_than_channel_max_is_refused(port: int) -> None:
    with Wire(port) as wire:
        wire.open(channel_max=10)
        for number in range(1, 11):
            wire.open_channel(number)
        wire.send(commands.Channel.Open(), channel=11)
        close = connection_close(wire)
        assert close.reply_code == 530
        assert "number of channels opened (10) has reached the negotiated channel_max (10)" in close.reply_text


def test_channel_max_bounds_how_many_channels_and_not_their_numbers(port: int) -> None:
    with Wire(port) as wire:
        wire.open(channel_max=2)
        for number in (65535, 300):
            wire.open_channel(number)
        wire.call(commands.Channel.Close(200, "", 0, 0), channel=300)
        wire.open_channel(7)
        wire.close()


def test_bytes_one_by_one_are_as_good_as_at_once(port: int, make_queue: Callable[..., str]) -> None:
    queue = make_queue()
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        for byte in publish_bytes(1, "", queue, b"drop by drop"):
            wire.send_bytes(bytes([byte]))
        wire.send(commands.Basic.Get(queue=queue, no_ack=True), channel=1)
        assert wire.read_message()[1].body == b"drop by drop"
        wire.close()


def test_the_broker_sends_heartbeats_and_closes_on_silence(port: int) -> None:
    with Wire(port) as wire:
        wire.open(heartbeat_s=1)
        seen = 0
        while not wire_ended(wire):
            seen += 1
    # It takes two whole seconds of silence, in which it sends one every half second (or every second).
    assert seen >= 1


def wire_ended(wire: Wire) -> bool:
    """False for one more heartbeat; anything else but the end is an error."""
    try:
        kind, channel, payload = wire.read_frame()
    except ConnectionError:
        return True
    if kind == METHOD:
        method = decode_method(payload)
        assert isinstance(method, commands.Connection.Close), described(method)
        return True
    assert (kind, channel, payload) == (HEARTBEAT, 0, b"")
    return False


def test_heartbeats_of_the_client_keep_the_connection(port: int) -> None:
    with Wire(port) as wire:
        wire.open(heartbeat_s=1)
        for _ in range(5):  # at least every second one comes: longer than the three seconds that are let pass
            assert wire.read_frame()[0] == HEARTBEAT
            wire.send_bytes(frame.marshal(heartbeat.Heartbeat(), 0))
        wire.open_channel()
        wire.close()


def test_any_traffic_counts_as_a_heartbeat(port: int) -> None:
    with Wire(port) as wire:
        wire.open(heartbeat_s=1)
        wire.open_channel()
        for _ in range(5):
            while wire.read_frame()[0] != HEARTBEAT:
                pass
            wire.send(commands.Basic.Qos(prefetch_count=1), channel=1)
        wire.close()


def test_heartbeat_on_a_channel_is_a_frame_error(port: int, broker_product: str) -> None:
    if broker_product == "RabbitMQ":
        pytest.skip("3.10 takes it as a heartbeat; 4.x closes with 505, 4.2.7 of the specification asks for 503")
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(b"\x08\x00\x01\x00\x00\x00\x00\xce")
        close = connection_close(wire)
    assert close.reply_code in (501, 503, 505)


def test_a_connection_goes_and_its_unacked_messages_come_back(
    connect: Connect, port: int, make_queue: Callable[..., str]
) -> None:
    queue = make_queue()
    connect().channel().basic_publish("", queue, b"x")
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.send(commands.Basic.Consume(queue=queue), channel=1)
        assert isinstance(wire.read_method()[1], commands.Basic.ConsumeOk)
        assert wire.read_message()[1].body == b"x"
    # The socket is closed without a word.
    channel = connect().channel()
    method, _properties, body = next(channel.consume(queue))
    assert (body, method.redelivered) == (b"x", True)
    channel.cancel()


def test_reconnect_after_the_broker_closed_the_connection(connect: Connect) -> None:
    connection = connect()
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        channel.basic_qos(prefetch_size=1)
    assert caught.value.reply_code == 540
    assert connection.is_closed
    assert connect().channel().is_open


def test_a_closed_channel_leaves_the_others_open(connection: pika.BlockingConnection, unique: Callable) -> None:
    first, second = connection.channel(), connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        first.queue_declare(unique("missing"), passive=True)
    assert second.queue_declare("", exclusive=True).method.queue
    assert connection.channel().is_open


def test_a_user_with_a_password_may_update_the_secret_to_anything(port: int) -> None:
    with Wire(port) as wire:
        wire.open()
        for secret in ("guest", "something else"):
            answer = wire.call(commands.Connection.UpdateSecret(secret, "rotation"))
            assert isinstance(answer, commands.Connection.UpdateSecretOk), described(answer)
        wire.close()


def test_what_follows_connection_close_is_thrown_away_and_the_close_ok_arrives(port: int) -> None:
    """A client whose channels have buffers of their own may send its close before their publishes (amqplib does)."""
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(frame.marshal(commands.Connection.Close(200, "", 0, 0), 0))
        wire.send_bytes(publish_bytes(1, "", "nowhere", bytes(1000)) * 8000)
        assert isinstance(wire.read_method()[1], commands.Connection.CloseOk)
