"""Field tables: every type, in headers and arguments, both ways, octet by octet."""

from __future__ import annotations

import struct
from typing import Any

import pika
import pytest
from pamqp import commands

from conformance.broker import Broker
from conformance.conftest import Names
from conformance.rules import differs, rule
from conformance.talk import check_close, new_queue
from tests.clients.wire import HEADER, METHOD, Wire, frame_bytes, short_string

Basic, Exchange, Queue = commands.Basic, commands.Exchange, commands.Queue

TYPES = {
    "boolean": b"t\x01",
    "signed octet": b"b\xfb",
    "unsigned octet": b"B\xfb",
    "signed short": b"s\xff\xfb",
    "unsigned short": b"u\xff\xfb",
    "signed int": b"I\xff\xff\xff\xfb",
    "unsigned int": b"i\xff\xff\xff\xfb",
    "signed long": b"l\xff\xff\xff\xff\xff\xff\xff\xfb",
    "float": b"f\x3f\xc0\x00\x00",
    "double": b"d\x3f\xf8\x00\x00\x00\x00\x00\x00",
    "not a number": b"d\x7f\xf8\x00\x00\x00\x00\x00\x00",
    "decimal": b"D\x02\x00\x00\x01\x3a",
    "long string": b"S\x00\x00\x00\x03a\xc3\xbc",
    "long string, not UTF-8": b"S\x00\x00\x00\x02\xff\xfe",
    "empty string": b"S\x00\x00\x00\x00",
    "bytes": b"x\x00\x00\x00\x03\x00\xff\x01",
    "time": b"T\x00\x00\x00\x00\x65\x00\x00\x00",
    "time out of any calendar": b"T\x7f\xff\xff\xff\xff\xff\xff\xff",
    "void": b"V",
    "array": b"A\x00\x00\x00\x06t\x01I\x00\x00\x00\x07"[:5] + b"t\x01" + b"b\x01" + b"V" + b"V",
    "empty array": b"A\x00\x00\x00\x00",
    "table": b"F\x00\x00\x00\x04\x01ab\x05",
    "empty table": b"F\x00\x00\x00\x00",
    "table in array in table": b"F\x00\x00\x00\x10\x01aA\x00\x00\x00\x09F\x00\x00\x00\x04\x01bt\x00",
}
NO_SUCH_FLOAT = differs(on="rabbitmq", why="Erlang has no float that is not a number: the connection ends with 541")
CASES = [
    pytest.param(value, id=name, marks=[NO_SUCH_FLOAT] if name == "not a number" else [])
    for name, value in TYPES.items()
]


def table(*entries: tuple[bytes, bytes]) -> bytes:
    inner = b"".join(bytes([len(name)]) + name + value for name, value in entries)
    return struct.pack(">I", len(inner)) + inner


def publish_with_headers(client: Wire, queue: str, headers: bytes) -> None:
    client.send(Basic.Publish(0, "", queue), channel=1)
    client.send_bytes(frame_bytes(HEADER, struct.pack(">HHQ", 60, 0, 0) + b"\x20\x00" + headers))


def declare_queue(client: Wire, name: str, arguments: bytes) -> Any:
    """The answer."""
    client.send_bytes(frame_bytes(METHOD, declaration(name, arguments)))
    return client.read_method()[1]


def declaration(name: str, arguments: bytes) -> bytes:
    return b"\x00\x32\x00\x0a\x00\x00" + short_string(name) + b"\x00" + arguments


@rule("AMQP 0-9-1 section 4.2.5.5", "Headers are delivered as they were published, every type, octet by octet.")
@pytest.mark.parametrize("value", CASES)
def test_headers(client: Wire, value: bytes) -> None:
    queue, headers = new_queue(client), table((b"h", value), (b"last", b"t\x00"))
    publish_with_headers(client, queue, headers)
    client.send(Basic.Get(queue=queue, no_ack=True), channel=1)
    client.expect(Basic.GetOk)
    assert client.read_frame()[2][14:] == headers


@rule("AMQP 0-9-1 section 4.2.5.5", "Arguments may have every type.")
@pytest.mark.parametrize("value", CASES)
def test_arguments(client: Wire, unique: Names, value: bytes) -> None:
    for _ in range(2):
        answer = declare_queue(client, unique("queue"), table((b"x-mine", value)))
        assert isinstance(answer, Queue.DeclareOk)


