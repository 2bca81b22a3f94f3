"""Each method that AMQP has, those that only brokers send and some that nobody has, with arguments that no client
library sends; each state in which a client can send it.

What comes in: a `Wire` that has been connected and has said nothing. What goes out: payloads of method frames by a
name that says which they are; the wire in a state, and the channel on which the payload is to be sent.
Rules: 1. Everything is enumerated, nothing is drawn: a name is enough to repeat a case. 2. What a state needs on the
broker (`QUEUE`, `FULL`) is declared by the test.
Not here: what the broker is to answer (`test_every_method.py`), garbage (`tests/connection/test_fuzz.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from pamqp import base, commands, header

from ..clients.wire import CAPABILITIES, HEADER, METHOD, PROTOCOL_HEADER, Wire, frame_bytes, publish_bytes

Basic, Channel, Connection = commands.Basic, commands.Channel, commands.Connection
Confirm, Queue, Tx = commands.Confirm, commands.Queue, commands.Tx

QUEUE, FULL = "attacked", "attacked-full"
UNOPENED = 7
USER, VHOST, PASSWORD = "mallory", "attackers", "of-mallory"
LOGIN = f"\0{USER}\0{PASSWORD}"

PLAIN: dict[str, Any] = {
    "queue": QUEUE,
    "exchange": "amq.topic",
    "source": "amq.topic",
    "destination": "amq.fanout",
    "exchange_type": "topic",
    "consumer_tag": "tag",
    "routing_key": "a.b",
    "virtual_host": VHOST,
    "mechanism": "PLAIN",
    "response": LOGIN,
    "locale": "en_US",
    "channel_max": 2047,
    "frame_max": 131_072,
    "delivery_tag": 1,
    "reply_code": 200,
    "durable": True,
    "active": True,
}
"""What an argument is unless it is the one that is odd; otherwise empty, 0 or false."""


def short(raw: bytes) -> bytes:
    return bytes([len(raw)]) + raw


def long(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def entry(name: bytes, letter: bytes, value: bytes) -> bytes:
    return short(name) + letter + value


def nested(depth: int) -> bytes:
    inner = b""
    for _ in range(depth):
        inner = entry(b"n", b"F", long(inner))
    return inner


LIMITS = (
    b"x-message-ttl",
    b"x-expires",
    b"x-max-length",
    b"x-max-length-bytes",
    b"x-max-priority",
    b"x-delivery-limit",
)
NAMES = (
    b"x-dead-letter-exchange",
    b"x-dead-letter-routing-key",
    b"x-overflow",
    b"x-queue-type",
    b"x-queue-mode",
    b"alternate-exchange",
    b"x-delayed-type",
    b"x-match",
    b"x-queue-version",
    b"hash-header",
    b"x-stream-offset",
)
INTEGERS = {
    "min": b"l" + b"\x80" + bytes(7),
    "max": b"l\x7f" + b"\xff" * 7,
    "minus": b"I" + b"\xff" * 4,
    "zero": b"b\0",
}
OTHERS = {
    "nan": b"d\x7f\xf8" + bytes(6),
    "inf": b"d\x7f\xf0" + bytes(6),
    "decimal": b"D\xff\x7f\xff\xff\xff",
    "void": b"V",
    "time": b"T" + b"\xff" * 8,
    "array": b"A" + long(b"V" * 100),
    "table": b"F" + long(entry(b"a", b"V", b"")),
    "nul": b"S" + long(b"a\0b"),
    "not-utf8": b"S" + long(b"\xff\xfe"),
    "empty": b"S" + long(b""),
    "long": b"S" + long(b"x" * 5000),
    "bytes": b"x" + long(b"\xff\0"),
}
TABLES: dict[str, bytes] = {
    "deep-100": nested(100),
    "deep-127": nested(127),
    "deep-1000": nested(1000),
    "twice": entry(b"x-max-length", b"I", bytes(4)) + entry(b"x-max-length", b"S", long(b"2")),
    "no-name": entry(b"", b"V", b""),
    "name-not-utf8": entry(b"\xff\xfe\0", b"S", long(b"\xff")),
    "letter": entry(b"a", b"~", b""),
    "short-array": entry(b"a", b"A", struct.pack(">I", 99)),
    "many": b"".join(entry(b"%d" % i, b"V", b"") for i in range(2000)),
    **{
        f"{name.decode()}-{how}": entry(name, value[:1], value[1:])
        for name in LIMITS + NAMES + (b"x-priority", b"x-single-active-consumer", b"x-cancel-on-ha-failover")
        for how, value in (INTEGERS | OTHERS).items()
    },
}
STRINGS = {
    "empty": b"",
    "255": b"x" * 255,
    "nul": b"a\0b",
    "not-utf8": b"\xff\xfe",
    "newline": b"a\r\n\x1b[2J",
    "amq.": b"amq.made-up",
    "reply": b"amq.rabbitmq.reply-to",
    "reply.": b"amq.rabbitmq.reply-to.made.up",
    "hashes": b"#.a." * 60,
    "default": b"amq.default",
}
NUMBERS = {"octet": ("B", 8), "short": (">H", 16), "long": (">I", 32), "longlong": (">Q", 64)}


def methods() -> Iterator[tuple[str, bytes]]:
    """One of each, and some ids that are none."""
    for index, method in sorted(commands.INDEX_MAPPING.items()):
        yield method.name, _payload(index, method, {})  # type: ignore[attr-defined]
    for class_id, method_id in (
        (0, 0),
        (0, 10),
        (10, 0),
        (10, 99),
        (20, 99),
        (30, 10),
        (60, 0),
        (60, 41),
        (65535, 65535),
    ):
        yield f"unknown-{class_id}.{method_id}", struct.pack(">HH", class_id, method_id) + b"\0" * 20
    yield "nothing", b""
    yield "half-an-id", b"\0\x0a\0"


def extremes() -> Iterator[tuple[str, bytes]]:
    """Each argument of each method odd in each way, one at a time; all bits; less and more than its arguments."""
    for index, method in sorted(commands.INDEX_MAPPING.items()):
        kinds = {name: method.amqp_type(name) for name in method.__slots__}  # type: ignore[attr-defined]
        label = method.name  # type: ignore[attr-defined]
        for name, kind in kinds.items():
            for how, raw in _odd(kind):
                yield f"{label}-{name}-{how}", _payload(index, method, {name: raw})
        if "bit" in kinds.values():
            every = {name: True for name, kind in kinds.items() if kind == "bit"}
            yield f"{label}-all-bits", _payload(index, method, every)
            for name in every:
                yield f"{label}-{name}", _payload(index, method, {name: not PLAIN.get(name, False)})
        plain = _payload(index, method, {})
        yield f"{label}-cut", plain[:-1] if len(plain) > 4 else plain[:3]
        yield f"{label}-more", plain + b"\0"


def contents() -> Iterator[tuple[str, bytes, bytes]]:
    """Publishes with odd headers: which, the exchange, the payload of the header frame, of a body of one octet."""
    head = struct.pack(">HHQ", 60, 0, 1)

    def properties(**values: Any) -> bytes:
        return header.ContentHeader(0, 1, Basic.Properties(**values)).marshal()

    odd = {
        "all-flags": head + b"\xff\xfe" + b"\0" * 64,
        "more-flags": head + b"\0\x01\0\x01\0\0",
        "flags-without-end": head + b"\xff\xff" * 100,
        "flags-only": head + b"\xff\xfc",
        "class": struct.pack(">HHQ", 10, 0, 1) + b"\0\0",
        "weight": struct.pack(">HHQ", 60, 1, 1) + b"\0\0",
        "size-2^64": struct.pack(">HHQ", 60, 0, 2**64 - 1) + b"\0\0",
        "size-2^63": struct.pack(">HHQ", 60, 0, 2**63) + b"\0\0",
        "cut": head[:-1],
        "user": properties(user_id="somebody"),
        "reply": properties(reply_to="amq.rabbitmq.reply-to"),
        **{
            f"expiration-{text}": properties(expiration=text)
            for text in ("", "-1", "nan", "1e9", "9" * 200, "1\0", "٣")
        },
    }
    for how, raw in (INTEGERS | OTHERS).items():
        for name in (b"CC", b"BCC", b"x-delay", b"x-death", b"x-match", b"hash"):
            table = entry(name, raw[:1], raw[1:])
            odd[f"{name.decode()}-{how}"] = head + b"\x20\0" + long(table)
    for how, table in TABLES.items():
        if how.startswith(("deep", "twice", "no-", "name", "letter", "short", "many")):
            odd[f"headers-{how}"] = head + b"\x20\0" + long(table)
    deaths = entry(
        b"x-death", b"A", long(b"F" + long(entry(b"count", b"l", b"\x80" + bytes(7)) + entry(b"queue", b"V", b"")))
    )
    odd["x-death-odd"] = head + b"\x20\0" + long(deaths)
    for exchange in ("", "amq.headers", "amq.topic", "attacked-delayed", "attacked-hash"):
        for how, raw in odd.items():
            yield f"publish-{exchange or 'default'}-{how}", exchange.encode(), raw


def _payload(index: int, method: type, odd: dict[str, Any]) -> bytes:
    """Bits are booleans in `odd`, all else is raw."""
    out, bits = bytearray(struct.pack(">I", index)), []
    for name in method.__slots__:  # type: ignore[attr-defined]
        kind = method.amqp_type(name)  # type: ignore[attr-defined]
        if kind == "bit":
            bits.append(odd.get(name, PLAIN.get(name, False)))
            continue
        out += _octets(bits)
        bits = []
        out += odd[name] if name in odd else _plain(kind, PLAIN.get(name))
    return bytes(out + _octets(bits))


def _octets(bits: list[bool]) -> bytes:
    """The bits in a row share an octet; no method has more than eight of them."""
    return bytes([sum(bit << at for at, bit in enumerate(bits))]) if bits else b""


def _plain(kind: str, value: Any) -> bytes:
    if kind == "shortstr":
        return short((value or "").encode())
    if kind == "longstr":
        return long((value or "").encode())
    if kind == "table":
        return long(b"")
    return struct.pack(NUMBERS[kind][0], value or 0)


def _odd(kind: str) -> Iterator[tuple[str, bytes]]:
    if kind == "shortstr":
        yield from ((how, short(raw)) for how, raw in STRINGS.items())
    elif kind == "longstr":
        yield from ((how, long(raw)) for how, raw in STRINGS.items())
        yield "longer-than-the-frame", b"\xff\xff\xff\xff"
    elif kind == "table":
        yield from ((how, long(raw)) for how, raw in TABLES.items())
        yield "longer-than-the-frame", b"\x7f\xff\xff\xff"
    elif kind in NUMBERS:
        code, bits = NUMBERS[kind]
        for value in (0, 2, 2 ** (bits - 1), 2**bits - 1):
            yield str(value), struct.pack(code, value)


# States: how to get there, and the channel to go on with.

State = Callable[[Wire], int]


def before_header(wire: Wire) -> int:
    return 0


def before_start_ok(wire: Wire) -> int:
    wire.send_bytes(PROTOCOL_HEADER)
    wire.expect(Connection.Start)
    return 0


def before_tune_ok(wire: Wire) -> int:
    before_start_ok(wire)
    wire.send(Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", LOGIN))
    wire.expect(Connection.Tune)
    return 0


def before_open(wire: Wire) -> int:
    before_tune_ok(wire)
    wire.send(Connection.TuneOk(2047, 131_072, 0))
    return 0


def before_open_on_a_channel(wire: Wire) -> int:
    before_open(wire)
    return 1


def opened(wire: Wire) -> int:
    before_open(wire)
    wire.send(Connection.Open(VHOST))
    wire.expect(Connection.OpenOk)
    return 0


def unopened_channel(wire: Wire) -> int:
    opened(wire)
    return UNOPENED


def open_channel(wire: Wire) -> int:
    opened(wire)
    wire.open_channel()
    return 1


def transaction(wire: Wire) -> int:
    open_channel(wire)
    wire.call(Tx.Select(), channel=1)
    wire.send_bytes(publish_bytes(1, "", QUEUE, b"in a transaction"))
    return 1


def confirming(wire: Wire) -> int:
    open_channel(wire)
    wire.call(Confirm.Select(), channel=1)
    return 1


def consuming(wire: Wire) -> int:
    """Two deliveries are not acknowledged, one with basic.get, one of a consumer."""
    open_channel(wire)
    wire.send(Basic.Get(queue=FULL), Basic.Qos(prefetch_count=1), channel=1)
    wire.read_message()
    wire.expect(Basic.QosOk)
    wire.call(Basic.Consume(queue=FULL, consumer_tag="tag"), channel=1)
    wire.read_message()
    return 1


def suspended(wire: Wire) -> int:
    """The channel waits for the metadata store, and holds what comes."""
    open_channel(wire)
    wire.send(Queue.Declare(queue="attacked-slow", durable=True), Queue.Delete(queue="attacked-slow"), channel=1)
    return 1


def closed_by_the_client(wire: Wire) -> int:
    """In one go with the close: close-ok has not been read."""
    open_channel(wire)
    wire.send(Channel.Close(200, "", 0, 0), channel=1)
    return 1


def closed_by_the_client_while_suspended(wire: Wire) -> int:
    suspended(wire)
    wire.send(Channel.Close(200, "", 0, 0), channel=1)
    return 1


def closed_by_the_broker(wire: Wire) -> int:
    open_channel(wire)
    wire.send(Queue.Declare(queue="never declared", passive=True), channel=1)
    wire.expect(Channel.Close)
    return 1


def connection_closed_by_the_client(wire: Wire) -> int:
    open_channel(wire)
    wire.send(Connection.Close(200, "", 0, 0))
    return 1


def connection_closed_by_the_broker(wire: Wire) -> int:
    open_channel(wire)
    wire.send(Queue.DeclareOk("", 0, 0), channel=1)
    wire.expect(Connection.Close)
    return 1


def connection_closed_by_the_broker_on_0(wire: Wire) -> int:
    connection_closed_by_the_broker(wire)
    return 0


def header_due(wire: Wire) -> int:
    open_channel(wire)
    wire.send(Basic.Publish(0, "", QUEUE), channel=1)
    return 1


def body_due(wire: Wire) -> int:
    header_due(wire)
    wire.send_bytes(frame_bytes(HEADER, header.ContentHeader(0, 5, Basic.Properties()).marshal()))
    return 1


def body_due_on_another_channel(wire: Wire) -> int:
    body_due(wire)
    return 0


def blocked(wire: Wire) -> int:
    """While an alarm is on: a publish waits, and what is behind it."""
    confirming(wire)
    wire.send_bytes(publish_bytes(1, "", QUEUE, b"waits"))
    wire.expect(Connection.Blocked)
    return 1


STATES: dict[str, State] = {
    state.__name__: state
    for state in (
        *(before_header, before_start_ok, before_tune_ok, before_open, before_open_on_a_channel, opened),
        *(unopened_channel, open_channel, transaction, confirming, consuming, suspended),
        *(closed_by_the_client, closed_by_the_client_while_suspended, closed_by_the_broker),
        *(connection_closed_by_the_client, connection_closed_by_the_broker, connection_closed_by_the_broker_on_0),
        *(header_due, body_due, body_due_on_another_channel),
    )
}


def method_frame(payload: bytes, channel: int) -> bytes:
    return frame_bytes(METHOD, payload, channel)


def close_bytes() -> bytes:
    return frame_bytes(METHOD, payload_of(Connection.Close(200, "", 0, 0)), 0)


def payload_of(method: base.Frame) -> bytes:
    return struct.pack(">I", method.index) + method.marshal()
