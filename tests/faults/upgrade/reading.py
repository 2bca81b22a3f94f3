"""Takes everything out of a data directory that another version wrote.

What comes in: a broker on a copy of it, the book. What goes out: a `Seen`: what came, from where, when and how.
Rules: 1. `amqpd check` finds nothing, before the first start and after the stop. 2. What nobody consumes (`waiting`)
and what is delayed is waited for, until the book says that all of it is due. 3. After it the broker is stopped in
order and started again: every queue is empty. 4. A body is compared byte by byte (`parse_content`).
Not here: the judgement (`judge.py`).
"""

from __future__ import annotations

import json
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from pamqp import commands, frame

from ...clients.broker_process import BrokerProcess
from ...clients.wire import HEADER, METHOD, Wire, described, frame_bytes, publish_bytes
from ..workload import DELIVER, METHOD_ID, PERSISTENT, content_of, parse_content, read_content
from .loads import FLEETING, GONE, HELD, LOADS, RECEIPTS, SHORT_QUEUE, TTL_MS, Book
from .writing import amqpd, definitions

QUIET_S = 2.0
NOTHING_S = 60.0
"""No delivery for so long, after everything was due: what is missing is lost"""


@dataclass
class Came:
    number: int
    origin: str
    redelivered: bool
    at_ms: int
    returns: int = 0
    deaths: list[tuple[str, str, int]] | None = None
    priority: int | None = None
    expiration: str = ""


