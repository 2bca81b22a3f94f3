"""Arguments of methods and field tables, read off the wire.

What comes in: bytes, and where in them to read. What goes out: Python values, the same as pamqp's for everything that
pamqp reads.
Rules: 1. The work is linear in the bytes: pamqp copies the rest of a table for each value in it, so that one frame of
128 KiB takes it seconds, during which no other client is served. 2. Whatever the bytes, only ValueError is raised. 3.
Nothing is read beyond the end that was given, and nothing is left over. 4. Numbers know the type that they came with
(`fieldtypes.py`).
Not here: which methods there are and what they are called (`frames.py`, by pamqp), writing tables (`fieldwriter.py`).

Source: AMQP 0-9-1 section 4.2.1 and 4.2.5; https://www.rabbitmq.com/amqp-0-9-1-errata for the letters of types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct
from struct import error as StructError
from typing import Any

from pamqp import base

from amqpd.wire.fieldtypes import BY_LETTER

# More than a metadata record may have (`topology/metadata/codec.py`), so that too deep arguments are refused there
# with a text that says so; and far from where Python's own recursion ends.
DEPTH_MAX = 128
# What is above it is taken for milliseconds, as pamqp does: as seconds it would be after the year 2106.
_SECONDS_MAX = 0xFFFFFFFF

_Value = tuple[Any, int]

_NUMBERS: dict[int, tuple[Struct, Callable[[Any], Any]]] = {
    ord("t"): (Struct("?"), bool),
    ord("l"): (Struct(">q"), int),
    ord("L"): (Struct(">q"), int),
    ord("d"): (Struct(">d"), float),
    **{each.letter[0]: (each.struct, each) for each in BY_LETTER.values()},
}
_ARGUMENTS = {"octet": Struct("B"), "short": Struct(">H"), "long": Struct(">I"), "longlong": Struct(">q")}
_ARGUMENTS_OF: dict[type[base.Frame], tuple[tuple[str, str], ...]] = {}
"""by pamqp's class of the method, of which there are some sixty"""
_LENGTH = Struct(">I")
_DECIMAL = Struct(">Bi")
_TIMESTAMP = Struct(">Q")
_LONG_STRING = ord("S")


def read_arguments(method: base.Frame, payload: bytes) -> None:
    """Set the method's arguments from the payload of its frame, class and method id included. Raises ValueError."""
    at, end, bit = 4, len(payload), 0
    try:
        for name, kind in _arguments_of(type(method)):
            if kind == "bit":
                # Bits that follow each other share octets (section 4.2.5.2).
                setattr(method, name, bool(payload[at] & 1 << bit))
                at, bit = (at, bit + 1) if bit < 7 else (at + 1, 0)
                continue
            if bit:
                at, bit = at + 1, 0
            value, at = _read_argument(kind, payload, at, end)
            setattr(method, name, value)
    except (StructError, IndexError) as error:
        raise ValueError("it ends early") from error
    if at + bool(bit) != end:
        raise ValueError(f"{end} bytes where its arguments take {at + bool(bit)}")


def _arguments_of(method_type: type[base.Frame]) -> tuple[tuple[str, str], ...]:
    """Their names and types, in their order."""
    known = _ARGUMENTS_OF.get(method_type)
    if known is None:
        known = tuple((name, method_type.amqp_type(name)) for name in method_type.__slots__)
        _ARGUMENTS_OF[method_type] = known
    return known


def read_table(data: bytes, at: int) -> _Value:
    """The table whose length stands at data[at], and where it ends. Raises ValueError."""
    try:
        return _read_sized(data, at, len(data), _read_entries, 0)
    except (StructError, IndexError) as error:
        raise ValueError("it ends early") from error


def read_entries(data: bytes) -> dict[str, Any]:
    """A table without its length, as AMQPLAIN has it. Raises ValueError."""
    try:
        return _read_entries(data, 0, len(data), 0)
    except (StructError, IndexError) as error:
        raise ValueError("it ends early") from error


def split_entries(data: bytes) -> list[tuple[bytes, bytes]]:
    """The entries of a table without its length: each name, and its value with the octet of its type, as they stand.
    Values inside of values are not looked at. Raises ValueError."""
    entries: list[tuple[bytes, bytes]] = []
    at, end = 0, len(data)
    try:
        while at < end:
            value_at = at + 1 + data[at]
            stop = _value_end(data, value_at)
            if stop > end:
                raise ValueError("a value that is longer than its table")
            entries.append((data[at + 1 : value_at], data[value_at:stop]))
            at = stop
    except (StructError, IndexError) as error:
        raise ValueError("it ends early") from error
    return entries


