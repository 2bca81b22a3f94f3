"""Frames and content: sizes, octets that are wrong, bodies that are cut."""

from __future__ import annotations

import socket
import struct

import pytest
from pamqp import base, commands, frame

from conformance.broker import Broker
from conformance.conftest import OpenWire
from conformance.rules import differs, rule
from conformance.talk import alive, ask, bodies, check_close, consume, get, new_queue, publish
from tests.clients.wire import BODY, HEADER, METHOD, Wire, frame_bytes, publish_bytes

Basic, Channel, Queue = commands.Basic, commands.Channel, commands.Queue


def method_bytes(method: base.Frame) -> bytes:
    return frame.marshal(method, 1)


def header_bytes(size: int, class_id: int = 60, weight: int = 0, properties: bytes = b"\0\0") -> bytes:
    return frame_bytes(HEADER, struct.pack(">HHQ", class_id, weight, size) + properties)


def framing_lost(client: Wire) -> None:
    """501, and the end when the client ends too: what it sent behind the mistake cannot be understood."""
    check_close(client.expect(commands.Connection.Close), 501)
    client.socket.shutdown(socket.SHUT_WR)
    assert client.at_end()


def publish_method(queue: str) -> bytes:
    return method_bytes(Basic.Publish(0, "", queue))


# Frames


@rule("AMQP 0-9-1 section 4.2.3", "A frame that does not end in 0xCE closes the connection with 501.")
@pytest.mark.parametrize("end", [b"\x00", b"\xcd"], ids=["00", "cd"])
def test_a_bad_frame_end(client: Wire, end: bytes) -> None:
    client.send_bytes(method_bytes(Basic.Qos())[:-1] + end)
    framing_lost(client)


@rule("AMQP 0-9-1 section 4.2.3", "A frame of an unknown type closes the connection.")
@pytest.mark.parametrize("kind", [0, 4, 9, 255])
def test_an_unknown_frame_type(client: Wire, kind: int) -> None:
    client.send_bytes(frame_bytes(kind, b"x"))
    check_close(client.closed("connection"), 501)


@rule("AMQP 0-9-1 section 4.2.3", "A frame of exactly frame_max octets is taken.")
def test_a_frame_of_frame_max(wire: OpenWire) -> None:
    client = wire(frame_max=4096)
    client.open_channel()
    queue = new_queue(client)
    client.send_bytes(publish_bytes(1, "", queue, bytes(4088), frame_max=4096))
    message = get(client, queue)
    assert message is not None
    assert (len(message.body), message.body_frames) == (4088, 1)


@rule("AMQP 0-9-1 section 4.2.3", "A frame larger than frame_max closes the connection with 501.")
def test_a_frame_larger_than_frame_max(wire: OpenWire) -> None:
    client = wire(frame_max=4096)
    client.open_channel()
    client.send_bytes(publish_bytes(1, "", "nobody", bytes(4097), frame_max=8192))
    framing_lost(client)


@rule("AMQP 0-9-1 section 4.2.3", "Deliveries and returns are cut to the frame_max of the client that gets them.")
@pytest.mark.parametrize("size", [4087, 4088, 4089, 8176, 25_600])
def test_content_is_cut_to_frame_max(wire: OpenWire, client: Wire, size: int) -> None:
    small = wire(frame_max=4096)
    small.open_channel()
    queue, body = str(ask(small, Queue.Declare(queue="", auto_delete=True)).queue), bytes(range(256)) * 100
    consume(small, queue, no_ack=True)
    publish(client, "", queue, body[:size])
    message = small.read_message()[1]
    assert (message.body, message.body_frames) == (body[:size], -(-size // 4088))
    publish(small, "", "nobody", body[: min(size, 4088)], mandatory=True)
    assert small.read_message()[1].body == body[: min(size, 4088)]


@rule("AMQP 0-9-1 section 4.2.2", "It does not matter how the octets are cut on their way.")
def test_octet_by_octet(client: Wire) -> None:
    queue = new_queue(client)
    for octet in publish_bytes(1, "", queue, b"drop by drop"):
        client.send_bytes(bytes([octet]))
    message = get(client, queue)
    assert message is not None
    assert message.body == b"drop by drop"


# Methods


@rule("AMQP 0-9-1 section 4.2.4", "A method that AMQP does not have closes the connection.")
@pytest.mark.parametrize("method_id", [b"\x00\x3c\x00\x09", b"\x00\x63\x00\x01"], ids=["60.9", "99.1"])
@differs(on="rabbitmq", why="its reader fails on it, and the socket just ends", asserted=True)
def test_an_unknown_method(client: Wire, method_id: bytes, broker: Broker) -> None:
    client.send_bytes(frame_bytes(METHOD, method_id))
    if broker.name == "rabbitmq":
        assert client.at_end()
    else:
        check_close(client.closed("connection"), 503)


@rule("AMQP 0-9-1 section 4.2.4", "A method whose arguments end early, or go on too long, closes the connection.")
@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x00\x3c\x00\x0a\x00\x00", id="ends early"),
        pytest.param(b"\x00\x3c\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", id="goes on"),
        pytest.param(b"\x00\x32\x00\x0a\x00\x00\xff", id="string beyond the end"),
        pytest.param(b"\x00", id="no method id"),
    ],
)
@differs(on="rabbitmq", why="501 FRAME_ERROR where the specification speaks of illegal values", asserted=True)
def test_arguments_that_cannot_be_read(client: Wire, payload: bytes, broker: Broker) -> None:
    client.send_bytes(frame_bytes(METHOD, payload))
    check_close(client.closed("connection"), 501 if broker.name == "rabbitmq" else 502)


