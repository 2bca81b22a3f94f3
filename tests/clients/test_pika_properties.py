"""Message properties and field tables, all types, both ways and unchanged."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from .wire import Wire, publish_bytes

MakeQueue = Callable[..., str]

EVERY_PROPERTY: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": {"a": 1},
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c-1",
    "reply_to": "somewhere",
    "expiration": "600000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "greeting",
    "user_id": "guest",
    "app_id": "test",
    "cluster_id": "none",
}
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 1, tzinfo=datetime.UTC)


def round_trip(channel: BlockingChannel, queue: str, properties: pika.BasicProperties) -> pika.BasicProperties:
    channel.basic_publish("", queue, b"x", properties=properties)
    _method, got, _body = channel.basic_get(queue, auto_ack=True)
    assert got is not None
    return got


@pytest.mark.parametrize("name", EVERY_PROPERTY)
def test_each_property_alone(channel: BlockingChannel, make_queue: MakeQueue, name: str) -> None:
    got = round_trip(channel, make_queue(), pika.BasicProperties(**{name: EVERY_PROPERTY[name]}))
    for other in EVERY_PROPERTY:
        assert getattr(got, other) == (EVERY_PROPERTY[name] if other == name else None), other


def test_all_properties_together(channel: BlockingChannel, make_queue: MakeQueue) -> None:
    sent = pika.BasicProperties(**EVERY_PROPERTY)
    got = round_trip(channel, make_queue(), sent)
    assert {name: getattr(got, name) for name in EVERY_PROPERTY} == EVERY_PROPERTY


def test_no_property_at_all(channel: BlockingChannel, make_queue: MakeQueue) -> None:
    assert round_trip(channel, make_queue(), pika.BasicProperties()) == pika.BasicProperties()


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        0,
        -1,
        2**31 - 1,
        -(2**31),
        2**40,
        -(2**63),
        "text",
        "snö \N{SNOWMAN}",
        "",
        b"\xff\x00bytes",
        Decimal("3.14"),
        MOMENT,
        None,
        [],
        [1, "two", [Decimal("3.5"), None], {"four": 5}],
        {},
        {"deep": {"deeper": {"deepest": [1]}}},
        "long " * 20_000,
    ],
    ids=lambda value: f"{type(value).__name__} {str(value)[:20]}",
)
def test_each_header_type_that_pika_can_write(channel: BlockingChannel, make_queue: MakeQueue, value: object) -> None:
    got = round_trip(channel, make_queue(), pika.BasicProperties(headers={"key": value, "after": "it"}))
    expected = value
    if isinstance(value, datetime.datetime):
        expected = value.replace(tzinfo=None) if got.headers["key"].tzinfo is None else value
    assert got.headers == {"key": expected, "after": "it"}
    assert isinstance(got.headers["key"], type(expected))  # pika reads 64-bit numbers as a kind of int


FIELD_BYTES = [
    b"t\x01",
    b"b\xff",
    b"B\xff",
    b"s\xff\xfe",
    b"u\xff\xfe",
    b"I\xff\xff\xff\xfe",
    b"i\xff\xff\xff\xfe",
    b"l" + b"\xff" * 8,
    b"f\x3f\x80\x00\x00",
    b"d\x3f\xf0" + bytes(6),
    b"D\x02\x00\x00\x01\x3a",
    b"S\x00\x00\x00\x02\xc3\xa5",
    b"x\x00\x00\x00\x02\xff\x00",
    b"A\x00\x00\x00\x03t\x00V",
    b"T" + (1_700_000_000).to_bytes(8, "big"),
    b"F\x00\x00\x00\x04\x01kt\x01",
    b"V",
]
"""One of each type of RabbitMQ's table of field types (its "AMQP 0-9-1 Errata", section 3)."""


@pytest.mark.parametrize("field", FIELD_BYTES, ids=lambda field: chr(field[0]))
def test_each_field_type_on_the_wire_comes_back_byte_for_byte(
    broker_url: str, make_queue: MakeQueue, field: bytes
) -> None:
    """pamqp and pika do not write every type, so the header frame is put together here."""
    queue = make_queue()
    table = b"\x01k" + field
    headers = len(table).to_bytes(4, "big") + table
    payload = (60).to_bytes(2, "big") + bytes(2) + (1).to_bytes(8, "big") + b"\x20\x00" + headers
    header_frame = b"\x02\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"
    whole = publish_bytes(1, "", queue, b"x")
    method_bytes = int.from_bytes(whole[3:7], "big") + 8
    with Wire(pika.URLParameters(broker_url).port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(whole[:method_bytes] + header_frame + whole[-9:])
        answer = wire.call(commands.Basic.Get(queue=queue, no_ack=True), channel=1)
        assert isinstance(answer, commands.Basic.GetOk)
        assert wire.read_frame()[2] == payload
        assert wire.read_frame()[2] == b"x"
        wire.close()
