"""Tables and arguments off the wire: equal to pamqp's reading, for less work, and ValueError for everything else."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import base, commands, decode, encode

from amqpd.wire.fieldtable import DEPTH_MAX, UnreadTable, read_arguments, read_entries, read_table
from amqpd.wire.fieldtypes import Short, SignedInt, number_type
from amqpd.wire.fieldwriter import write_value

names = st.text(max_size=12)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, width=32),
    st.text(max_size=20),
    st.binary(max_size=20).map(bytearray),
    st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC)).map(
        lambda moment: moment.replace(microsecond=0)
    ),
    st.decimals(-(2**20), 2**20, places=3),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)
tables = st.dictionaries(names, values, max_size=6)


@given(tables)
def test_a_table_that_is_read_when_it_is_asked_for_has_the_same_values(table: dict[str, Any]) -> None:
    data = encode.field_table(table)
    unread, (read, _) = UnreadTable(data[4:]), read_table(data, 0)
    assert (len(unread), list(unread), bool(unread)) == (len(read), list(read), bool(read))
    assert all(name in unread for name in read)
    assert "none such" not in unread
    assert {name: unread[name] for name in reversed(list(read))} == read == dict(unread)
    assert unread.get("none such") is None


@given(tables, st.binary(max_size=3))
def test_tables_are_read_as_pamqp_reads_them(table: dict[str, Any], before: bytes) -> None:
    data = encode.field_table(table)
    assert read_table(before + data, len(before)) == (decode.field_table(data)[1], len(before) + len(data))
    assert read_entries(data[4:]) == decode.field_table(data)[1]


@given(
    st.sampled_from(sorted(commands.INDEX_MAPPING)), st.randoms(use_true_random=False), tables, st.text(max_size=50)
)
def test_arguments_are_read_as_pamqp_reads_them(index: int, random: Any, table: dict[str, Any], text: str) -> None:
    method_class: Any = commands.INDEX_MAPPING[index]
    written, ours, theirs = (method_class.__new__(method_class) for _ in range(3))
    given_values = {
        "bit": lambda: random.random() < 0.5,
        "octet": lambda: random.randrange(256),
        "short": lambda: random.randrange(2**16),
        "long": lambda: random.randrange(2**32),
        "longlong": lambda: random.randrange(2**63),
        "shortstr": lambda: text,
        "longstr": lambda: text * 9,
        "table": lambda: table,
    }
    for name in written.__slots__:
        setattr(written, name, given_values[written.amqp_type(name)]())
    payload = struct.pack(">I", index) + base.Frame.marshal(Unchecked(written))
    read_arguments(ours, payload)
    theirs.unmarshal(payload[4:])
    assert dict(ours) == dict(theirs)
    for wrong in (payload[:-1], payload + b"\0"):
        if len(payload) > 4:
            with pytest.raises(ValueError):
                read_arguments(ours, wrong)


class Unchecked:
    """A method as pamqp's `marshal` sees it, without the checks that it makes of values."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self.__slots__ = method.__slots__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def validate(self) -> None: ...


@given(st.binary(max_size=200))
def test_any_bytes_give_a_table_or_a_value_error(data: bytes) -> None:
    for read in (lambda: read_table(data, 0), lambda: read_entries(data)):
        try:
            read()
        except ValueError:
            pass


@given(tables.filter(bool), st.data())
def test_a_table_that_is_cut_is_a_value_error(table: dict[str, Any], data: st.DataObject) -> None:
    whole = encode.field_table(table)
    with pytest.raises(ValueError):
        read_table(whole[: data.draw(st.integers(0, len(whole) - 1))], 0)


def nested(depth: int, letter: bytes) -> bytes:
    data = b""
    for _ in range(depth):
        data = (b"\x01a" if letter == b"F" else b"") + letter + struct.pack(">I", len(data)) + data
    return data


def test_nesting_ends_before_pythons_own_limit() -> None:
    assert read_entries(nested(DEPTH_MAX, b"F"))
    with pytest.raises(ValueError, match="deeper"):
        read_entries(nested(DEPTH_MAX + 1, b"F"))
    with pytest.raises(ValueError, match="deeper"):
        read_entries(b"\x01aA" + struct.pack(">I", 5 * 5000) + nested(5000, b"A"))


def test_times_that_no_calendar_has_stay_numbers() -> None:
    for number in (2**63, 2**64 - 1, 253_402_300_800_000):
        assert read_entries(b"\x01tT" + struct.pack(">Q", number)) == {"t": number}
    assert read_entries(b"\x01tT" + struct.pack(">Q", 0)) == {"t": datetime(1970, 1, 1, tzinfo=UTC)}


def test_a_value_does_not_reach_beyond_its_table() -> None:
    inner = b"\x01aI\0\0"
    with pytest.raises(ValueError):
        read_entries(b"\x01bF" + struct.pack(">I", len(inner)) + inner + b"\0\0\x01c\x00")
    assert read_entries(b"\x01aD\x02\0\0\0\x7b") == {"a": Decimal("1.23")}


def test_a_number_keeps_the_type_it_came_with_and_is_written_so_again() -> None:
    cases = {
        b"b": (b"\xff", "byte", -1),
        b"B": (b"\xff", "unsignedbyte", 255),
        b"s": (b"\xff\xfe", "short", -2),
        b"u": (b"\xff\xfe", "unsignedshort", 65534),
        b"I": (b"\x80\0\0\0", "signedint", -(2**31)),
        b"i": (b"\x80\0\0\0", "unsignedint", 2**31),
        b"l": (b"\0" * 7 + b"\x05", "long", 5),
        b"f": (struct.pack(">f", 1.5), "float", 1.5),
        b"d": (struct.pack(">d", 2.5), "double", 2.5),
    }
    for letter, (data, name, value) in cases.items():
        read = read_entries(b"\x01n" + letter + data)["n"]
        assert (read, number_type(read)) == (value, name)
        assert write_value(read) == letter + data
    assert read_entries(b"\x01nL" + b"\0" * 7 + b"\x05") == {"n": 5}  # RabbitMQ takes 'L' for 'l'
    assert number_type(SignedInt(1) + 1) == "long"
    with pytest.raises(ValueError, match="does not fit into a short"):
        write_value(Short(70_000))
