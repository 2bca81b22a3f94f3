"""The values of field tables as the JSON of definition files, and back.

What comes in and goes out: values as pamqp has them; values as the json module has them.
Rules: 1. What JSON lacks is written as RabbitMQ writes it: a timestamp as seconds, a decimal as a number, bytes that
are no UTF-8 as a text that says so. 2. Such a text is read back as the bytes, which RabbitMQ does not do; the other
two come back as the number. So a value may lose its type on the way through a file, but its JSON stays the same:
compare `json_text`. 3. A void stays null (RabbitMQ writes "undefined", which would come back as
a text). 4. The name of a value in a table may be any octets, as in RabbitMQ. An octet that is not UTF-8 is written as
half a surrogate pair, \\udc80 to \\udcff, which JSON can spell (PEP 383), and read back as that octet.
Not here: our own store's values, which lose nothing (`topology/metadata/codec.py`).

Source: rabbit_misc.erl, `amqp_table` and `to_amqp_table`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from amqpd.wire.values import NESTING_MAX

NOT_UTF_8 = "Not UTF-8, base64 is: "
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


class BadValue(ValueError):
    """A JSON value cannot be held by any field table; the text says why."""


def to_json(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return NOT_UTF_8 + base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return {name: to_json(member) for name, member in value.items()}
    return [to_json(member) for member in value]


def from_json(value: Any, levels_left: int = NESTING_MAX) -> Any:
    """Raises BadValue."""
    if levels_left < 0:
        raise BadValue(f"it is nested deeper than {NESTING_MAX} levels")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        if not LONG_MIN <= value <= LONG_MAX:
            raise BadValue(f"{value} does not fit in 64 bits")
        return value
    if isinstance(value, dict):
        return {_name(name): from_json(member, levels_left - 1) for name, member in value.items()}
    if isinstance(value, list):
        return [from_json(member, levels_left - 1) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue("a number in it is too large, or is none")  # Python reads 1e999 as infinity
    return value


def check_kept(value: Any) -> None:
    """Of what is kept as JSON, such as a parameter: what a field table could hold, and all names in it are texts.
    Raises BadValue."""
    from_json(value)
    _check_names(value)


def _check_names(value: Any) -> None:
    if isinstance(value, dict):
        for name, member in value.items():
            if not is_text(name):
                raise BadValue("it has half a surrogate pair, which is no character")
            _check_names(member)
    elif isinstance(value, list):
        for member in value:
            _check_names(member)


def json_text(value: Any) -> str:
    """One spelling of what `to_json` returns: equal for equal JSON only (1, 1.0 and true are three values)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def is_text(text: str) -> bool:
    """JSON can spell half a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_object(value: Any) -> Any:
    """RabbitMQ 3.x writes some objects as a list of pairs, [["max-length", 20]], and the empty one as []. Other
    values are returned as they are."""
    if isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        return dict(value)
    return value


def _text(text: str) -> str | bytes:
    if not is_text(text):
        raise BadValue("it has half a surrogate pair, which is no character")
    if text.startswith(NOT_UTF_8):
        try:
            encoded = text.removeprefix(NOT_UTF_8)
            found = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return text
        try:
            found.decode("utf-8")
        except UnicodeDecodeError:
            return found
    return text


def _name(name: str) -> str:
    try:
        # A name may be any octets: those that are not UTF-8 stand there as half a surrogate pair each (PEP 383).
        size = len(name.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise BadValue("a name in it has half a surrogate pair that stands for no octet") from None
    if size > 255:
        raise BadValue("a name in it is longer than 255 bytes")
    return name