@dataclass
class Seen:
    """`queues`: what came from each, in order. `left` is what they hold at the end, `again` after a further start."""

    queues: dict[str, list[Came]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    again: dict[str, int] = field(default_factory=dict)
    delayed: int = 0
    definitions: dict[str, Any] = field(default_factory=dict)
    fleeting: bool = False
    limited: int = 0
    """messages in `short` after a few more than its policy allows"""
    began_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    start_s: float = 0.0
    drain_s: float = 0.0


def read(broker: BrokerProcess, book: Book) -> Seen:
    """Raises AssertionError when the broker fails."""
    seen = Seen()
    amqpd(broker, "check")
    began = time.monotonic()
    broker.start()
    seen.start_s = time.monotonic() - began
    seen.definitions = definitions(broker)
    began = time.monotonic()
    with Wire(broker.port) as wire:
        Drain(wire.open(), book, seen).run()
        seen.drain_s = time.monotonic() - began
        seen.delayed = int(json.loads(amqpd(broker, "status", "--json"))["messages_delayed"])
        _limit(wire, seen)
        seen.fleeting = not isinstance(
            wire.call(commands.Queue.Declare(queue=FLEETING, passive=True), channel=1), commands.Channel.Close
        )
    assert broker.terminate() == 0, broker.log[-2000:]
    amqpd(broker, "check")
    broker.start()
    with Wire(broker.port) as wire:
        wire.open().open_channel()
        seen.again = {queue: _depth(wire, queue) for queue in seen.queues}
        wire.close()
    assert broker.terminate() == 0, broker.log[-2000:]
    return seen


class Drain:
    """One connection with a consumer on each queue that is consumed."""

    def __init__(self, wire: Wire, book: Book, seen: Seen) -> None:
        self._wire, self._book, self._seen = wire, book, seen
        self._came = 0
        self._counts = {load.queue: book.count(load) for load in LOADS}
        """a message with a higher number is one of the `unknown`, which nobody may wait for"""
        # Either here or among the dead letters, so each that comes at all comes once.
        self._due = sum(
            book.kind(load, number, seen.began_ms) not in (HELD, GONE)
            for load in LOADS
            for number in range(book.count(load))
        )
        self._headers = {load.dead for load in LOADS if load.dead} | {"counted", "ranked"}

    def run(self) -> None:
        wire, queues = self._wire, self._seen.queues
        wire.open_channel()
        for load in LOADS:
            for queue in filter(None, (load.queue, load.dead)):
                queues[queue] = []
                if load.consumed or queue == load.dead:
                    wire.send(commands.Basic.Consume(queue=queue, consumer_tag=queue, no_ack=True), channel=1)
        wire.socket.settimeout(QUIET_S)
        last = time.monotonic()
        due_s = time.monotonic() + max(0, self._all_due_ms() - time.time_ns() // 1_000_000) / 1000
        while self._came < self._due:
            try:
                self._take(*wire.read_frame())
                last = time.monotonic()
            except TimeoutError:
                if time.monotonic() > max(last, due_s) + NOTHING_S:
                    break  # the judge says what is missing
        wire.socket.settimeout(NOTHING_S)
        # Whatever else they hold comes in front of the answers, sooner or later.
        last = time.monotonic()
        while any(self._look().values()) and time.monotonic() < last + NOTHING_S:
            pass
        for queue in queues:
            wire.send(commands.Basic.Cancel(queue), channel=1)
            self._until(commands.Basic.CancelOk)

    def _all_due_ms(self) -> int:
        last_ms = max(row[2] for rows in self._book.sent.values() for row in rows)
        return last_ms + max(self._book.span_ms, TTL_MS)

    def _take(self, kind: int, channel: int, payload: bytes) -> Any:
        """A delivery is noted, any other method returned."""
        if kind != METHOD:
            return None
        if METHOD_ID.unpack_from(payload) != DELIVER:
            method = frame.unmarshal(frame_bytes(METHOD, payload))[2]
            assert not isinstance(method, (commands.Channel.Close, commands.Connection.Close)), described(method)
            return method
        at = 5 + payload[4]
        queue = payload[5:at].decode()
        redelivered = payload[at + 8]
        head, body = read_content(self._wire)
        origin, number = parse_content(body)
        came = Came(number, origin, bool(redelivered), time.time_ns() // 1_000_000)
        if queue in self._headers:
            _note_headers(came, head)
        self._seen.queues[queue].append(came)
        if number < self._counts.get(origin, 0):
            self._came += 1
        return None

    def _look(self) -> dict[str, int]:
        self._seen.left = {queue: self._depth(queue) for queue in self._seen.queues}
        return self._seen.left

    def _depth(self, queue: str) -> int:
        self._wire.send(commands.Queue.Declare(queue=queue, passive=True), channel=1)
        return int(self._until(commands.Queue.DeclareOk).message_count)

    def _until(self, kind: type) -> Any:
        while not isinstance(method := self._take(*self._wire.read_frame()), kind):
            pass
        return method


def _note_headers(came: Came, head: bytes) -> None:
    content = frame.unmarshal(struct.pack(">BHI", HEADER, 1, len(head)) + head + b"\xce")[2]
    headers: dict[str, Any] = content.properties.headers or {}
    came.returns = headers.get("x-delivery-count", 0)
    came.priority = content.properties.priority
    if "x-death" in headers:
        came.deaths = [(death["queue"], death["reason"], death["count"]) for death in headers["x-death"]]
    if content.properties.expiration is not None:
        came.expiration = content.properties.expiration


def _limit(wire: Wire, seen: Seen) -> None:
    """The policy holds: more than it allows is published, confirmed, and counted."""
    wire.send(commands.Confirm.Select(), channel=1)
    wire.expect(commands.Confirm.SelectOk)
    over = SHORT_QUEUE + 100
    wire.send_bytes(b"".join(publish_bytes(1, "", "short", content_of("short", 1), PERSISTENT) for _ in range(over)))
    told = 0
    while told < over:
        ack = wire.expect(commands.Basic.Ack)
        told = ack.delivery_tag if ack.multiple else told + 1
    seen.limited = _depth(wire, "short")
    for queue in ("short", "short.dead", RECEIPTS):
        wire.send(commands.Queue.Purge(queue=queue), channel=1)
        wire.expect(commands.Queue.PurgeOk)


def _depth(wire: Wire, queue: str) -> int:
    answer = wire.call(commands.Queue.Declare(queue=queue, passive=True), channel=1)
    assert isinstance(answer, commands.Queue.DeclareOk), described(answer)
    return answer.message_count or 0
