"""Publishers and consumers at full speed, one thread and one socket each, writing the history as they go.

What comes in: a port, and the histories to write. What goes out: the histories; `Progress`, which tells how
many confirms have come, so that a fault can be set off by what happened and not by a clock.
Rules: 1. A worker ends when its connection breaks. If nobody announced a kill, that is a violation. A publisher that
is to stop ends when everything that it sent is confirmed or refused, a consumer with its next delivery.
2. Frames are put together once, and only sequence numbers change per message: the broker is the slow side.
3. Bodies say who published them (`BODY`), and are compared byte for byte when they come out.
Not here: the judgement (`checker.py`), emptying the queues (`drain.py`).
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field

from pamqp import commands, frame

from ..clients.wire import BODY, HEADER, METHOD, ClosedByBroker, Wire, decode_method, described, publish_bytes
from .fates import Fate
from .history import CONFIRMED, REFUSED, Delivery, History, PublisherHistory, QueueHistory

FRAME_MAX = 8192
"""Small, so that big bodies come in several frames both ways."""
WINDOW_MESSAGES = 1000
BATCH_MESSAGES = 100
UNROUTABLE_EVERY = 101
BIG_EVERY = 251
REQUEUE_EVERY = 97
ACK_EVERY = 50
PREFETCH = 400
RECEIPTS = "receipts"
PERSISTENT = commands.Basic.Properties(delivery_mode=2)
NAME_BYTES, DIGITS = 16, 10
METHOD_ID = struct.Struct(">HH")
ACK, NACK, RETURN, DELIVER = (60, 80), (60, 120), (60, 50), (60, 60)
BLOCKED, UNBLOCKED = (10, 60), (10, 61)
ENDS = {(10, 50), (20, 40), (60, 30)}
"""Close of a connection, close of a channel, cancel of a consumer: all that the broker says of its own accord"""
Judge = Callable[[int, bool], str]
"""see `Fate.verdict`"""


@dataclass
class Progress:
    """Confirms of all publishers together, whether a kill was announced, and whether the workers are to stop."""

    confirmed: int = 0
    killed: bool = False
    stopping: bool = False
    news: threading.Condition = field(default_factory=threading.Condition)

    def add(self, count: int) -> None:
        with self.news:
            self.confirmed += count
            self.news.notify_all()

    def wait(self, count: int, deadline_s: float = 60.0) -> None:
        with self.news:
            assert self.news.wait_for(lambda: self.confirmed >= count, deadline_s), (
                f"{self.confirmed} confirms after {deadline_s} s, {count} were due"
            )


def content_of(publisher: str, sequence: int) -> bytes:
    """The body: the publisher's name, the sequence, and the sequence repeated; a few bodies are big."""
    digits = b"%010d" % sequence
    repeats = 2000 if sequence % BIG_EVERY == 0 else 8
    return publisher.encode().ljust(NAME_BYTES) + digits + digits * repeats


def parse_content(content: bytes) -> tuple[str, int]:
    """Publisher and sequence. Raises ValueError when the body is not what `content_of` made."""
    publisher = content[:NAME_BYTES].decode().rstrip()
    sequence = int(content[NAME_BYTES : NAME_BYTES + DIGITS])
    if content != content_of(publisher, sequence):
        raise ValueError(f"the body of {publisher} {sequence} was changed: {content[:80]!r}")
    return publisher, sequence


class Worker(threading.Thread):
    """A thread that ends with its connection."""

    inside: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)
    """in which network it connects"""

    def __init__(self, port: int, progress: Progress, violations: list[str]) -> None:
        super().__init__(daemon=True)
        self.port, self.progress, self.violations = port, progress, violations
        self._wire: Wire | None = None

    def hang_up(self) -> None:
        """What it waits for comes no more."""
        if self._wire is not None:
            with suppress(OSError):  # it has ended
                self._wire.socket.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        try:
            with self.inside(), Wire(self.port) as wire:
                self._wire = wire
                wire.open(frame_max=FRAME_MAX)
                wire.open_channel()
                self.work(wire)
        except Exception as error:  # noqa: BLE001 - it is written down, and fails the test
            broken = isinstance(error, (ClosedByBroker, OSError))
            if not (broken and self.progress.killed):
                self.violations.append(f"{self.name} ended with {error!r}")

    def work(self, wire: Wire) -> None:
        raise NotImplementedError


