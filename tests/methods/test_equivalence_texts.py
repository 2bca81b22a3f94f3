"""What a redeclaration with other arguments is told: RabbitMQ 3.10.8 answered the same to the same frames."""

from __future__ import annotations

import struct

import pytest
from pamqp import commands

from tests.harness.harness import Client, Harness


def declare(client: Client, table: bytes) -> str | None:
    """queue.declare of `q` with this table, written by hand; the reply text when the channel is closed for it."""
    payload = b"\x00\x32\x00\x0a\x00\x00\x01q\x00" + struct.pack(">I", len(table)) + table
    client.raw(struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce")
    closed = client.take(commands.Channel.Close)
    if not closed:
        client.expect(commands.Queue.DeclareOk)
        return None
    client.send(commands.Channel.CloseOk())
    client.channel(1)
    return str(closed[0].reply_text)


def ttl(value: bytes) -> bytes:
    return b"\x0dx-message-ttl" + value


BEFORE = "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received "


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"b\x05", "'5' of type 'byte'"),
        (b"B\xf0", "'240' of type 'unsignedbyte'"),
        (b"s\0\x05", "'5' of type 'short'"),
        (b"u\xff\0", "'65280' of type 'unsignedshort'"),
        (b"I\0\0\0\x07", "'7' of type 'signedint'"),
        (b"i\xf0\0\0\0", "'4026531840' of type 'unsignedint'"),
        (b"l\0\0\0\0\0\0\0\x09", "'9' of type 'long'"),
        (b"L\0\0\0\0\0\0\0\x0a", "'10' of type 'long'"),
        (b"f" + struct.pack(">f", 1.5), "'1.5' of type 'float'"),
        (b"d" + struct.pack(">d", 2.5), "'2.5' of type 'double'"),
        (b"t\x01", "'true' of type 'bool'"),
        (b"S\0\0\0\x01a", "'a' of type 'longstr'"),
        (b"V", "'undefined' of type 'void'"),
        (b"T\0\0\0\0\0\0\0\0", "'0' of type 'timestamp'"),
    ],
)
def test_the_type_is_the_one_that_was_sent(value: bytes, shown: str) -> None:
    client = Harness().client()
    client.declare("q")
    assert declare(client, ttl(value)) == f"{BEFORE}the value {shown} but current is none"


def test_the_current_value_has_the_type_of_the_declaration() -> None:
    client = Harness().client()
    assert declare(client, ttl(b"I\0\0\0\x07")) is None
    assert declare(client, b"") == f"{BEFORE}none but current is the value '7' of type 'signedint'"


@pytest.mark.parametrize("value", [b"b\x07", b"s\0\x07", b"l\0\0\0\0\0\0\0\x07"])
def test_an_equal_number_of_another_width_is_equal(value: bytes) -> None:
    client = Harness().client()
    assert declare(client, ttl(b"I\0\0\0\x07")) is None
    assert declare(client, ttl(value)) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"s\0\x08", "8"),
        (b"S\0\0\0\x017", "7"),
        (b"A\0\0\0\0", "[]"),
        (b"F\0\0\0\0", "[]"),
        (b"t\x01", "true"),
    ],
)
def test_two_values_are_told_without_their_types(value: bytes, shown: str) -> None:
    client = Harness().client()
    assert declare(client, ttl(b"I\0\0\0\x07")) is None
    assert declare(client, ttl(value)) == f"{BEFORE}'{shown}' but current is '7'"


def test_true_is_not_one() -> None:
    client = Harness().client()
    assert declare(client, ttl(b"I\0\0\0\x01")) is None
    assert declare(client, ttl(b"t\x01")) == f"{BEFORE}'true' but current is '1'"


def test_a_queue_without_a_type_is_a_classic_one() -> None:
    client = Harness().client()
    assert declare(client, b"") is None
    assert declare(client, b"\x0cx-queue-typeS\0\0\0\x07classic") is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [(b"d" + struct.pack(">d", 10.0), "10.0"), (b"f" + struct.pack(">f", 10.0), "10.0"), (b"t\x01", "true")],
)
def test_a_float_is_not_the_integer_that_it_equals(value: bytes, shown: str) -> None:
    client = Harness().client()
    assert declare(client, ttl(b"I\0\0\0\x0a")) is None
    assert declare(client, ttl(value)) == f"{BEFORE}'{shown}' but current is '10'"


@pytest.mark.parametrize("value", [b"b\x0a", b"s\0\x0a", b"l\0\0\0\0\0\0\0\x0a", b"T\0\0\0\0\0\0\0\x0a"])
def test_integers_of_all_widths_are_equal(value: bytes) -> None:
    client = Harness().client()
    assert declare(client, ttl(b"I\0\0\0\x0a")) is None
    assert declare(client, ttl(value)) is None
