"""Numbers that remember which field type they came with.

What comes in: the letter of a number's type. What goes out: subclasses of int and float, one for each type except the
two that plain numbers stand for: `long` ('l', which every int of our own is) and `double` ('d').
Rules: 1. They are equal to plain numbers, and plain again after any arithmetic. 2. The type
is for texts (RabbitMQ's name the width that a client sent) and for writing the value again.
Not here: the other types, which Python's own classes tell apart (`wire/values.py`).

Source: AMQP 0-9-1 section 4.2.5; the names are those of RabbitMQ's rabbit_binary_parser.erl.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar


class Number:
    """A number with its field type: the letter on the wire, RabbitMQ's name, and how the number is packed."""

    __slots__ = ()
    letter: ClassVar[bytes]
    type_name: ClassVar[str]
    struct: ClassVar[Struct]


class Byte(Number, int):
    """A signed number of 8 bits ('b')."""

    __slots__ = ()
    letter, type_name, struct = b"b", "byte", Struct("b")


class UnsignedByte(Number, int):
    """An unsigned number of 8 bits ('B')."""

    __slots__ = ()
    letter, type_name, struct = b"B", "unsignedbyte", Struct("B")


class Short(Number, int):
    """A signed number of 16 bits ('s')."""

    __slots__ = ()
    letter, type_name, struct = b"s", "short", Struct(">h")


class UnsignedShort(Number, int):
    """An unsigned number of 16 bits ('u')."""

    __slots__ = ()
    letter, type_name, struct = b"u", "unsignedshort", Struct(">H")


class SignedInt(Number, int):
    """A signed number of 32 bits ('I')."""

    __slots__ = ()
    letter, type_name, struct = b"I", "signedint", Struct(">i")


class UnsignedInt(Number, int):
    """An unsigned number of 32 bits ('i')."""

    __slots__ = ()
    letter, type_name, struct = b"i", "unsignedint", Struct(">I")


class Float(Number, float):
    """A floating-point number of 32 bits ('f')."""

    __slots__ = ()
    letter, type_name, struct = b"f", "float", Struct(">f")


NumberType = (
    type[Byte]
    | type[UnsignedByte]
    | type[Short]
    | type[UnsignedShort]
    | type[SignedInt]
    | type[UnsignedInt]
    | type[Float]
)
NUMBERS: tuple[NumberType, ...] = (Byte, UnsignedByte, Short, UnsignedShort, SignedInt, UnsignedInt, Float)
BY_LETTER: dict[str, NumberType] = {each.letter.decode(): each for each in NUMBERS}


def number_type(value: float) -> str:
    """RabbitMQ's name of the number's field type; `value` is an int or a float, not a bool."""
    if isinstance(value, Number):
        return value.type_name
    return "long" if isinstance(value, int) else "double"
