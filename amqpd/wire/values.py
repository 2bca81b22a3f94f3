"""Field table values as something that can be compared: with their AMQP type, hashable, in one spelling.

What comes in: values as `wire/fieldtable.py` reads them. What goes out: nested tuples (`canonical`, `comparable`), or
one text for a whole table (`arguments_key`).
Rules: 1. a boolean is never a number, an integer never a float, a text never a number; 2. integers of all
widths are one type, as RabbitMQ compares their values (only texts name the width); 3. tables are
compared without regard to order.
Not here: decoding (`wire/fieldtable.py`), which values must match (`exchanges/headers.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from amqpd.wire.fieldtypes import number_type

# Deeper values cannot be compared. Real ones nest twice; without a bound a hostile one would end in
# RecursionError.
NESTING_MAX = 32
# Longer canonical texts of arguments are told apart by a digest: they are some four times the arguments' bytes, and
# part of the binding's key. Bindings by a few headers stay readable.
ARGUMENTS_KEY_CHARS_MAX = 256
# Characters that Erlang prints as escapes; with others that are not printable it prints numbers.
_ESCAPED = str.maketrans(
    {
        '"': '\\"',
        "\\": "\\\\",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\b": "\\b",
        "\f": "\\f",
        "\x1b": "\\e",
    }
)
_ESCAPES_GONE = dict.fromkeys(_ESCAPED)


class NestedTooDeep(ValueError):
    """A table or array has more than NESTING_MAX levels."""


def canonical(value: Any, levels_left: int = NESTING_MAX) -> tuple[Hashable, ...]:
    """(type name as RabbitMQ has it, value). Raises NestedTooDeep, and TypeError for what no field can
    hold."""
    if levels_left < 0:
        raise NestedTooDeep(f"nested deeper than {NESTING_MAX} levels")
    match value:
        case bool():
            return ("bool", value)
        case str():
            return ("longstr", value.encode("utf-8", "surrogatepass"))
        case bytes():
            return ("longstr", value)
        case bytearray():
            return ("binary", bytes(value))
        case int():
            return ("long", value)
        case float():
            return ("double", value)
        case None:
            return ("void", None)
        case datetime():
            seconds = value.timestamp()
            return ("timestamp", int(seconds) if seconds.is_integer() else seconds)
        case Decimal():
            return ("decimal", tuple(value.as_tuple()))
        case list() | tuple():
            return ("array", tuple([canonical(item, levels_left - 1) for item in value]))
        case Mapping():
            # By name only: an ordering of mixed values does not exist.
            pairs = sorted(value.items(), key=lambda pair: pair[0])
            return ("table", tuple([(name, canonical(item, levels_left - 1)) for name, item in pairs]))
    raise TypeError(f"not a field value: {type(value).__name__}")


def comparable(value: Any) -> Hashable:
    """Equal exactly where RabbitMQ's headers exchange finds two values equal: Erlang terms without their type tag,
    where texts and byte arrays are both binaries, timestamps are integers (seconds), and 1 equals 1.0. What is
    nested too deep equals nothing."""
    exact = equivalent(value)
    if isinstance(exact, tuple) and isinstance(exact[1], float) and exact[1].is_integer():
        return ("long", int(exact[1]))
    return exact


def equivalent(value: Any) -> Hashable:
    """Equal exactly where RabbitMQ takes the arguments of a redeclaration for the same: as `comparable`, but 1 is not
    1.0 (rabbit_misc:assert_args_equivalence)."""
    try:
        type_name, plain = canonical(value)
    except NestedTooDeep:
        return object()
    if type_name == "binary":
        return ("longstr", plain)
    if type_name == "timestamp":
        return ("long", plain)
    return (type_name, plain)


def arguments_key(arguments: Mapping[str, Any]) -> str:
    """Equal for equal tables only: their canonical text, of a long one a digest, '' for the empty one. A text begins
    with a parenthesis, so it is never equal to the digest of another one. Raises NestedTooDeep."""
    if not arguments:
        return ""
    text = ascii(canonical(arguments)[1])
    if len(text) <= ARGUMENTS_KEY_CHARS_MAX:
        return text
    return "blake2b:" + blake2b(text.encode(), digest_size=32).hexdigest()


def field_type(value: Any) -> str:
    """RabbitMQ's name of the value's type."""
    return (
        "table"
        if isinstance(value, Mapping)
        else "array"
        if isinstance(value, list | tuple)
        else erlang_term(value)[0]
    )


def erlang_term(value: Any) -> tuple[str, str]:
    """(type, value) as RabbitMQ's error texts print them with ~tp. Raises as `canonical`."""
    type_name, plain = canonical(value)
    return _erlang_term(str(type_name), plain)


def _erlang_term(type_name: str, plain: Any) -> tuple[str, str]:
    match type_name, plain:
        case "void", _:
            return (type_name, "undefined")
        case "array", _:
            return (type_name, _erlang_list("{" + ",".join(_erlang_term(*each)) + "}" for each in plain))
        case "table", _:
            entries = (
                ",".join((_erlang_binary(name.encode("utf-8", "surrogateescape")), *_erlang_term(*each)))
                for name, each in plain
            )
            return (type_name, _erlang_list("{" + entry + "}" for entry in entries))
        case _, bool():
            return (type_name, "true" if plain else "false")
        case _, bytes():
            return (type_name, _erlang_binary(plain))
        case "long" | "double", _:
            return (number_type(plain), str(plain))
    return (type_name, str(plain))


def _erlang_list(members: Iterable[str]) -> str:
    return "[" + ",".join(members) + "]"


def _erlang_binary(plain: bytes) -> str:
    try:
        text = plain.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text and text.translate(_ESCAPES_GONE).isprintable():
        return f'<<"{text.translate(_ESCAPED)}">>'
    return f"<<{','.join(map(str, plain))}>>"