class Publisher(Worker):
    """Publishes to `exchange` with confirms, a window of them open."""

    def __init__(
        self, port: int, progress: Progress, history: PublisherHistory, exchange: str, routing_key: str
    ) -> None:
        super().__init__(port, progress, history.violations)
        self.history, self.name = history, f"publisher {history.name}"
        self.route = exchange, routing_key
        self.plain = self.encode(1)
        # Through the default exchange, to a queue that does not exist.
        self.nowhere = _encode("", "nobody.has.this.queue", content_of(history.name, 1), PERSISTENT)

    def work(self, wire: Wire) -> None:
        history = self.history
        wire.call(commands.Confirm.Select(), channel=1)
        base = history.attempted - 1  # delivery tag t is the sequence base + t
        lowest, sent = 1, 0  # all tags below `lowest` are resolved
        single: set[int] = set()  # resolved above it
        while not self.progress.stopping or len(single) < sent - lowest + 1:
            while not self.progress.stopping and sent - lowest - len(single) + 1 + BATCH_MESSAGES <= WINDOW_MESSAGES:
                first = history.attempt(BATCH_MESSAGES, time.time_ns() // 1_000_000)
                wire.send_bytes(self._batch(first))
                sent += BATCH_MESSAGES
            kind, _, payload = wire.read_frame()
            if kind != METHOD:
                continue
            method = METHOD_ID.unpack_from(payload)
            if method == RETURN:
                self._note_return(wire)
                continue
            if method in (BLOCKED, UNBLOCKED):
                continue
            if method not in (ACK, NACK):
                _raise_ended(method, payload)
                raise AssertionError(f"not due to a publisher: {decode_method(payload)}")
            tag, flags = struct.unpack_from(">QB", payload, 4)
            outcome = CONFIRMED if method == ACK else REFUSED
            if tag > sent:
                raise AssertionError(f"a confirm for tag {tag}, only {sent} were sent")
            before = lowest + len(single)
            if flags & 1:
                for low, high in _gaps(lowest, tag, single):
                    history.resolve(base + low, base + high, outcome)
                single = {other for other in single if other > tag}
                lowest = tag + 1
            else:
                history.resolve(base + tag, base + tag, outcome)
                single.add(tag)
            while lowest in single:
                single.discard(lowest)
                lowest += 1
            self.progress.add(lowest + len(single) - before)
        wire.close()

    def properties(self, sequence: int) -> commands.Basic.Properties:
        return PERSISTENT

    def encode(self, sequence: int, like: int | None = None) -> bytes:
        """With the properties of another message, `like`, if one is named."""
        properties = self.properties(sequence if like is None else like)
        return _encode(*self.route, content_of(self.history.name, sequence), properties)

    def template(self, sequence: int) -> bytes:
        """A publish of sequence 1, else as the message's."""
        return self.plain

    def _batch(self, first: int) -> bytes:
        parts: list[bytes] = []
        for sequence in range(first, first + BATCH_MESSAGES):
            digits = b"%010d" % sequence
            if sequence % BIG_EVERY == 0:
                # Not from a template: its frames cut the digits at any place.
                parts.append(self.encode(sequence))
            elif sequence % UNROUTABLE_EVERY == 0:
                self.history.unroutable.add(sequence)
                parts.append(self.nowhere.replace(b"0000000001", digits))
            else:
                parts.append(self.template(sequence).replace(b"0000000001", digits))
        return b"".join(parts)

    def _note_return(self, wire: Wire) -> None:
        wire.read_frame()
        publisher, sequence = parse_content(wire.read_frame()[2])
        if publisher != self.history.name or sequence not in self.history.unroutable:
            self.violations.append(f"{self.name}: {publisher} {sequence} was returned, it is routable")
        self.history.returned.add(sequence)


class FatedPublisher(Publisher):
    """Each message as its fate wants it."""

    def __init__(self, port: int, progress: Progress, history: PublisherHistory, fate: Fate) -> None:
        self.fate = fate
        self.templates: dict[str, bytes] = {}
        super().__init__(port, progress, history, "", fate.queue)

    def properties(self, sequence: int) -> commands.Basic.Properties:
        return self.fate.properties(sequence)

    def template(self, sequence: int) -> bytes:
        said = self.properties(sequence)
        key = f"{said.expiration} {said.priority} {said.headers}"
        if key not in self.templates:
            self.templates[key] = self.encode(1, like=sequence)
        return self.templates[key]


class Consumer(Worker):
    """Acknowledges in runs, requeues a few, and proves its acknowledgements: after each run it publishes a
    persistent receipt on the same channel, whose confirm says that what came before is on disk too."""

    def __init__(
        self, port: int, progress: Progress, history: QueueHistory, incarnation: int, verdict: Judge | None = None
    ) -> None:
        super().__init__(port, progress, history.violations)
        self.verdict = verdict or _requeue_few
        self.history, self.incarnation, self.name = history, incarnation, f"consumer of {history.name}"

    def work(self, wire: Wire) -> None:
        wire.call(commands.Confirm.Select(), channel=1)
        wire.call(commands.Basic.Qos(0, PREFETCH, False), channel=1)
        wire.call(commands.Basic.Consume(queue=self.history.name), channel=1)
        persistent = commands.Basic.Properties(delivery_mode=2)
        receipt = publish_bytes(1, "", RECEIPTS, self.history.name.encode(), persistent)
        run: list[int] = []
        receipts: list[list[int]] = []  # what each receipt proves, oldest first
        resolved = 0  # receipts whose confirm has come: tag t is receipts[t - 1]
        while not self.progress.stopping:
            kind, _, payload = wire.read_frame()
            if kind != METHOD:
                continue
            method = METHOD_ID.unpack_from(payload)
            if method == ACK:
                tag = struct.unpack_from(">Q", payload, 4)[0]
                # All before it were sent before it on the same channel, so they are proven with it.
                for proven in receipts[resolved:tag]:
                    self.history.settle_sure.update(proven)
                resolved = max(resolved, tag)
                continue
            if method in (BLOCKED, UNBLOCKED):
                continue
            if method != DELIVER:
                _raise_ended(method, payload)
                raise AssertionError(f"not due to a consumer: {decode_method(payload)}")
            tag, index = take_delivery(wire, payload, self.history, self.incarnation)
            delivery = self.history.deliveries[index]
            verdict = self.verdict(delivery.sequence, delivery.redelivered)
            if verdict != "ack":
                wire.send(commands.Basic.Nack(tag, False, verdict == "requeue"), channel=1)
                continue
            run.append(index)
            if len(run) == ACK_EVERY:
                self.history.settle_sent.update(run)
                wire.send(commands.Basic.Ack(tag, True), channel=1)
                wire.send_bytes(receipt)
                receipts.append(run)
                run = []
        wire.close()


def take_delivery(wire: Wire, payload: bytes, history: QueueHistory, incarnation: int) -> tuple[int, int]:
    """Read the content that belongs to a deliver method, and note it: its tag, its index in the history."""
    at = 5 + payload[4]  # class and method, then the consumer tag
    tag, redelivered = struct.unpack_from(">QB", payload, at)
    head, content = read_content(wire)
    publisher, sequence = parse_content(content)
    note_arrival(history, publisher, sequence, head)
    history.deliveries.append(Delivery(publisher, sequence, bool(redelivered), incarnation))
    return tag, len(history.deliveries) - 1


def note_arrival(history: QueueHistory, publisher: str, sequence: int, head: bytes) -> None:
    """Write down what is wrong with a delivery by itself: too early, or not a dead letter as it should be."""
    now_ms = time.time_ns() // 1_000_000
    if history.earliest_ms is not None and now_ms < (earliest_ms := history.earliest_ms(sequence)):
        history.violations.append(f"{publisher} {sequence} in {history.name}: {earliest_ms - now_ms} ms too early")
    if history.dead_letters_of:
        content = frame.unmarshal(struct.pack(">BHI", HEADER, 1, len(head)) + head + b"\xce")[2]
        headers = content.properties.headers or {}
        deaths = [(death["queue"], death["reason"], death["count"]) for death in headers.get("x-death", ())]
        expiration = content.properties.expiration
        if deaths != [(history.dead_letters_of, history.reason, 1)] or expiration is not None:
            history.violations.append(f"{publisher} {sequence} in {history.name}: {deaths}, {expiration}")


def read_content(wire: Wire) -> tuple[bytes, bytes]:
    """Content header and body whose method frame was just read."""
    kind, _, payload = wire.read_frame()
    assert kind == HEADER
    head, size = payload, struct.unpack_from(">Q", payload, 4)[0]
    parts: list[bytes] = []
    while size > 0:
        kind, _, payload = wire.read_frame()
        assert kind == BODY
        parts.append(payload)
        size -= len(payload)
    assert size == 0, "more body than announced"
    return head, b"".join(parts)


def start_workers(
    port: int,
    history: History,
    routes: dict[str, tuple[str, str]],
    consumed: list[str],
    fates: Sequence[Fate] = (),
    inside: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[Progress, list[Worker]]:
    """One publisher thread per route (publisher -> exchange, routing key), one consumer per queue named; and those of
    the fates. `inside`: see `Worker`."""
    progress = Progress()
    workers: list[Worker] = [
        Publisher(port, progress, history.publishers[name], *route) for name, route in routes.items()
    ]
    workers += [Consumer(port, progress, history.queues[queue], history.incarnation) for queue in consumed]
    workers += [FatedPublisher(port, progress, history.publishers[fate.publisher], fate) for fate in fates]
    workers += [
        Consumer(port, progress, history.queues[fate.queue], history.incarnation, fate.verdict)
        for fate in fates
        if fate.verdict is not None
    ]
    for worker in workers:
        worker.inside = inside
        worker.start()
    return progress, workers


def _raise_ended(method: tuple[int, int], payload: bytes) -> None:
    if method in ENDS:
        raise ClosedByBroker(described(decode_method(payload)))


def _requeue_few(sequence: int, redelivered: bool) -> str:
    return "requeue" if sequence % REQUEUE_EVERY == 5 and not redelivered else "ack"


def _encode(exchange: str, routing_key: str, content: bytes, properties: commands.Basic.Properties) -> bytes:
    return publish_bytes(1, exchange, routing_key, content, properties, mandatory=True, frame_max=FRAME_MAX)


def _gaps(low: int, high: int, taken: set[int]) -> list[tuple[int, int]]:
    """The runs of low..high without the numbers that are taken."""
    runs: list[tuple[int, int]] = []
    for number in sorted(taken):
        if low <= number <= high:
            if number > low:
                runs.append((low, number - 1))
            low = number + 1
    if low <= high:
        runs.append((low, high))
    return runs