@rule("AMQP 0-9-1 section 4.2.4", "A method that only the broker may send closes the connection.")
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(Basic.QosOk(), id="qos-ok"),
        pytest.param(Queue.DeclareOk("q", 0, 0), id="declare-ok"),
        pytest.param(Basic.GetEmpty(), id="get-empty"),
    ],
)
def test_a_method_of_the_broker(client: Wire, method: base.Frame) -> None:
    client.send(method, channel=1)
    check_close(client.closed("connection"), 503)


# Content


@rule("AMQP 0-9-1 section 4.2.6", "A body may be cut into any frames.")
@pytest.mark.parametrize("pieces", [[1, 1, 1], [10_000], [4096, 1, 4096], [1] * 50])
def test_a_body_in_pieces(client: Wire, pieces: list[int]) -> None:
    queue, body = new_queue(client), bytes(range(256)) * 40
    data = publish_method(queue) + header_bytes(sum(pieces))
    at = 0
    for piece in pieces:
        data += frame_bytes(BODY, body[at : at + piece])
        at += piece
    client.send_bytes(data)
    message = get(client, queue)
    assert message is not None
    assert message.body == body[:at]


@rule("AMQP 0-9-1 section 4.2.6.2", "An empty body has no frames; what comes next is a method.")
def test_an_empty_body(client: Wire) -> None:
    queue = new_queue(client)
    publish(client, "", queue, b"")
    message = get(client, queue)
    assert message is not None
    assert (message.body, message.body_frames) == (b"", 0)


@rule("AMQP 0-9-1 section 4.2.6.2", "A body frame without octets changes nothing while more is due.")
def test_empty_body_frames(client: Wire) -> None:
    queue = new_queue(client)
    client.send_bytes(publish_method(queue) + header_bytes(2) + frame_bytes(BODY, b""))
    client.send_bytes(frame_bytes(BODY, b"a") + frame_bytes(BODY, b"") + frame_bytes(BODY, b"b"))
    message = get(client, queue)
    assert message is not None
    assert message.body == b"ab"


@rule("AMQP 0-9-1 section 4.2.6", "Contents of two channels may be mixed; each is put together by itself.")
def test_contents_of_two_channels_mixed(client: Wire) -> None:
    client.open_channel(2)
    queue = new_queue(client)
    first = [publish_method(queue), header_bytes(2), frame_bytes(BODY, b"1"), frame_bytes(BODY, b"1")]
    second = [each[:1] + b"\x00\x02" + each[3:] for each in first]
    client.send_bytes(b"".join(x for pair in zip(first, second, strict=True) for x in pair))
    client.call(Basic.Qos(), channel=2)
    assert bodies(client, queue) == [b"11", b"11"]


@rule("AMQP 0-9-1 section 4.2.6", "A frame that is not due in a content closes the connection with 505.")
@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(frame_bytes(BODY, b"x"), id="body without method"),
        pytest.param(header_bytes(1), id="header without method"),
        pytest.param(publish_method("q") + frame_bytes(BODY, b"x"), id="body instead of header"),
        pytest.param(publish_method("q") + method_bytes(Basic.Qos()), id="method instead of header"),
        pytest.param(publish_method("q") + header_bytes(1) + method_bytes(Basic.Qos()), id="method instead of body"),
        pytest.param(publish_method("q") + header_bytes(1) + header_bytes(1), id="header instead of body"),
        pytest.param(publish_method("q") + header_bytes(1, class_id=50), id="header of another class"),
    ],
)
def test_frames_out_of_order(client: Wire, frames: bytes) -> None:
    client.send_bytes(frames)
    check_close(client.closed("connection"), 505)


