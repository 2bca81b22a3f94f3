"""A publisher as fast as the broker confirms, one that measures how long a confirm takes, and what came out.

What comes in: a port, a queue. What goes out: how many messages are confirmed at any time, in order; how long
confirms took; the numbers that a queue holds.
Rules: 1. A body is its number and a filling that follows from it, so a message that was changed is seen. 2.
`confirmed` is the length of the prefix of which every message is confirmed, written after the confirm has come. 3.
Frames are put together once: the broker is the slow side.
Not here: faults and what they may cost (`workload.py`, `checker.py`).
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time

from pamqp import commands

from ..clients.wire import METHOD, ClosedByBroker, Wire, publish_bytes

NUMBER = struct.Struct(">Q")
BATCH = 200
ACK = (60, 80)
_METHOD = struct.Struct(">HH")
PERSISTENT = commands.Basic.Properties(delivery_mode=2)


def body_of(number: int, nbytes: int) -> bytes:
    head = NUMBER.pack(number)
    return (head * (nbytes // NUMBER.size + 1))[:nbytes]


class Flood(threading.Thread):
    """Publishes 0, 1, 2, ... to the queue until `stop`, a window of them unconfirmed."""

    def __init__(self, port: int, queue: str, *, body_bytes: int = 64, window: int = 5_000) -> None:
        super().__init__(daemon=True)
        self.port, self.queue, self.body_bytes, self.window = port, queue, body_bytes, window
        self.sent = 0
        self.confirmed = 0
        self.longest_s = 0.0
        """without any confirm, since it was last set to 0"""
        self.failure: BaseException | None = None
        self.news = threading.Condition()
        self._stopping = False

    def stop(self) -> None:
        """Returns when everything that was sent is confirmed. Raises what the thread met."""
        self._stopping = True
        self.join(120)
        if self.failure is not None:
            raise self.failure

    def wait(self, confirmed: int, deadline_s: float = 120.0) -> None:
        with self.news:
            self.news.wait_for(lambda: self.confirmed >= confirmed or self.failure is not None, deadline_s)
        assert self.confirmed >= confirmed, f"{self.confirmed} confirmed, {confirmed} were due: {self.failure!r}"

    def run(self) -> None:
        try:
            with Wire(self.port) as wire:
                wire.open()
                wire.open_channel()
                wire.call(commands.Queue.Declare(queue=self.queue, durable=True), channel=1)
                wire.call(commands.Confirm.Select(), channel=1)
                self._flood(wire)
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            self.failure = error
            with self.news:
                self.news.notify_all()

    def _flood(self, wire: Wire) -> None:
        blank = publish_bytes(1, "", self.queue, bytes(self.body_bytes), PERSISTENT)
        prefix, suffix = blank[: -self.body_bytes - 1], blank[-1:]
        above: set[int] = set()
        last = time.monotonic()
        while not self._stopping or self.confirmed < self.sent:
            while not self._stopping and self.sent - self.confirmed + BATCH <= self.window:
                numbers = range(self.sent, self.sent + BATCH)
                self.sent += BATCH
                wire.send_bytes(b"".join([prefix + body_of(each, self.body_bytes) + suffix for each in numbers]))
            kind, _, payload = wire.read_frame()
            assert (kind, _METHOD.unpack_from(payload)) == (METHOD, ACK), payload[:4]
            tag, multiple = struct.unpack_from(">QB", payload, 4)
            confirmed = self.confirmed
            if multiple & 1:
                confirmed = max(confirmed, tag)
                above = {each for each in above if each > tag}
            else:
                above.add(tag)
            while confirmed + 1 in above:
                confirmed += 1
                above.discard(confirmed)
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - last)
            last = now
            with self.news:
                self.confirmed = confirmed
                self.news.notify_all()


class Prober(threading.Thread):
    """One message at a time, each confirmed before the next: (when it was sent, how long its confirm took)."""

    def __init__(self, port: int, queue: str = "probe", pause_s: float = 0.005) -> None:
        super().__init__(daemon=True)
        self.port, self.queue, self.pause_s = port, queue, pause_s
        self.took: list[tuple[float, float]] = []
        self._ending = threading.Event()

    def stop(self) -> None:
        self._ending.set()
        self.join(60)

    def between(self, begin: float, end: float) -> list[float]:
        """Seconds, ascending."""
        return sorted(took for at, took in self.took if begin <= at < end)

    def run(self) -> None:
        with contextlib.suppress(ClosedByBroker, OSError), Wire(self.port) as wire:
            wire.open()
            wire.open_channel()
            wire.call(commands.Queue.Declare(queue=self.queue, durable=True), channel=1)
            wire.call(commands.Confirm.Select(), channel=1)
            probe = publish_bytes(1, "", self.queue, b"probe", PERSISTENT)
            while not self._ending.wait(self.pause_s):
                began = time.monotonic()
                wire.send_bytes(probe)
                wire.expect(commands.Basic.Ack)
                self.took.append((began, time.monotonic() - began))


def numbers_in(port: int, queue: str, body_bytes: int) -> list[int]:
    """What the queue gives, in its order, until it is empty. Every body is compared."""
    found: list[int] = []
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        due = wire.call(commands.Queue.Declare(queue=queue, passive=True), channel=1).message_count
        wire.send(commands.Basic.Consume(queue=queue, no_ack=True), channel=1)
        wire.expect(commands.Basic.ConsumeOk)
        while len(found) < due:
            wire.read_frame()
            wire.read_frame()
            _, _, body = wire.read_frame()
            (number,) = NUMBER.unpack_from(body)
            assert body == body_of(number, body_bytes), f"the body of {number} was changed: {body[:80]!r}"
            found.append(number)
    return found
