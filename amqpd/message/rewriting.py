"""Runs rewritten before their bodies: other headers, another address, everything else as it came.

What comes in: a run and what is to be different. What goes out: a new run of the same bodies.
Rules: 1. Once for a run, not once for a message: method and header frame are the same in all of it. 2. What is not
named stays byte for byte (`propertylist.py`). 3. The new run shares no memory with the old one, and `scan_publishes`
reads it back as it is.
Not here: why a message is rewritten (BCC: `publishing/publish.py`; dead letters: `queues/`).

Source: AMQP 0-9-1 sections 2.3.5 and 4.2.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from struct import Struct
from typing import Any

from amqpd.kernel import Run
from amqpd.message.propertylist import edited

_HEAD = Struct(">BHI")
_METHOD, _HEADER = 1, 2
_PUBLISH = b"\x00\x3c\x00\x28"
_MARK_AT = 11
# A content header of the basic class before its body size: class 60, weight 0.
_CONTENT = b"\x00\x3c\x00\x00"


def with_headers(run: Run, headers: Mapping[str, Any], without: Iterable[str] = ()) -> Run:
    """The run with these headers set and those in `without` gone. Raises ValueError, see `propertylist.edited`."""
    return with_properties(run, edited(run.properties, headers, without))


def with_properties(run: Run, properties: bytes) -> Run:
    """The run with these raw properties (flags and list) in place of its own."""
    return _rewritten(run, run.data[run.start : run.start + run.method_size], properties)


def readdressed(run: Run, exchange: str, routing_key: str, properties: bytes, mark: int = 0) -> Run:
    """The run as if it had been published to `exchange` with `routing_key` and these raw properties; not mandatory.
    `mark` stands in the method's reserved field, where no client sees it. Raises ValueError for names of more than
    255 bytes."""
    payload = _PUBLISH + mark.to_bytes(2, "big") + _short_string(exchange) + _short_string(routing_key) + b"\x00"
    return _rewritten(run, _HEAD.pack(_METHOD, _channel(run), len(payload)) + payload + b"\xce", properties)


def run_names(run: Run) -> tuple[str, str]:
    """The exchange and the routing key that it was published with."""
    names = run.names
    size = names[0]
    return (
        names[1 : 1 + size].decode("utf-8", "surrogateescape"),
        names[2 + size :].decode("utf-8", "surrogateescape"),
    )


def mark_of(run: Run) -> int:
    """What stands in the reserved field of its method; 0 in what clients send, or should."""
    return int.from_bytes(run.data[run.start + _MARK_AT : run.start + _MARK_AT + 2], "big")


def unmarked(run: Run) -> Run:
    """The run with nothing in the reserved field."""
    at = run.start + _MARK_AT
    method = run.data[run.start : at] + b"\x00\x00" + run.data[at + 2 : run.start + run.method_size]
    return _rewritten(run, method, run.properties)


def _rewritten(run: Run, method: bytes, properties: bytes) -> Run:
    payload = _CONTENT + run.body_size.to_bytes(8, "big") + properties
    header = _HEAD.pack(_HEADER, _channel(run), len(payload)) + payload + b"\xce"
    data, stride = run.data, run.stride
    begin = run.start + run.method_size + run.header_size
    length = stride - run.method_size - run.header_size
    bodies = (data[at : at + length] for at in range(begin, begin + run.count * stride, stride))
    prefix = method + header
    return Run(
        b"".join(chain.from_iterable(zip(repeat(prefix, run.count), bodies, strict=True))),
        0,
        len(prefix) + length,
        run.count,
        len(method),
        len(header),
        run.body_size,
        run.body_frames,
    )


def _channel(run: Run) -> int:
    return int.from_bytes(run.data[run.start + 1 : run.start + 3], "big")


def _short_string(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    if len(encoded) > 255:
        raise ValueError(f"a name of {len(encoded)} bytes")
    return bytes((len(encoded),)) + encoded
