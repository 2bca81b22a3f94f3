"""Which publishes may share a batch: what the broker must know of a message, found without reading its properties.

What comes in: raw property flags and property list of a content header. What goes out: the part of them that the
broker acts on, as a property list of its own, or None for a message that has to be looked at by itself.
Rules: 1. Messages with the same answer are handled alike, whatever else their properties say: delivery mode, priority
and expiration are in it. 2. None for a claimed user, for direct replies, for the headers in `SPECIAL`, and for
whatever does not read as it should: the ordinary way gives the verdict. 3. Everything is looked at that reading would
refuse.
Not here: what the properties mean (`message/properties.py`), the twin in C (`screening.pxi`).

Source: AMQP 0-9-1 section 4.2.6.1 (property flags), 4.2.5.5 (field tables);
https://www.rabbitmq.com/amqp-0-9-1-errata for the letters of types.
"""

from __future__ import annotations

from typing import Final

# Headers that decide where a message goes, or when.
SPECIAL: Final = frozenset((b"CC", b"BCC", b"x-delay", b"x-death"))
REPLY_TO: Final = b"amq.rabbitmq.reply-to"
# What is nested deeper is read by itself.
DEPTH_MAX: Final = 4

_HEADERS, _DELIVERY_MODE, _PRIORITY = 1 << 13, 1 << 12, 1 << 11
_CORRELATION_ID, _REPLY_TO, _EXPIRATION, _TIMESTAMP = 1 << 10, 1 << 9, 1 << 8, 1 << 6
# Two that are short strings before the headers, and what is one behind the expiration, the user's name apart.
_BEFORE: Final = (1 << 15, 1 << 14)
_BEHIND: Final = (1 << 5, 1 << 3, 1 << 2)
_MESSAGE_ID: Final = 1 << 7
# A claimed user, and flags that the basic class has not.
_BY_ITSELF: Final = 1 << 4 | 3
_KEPT: Final = _DELIVERY_MODE | _PRIORITY | _EXPIRATION
_SIZES: Final = {
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"su", 2),
    **dict.fromkeys(b"Iif", 4),
    **dict.fromkeys(b"lLdT", 8),
    **dict.fromkeys(b"V\0", 0),
    ord("D"): 5,
}
_LONG_STRINGS: Final = frozenset(b"Sx")
_TABLE, _ARRAY = b"FA"


def common_of(raw: bytes) -> bytes | None:
    """Of a message with these raw properties. At least two bytes long."""
    flags = raw[0] << 8 | raw[1]
    if flags & _BY_ITSELF:
        return None
    at, kept = 2, [(flags & _KEPT).to_bytes(2, "big")]
    try:
        for flag in _BEFORE:
            if flags & flag:
                at += 1 + raw[at]
        if flags & _HEADERS:
            stop = at + 4 + int.from_bytes(raw[at : at + 4], "big")
            if stop > len(raw) or not _plain_table(raw, at + 4, stop, 0):
                return None
            at = stop
        for flag in (_DELIVERY_MODE, _PRIORITY):
            if flags & flag:
                kept.append(raw[at : at + 1])
                at += 1
        if flags & _CORRELATION_ID:
            at += 1 + raw[at]
        if flags & _REPLY_TO:
            stop = at + 1 + raw[at]
            if raw[at + 1 : stop] == REPLY_TO:
                return None
            at = stop
        if flags & _EXPIRATION:
            stop = at + 1 + raw[at]
            kept.append(raw[at:stop])
            at = stop
        if flags & _MESSAGE_ID:
            at += 1 + raw[at]
        if flags & _TIMESTAMP:
            at += 8
        for flag in _BEHIND:
            if flags & flag:
                at += 1 + raw[at]
    except IndexError:
        return None
    return b"".join(kept) if at == len(raw) else None


def _plain_table(raw: bytes, at: int, end: int, depth: int) -> bool:
    """The entries at `at` up to `end` read, and none of the names is special. Raises IndexError."""
    while at < end:
        value_at = at + 1 + raw[at]
        if value_at >= end or (depth == 0 and raw[at + 1 : value_at] in SPECIAL):
            return False
        at = _value_end(raw, value_at, end, depth)
    return at == end


def _value_end(raw: bytes, at: int, end: int, depth: int) -> int:
    """Where the value ends whose letter is at `at`; behind everything if it does not read. Raises IndexError."""
    letter = raw[at]
    at += 1
    size = _SIZES.get(letter)
    if size is not None:
        return at + size
    stop = at + 4 + int.from_bytes(raw[at : at + 4], "big")
    if stop > end:
        return _NOWHERE
    if letter in _LONG_STRINGS:
        return stop
    if depth == DEPTH_MAX:
        return _NOWHERE
    if letter == _TABLE:
        return stop if _plain_table(raw, at + 4, stop, depth + 1) else _NOWHERE
    if letter == _ARRAY:
        return stop if _plain_array(raw, at + 4, stop, depth + 1) else _NOWHERE
    return _NOWHERE


_NOWHERE: Final = 1 << 40


def _plain_array(raw: bytes, at: int, end: int, depth: int) -> bool:
    while at < end:
        at = _value_end(raw, at, end, depth)
    return at == end
