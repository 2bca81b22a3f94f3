"""Field tables, written.

What comes in: Python values. What goes out: a value with the octet of its type in front, or a table with its length.
Rules: 1. The types are RabbitMQ's: text and bytes 'S', integers 'l', times 'T', lists 'A', tables 'F'; a number that
came with another type keeps it. 2. `Encoded` is a value that is written already, and stays as it is. 3. What
`fieldtable.py` reads comes back equal.
Not here: reading (`fieldtable.py`), the property list around a table of headers (`message/propertylist.py`).

Source: AMQP 0-9-1 section 4.2.5; https://www.rabbitmq.com/amqp-0-9-1-errata for the letters of types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from struct import Struct
from struct import error as StructError
from typing import Any

from amqpd.wire.fieldtypes import Number

_LONG = Struct(">q")
_DOUBLE = Struct(">d")
_DECIMAL = Struct(">Bi")
_TIMESTAMP = Struct(">Q")
_LENGTH = Struct(">I")
_INT64_MAX = (1 << 63) - 1


class Encoded(bytes):
    """A field value as it stands on the wire, the octet of its type first."""

    __slots__ = ()


def write_value(value: Any) -> bytes:
    """The value with its type. Raises ValueError for a number that no type can hold, TypeError for what AMQP has no
    type for."""
    match value:
        case Encoded():
            return bytes(value)
        case bool():
            return b"t\x01" if value else b"t\x00"
        case str():
            return _sized(b"S", value.encode("utf-8", "surrogateescape"))
        case Number():
            return _number(value)
        case int():
            if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
                raise ValueError(f"{value} does not fit into 64 bits")
            return b"l" + _LONG.pack(value)
        case datetime():
            return b"T" + _TIMESTAMP.pack(int(value.timestamp()))
        case Mapping():
            return b"F" + write_table(value)
        case list() | tuple():
            return _sized(b"A", b"".join(map(write_value, value)))
        case bytearray():
            return _sized(b"x", bytes(value))
        case bytes():
            return _sized(b"S", value)
        case None:
            return b"V"
        case float():
            return b"d" + _DOUBLE.pack(value)
        case Decimal():
            return _decimal(value)
    raise TypeError(f"not a field value: {type(value).__name__}")


def write_table(table: Mapping[str, Any]) -> bytes:
    """The table with its length in front. Raises as `write_value` and `write_name`."""
    return join_table((write_name(name), write_value(value)) for name, value in table.items())


def write_name(name: str) -> bytes:
    """The name of a field without its length. Raises ValueError when it is longer than 255 bytes."""
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > 255:
        raise ValueError(f"a field's name of {len(encoded)} bytes")
    return encoded


def join_table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The table of these names and written values, with its length in front."""
    joined = b"".join(bytes((len(name),)) + name + value for name, value in entries)
    return _LENGTH.pack(len(joined)) + joined


def _number(value: Any) -> bytes:
    try:
        return bytes(value.letter + value.struct.pack(value))
    except (StructError, OverflowError) as error:
        raise ValueError(f"{value} does not fit into a {value.type_name}") from error


def _sized(letter: bytes, data: bytes) -> bytes:
    return letter + _LENGTH.pack(len(data)) + data


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a number")
    unscaled = int("".join(map(str, digits))) * 10 ** max(0, exponent)
    if unscaled >= 1 << 31 or exponent < -255:
        raise ValueError(f"{value} does not fit into a decimal of 32 bits")
    return b"D" + _DECIMAL.pack(max(0, -exponent), -unscaled if sign else unscaled)
