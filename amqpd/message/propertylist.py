"""A content header's property list, taken apart and put together again.

What comes in: raw property flags and list, and what is to be different. What goes out: the same, otherwise byte for
byte as it came.
Rules: 1. Nothing is decoded that is not asked for: fields and headers that stay keep their bytes, their order and
their types. 2. A header that is set takes the place of the one of its name, or the last place. 3. A table that loses
its last header stays, empty, as in RabbitMQ.
Not here: what the broker reads of properties (`properties.py`), the frames around them (`rewriting.py`).

Source: AMQP 0-9-1 section 4.2.6.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any

from amqpd.wire.fieldtable import split_entries
from amqpd.wire.fieldwriter import join_table, write_name, write_value

_LENGTH = Struct(">I")

# The basic class's properties: the bit in the flags, and how the list is cut.
HEADERS, DELIVERY_MODE, PRIORITY = 1 << 13, 1 << 12, 1 << 11
CONTENT_TYPE, CONTENT_ENCODING = 1 << 15, 1 << 14
CORRELATION_ID, REPLY_TO, EXPIRATION, MESSAGE_ID = 1 << 10, 1 << 9, 1 << 8, 1 << 7
TIMESTAMP, TYPE, USER_ID, APP_ID, CLUSTER_ID = 1 << 6, 1 << 5, 1 << 4, 1 << 3, 1 << 2
FLAGS = tuple(1 << bit for bit in range(15, 1, -1))
_FIXED = {DELIVERY_MODE: 1, PRIORITY: 1, TIMESTAMP: 8}


class PropertyList:
    """A content header's property list, taken apart. `fields` maps the bit of each property that is there to its
    bytes, length octets included."""

    __slots__ = ("_headers", "fields")

    def __init__(self, raw: bytes) -> None:
        """Raises ValueError when the list does not fit its flags."""
        self.fields: dict[int, bytes] = {}
        self._headers: list[tuple[bytes, bytes]] | None = None
        flags, at = int.from_bytes(raw[:2], "big"), 2
        if flags & 3 or len(raw) < 2:
            raise ValueError("property flags beyond those of the basic class")
        for flag in FLAGS:
            if flags & flag:
                stop = _end(raw, at, flag)
                if stop > len(raw):
                    raise ValueError("a property list that ends early")
                self.fields[flag] = raw[at:stop]
                at = stop
        if at != len(raw):
            raise ValueError(f"{len(raw)} bytes of properties where the flags say {at}")

    def raw(self) -> bytes:
        """Flags and list."""
        if self._headers is not None:
            self.fields[HEADERS] = join_table(self._headers)
        flags = 0
        for flag in self.fields:
            flags |= flag
        return flags.to_bytes(2, "big") + b"".join(self.fields[flag] for flag in FLAGS if flag in self.fields)

    def remove(self, flag: int) -> None:
        """The property is not there any more."""
        self.fields.pop(flag, None)
        if flag == HEADERS:
            self._headers = None

    def set_text(self, flag: int, text: str) -> None:
        """Set one of the properties that are short strings. Raises ValueError for more than 255 bytes."""
        encoded = text.encode("utf-8", "surrogateescape")
        if len(encoded) > 255:
            raise ValueError(f"a property of {len(encoded)} bytes")
        self.fields[flag] = bytes((len(encoded),)) + encoded

    def set_headers(self, headers: Mapping[str, Any]) -> None:
        """Set headers, to values as `fieldwriter.write_value` takes them. Raises as that does."""
        entries = self._entries()
        for name, value in headers.items():
            encoded, written = write_name(name), write_value(value)
            places = [i for i, (other, _) in enumerate(entries) if other == encoded]
            if places:
                entries[places[0]] = encoded, written
                for i in reversed(places[1:]):
                    del entries[i]
            else:
                entries.append((encoded, written))
        if headers:
            self._headers = entries

    def remove_headers(self, names: Iterable[str]) -> None:
        if HEADERS in self.fields or self._headers:
            unwanted = {write_name(name) for name in names}
            self._headers = [entry for entry in self._entries() if entry[0] not in unwanted]

    def _entries(self) -> list[tuple[bytes, bytes]]:
        if self._headers is not None:
            return self._headers
        return split_entries(self.fields[HEADERS][4:]) if HEADERS in self.fields else []


def edited(
    raw: bytes,
    headers: Mapping[str, Any] | None = None,
    without_headers: Iterable[str] = (),
    without: Iterable[int] = (),
) -> bytes:
    """The raw properties with some headers set, others gone, and without the properties of these flags (constants of
    this module). Raises ValueError."""
    properties = PropertyList(raw)
    properties.remove_headers(without_headers)
    properties.set_headers(headers or {})
    for flag in without:
        properties.remove(flag)
    return properties.raw()


def _end(raw: bytes, at: int, flag: int) -> int:
    if flag == HEADERS:
        if at + 4 > len(raw):
            raise ValueError("a property list that ends early")
        return at + 4 + int(_LENGTH.unpack_from(raw, at)[0])
    fixed = _FIXED.get(flag)
    if fixed is not None:
        return at + fixed
    if at >= len(raw):
        raise ValueError("a property list that ends early")
    return at + 1 + raw[at]