class UnreadTable(Mapping[str, Any]):
    """A table of which each value is read when it is asked for, as `read_table` would."""

    __slots__ = ("_entries", "_values")

    def __init__(self, data: bytes) -> None:
        """Without its length. Raises ValueError, as asking for a value does: for what was never read as a whole."""
        self._entries = {name.decode("utf-8", "surrogateescape"): value for name, value in split_entries(data)}
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            data = self._entries[name]
            read = _read_text if data[0] == _LONG_STRING else _read_entry
            self._values[name] = read(data, 0, len(data))[0]
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _read_entry(data: bytes, at: int, end: int) -> _Value:
    return _read_value(data, at, end, 1)


def _value_end(data: bytes, at: int) -> int:
    letter = data[at]
    at += 1
    number = _NUMBERS.get(letter)
    if number is not None:
        return at + number[0].size
    if letter in _SIZED:
        return at + 4 + int(_LENGTH.unpack_from(data, at)[0])
    if letter in b"V\0":
        return at
    if letter == 0x44:
        return at + _DECIMAL.size
    if letter == 0x54:
        return at + _TIMESTAMP.size
    raise ValueError(f"unknown type {chr(letter)!r}")


def _read_argument(kind: str, data: bytes, at: int, end: int) -> _Value:
    if kind == "shortstr":
        stop = at + 1 + data[at]
        if stop > end:
            raise ValueError("a short string is longer than what is left")
        return data[at + 1 : stop].decode(), stop
    if kind == "longstr":
        return _read_sized(data, at, end, _text, 0)
    if kind == "table":
        return _read_sized(data, at, end, _read_entries, 0)
    number = _ARGUMENTS[kind]
    return number.unpack_from(data, at)[0], at + number.size


def _read_value(data: bytes, at: int, end: int, depth: int) -> _Value:
    letter = data[at]
    at += 1
    number = _NUMBERS.get(letter)
    if number is not None:
        struct, kind = number
        return kind(struct.unpack_from(data, at)[0]), at + struct.size
    sized = _SIZED.get(letter)
    if sized is not None:
        return _read_sized(data, at, end, sized, depth)
    if letter in b"V\0":
        # The zero octet is in no list, but there are clients that send it.
        return None, at
    if letter == 0x44:
        scale, value = _DECIMAL.unpack_from(data, at)
        return Decimal(value) * Decimal(10) ** -scale, at + _DECIMAL.size
    if letter == 0x54:
        return _time(_TIMESTAMP.unpack_from(data, at)[0]), at + _TIMESTAMP.size
    raise ValueError(f"unknown type {chr(letter)!r}")


def _read_sized(data: bytes, at: int, end: int, read: Callable[[bytes, int, int, int], Any], depth: int) -> _Value:
    start = at + 4
    stop = start + _LENGTH.unpack_from(data, at)[0]
    if stop > end:
        raise ValueError("a length that is more than what is left")
    return read(data, start, stop, depth + 1), stop


def _read_entries(data: bytes, at: int, end: int, depth: int) -> dict[str, Any]:
    if depth > DEPTH_MAX:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    table: dict[str, Any] = {}
    while at < end:
        name_end = at + 1 + data[at]
        if name_end >= end:
            raise ValueError("a name without a value")
        name = data[at + 1 : name_end].decode("utf-8", "surrogateescape")  # RabbitMQ takes any bytes
        if data[name_end] == _LONG_STRING:
            table[name], at = _read_text(data, name_end, end)
        else:
            table[name], at = _read_value(data, name_end, end, depth)
    if at != end:
        raise ValueError("a value that is longer than its table")
    return table


def _read_array(data: bytes, at: int, end: int, depth: int) -> list[Any]:
    if depth > DEPTH_MAX:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    values: list[Any] = []
    while at < end:
        value, at = _read_text(data, at, end) if data[at] == _LONG_STRING else _read_value(data, at, end, depth)
        values.append(value)
    if at != end:
        raise ValueError("a value that is longer than its array")
    return values


def _read_text(data: bytes, at: int, end: int) -> _Value:
    """As `_read_value`, where a long string stands: most values are, and a frame has up to twenty thousand."""
    start = at + 5
    stop = start + _LENGTH.unpack_from(data, at + 1)[0]
    if stop > end:
        raise ValueError("a length that is more than what is left")
    raw = data[start:stop]
    try:
        return raw.decode(), stop
    except UnicodeDecodeError:
        return raw, stop


def _text(data: bytes, at: int, end: int, _: int) -> str | bytes:
    """A long string is bytes; where it is UTF-8, clients mean text."""
    raw = data[at:end]
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _bytes(data: bytes, at: int, end: int, _: int) -> bytearray:
    return bytearray(data[at:end])


def _time(value: int) -> datetime | int:
    """A time that no calendar has stays the number that it is: RabbitMQ takes any."""
    try:
        return datetime.fromtimestamp(value if value <= _SECONDS_MAX else value / 1000.0, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return value


_SIZED = {ord("S"): _text, ord("x"): _bytes, ord("F"): _read_entries, ord("A"): _read_array}
