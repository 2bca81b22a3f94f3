"""A fixed rate of single publishes, and the latency of each: to its confirm, and to its delivery.

What comes in: a rate. What goes out: percentiles in milliseconds over the measured window. Rules: 1. every
message carries its send time (CLOCK_MONOTONIC, one clock for both processes) in its body after the stamp; 2.
while the broker takes no bytes, messages that become due are timed from when they were due, so that a stall
is not left out; the sleep's own delay is not counted, it is reported as `late_ms`; 3. the rate must be kept:
less than 98 % of it fails, what was due in one pause at an edge of the window not counted.
Not here: throughput (`publish.py`, `consume.py`).
"""

from __future__ import annotations

import select
import struct
from typing import Any

from pamqp import commands

from bench.clock import Stopwatch, now, percentiles_ms
from bench.confirms import Confirms
from bench.encode import SEQUENCE_BITS, STAMP, STAMP_BYTES, encode_ack, encode_publish
from bench.errors import BenchError
from bench.layout import learn_layout
from bench.link import Link
from bench.wire import Wire

GO_SECONDS_MAX = 300.0
SETTLE_SECONDS_MAX = 60.0
WAKE_SECONDS = 0.05
KEPT_SHARE_MIN = 0.98
EDGE_SECONDS = 0.1
"""What is due in a pause of the generator at the window's end is sent behind it."""
_TIME = struct.Struct(">d")


def paced_publish(
    link: Link, *, url: str, key: str, body_bytes: int, per_second: int, persistent: bool = False
) -> dict[str, Any]:
    with Wire(url) as wire:
        wire.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        one, body_at = encode_publish("", key, bytes(body_bytes), persistent=persistent)
        link.say("ready")
        go = link.hear("go", GO_SECONDS_MAX)
        pacer = _Pacer(wire, bytearray(one), body_at, go["start"], go["stop"])
        pacer.run(1.0 / per_second)
        kept = pacer.watch.report()
        if kept["count"] < per_second * (KEPT_SHARE_MIN * kept["seconds"] - EDGE_SECONDS):
            raise BenchError(f"{per_second}/s was not kept: {kept['count'] / kept['seconds']:.0f}/s")
        report = {"published": pacer.published, "confirmed": pacer.confirms.settled}
        link.say("stopped", **report)
        link.hear("finish", GO_SECONDS_MAX)
        return {
            **report,
            "latency_ms": percentiles_ms(pacer.latencies),
            "late_ms": percentiles_ms(pacer.lags),
            "window": kept,
        }


class _Pacer:
    def __init__(self, wire: Wire, data: bytearray, body_at: int, start: float, stop: float) -> None:
        self.watch = Stopwatch(start, stop)
        self.confirms = Confirms()
        self.published = 0
        self.latencies: list[float] = []
        self.lags: list[float] = []
        self._start, self._stop = start, stop
        self._socket = wire.socket
        self._data, self._body_at = data, body_at
        self._sent_at: list[float] = []
        self._settled = 0
        wire.socket.setblocking(False)

    def run(self, interval_s: float) -> None:
        due = now()
        stalled = False
        unsent = memoryview(b"")
        while (moment := now()) < self._stop or unsent:
            if moment >= self.watch.mark:
                self.watch.take(moment, self.published)
            if moment > self._stop + SETTLE_SECONDS_MAX:
                raise BenchError("the broker takes no more bytes")
            while not unsent and due <= moment < self._stop:
                unsent = self._send(due if stalled else moment)
                if moment >= self._start:
                    self.lags.append(moment - due)
                due += interval_s
                moment = now()
            if unsent:
                unsent = self._flush(unsent)
            # A backlog of due messages after a stall is still the stall's fault.
            stalled = bool(unsent) or (stalled and due <= now())
            writers = [self._socket] if unsent else []
            wait_s = WAKE_SECONDS if unsent else max(0.0, due - now())
            if select.select([self._socket], writers, [], wait_s)[0]:
                self._receive()
        self.watch.take(now(), self.published)
        deadline = now() + SETTLE_SECONDS_MAX
        while self.confirms.settled < self.published:
            if now() > deadline:
                raise BenchError(f"{self.published - self.confirms.settled} publishes stay unconfirmed")
            if select.select([self._socket], [], [], WAKE_SECONDS)[0]:
                self._receive()

    def _send(self, sent_at: float) -> memoryview:
        STAMP.pack_into(self._data, self._body_at, self.published)
        _TIME.pack_into(self._data, self._body_at + STAMP_BYTES, sent_at)
        self._sent_at.append(sent_at)
        self.published += 1
        return self._flush(memoryview(bytes(self._data)))

    def _flush(self, data: memoryview) -> memoryview:
        try:
            return data[self._socket.send(data) :]
        except BlockingIOError:
            return data

    def _receive(self) -> None:
        chunk = self._socket.recv(65_536)
        if not chunk:
            raise BenchError("the broker closed the publisher's connection")
        self.confirms.feed(chunk, self.published)
        moment = now()
        # By the floor: a confirm that overtakes an earlier one is timed when the gap before it closes.
        for sent_at in self._sent_at[self._settled : self.confirms.floor]:
            if self._start <= sent_at < self._stop:
                self.latencies.append(moment - sent_at)
        self._settled = self.confirms.floor


def paced_consume(link: Link, *, url: str, queue: str, acks: bool = False) -> dict[str, Any]:
    """`acks`: one ack for what a receive call brought, which is a message each time where the broker keeps up."""
    with Wire(url) as wire:
        wire.call(commands.Basic.Consume(queue=queue, consumer_tag="c", no_ack=not acks), commands.Basic.ConsumeOk)
        wire.set_wake_seconds(WAKE_SECONDS)
        link.say("ready")
        go = link.hear("go", GO_SECONDS_MAX)
        watch = Stopwatch(go["start"], go["stop"])
        latencies: list[float] = []
        count = _time_deliveries(link, wire, watch, latencies, acks=acks)
        if acks:
            # Answered when the broker has taken all acks.
            wire.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
        return {"received": count, "latency_ms": percentiles_ms(latencies), "window": watch.report()}


def _time_deliveries(link: Link, wire: Wire, watch: Stopwatch, latencies: list[float], *, acks: bool) -> int:
    start, stop = watch.mark, watch.stop
    data, layout, total, count = bytearray(wire.take_rest()), None, None, 0
    while count != total:
        try:
            chunk = wire.socket.recv(65_536)
            if not chunk:
                raise BenchError("the broker closed the consumer's connection")
            data += chunk
        except BlockingIOError:
            pass
        moment = now()
        layout = layout or learn_layout(data)
        at, stride = 0, layout.stride if layout else len(data) + 1
        while layout and len(data) - at >= stride:
            sequence = STAMP.unpack_from(data, at + layout.stamp_at)[0] & (1 << SEQUENCE_BITS) - 1
            if sequence != count:
                raise BenchError(f"message {count} was due, {sequence} came")
            sent_at = _TIME.unpack_from(data, at + layout.stamp_at + STAMP_BYTES)[0]
            if start <= sent_at < stop:
                latencies.append(moment - sent_at)
            count += 1
            at += stride
        if acks and at:
            wire.socket.sendall(encode_ack(1, count, multiple=True))
        del data[:at]
        if moment >= watch.mark:
            watch.take(moment, count)
        if moment >= stop and total is None and (message := link.poll()) is not None:
            total = message["totals"][0]
        if moment > stop + SETTLE_SECONDS_MAX or (total is not None and count > total):
            raise BenchError(f"received {count} of {total}")
    return count
