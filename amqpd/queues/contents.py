"""What a message says, for somebody who looks at a queue: its properties as plain values, a piece of its body.

What comes in: raw properties, a run, conditions. What goes out: JSON values by RabbitMQ's names; whether a message is
one of those that are meant.
Rules: 1. Everything here is for people and pages of some hundred messages, but `Condition.holds`, which is asked once
for each run of a whole queue. 2. What no UTF-8 is becomes text that says so, never an error.
Not here: where messages stand (`browsing.py`), reading them from the disk
(`amqpd/management/messages/operations.py`).

Source for names: https://www.rabbitmq.com/docs/http-api-reference, /api/queues/{vhost}/{name}/get.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from amqpd.kernel import Run
from amqpd.message.propertylist import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
    PropertyList,
)
from amqpd.queues.browsing import UNACKED, Stretch, id_of, runs_in
from amqpd.queues.leader import LeaderQueue
from amqpd.queues.segment import Segment
from amqpd.wire.fieldtable import read_table
from amqpd.wire.json_values import to_json

NAMES = {
    CONTENT_TYPE: "content_type",
    CONTENT_ENCODING: "content_encoding",
    HEADERS: "headers",
    DELIVERY_MODE: "delivery_mode",
    PRIORITY: "priority",
    CORRELATION_ID: "correlation_id",
    REPLY_TO: "reply_to",
    EXPIRATION: "expiration",
    MESSAGE_ID: "message_id",
    TIMESTAMP: "timestamp",
    TYPE: "type",
    USER_ID: "user_id",
    APP_ID: "app_id",
    CLUSTER_ID: "cluster_id",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on messages, all parts of which must hold. `headers` are (name, value as people write it, None
    for any value)."""

    message_id: str | None = None
    headers: tuple[tuple[str, str | None], ...] = ()

    def __bool__(self) -> bool:
        return self.message_id is not None or bool(self.headers)

    def holds(self, raw: bytes) -> bool:
        """Of a message with these raw properties."""
        fields = PropertyList(raw).fields
        if self.message_id is not None:
            found = fields.get(MESSAGE_ID)
            if found is None or found[1:] != self.message_id.encode("utf-8", "surrogateescape"):
                return False
        if self.headers:
            if HEADERS not in fields:
                return False
            table, _ = read_table(fields[HEADERS], 0)
            return all(name in table and value in (None, written(table[name])) for name, value in self.headers)
        return True


def written(value: Any) -> str:
    """A header's value as people write it on a command line."""
    plain = to_json(value)
    if plain is None or isinstance(plain, bool):
        return {None: "null", True: "true", False: "false"}[plain]
    return str(plain)


def rows_of(
    queue: LeaderQueue, stretch: Stretch, bodies: Segment, first: int, last: int, body_bytes: int, now_ms: int
) -> list[dict[str, Any]]:
    """A row for each of the messages first..last of the stretch, which are all there; at most `body_bytes` of each
    body."""
    level = stretch.level
    segment = level.store.segments[level.store.index_of(first)]
    if bodies.damage:
        return [_without_body(queue, stretch, seq, bodies.damage, now_ms) for seq in range(first, last + 1)]
    due = {} if bodies.deadlines is None else bodies.deadlines.within(first, last)
    rows = []
    for run, start, stop, at in runs_in(bodies, first, last):
        common = {**names(run), "properties": properties_of(run.properties)}
        for seq in range(at, at + stop - start):
            arrived_ms, due_ms = segment.arrival(seq - segment.first), due.get(seq)
            rows.append(
                {
                    "id": id_of(queue.record.id, level, seq),
                    "position": None if stretch.position is None else stretch.position + seq - stretch.first,
                    "state": stretch.state,
                    "redelivered": stretch.state == UNACKED or level.is_redelivered(seq),
                    "delivery_count": queue.delivery_count(seq),
                    **common,
                    "age_s": max(0, now_ms - arrived_ms) / 1000,
                    "expires_in_s": None if due_ms is None else max(0, due_ms - now_ms) / 1000,
                    **payload(run, start + seq - at, body_bytes),
                }
            )
    return rows


def _without_body(queue: LeaderQueue, stretch: Stretch, seq: int, damage: str, now_ms: int) -> dict[str, Any]:
    """A row of a message that cannot be read."""
    level = stretch.level
    segment = level.store.segments[level.store.index_of(seq)]
    return {
        "id": id_of(queue.record.id, level, seq),
        "position": None if stretch.position is None else stretch.position + seq - stretch.first,
        "state": f"{stretch.state}, damaged",
        "damage": damage,
        "redelivered": stretch.state == UNACKED or level.is_redelivered(seq),
        "delivery_count": queue.delivery_count(seq),
        **dict.fromkeys(("exchange", "routing_key", "properties", "expires_in_s", "payload_bytes")),
        "age_s": max(0, now_ms - segment.arrival(seq - segment.first)) / 1000,
        "payload": "",
        "payload_encoding": "string",
        "payload_truncated": True,
    }


def properties_of(raw: bytes) -> dict[str, Any]:
    """By the names that RabbitMQ's HTTP API has for them; those that are not there are left out."""
    found: dict[str, Any] = {}
    for flag, field in PropertyList(raw).fields.items():
        if flag == HEADERS:
            found[NAMES[flag]] = _printable(to_json(read_table(field, 0)[0]))
        elif flag in (DELIVERY_MODE, PRIORITY, TIMESTAMP):
            found[NAMES[flag]] = int.from_bytes(field, "big")
        else:
            found[NAMES[flag]] = field[1:].decode("utf-8", "backslashreplace")
    return found


def head_timestamp(queue: LeaderQueue) -> int | None:
    """The `timestamp` property of the first message that is not settled, of the highest priority that has any, in
    seconds since the epoch; None without one, and while that message is on disk only. Reads nothing."""
    for level in sorted(queue.levels(), key=attrgetter("queue_id"), reverse=True):
        for segment in level.store.segments:
            low, high = segment.next_live(0, 1)
            if low < high:
                return None if segment.runs is None else _timestamp(segment.alike(low, high)[0].properties)
    return None


def _timestamp(raw: bytes) -> int | None:
    # Most messages have none: their flags say so.
    if not int.from_bytes(raw[:2], "big") & TIMESTAMP:
        return None
    return int.from_bytes(PropertyList(raw).fields[TIMESTAMP], "big")


def names(run: Run) -> dict[str, str]:
    """The exchange and the routing key that it was published with."""
    raw = run.names
    size = raw[0]
    exchange, key = raw[1 : 1 + size], raw[2 + size :]
    return {
        "exchange": exchange.decode("utf-8", "backslashreplace"),
        "routing_key": key.decode("utf-8", "backslashreplace"),
    }


def payload(run: Run, i: int, bytes_max: int) -> dict[str, Any]:
    """A piece of the body of message i: as a text when it is one, else in hexadecimal digits."""
    piece = run.body(i)[:bytes_max] if bytes_max else b""
    text, encoding = _text(piece, len(piece) < run.body_size), "string"
    if text is None:
        text, encoding = piece.hex(), "hex"
    return {
        "payload": text,
        "payload_encoding": encoding,
        "payload_bytes": run.body_size,
        "payload_truncated": len(piece) < run.body_size,
    }


def _text(piece: bytes, cut: bool) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError as error:
        # A character of several bytes may have been cut at the end.
        if cut and error.reason == "unexpected end of data":
            return piece[: error.start].decode()
        return None


def _printable(value: Any) -> Any:
    """Names and texts may hold bytes that are no UTF-8 (as lone surrogates): JSON for others cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_printable(name): _printable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_printable(each) for each in value]
    return value