@rule("AMQP 0-9-1 section 4.2.5.5", "A headers exchange compares values of every type that has a value of its own.")
@pytest.mark.parametrize(
    "value", [pytest.param(value, id=name) for name, value in TYPES.items() if name not in ("void", "not a number")]
)
def test_bindings(client: Wire, unique: Names, value: bytes) -> None:
    queue, exchange = new_queue(client), unique("x")
    client.call(Exchange.Declare(exchange=exchange, exchange_type="headers"), channel=1)
    bound = b"\x00\x00" + short_string(queue) + short_string(exchange) + b"\x00\x00" + table((b"h", value))
    client.send_bytes(frame_bytes(METHOD, b"\x00\x32\x00\x14" + bound))
    client.expect(Queue.BindOk)
    for headers, matches in ((table((b"h", value)), True), (table((b"h", b"S\x00\x00\x00\x05other")), False)):
        client.send(Basic.Publish(0, exchange, ""), channel=1)
        client.send_bytes(frame_bytes(HEADER, struct.pack(">HHQ", 60, 0, 0) + b"\x20\x00" + headers))
        client.send(Basic.Get(queue=queue, no_ack=True), channel=1)
        answer = client.read_method()[1]
        assert isinstance(answer, Basic.GetOk if matches else Basic.GetEmpty)
        if matches:
            assert client.read_frame()[2][14:] == headers


@rule("AMQP 0-9-1 section 4.2.5.5", "A table that cannot be read closes the connection.")
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"Z\x00", id="unknown type"),
        pytest.param(b"I\x00", id="number ends early"),
        pytest.param(b"S\x00\x00\xff\xffab", id="string beyond the end"),
        pytest.param(b"A\x00\x00\x00\x01I", id="array ends early"),
        pytest.param(b"", id="name without value"),
    ],
)
@differs(on="rabbitmq", why="its reader fails, and the socket just ends", asserted=True)
def test_a_table_that_cannot_be_read(client: Wire, broker: Broker, value: bytes) -> None:
    inner = b"\x01a" + value
    arguments = struct.pack(">I", len(inner)) + inner
    client.send_bytes(frame_bytes(METHOD, b"\x00\x32\x00\x0a\x00\x00\x01q\x00" + arguments))
    if broker.name == "rabbitmq":
        assert client.at_end()
    else:
        check_close(client.closed("connection"), 502)


INTEGERS = [
    ("byte", b"b\x05"),
    ("unsignedbyte", b"B\x05"),
    ("short", b"s\x00\x05"),
    ("unsignedshort", b"u\x00\x05"),
    ("signedint", b"I\x00\x00\x00\x05"),
    ("unsignedint", b"i\x00\x00\x00\x05"),
    ("long", b"l\x00\x00\x00\x00\x00\x00\x00\x05"),
]


@rule(
    "RabbitMQ: queues#property-equivalence",
    "Integers of all widths are equal; what is sent where nothing was is named with its width.",
)
@pytest.mark.parametrize(
    ("kind", "value"),
    [pytest.param(*case, id=case[0]) for case in INTEGERS],
)
def test_widths_of_integers(client: Wire, unique: Names, broker: Broker, kind: str, value: bytes) -> None:
    queue = unique("queue")
    text = f"PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '{queue}' in vhost '{broker.vhost}': "
    assert isinstance(declare_queue(client, queue, table((b"x-max-length", b"I\0\0\0\x05"))), Queue.DeclareOk)
    assert isinstance(declare_queue(client, queue, table((b"x-max-length", value))), Queue.DeclareOk)
    client.send_bytes(frame_bytes(METHOD, declaration(queue, table((b"x-max-length", value[:-1] + b"\x06")))))
    check_close(client.closed(), 406, text + "received '6' but current is '5'")
    assert isinstance(client.call(Queue.Delete(queue=queue), channel=1), Queue.DeleteOk)
    assert isinstance(declare_queue(client, queue, table()), Queue.DeclareOk)
    close = declare_queue(client, queue, table((b"x-max-length", value)))
    check_close(close, 406, text + f"received the value '5' of type '{kind}' but current is none")


@rule("AMQP 0-9-1 section 4.2.5.5", "pika reads what it wrote.")
def test_pika_headers(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    headers = {"int": -5, "big": 1 << 40, "text": "snö", "true": True, "none": None, "list": [1, "two", {"three": 4}]}
    channel.basic_publish("", queue, b"", pika.BasicProperties(headers=headers))
    assert channel.basic_get(queue, auto_ack=True)[1].headers == headers