@rule("AMQP 0-9-1 section 4.2.6.2", "A body longer than its header says closes the connection.")
@differs(on="rabbitmq<4", why="it waits for the content to come out even, so the next method is 505", asserted=True)
def test_a_body_that_is_too_long(client: Wire, broker: Broker) -> None:
    client.send_bytes(publish_method("q") + header_bytes(1) + frame_bytes(BODY, b"xx"))
    if broker.is_("rabbitmq<4"):
        client.send(Basic.Qos(), channel=1)
        check_close(client.closed("connection"), 505)
    else:
        check_close(client.closed("connection"), 501)


@rule("AMQP 0-9-1 section 4.2.6.1", "A content header's weight is 0.")
def test_a_weight(client: Wire) -> None:
    client.send_bytes(publish_method("q") + header_bytes(0, weight=1))
    check_close(client.closed("connection"), 505)


@rule("AMQP 0-9-1 section 4.2.6.1", "A property list that does not fit its flags closes the connection with 502.")
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(b"\x80\x00", id="no content type"),
        pytest.param(b"\x80\x00\x05abc", id="text beyond the end"),
        pytest.param(b"\x00\x00\x00", id="one octet too many"),
        pytest.param(b"\x20\x00\x00\x00\x00\x02\x01a", id="header without value"),
    ],
)
def test_properties_that_cannot_be_read(client: Wire, properties: bytes) -> None:
    client.send_bytes(publish_method("q") + header_bytes(0, properties=properties))
    assert client.closed("connection").reply_code in (502, 541)


@rule("AMQP 0-9-1 section 4.2.6.1", "All 14 properties are delivered as they were published.")
def test_all_properties(client: Wire) -> None:
    queue = new_queue(client)
    properties = (
        b"\xff\xfc\x02ct\x02ce\x00\x00\x00\x05\x01hIabc"[:8] + b"\x00\x00\x00\x07\x01hI\x00\x00\x00\x05"
        b"\x02\x09\x02ci\x02rt\x0560000\x02mi\x00\x00\x00\x00\x65\x00\x00\x00\x02ty\x05guest\x02ai\x02cl"
    )
    client.send_bytes(publish_method(queue) + header_bytes(0, properties=properties))
    client.send(Basic.Get(queue=queue, no_ack=True), channel=1)
    client.expect(Basic.GetOk)
    kind, _, payload = client.read_frame()
    assert (kind, payload[12:]) == (HEADER, properties)


@rule("AMQP 0-9-1 section 4.2.6.1", "A message without properties is delivered without.")
def test_no_properties(client: Wire) -> None:
    queue = new_queue(client)
    client.send_bytes(publish_method(queue) + header_bytes(0))
    client.send(Basic.Get(queue=queue, no_ack=True), channel=1)
    client.expect(Basic.GetOk)
    assert client.read_frame()[2] == struct.pack(">HHQ", 60, 0, 0) + b"\0\0"


@rule("AMQP 0-9-1 section 1.8.2.6", "Times are 64 bits of seconds, whatever calendar has them.")
@pytest.mark.parametrize("timestamp", [0, 1, 2**32, 2**63 - 1])
def test_timestamps(client: Wire, timestamp: int) -> None:
    queue = new_queue(client)
    client.send_bytes(publish_method(queue) + header_bytes(0, properties=b"\x00\x40" + struct.pack(">Q", timestamp)))
    client.send(Basic.Get(queue=queue, no_ack=True), channel=1)
    client.expect(Basic.GetOk)
    assert client.read_frame()[2].endswith(struct.pack(">Q", timestamp))


@rule("RabbitMQ: specification", "A body that is announced with more than 512 MiB closes the connection with 501.")
@differs(on="rabbitmq<4", why="it looks at the size when all of the body is there", asserted=True)
def test_a_body_beyond_any_limit(client: Wire, broker: Broker) -> None:
    client.open_channel(2)
    client.send_bytes(publish_method("q") + header_bytes(1 << 40) + frame_bytes(BODY, bytes(131_064)))
    if broker.is_("rabbitmq<4"):
        assert isinstance(client.call(Basic.Qos(), channel=2), Basic.QosOk)
    else:
        check_close(client.closed("connection"), 501)


@rule("AMQP 0-9-1 section 4.2.6", "After a channel error the rest of a content on its way is thrown away.")
def test_the_rest_of_a_content_after_a_channel_error(client: Wire) -> None:
    client.send(Basic.Ack(99), channel=1)
    client.send_bytes(publish_bytes(1, "", "q", b"x" * 10))
    client.expect(Channel.Close)
    client.send_bytes(publish_bytes(1, "", "q", b"x" * 10))
    client.send(Channel.CloseOk(), channel=1)
    client.open_channel()
    assert alive(client)
