"""A load that takes its own times: each publish, confirm, delivery and acknowledgement, by this process's clock.

What comes in: a broker's port. What goes out: durations in microseconds for each measure that `slo` has.
Rules: 1. A time is taken right before what is sent, and right after what was received. 2. Messages are published
faster than the consumer acknowledges them, and it holds each for a while: so durations are long beside what a socket
takes.
Not here: what the log says (`test_slo_clock.py`).
"""

from __future__ import annotations

import queue
import struct
import threading
import time
from dataclasses import dataclass, field

from pamqp import commands

from tests.clients.wire import METHOD, Wire, publish_bytes

QUEUE = "timed"
RATE_HZ = 400
PREFETCH = 56
HOLD_S = 0.200
ACK, DELIVER = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x3c"


@dataclass
class Times:
    published: dict[int, int] = field(default_factory=dict)
    confirmed: dict[int, int] = field(default_factory=dict)
    delivered: dict[int, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)

    def durations(self) -> dict[str, list[int]]:
        """us, by measure"""
        pairs = {
            "publish_to_confirm": (self.published, self.confirmed),
            "publish_to_deliver": (self.published, self.delivered),
            "deliver_to_ack": (self.delivered, self.acked),
        }
        return {
            name: sorted((until[each] - since[each]) // 1000 for each in until)
            for name, (since, until) in pairs.items()
        }


def run(port: int, messages: int) -> Times:
    times = Times()
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Queue.Declare(queue=QUEUE, durable=True), channel=1)
    threads = [threading.Thread(target=work, args=(port, messages, times)) for work in (_publish, _consume)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def _publish(port: int, messages: int, times: Times) -> None:
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Confirm.Select(), channel=1)
        reader = threading.Thread(target=_read_confirms, args=(wire, messages, times))
        reader.start()
        begun = time.monotonic()
        for number in range(1, messages + 1):
            # The load's own pace, not a wait for anything.
            time.sleep(max(0.0, begun + number / RATE_HZ - time.monotonic()))
            body = struct.pack(">Q", number)
            frames = publish_bytes(1, "", QUEUE, body, commands.Basic.Properties(delivery_mode=2))
            times.published[number] = time.time_ns()
            wire.send_bytes(frames)
        reader.join()


def _read_confirms(wire: Wire, messages: int, times: Times) -> None:
    told = 0
    while told < messages:
        kind, _, payload = wire.read_frame()
        if kind == METHOD and payload[:4] == ACK:
            now = time.time_ns()
            tag, multiple = struct.unpack_from(">QB", payload, 4)
            for number in range(told + 1 if multiple else tag, tag + 1):
                times.confirmed[number] = now
            told = max(told, tag)


def _consume(port: int, messages: int, times: Times) -> None:
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Basic.Qos(0, PREFETCH, False), channel=1)
        wire.call(commands.Basic.Consume(queue=QUEUE), channel=1)
        held: queue.Queue[tuple[int, int]] = queue.Queue()
        acker = threading.Thread(target=_acknowledge, args=(wire, messages, held, times))
        acker.start()
        for _ in range(messages):
            kind, _, payload = wire.read_frame()
            while kind != METHOD or payload[:4] != DELIVER:
                kind, _, payload = wire.read_frame()
            wire.read_frame()
            (number,) = struct.unpack(">Q", wire.read_frame()[2])
            times.delivered[number] = time.time_ns()
            held.put((struct.unpack_from(">Q", payload, 5 + payload[4])[0], number))
        acker.join()


def _acknowledge(wire: Wire, messages: int, held: queue.Queue[tuple[int, int]], times: Times) -> None:
    """Each a while after it came: that is what a consumer's work looks like from outside."""
    for _ in range(messages):
        tag, number = held.get()
        time.sleep(max(0.0, times.delivered[number] / 1e9 + HOLD_S - time.time()))
        times.acked[number] = time.time_ns()
        wire.send(commands.Basic.Ack(tag, False), channel=1)
