"""The loads whose cost is bounded: those of the bench, small, and the same to the octet in each run.

What comes in: a rig. What goes out: clients that are connected and subscribed, and act as the rig asks them.
Rules: 1. A load is prepared once; then `run` carries `messages` through it, again and again. 2. Publishers go on
as soon as the broker has taken what was sent: in pieces of `PIECE_BYTES`, or one message each (`lone`), of which the
next comes when the pump waits for it.
Not here: rates (`bench/scenarios/`, which these are named after), counting (`counting.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct

import trio
from pamqp import commands

from bench.applications import AREAS, MARKER, ApplicationRecipe
from bench.recipes import mixed_message
from bench.scenarios.routing import topic_key, topic_patterns
from tests.cost.clients import Consumer, Publisher
from tests.cost.rig import Rig

# Some 200 messages of 100 bytes: less than a socket takes at once, so that it is read as it was sent.
PIECE_BYTES = 32 * 1024
BODY_BYTES = 100
_HEAD = Struct(">BHI")
QUEUES = 200
CONSUMING_CONNECTIONS = 10
TOPIC_PATTERNS, TOPIC_KEYS = 1_000, 100
# More than any cache holds.
MIXED_MESSAGES = 8_192
# Of the ring of an application: every key, size and set of headers twice, each with ids of its own.
APPLICATION_MESSAGES = 2_048


@dataclass(frozen=True)
class Kind:
    """One load: `publishes` makes what is sent, round and round."""

    name: str
    summary: str
    publishes: Callable[[], list[bytes]]
    exchange: str = ""
    exchange_type: str = ""
    keys: Callable[[], Sequence[str]] = lambda: ("",)
    """binding keys of each queue"""
    queues: tuple[str, ...] = ("q",)
    consumers: tuple[tuple[str, ...], ...] = (("q",),)
    """the queues of each consuming connection"""
    marker: bytes = b""
    """in each message once, where their sizes differ"""
    audit: bool = False
    """every message is recorded in the audit log"""
    durable: bool = False
    commits: bool = True
    """where it is durable: something has to be written"""
    confirms: bool = False
    ack_every: int = 0
    lone: int = 0
    """this many publishers with one message each at a time; 0: one that sends as much as it can"""
    messages: int = 4_000
    """to count; a multiple of it or a part where counting is cheap or dear"""


class Load:
    """A kind of load, prepared on a rig. `close` it before the rig."""

    def __init__(self, rig: Rig, kind: Kind, consuming: bool = True) -> None:
        self.kind = kind
        self._rig = rig
        if kind.audit:
            rig.record_all()
        self.publishers = [Publisher(rig, kind.confirms) for _ in range(kind.lone or 1)]
        self._declare()
        taps = kind.consumers if consuming else ()
        self.consumers = [
            Consumer(rig, list(queues), kind.ack_every, 2000 * bool(kind.ack_every), kind.marker) for queues in taps
        ]
        publishes = kind.publishes()
        self._ends = list(accumulate(map(len, publishes)))
        self._ring = memoryview(b"".join(publishes))
        self._at = 0
        self._whole = 0
        """messages of the ring before `_at`"""
        self._left = 0
        self._ended = trio.Event()
        rig.react = self._react

    async def run(self, messages: int) -> None:
        """Carry this many through: published, delivered, confirmed and acknowledged. Beside it the pump runs."""
        self._left = messages
        self._ended = trio.Event()
        self._publish()
        await self._ended.wait()

    def close(self) -> None:
        for client in (*self.publishers, *self.consumers):
            client.close()

    def _declare(self) -> None:
        kind, client = self.kind, self.publishers[0]
        if kind.exchange:
            declare = commands.Exchange.Declare(exchange=kind.exchange, exchange_type=kind.exchange_type)
            client.call(declare, commands.Exchange.DeclareOk)
        for queue in kind.queues:
            client.call(commands.Queue.Declare(queue=queue, durable=kind.durable), commands.Queue.DeclareOk)
            if kind.exchange:
                client.bind(queue, kind.exchange, kind.keys())

    def _react(self, waits: bool) -> bool:
        if self._ended.is_set() or (self.kind.lone and not waits):
            return False
        sent = [consumer.react() for consumer in self.consumers]
        for publisher in self.publishers:
            publisher.read()
        if self._publish() or any(sent):
            return True
        self._ended.set()
        return False

    def _publish(self) -> bool:
        """What comes next; False when nothing is left."""
        if not self._left:
            return False
        if not self.kind.lone:
            self.publishers[0].send(self._piece())
        for publisher in self.publishers[: self._left] if self.kind.lone else ():
            begin = self._at
            self._at = self._ends[self._whole]
            publisher.send(self._ring[begin : self._at])
            self._next()
        return True

    def _piece(self) -> memoryview:
        """The next octets of the ring, wherever they cut a message; the last one of a run is whole."""
        begin, stop = self._at, self._at + PIECE_BYTES
        while self._left and self._ends[self._whole] <= stop:
            self._at = self._ends[self._whole]
            self._next()
            if not self._at:
                return self._ring[begin:]
        if self._left:
            self._at = stop
        return self._ring[begin : self._at]

    def _next(self) -> None:
        self._left -= 1
        self._whole += 1
        if self._whole == len(self._ends):
            self._whole = self._at = 0


def publish(exchange: str, key: str, body_bytes: int, persistent: bool = False) -> bytes:
    """The three frames of a publish on channel 1 (AMQP 0-9-1, 4.2); not by pamqp, as thousands of them would take
    longer under valgrind than all that is counted."""
    properties = b"\x10\x00\x02" if persistent else b"\x00\x00"
    return _publish(exchange, key, b"\x00\x3c\x00\x00" + body_bytes.to_bytes(8) + properties, bytes(body_bytes))


def _publish(exchange: str, key: str, header: bytes, body: bytes) -> bytes:
    names = b"%c%b%c%b" % (len(exchange), exchange.encode(), len(key), key.encode())
    payloads = ((1, b"\x00\x3c\x00\x28\x00\x00" + names + b"\x00"), (2, header), (3, body))
    return b"".join([_HEAD.pack(kind, 1, len(payload)) + payload + b"\xce" for kind, payload in payloads])


def equal(exchange: str = "", key: str = "q", persistent: bool = False) -> Callable[[], list[bytes]]:
    return lambda: [publish(exchange, key, BODY_BYTES, persistent)] * 1024


def keys_and_sizes() -> list[bytes]:
    return [publish("x", *mixed_message(number)) for number in range(MIXED_MESSAGES)]


def application(persistent: bool = False) -> Callable[[], list[bytes]]:
    """Messages as applications send them, see `bench/applications.py`."""

    def publishes() -> list[bytes]:
        recipe = ApplicationRecipe(persistent=persistent)
        return [
            _publish("x", recipe.key(at), recipe.header(at, 0), recipe.body(at, 0))
            for at in range(APPLICATION_MESSAGES)
        ]

    return publishes


def unlike() -> list[bytes]:
    return [publish("", "q", mixed_message(number)[1]) for number in range(MIXED_MESSAGES)]


def of_keys(exchange: str, keys: Sequence[str]) -> Callable[[], list[bytes]]:
    return lambda: [publish(exchange, key, BODY_BYTES) for key in keys]


AREAS_OF_APPLICATION = tuple(f"area{area}.#" for area in range(AREAS))
NAMES = tuple(f"q-{number:04}" for number in range(QUEUES))
TEN = NAMES[:10]
KINDS = (
    Kind("stream", "one publisher, one consumer, no acks, no confirms", equal()),
    Kind("stream-ack", "as stream, acks of 200", equal(), ack_every=200),
    Kind("stream-confirm", "as stream, confirms", equal(), confirms=True),
    Kind(
        "durable-confirm",
        "persistent messages, confirms, acks of 200; a commit for each read",
        equal(persistent=True),
        durable=True,
        confirms=True,
        ack_every=200,
    ),
    Kind("stream-full", "as stream, with all of it in the audit log", equal(), audit=True),
    Kind(
        "durable-confirm-full",
        "as durable-confirm, with all of it in the audit log",
        equal(persistent=True),
        audit=True,
        durable=True,
        confirms=True,
        ack_every=200,
    ),
    Kind("closed-1", "one publisher that waits for each confirm", equal(), confirms=True, lone=1, messages=600),
    Kind("closed-50", "fifty of these", equal(), confirms=True, lone=50, messages=1_000),
    Kind(
        "mixed",
        "topic exchange, messages as applications send them",
        application(),
        exchange="x",
        exchange_type="topic",
        keys=lambda: AREAS_OF_APPLICATION,
    ),
    Kind(
        "mixed-durable",
        "as mixed, persistent, confirms, acks of 200",
        application(persistent=True),
        exchange="x",
        exchange_type="topic",
        keys=lambda: AREAS_OF_APPLICATION,
        marker=MARKER,
        durable=True,
        confirms=True,
        ack_every=200,
        messages=2_000,
    ),
    Kind(
        "durable-closed-1",
        "as closed-1, persistent: the consumer has a message before its commit begins, which writes nothing",
        equal(persistent=True),
        durable=True,
        commits=False,
        confirms=True,
        lone=1,
        messages=400,
    ),
    Kind(
        "durable-closed-1-stored",
        "the same, nobody consumes: a commit for each",
        equal(persistent=True),
        consumers=(),
        durable=True,
        confirms=True,
        lone=1,
        messages=400,
    ),
    Kind(
        "durable-closed-50",
        "fifty of these: a commit for what they have sent",
        equal(persistent=True),
        consumers=(),
        durable=True,
        confirms=True,
        lone=50,
        messages=2_000,
    ),
    Kind(
        "mixed-keys",
        "topic exchange, each message with another key and size",
        keys_and_sizes,
        exchange="x",
        exchange_type="topic",
        keys=lambda: ("key.#",),
        confirms=True,
        messages=1_500,
    ),
    Kind(
        "many-queues",
        f"{QUEUES} queues in turn, {CONSUMING_CONNECTIONS} consuming connections",
        of_keys("", NAMES),
        queues=NAMES,
        consumers=tuple(NAMES[tap::CONSUMING_CONNECTIONS] for tap in range(CONSUMING_CONNECTIONS)),
        confirms=True,
        messages=2_000,
    ),
    Kind(
        "fanout-10",
        "a fanout exchange, ten queues with a consumer each; a message is ten deliveries",
        equal("x", ""),
        exchange="x",
        exchange_type="fanout",
        queues=TEN,
        consumers=tuple((name,) for name in TEN),
        confirms=True,
        messages=2_000,
    ),
    Kind(
        "topic",
        f"topic exchange, {TOPIC_PATTERNS} patterns, {TOPIC_KEYS} keys in turn",
        of_keys("x", [topic_key(number) for number in range(TOPIC_KEYS)]),
        exchange="x",
        exchange_type="topic",
        keys=lambda: topic_patterns(TOPIC_PATTERNS),
        confirms=True,
        messages=2_000,
    ),
)
# Also for what a message keeps while it waits in a queue.
UNLIKE = Kind("unlike", "one key, each message of another size than the one before", unlike, durable=True)
BY_NAME = {kind.name: kind for kind in (*KINDS, UNLIKE)}
WAITING = ("stream", "durable-confirm", "unlike", "many-queues")
