"""Field tables of messages: the headers.

What comes in: raw bytes of a content header. What goes out: a dictionary, with the values that pamqp gives for method
arguments, so that a binding's arguments and a message's headers compare.
Rules: 1. Whatever RabbitMQ's clients send is read: pamqp refuses timestamps that Python's calendar does not have
(microseconds, 2**64 - 1) and names that are not UTF-8, and would cost publishers who use those their connection. 2. A
value that reaches beyond its table is an error, never cut. 3. Time grows with the bytes, not with their square.
Not here: tables in methods (`wire.py`, by pamqp), what values mean (`exchanges/values.py`).

Source: https://www.rabbitmq.com/amqp-0-9-1-errata.html section 3, the types that RabbitMQ and its clients use.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct
from struct import error as StructError
from typing import Any

# Deeper tables than anybody writes; RabbitMQ has no bound, Python's stack has.
DEPTH_MAX = 100
# pamqp reads what is above the year 2106 as milliseconds.
_SECONDS_MAX = 0xFFFFFFFF

_LENGTH = Struct(">I")
_TIMESTAMP = Struct(">Q")
_DECIMAL = Struct(">Bi")
_FIXED: dict[int, tuple[Struct, Callable[..., Any]]] = {
    ord("t"): (Struct(">B"), bool),
    ord("b"): (Struct(">b"), int),
    ord("B"): (Struct(">B"), int),
    ord("s"): (Struct(">h"), int),
    ord("u"): (Struct(">H"), int),
    ord("I"): (Struct(">i"), int),
    ord("i"): (Struct(">I"), int),
    ord("l"): (Struct(">q"), int),
    ord("L"): (Struct(">q"), int),
    ord("f"): (Struct(">f"), float),
    ord("d"): (Struct(">d"), float),
    ord("D"): (_DECIMAL, lambda scale, digits: Decimal(digits) * Decimal(10) ** -scale),
    ord("T"): (_TIMESTAMP, lambda raw: _moment(raw)),
}
_LONGSTR, _BYTES, _ARRAY, _TABLE = b"SxAF"
_VOID = b"V\x00"


def read_table(data: bytes, at: int = 0) -> tuple[dict[str, Any], int]:
    """The table whose length stands at data[at], and where it ends. Raises ValueError."""
    try:
        return _table(data, at, len(data), DEPTH_MAX)
    except (StructError, IndexError, ArithmeticError) as error:
        raise ValueError(f"no field table: {error}") from error


def _table(data: bytes, at: int, limit: int, depth: int) -> tuple[dict[str, Any], int]:
    at, end = _extent(data, at, limit, depth)
    table: dict[str, Any] = {}
    while at < end:
        name_end = at + 1 + data[at]
        name = data[at + 1 : name_end].decode("utf-8", "surrogateescape")
        table[name], at = _value(data, name_end, end, depth)
    return table, end


def _array(data: bytes, at: int, limit: int, depth: int) -> tuple[list[Any], int]:
    at, end = _extent(data, at, limit, depth)
    items = []
    while at < end:
        item, at = _value(data, at, end, depth)
        items.append(item)
    return items, end


def _extent(data: bytes, at: int, limit: int, depth: int) -> tuple[int, int]:
    if not depth:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    (size,) = _LENGTH.unpack_from(data, at)
    at += 4
    if at + size > limit:
        raise ValueError("reaches beyond what holds it")
    return at, at + size


def _value(data: bytes, at: int, limit: int, depth: int) -> tuple[Any, int]:
    """The value whose type stands at data[at], and where it ends: at `limit` at the latest."""
    if at >= limit:
        raise ValueError("a value is missing")
    kind = data[at]
    at += 1
    value: Any
    fixed = _FIXED.get(kind)
    if fixed is not None:
        packed, made = fixed
        value, end = made(*packed.unpack_from(data, at)), at + packed.size
    elif kind in (_LONGSTR, _BYTES):
        at, end = _extent(data, at, limit, depth)
        value = _text(data[at:end]) if kind == _LONGSTR else bytearray(data[at:end])
    elif kind == _TABLE:
        value, end = _table(data, at, limit, depth - 1)
    elif kind == _ARRAY:
        value, end = _array(data, at, limit, depth - 1)
    elif kind in _VOID:
        value, end = None, at
    else:
        raise ValueError(f"unknown type {kind}")
    if end > limit:
        raise ValueError("reaches beyond what holds it")
    return value, end


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _moment(raw: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(raw if raw <= _SECONDS_MAX else raw / 1000.0, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return raw
