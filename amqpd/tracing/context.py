"""The trace that a message belongs to, as its publisher wrote it into the headers.

What comes in: the raw property list of a message. What goes out: its `TraceContext`, if it has one that is sampled.
Rules: 1. Whether there may be one is one look for its octets; only where they are found the list is taken apart. 2.
What is malformed is no context, and never an error: the message goes on as if it had none. 3. Nothing is changed.
Not here: what is told of the message (`tracer.py`).

Source: https://www.w3.org/TR/trace-context/ sections 3.2 and 3.3.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from amqpd.message.propertylist import CORRELATION_ID, HEADERS, MESSAGE_ID, PropertyList
from amqpd.wire.fieldtable import split_entries

NAME, STATE_NAME = b"traceparent", b"tracestate"
# Of version 00. Later versions may have more behind it (section 3.2.4).
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
# The same as an entry of a field table, with the bit of the flags that says sampled.
_SAMPLED = re.compile(rb"\x0btraceparent[Sx].{4}[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]", re.DOTALL)
# A later version's is looked at up to here.
_TRACEPARENT_BYTES_MAX = 256
# What a tracestate may have and has to be kept whole (section 3.3.1.5); a longer one is left out.
STATE_BYTES_MAX = 512
# To take a longer list apart takes longer than a trace may cost: its headers may be twenty thousand.
PROPERTIES_BYTES_MAX = 16 * 1024
# A long string, and octets: some clients write either for a text.
_TEXTS = (b"S", b"x")


class TraceContext(NamedTuple):
    """The trace of a message, as its publisher wrote it: the parent of what the broker tells of the message."""

    trace_id: int
    span_id: int
    flags: int
    state: bytes
    """tracestate, as it came"""


class TracedFields(NamedTuple):
    """The fields of a traced message that spans tell beside its trace; empty when it does not say so."""

    context: TraceContext
    message_id: bytes
    correlation_id: bytes


def may_be_sampled(octets: bytes) -> bool:
    """A sampled traceparent may be in there: properties of a message, or whole messages."""
    return NAME in octets and _SAMPLED.search(octets) is not None


def number_sampled(octets: bytes) -> int:
    """Of whole messages: how many of them may be."""
    return len(_SAMPLED.findall(octets)) if NAME in octets else 0


def contents_of(properties: bytes) -> TracedFields | None:
    """Of a message with these raw properties; None when it has no traceparent that is right and sampled."""
    if len(properties) > PROPERTIES_BYTES_MAX or not may_be_sampled(properties):
        return None
    try:
        fields = PropertyList(properties).fields
        entries = split_entries(fields[HEADERS][4:])
    except (ValueError, KeyError):
        return None
    parents = [value for name, value in entries if name == NAME]
    if len(parents) != 1:
        return None
    context = _context(_text(parents[0]), entries)
    if context is None:
        return None
    return TracedFields(context, fields.get(MESSAGE_ID, b"")[1:], fields.get(CORRELATION_ID, b"")[1:])


def _context(parent: bytes, entries: list[tuple[bytes, bytes]]) -> TraceContext | None:
    matched = _TRACEPARENT.fullmatch(parent) if len(parent) <= _TRACEPARENT_BYTES_MAX else None
    if matched is None:
        return None
    version, trace_id, span_id, flags = (int(matched[each], 16) for each in range(1, 5))
    if version == 0xFF or (version == 0 and matched[5] is not None):
        return None
    if not (trace_id and span_id and flags & 1):
        return None
    states = [_text(value) for name, value in entries if name == STATE_NAME]
    state = states[0] if len(states) == 1 and len(states[0]) <= STATE_BYTES_MAX else b""
    # Bits that this version does not know are not passed on (section 3.2.2.5).
    return TraceContext(trace_id, span_id, flags & 1, state)


def _text(value: bytes) -> bytes:
    """Of a field table's value with its letter; nothing when it is of another kind."""
    return value[5:] if value[:1] in _TEXTS else b""
