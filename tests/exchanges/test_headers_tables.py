"""Headers tables: every type, what pamqp refuses and RabbitMQ takes, and what nobody should take."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, decode, encode, frame

from amqpd.wire.fieldtable import DEPTH_MAX, read_table
from amqpd.wire.values import comparable
from tests.harness.harness import Harness


def table(*fields: bytes) -> bytes:
    return struct.pack(">I", sum(map(len, fields))) + b"".join(fields)


def field(kind: bytes, value: bytes, name: bytes = b"k") -> bytes:
    return bytes((len(name),)) + name + kind + value


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=5)
    | st.binary(max_size=5).map(bytearray)
    | st.floats(allow_nan=False, width=32)
    | st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-1000, max_value=1000)
    | st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)).map(lambda at: at.replace(microsecond=0, tzinfo=UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=5), st.binary(max_size=5))
def test_what_pamqp_writes_is_read_as_pamqp_reads_it(wanted: dict[str, object], behind: bytes) -> None:
    raw = encode.field_table(wanted) + behind
    size, expected = decode.field_table(raw)
    found, end = read_table(b"before" + raw, 6)
    assert end == 6 + size
    assert comparable(found) == comparable(expected)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_table_or_a_value_error(raw: bytes) -> None:
    try:
        _, end = read_table(raw, 0)
    except ValueError:
        return
    assert end == 4 + struct.unpack_from(">I", raw)[0] <= len(raw)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (field(b"T", struct.pack(">Q", 1_700_000_000_000_000)), 1_700_000_000_000_000),
        (field(b"T", struct.pack(">Q", 2**64 - 1)), 2**64 - 1),
        (field(b"V", b""), None),
        (field(b"\0", b""), None),
        (field(b"b", b"\xff"), -1),
        (field(b"B", b"\xff"), 255),
        (field(b"s", b"\xff\xff"), -1),
        (field(b"u", b"\xff\xff"), 65535),
        (field(b"i", b"\xff\xff\xff\xff"), 2**32 - 1),
        (field(b"L", b"\xff" * 8), -1),
        (field(b"S", b"\0\0\0\2\xff\xfe"), b"\xff\xfe"),
        (field(b"x", b"\0\0\0\2\xff\xfe"), bytearray(b"\xff\xfe")),
    ],
)
def test_values_of_other_clients(raw: bytes, value: object) -> None:
    assert read_table(table(raw), 0) == ({"k": value}, 4 + len(raw))


def test_a_name_that_is_not_utf8() -> None:
    found, _ = read_table(table(field(b"t", b"\1", b"\xff\xfe")), 0)
    assert list(found.values()) == [True]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\0\0\x09abc",
        table(field(b"Z", b"")),
        table(field(b"S", b"\0\0\0\x20a")),
        table(field(b"I", b"\0\0")),
        table(b"\1k"),
        table(b"\x30k"),
        table(field(b"F", table(field(b"S", b"\0\0\0\2a")) + b"bc")),
    ],
)
def test_what_reaches_beyond_its_table_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_table(raw, 0)


def test_a_table_nested_too_deep_is_refused() -> None:
    raw = table()
    for _ in range(DEPTH_MAX + 1):
        raw = table(field(b"F", raw))
    with pytest.raises(ValueError, match="nested deeper"):
        read_table(raw, 0)


def test_a_timestamp_beyond_the_calendar_costs_nobody_the_connection() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q")
    raw = table(field(b"T", struct.pack(">Q", 2**63)))
    content = struct.pack(">HHQH", 60, 0, 1, 1 << 13) + raw
    client.raw(
        frame.marshal(commands.Basic.Publish(routing_key="q"), 1)
        + struct.pack(">BHI", 2, 1, len(content)) + content + b"\xce"
        + b"\x03\0\x01\0\0\0\x01x\xce"
    )  # fmt: skip
    assert client.declare("q", passive=True).message_count == 1
