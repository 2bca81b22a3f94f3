"""Fills a broker of the version before, and ends it in order or by SIGKILL.

What comes in: its checkout, a folder, how many messages. What goes out: `folder/data` as the broker left it, and
`folder/book.json`.
Rules: 1. What the book has is confirmed. 2. What was settled, delivered or given back is on disk: a confirm came
behind it. 3. Deliveries of `held` are not acknowledged when the broker ends, and its connection is open.
Not here: what each message is (`loads.py`).
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pamqp import base, commands

from ...clients.broker_process import BrokerProcess
from ...clients.wire import METHOD, Wire, described, publish_bytes
from ..workload import BIG_EVERY, DELIVER, METHOD_ID, PERSISTENT, content_of, parse_content, read_content
from .loads import FLEETING, LATER, LOADS, POLICIES, RECEIPTS, Book, Load, first_taken

BATCH = 500
WINDOW = 10
"""batches that are not confirmed yet"""
UNKNOWN = 500
ENVIRONMENT = {"AMQPD_DISK_FREE_BYTES_MIN": "0", "AMQPD_CONSUMER_TIMEOUT_S": "0"}


def write(checkout: Path, folder: Path, messages: int, span_ms: int, *, killed: bool) -> Book:
    data = folder / "data"
    data.mkdir(parents=True, mode=0o700)
    book = Book(messages, span_ms, killed)
    broker = BrokerProcess(data, environment=ENVIRONMENT, checkout=checkout)
    try:
        broker.start()
        _declare(broker)
        with Wire(broker.port) as wire:
            publisher = Publisher(wire.open(), book)
            for load in LOADS:
                publisher.publish(load)
            _settle(broker, book)
            with Wire(broker.port) as holder:
                held = next(load for load in LOADS if load.queue == "held")
                _take(holder.open(), 1, held.queue, first_taken(book.count(held)))
                publisher.receipt()
                book.definitions = definitions(broker)
                if killed:
                    publisher.publish_unknown()
                    broker.kill()
                else:
                    code = broker.terminate()
                    assert code == 0, f"exit code {code} of a stop in good order\n{broker.log[-2000:]}"
    finally:
        broker.close()
    for left in data.glob("*.sock"):
        left.unlink()
    book.save(folder / "book.json")
    return book


def amqpd(broker: BrokerProcess, *words: str) -> str:
    """A command of the broker's own checkout. Raises AssertionError with its text."""
    line = [sys.executable, "-m", "amqpd", *words, "--data-dir", str(broker.data_dir)]
    environment = broker.child_environment()
    done = subprocess.run(line, cwd=broker.checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def definitions(broker: BrokerProcess) -> dict[str, object]:
    """Everything durable, without the hashes of passwords."""
    said: dict[str, object] = json.loads(amqpd(broker, "definitions", "export", "-"))
    for what in ("queues", "exchanges"):
        of_kind = said[what]
        assert isinstance(of_kind, list)
        said[what] = [each for each in of_kind if each["durable"]]
    assert isinstance(said["users"], list)
    for user in said["users"]:
        del user["password_hash"]
    return said


def _declare(broker: BrokerProcess) -> None:
    for name, (pattern, definition) in POLICIES.items():
        amqpd(broker, "policy", "set", "/", name, pattern, json.dumps(definition), "--apply-to", "queues")
    with Wire(broker.port) as wire:
        wire.open().open_channel()
        for load in LOADS:
            _call(wire, commands.Queue.Declare(queue=load.queue, durable=True, arguments=load.declared()))
            if load.dead:
                _call(wire, commands.Queue.Declare(queue=load.dead, durable=True))
        _call(wire, commands.Queue.Declare(queue=RECEIPTS, durable=True))
        _call(wire, commands.Queue.Declare(queue=FLEETING))
        later = commands.Exchange.Declare(
            exchange=LATER, exchange_type="x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        _call(wire, later)
        for queue in ("delayed", FLEETING):
            _call(wire, commands.Queue.Bind(queue=queue, exchange=LATER, routing_key=queue))
        wire.close()


def _call(wire: Wire, method: base.Frame) -> None:
    answer = wire.call(method, channel=1)
    assert answer.name.endswith("Ok"), described(answer)


class Publisher:
    """One channel in confirm mode, which writes down when batches were sent and confirmed."""

    def __init__(self, wire: Wire, book: Book) -> None:
        self._wire, self._book = wire, book
        wire.open_channel()
        _call(wire, commands.Confirm.Select())
        self._sent = self._confirmed = 0
        self._above: set[int] = set()

    def publish(self, load: Load) -> None:
        """All messages of a queue."""
        count = self._book.count(load)
        rows: list[tuple[int, int, int]] = []
        open_: list[tuple[int, int, int]] = []  # the last tag, the first number, the clock before it
        make = encoder(load, self._book.span_ms)
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            self._sent += len(numbers)
            open_.append((self._sent, first, _now_ms()))
            self._wire.send_bytes(b"".join(map(make, numbers)))
            while len(open_) >= WINDOW:
                self._wait(open_[0][0])
                rows.append((*open_.pop(0)[1:], _now_ms()))
        for tag, first, before_ms in open_:
            self._wait(tag)
            rows.append((first, before_ms, _now_ms()))
        self._book.sent[load.queue] = rows

    def receipt(self) -> None:
        """What came before it on other channels is on disk when this is confirmed."""
        self._sent += 2
        self._wire.send_bytes(publish_bytes(1, "", RECEIPTS, b"receipt", PERSISTENT))
        self._wire.send_bytes(publish_bytes(1, "", FLEETING, b"fleeting", PERSISTENT))
        self._wait(self._sent)

    def publish_unknown(self) -> None:
        """Messages that are on their way when the kill comes."""
        plain = LOADS[0]
        count, make = self._book.count(plain), encoder(plain, self._book.span_ms)
        self._wire.send_bytes(b"".join(make(count + each) for each in range(UNKNOWN)))
        self._book.unknown = UNKNOWN

    def _wait(self, tag: int) -> None:
        while self._confirmed < tag:
            kind, _, payload = self._wire.read_frame()
            assert kind == METHOD
            assert payload[:4] == b"\x00\x3c\x00\x50", f"a confirm was due: {payload[:40]!r}"
            acked, multiple = struct.unpack_from(">QB", payload, 4)
            if multiple & 1:
                self._confirmed = max(self._confirmed, acked)
                self._above = {each for each in self._above if each > acked}
            else:
                self._above.add(acked)
            while self._confirmed + 1 in self._above:
                self._confirmed += 1
                self._above.discard(self._confirmed)


def encoder(load: Load, span_ms: int) -> Callable[[int], bytes]:
    """A function from number to frames. Only the number changes between messages of equal properties and size."""
    templates: dict[str, bytes] = {}
    exchange = LATER if load.queue == "delayed" else ""

    def make(number: int) -> bytes:
        said = load.properties(number, span_ms)
        if number % BIG_EVERY == 0:
            return publish_bytes(1, exchange, load.queue, content_of(load.queue, number), said, frame_max=8192)
        key = f"{said.delivery_mode} {said.expiration} {said.priority} {said.headers}"
        if (template := templates.get(key)) is None:
            template = templates[key] = publish_bytes(1, exchange, load.queue, content_of(load.queue, 1), said)
        return template.replace(b"0000000001", b"%010d" % number)

    return make


def _settle(broker: BrokerProcess, book: Book) -> None:
    """What was done to messages before the broker ended."""
    loads = {load.queue: load for load in LOADS}
    with Wire(broker.port) as wire:
        wire.open()
        taken = _take(wire, 1, "plain", first_taken(book.count(loads["plain"])))
        _finish(wire, 1, ack=[tag for tag, number in taken if number % 3])
        taken = _take(wire, 2, "judged", book.count(loads["judged"]))
        _finish(wire, 2, reject=[tag for tag, number in taken if number % 3 == 0])
        taken = _take(wire, 3, "counted", book.count(loads["counted"]))
        _finish(wire, 3, ack=[tag for tag, number in taken if number % 10 == 0])
        taken = _take(wire, 4, "counted", len([1 for _, number in taken if number % 10]))
        _finish(wire, 4, ack=[tag for tag, number in taken if number % 9 == 0])
        wire.close()


def _take(wire: Wire, channel: int, queue: str, count: int) -> list[tuple[int, int]]:
    """(delivery tag, number) of that many messages, on a channel of their own; none of them is acknowledged."""
    wire.open_channel(channel)
    prefetch = count if count <= 65_535 else 0
    wire.send(commands.Basic.Qos(0, prefetch, False), channel=channel)
    wire.expect(commands.Basic.QosOk)
    wire.send(commands.Basic.Consume(queue=queue, consumer_tag=queue), channel=channel)
    wire.expect(commands.Basic.ConsumeOk)
    taken = []
    while len(taken) < count:
        kind, _, payload = wire.read_frame()
        assert kind == METHOD
        assert METHOD_ID.unpack_from(payload) == DELIVER
        (tag,) = struct.unpack_from(">Q", payload, 5 + payload[4])
        taken.append((tag, parse_content(read_content(wire)[1])[1]))
    wire.send(commands.Basic.Cancel(queue), channel=channel)
    wire.expect(commands.Basic.CancelOk)
    return taken


def _finish(wire: Wire, channel: int, ack: list[int] | None = None, reject: list[int] | None = None) -> None:
    """What is named is settled, and the rest goes back with the channel."""
    wire.send(*(commands.Basic.Ack(tag) for tag in ack or ()), channel=channel)
    wire.send(*(commands.Basic.Reject(tag, False) for tag in reject or ()), channel=channel)
    wire.send(commands.Channel.Close(200, "", 0, 0), channel=channel)
    wire.expect(commands.Channel.CloseOk)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
