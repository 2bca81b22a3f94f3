"""What the broker itself must know of a message's properties.

What comes in: the raw property flags and list of a content header. What goes out: `Properties`: persistent or not,
headers, priority, expiration, the claimed user, where replies should go, further routing keys, a delay.
Rules: 1. The bytes themselves stay as they are; here they are only read. 2. A list that does not fit its flags is
a syntax error (502). 3. Equal bytes give the same object: publishers repeat themselves.
Not here: field tables (`wire/fieldtable.py`), changing a list (`propertylist.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pamqp.exceptions import AMQPSyntaxError

from amqpd.message.claims import BCC, CC, expiration_problem, header_problem, routing_keys
from amqpd.message.delays import X_DELAY, delay_ms_of
from amqpd.wire.fieldtable import UnreadTable, read_table

# The pseudo-queue of direct replies (https://www.rabbitmq.com/docs/direct-reply-to).
REPLY_TO = "amq.rabbitmq.reply-to"
X_DEATH = "x-death"

# Publishers mostly have a handful of different ones; those with an id in each message gain nothing from a larger
# cache.
CACHE_ENTRIES_MAX = 1024
# What is remembered must be small, or the cache would pin what publishers send.
CACHE_ENTRY_BYTES_MAX = 512

# Bits of the property flags (section 4.2.6.1, in the order of the basic class's properties).
_HEADERS, _DELIVERY_MODE, _PRIORITY = 1 << 13, 1 << 12, 1 << 11
_CORRELATION_ID, _REPLY_TO, _EXPIRATION, _MESSAGE_ID = 1 << 10, 1 << 9, 1 << 8, 1 << 7
_TIMESTAMP, _USER_ID = 1 << 6, 1 << 4
_KEPT = frozenset((_CORRELATION_ID, _REPLY_TO, _EXPIRATION, _MESSAGE_ID, _USER_ID))
_SHORTSTR, _OCTET, _LONGLONG, _TABLE = range(4)
_LAYOUT: list[tuple[int, int]] = [
    (1 << 15, _SHORTSTR),
    (1 << 14, _SHORTSTR),
    (_HEADERS, _TABLE),
    (_DELIVERY_MODE, _OCTET),
    (_PRIORITY, _OCTET),
    (_CORRELATION_ID, _SHORTSTR),
    (_REPLY_TO, _SHORTSTR),
    (_EXPIRATION, _SHORTSTR),
    (_MESSAGE_ID, _SHORTSTR),
    (_TIMESTAMP, _LONGLONG),
    (1 << 5, _SHORTSTR),
    (_USER_ID, _SHORTSTR),
    (1 << 3, _SHORTSTR),
    (1 << 2, _SHORTSTR),
]


class Properties:
    """The properties of messages that the broker itself must know. `headers` is the table, or None when the
    message has none. `expiration` is the text as it came: if `problem` is None, an integer of milliseconds."""

    __slots__ = (
        "correlation_id",
        "delay_ms",
        "expiration",
        "has_bcc",
        "headers",
        "message_id",
        "persistent",
        "plain",
        "priority",
        "problem",
        "reply_to",
        "routing_keys",
        "user_id",
    )

    def __init__(
        self,
        persistent: bool,
        headers: Mapping[str, Any] | None,
        priority: int | None,
        expiration: str | None,
        user_id: str | None,
        reply_to: str | None,
        message_id: str | None = None,
        correlation_id: str | None = None,
    ) -> None:
        self.persistent = persistent
        self.headers = headers
        self.priority = priority
        self.expiration = expiration
        self.user_id = user_id
        self.reply_to = reply_to
        self.message_id = message_id
        self.correlation_id = correlation_id
        self.routing_keys: tuple[str, ...] = ()
        """of the headers CC and BCC, in this order"""
        self.has_bcc = False
        self.delay_ms = 0
        self.problem: str | None = None
        """what a client is told that publishes with these properties: they cannot be taken"""
        if expiration is not None:
            self.problem = expiration_problem(expiration)
        if headers is not None:
            self._look_at(headers)
        self.plain = self._is_plain()
        """nothing in them needs a look before the message is routed, if it is not routed by headers"""

    def _is_plain(self) -> bool:
        return (
            self.user_id is None
            and self.reply_to != REPLY_TO
            and self.problem is None
            and not self.delay_ms
            and not self.routing_keys
            and not self.has_bcc
            and (self.headers is None or X_DEATH not in self.headers)
        )

    def _look_at(self, headers: Mapping[str, Any]) -> None:
        self.has_bcc = BCC in headers
        if self.has_bcc or CC in headers:
            self.problem = self.problem or header_problem(headers)
            self.routing_keys = routing_keys(headers, CC) + routing_keys(headers, BCC)
        if X_DELAY in headers:
            self.delay_ms = delay_ms_of(headers)


class PropertiesReader:
    """Reads what the broker needs of property lists, and remembers small ones by their octets."""

    def __init__(self) -> None:
        self._known: dict[bytes, Properties] = {}
        self._large: tuple[bytes, Properties] | None = None
        """the last one that is too large to be remembered: a message's are read as it comes, and when it dies"""

    def read(self, raw: bytes, checked: bool = False) -> Properties:
        """Raises AMQPSyntaxError when the list does not fit the flags. `checked`: it was read before, when its
        message came. Then of many headers only those are decoded that are asked for: they may have a hundred
        kilobytes, which is 20 ms, and a message may die in hundreds of queues."""
        known = self._known.get(raw)
        if known is None:
            if self._large is not None and self._large[0] == raw:
                return self._large[1]
            try:
                known = _read(raw, checked and len(raw) > CACHE_ENTRY_BYTES_MAX)
            except (ValueError, IndexError) as error:
                raise AMQPSyntaxError("cannot read the content header's properties") from error
            if len(raw) <= CACHE_ENTRY_BYTES_MAX:
                if len(self._known) >= CACHE_ENTRIES_MAX:
                    self._known.clear()
                self._known[raw] = known
            else:
                self._large = raw, known
        return known


def _read(raw: bytes, when_asked: bool) -> Properties:
    flags = raw[0] << 8 | raw[1]
    if flags & 3:
        raise ValueError("property flags beyond those of the basic class")
    at, persistent, priority = 2, False, None
    headers: Mapping[str, Any] | None = None
    texts: dict[int, str] = {}
    for flag, kind in _LAYOUT:
        if not flags & flag:
            continue
        if kind == _SHORTSTR:
            stop = at + 1 + raw[at]
            if flag in _KEPT:
                texts[flag] = raw[at + 1 : stop].decode("utf-8", "surrogateescape")
            at = stop
        elif kind == _OCTET:
            if flag == _DELIVERY_MODE:
                persistent = raw[at] == 2
            else:
                priority = raw[at]
            at += 1
        elif kind == _LONGLONG:
            at += 8
        elif when_asked:
            stop = at + 4 + int.from_bytes(raw[at : at + 4])
            headers, at = UnreadTable(raw[at + 4 : stop]), stop
        else:
            headers, at = read_table(raw, at)
    if at != len(raw):
        raise ValueError(f"{len(raw)} bytes of properties where the flags say {at}")
    if not texts:
        return Properties(persistent, headers, priority, None, None, None)
    return Properties(
        persistent,
        headers,
        priority,
        texts.get(_EXPIRATION),
        texts.get(_USER_ID),
        texts.get(_REPLY_TO),
        texts.get(_MESSAGE_ID),
        texts.get(_CORRELATION_ID),
    )
