"""An event as a message: no body, the facts as headers.

What comes in: the name of an event, its facts, the time. What goes out: a run of one message, addressed to the event
exchange.
Rules: 1. Types are those that the plugin writes: texts, integers of 64 bits, booleans, lists, tables; a table of AMQP
arguments is a list of texts, each an Erlang term. 2. A header that would be larger than HEADER_BYTES_MAX is left out,
so that all of them fit into one frame. 3. No passwords: those in URIs are masked, whatever is in them: more may be
hidden than a password, and never less.
Not here: which facts an event has (`changes.py`, `sessions.py`).

Source: https://www.rabbitmq.com/docs/event-exchange; rabbit_exchange_type_event.erl, `fmt_proplist`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from amqpd.kernel import Run
from amqpd.message.content import HEADER, Content
from amqpd.message.propertylist import DELIVERY_MODE, HEADERS, TIMESTAMP
from amqpd.topology.plans import EVENT_EXCHANGE
from amqpd.topology.sizes import arguments_bytes
from amqpd.wire.fieldtypes import Float
from amqpd.wire.fieldwriter import Encoded, join_table, write_value
from amqpd.wire.values import NestedTooDeep, erlang_term

# All headers have to fit into one frame, of 128 KiB mostly; no event has more than four that may be large.
HEADER_BYTES_MAX = 16 * 1024
# As Erlang terms they take a third of what they take in memory, or more: larger ones are not looked at.
ARGUMENTS_BYTES_MAX = 3 * HEADER_BYTES_MAX
# Of a value in a parameter. Deeper ones are left out.
NESTING_MAX = 32

_PUBLISH, _CONTENT = b"\x00\x3c\x00\x28\x00\x00", b"\x00\x3c\x00\x00" + bytes(8)
_FLAGS = (HEADERS | DELIVERY_MODE | TIMESTAMP).to_bytes(2, "big")
_PERSISTENT = b"\x02"
_INT64_MAX = (1 << 63) - 1


class _LeftOut(ValueError):
    """A header that cannot be written, or would be too large."""


def event_message(event: str, facts: Mapping[str, Any], now_ms: int) -> Run:
    """`event` is the routing key, such as queue.created; `now_ms` since the epoch."""
    headers = list(_written(facts))
    headers.append((b"timestamp_in_ms", write_value(now_ms)))
    properties = _FLAGS + join_table(headers) + _PERSISTENT + (now_ms // 1000).to_bytes(8, "big")
    content = Content(1, _PUBLISH + _short(EVENT_EXCHANGE) + _short(event) + b"\x00")
    content.add(HEADER, _CONTENT + properties)
    return content.run()


def terms(arguments: Mapping[str, Any]) -> list[str] | None:
    """AMQP arguments as the plugin shows them: {<<"x-max-length">>,long,5}. None where they are too large."""
    if arguments_bytes(arguments) > ARGUMENTS_BYTES_MAX:
        return None
    try:
        return [erlang_term({name: value})[1][1:-1] for name, value in arguments.items()]
    except NestedTooDeep:
        return None


def _written(facts: Mapping[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    for name, fact in facts.items():
        if fact is None:
            continue
        try:
            encoded, value = _name(name), write_value(_field(fact, NESTING_MAX))
        except _LeftOut:
            continue
        if len(value) <= HEADER_BYTES_MAX:
            yield encoded, value


def _field(fact: Any, levels_left: int) -> Any:
    """As the plugin's `fmt`, for what JSON can say."""
    if not levels_left:
        raise _LeftOut
    match fact:
        case bool():
            return fact
        case str():
            return _without_password(fact)
        case int():
            return int(fact) if -_INT64_MAX <= fact <= _INT64_MAX else str(fact)
        case float():
            return _float(fact)
        case None:
            return "null"
        case Mapping():
            if not fact:
                return []  # an empty object is an empty list in Erlang
            entries = ((_name(name), write_value(_field(value, levels_left - 1))) for name, value in fact.items())
            return Encoded(b"F" + join_table(entries))
        case list() | tuple():
            return [_field(each, levels_left - 1) for each in fact]
    raise _LeftOut


def _without_password(text: str) -> str:
    """amqp://user:***@host. To the last @, for people forget to escape: a password may have any character in it."""
    begin = text.find("//")
    colon = text.find(":", begin + 2)
    end = text.rfind("@")
    return f"{text[: colon + 1]}***{text[end:]}" if 0 <= begin < colon < end else text


def _float(number: float) -> Any:
    try:
        Float.struct.pack(number)
    except OverflowError:
        return str(number)
    return Float(number)


def _name(name: str) -> bytes:
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > 255:
        raise _LeftOut
    return encoded


def _short(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded
