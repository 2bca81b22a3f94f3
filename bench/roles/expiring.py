"""A queue full of messages that expire one by one, and a flow of others through the same queue.

What comes in: a queue, how many messages, when the first and the last of them are to be over. What goes out: how long
after its time each one left, and the rate that the flow kept. Rules: 1. A message's body carries its number and its
deadline (CLOCK_MONOTONIC, one clock for all processes): the moment before it was sent plus its expiration. It leaves
when its dead letter arrives, and before the deadline would be an error. 2. Neighbours in the queue have deadlines far
apart: the order of leaving has nothing to do with the order in the queue. 3. The flow has the higher priority, and a
second of it stands in the queue all the time (each message that is acknowledged is replaced), so its consumer, which
takes a fixed number a second, never sees one of those that wait. It would fail if it did.
Not here: the course of the run (`scenarios/expiring.py`).
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Iterator
from math import gcd
from typing import Any

from pamqp import commands, frame, header

from bench.clock import Stopwatch, now, percentiles_ms
from bench.confirms import Confirms
from bench.encode import encode_ack
from bench.errors import BenchError
from bench.link import Link
from bench.wire import Wire

BODY_BYTES = 100
GO_SECONDS_MAX = 600.0
QUIET_SECONDS_MAX = 60.0
WAKE_SECONDS = 0.05
BATCH = 100
WINDOW = 500
"""Few, so that a message is not long on its way when the broker begins to count its time."""
TICK_SECONDS = 0.01
PREFETCH = 4000
KEPT_SHARE_MIN = 0.98
EARLY_SECONDS_MAX = 0.001
_BODY = struct.Struct(">Qd")
_FLOW_BODY = b"f" * BODY_BYTES
_HEAD = struct.Struct(">BHI")


def _publish_head(queue: str, properties: commands.Basic.Properties) -> bytes:
    """Everything before the body of a publish to the queue."""
    method = commands.Basic.Publish(exchange="", routing_key=queue)
    content = header.ContentHeader(body_size=BODY_BYTES, properties=properties)
    return frame.marshal(method, 1) + frame.marshal(content, 1) + _HEAD.pack(3, 1, BODY_BYTES)


def expiring_publish(
    link: Link, *, url: str, queue: str, messages: int, lead_s: float, span_s: float, persistent: bool
) -> dict[str, Any]:
    """Fill the queue. The first deadline is `lead_s` after the start, the last one `span_s` later."""
    properties = commands.Basic.Properties(expiration="000000", delivery_mode=2 if persistent else 1)
    before, after = _publish_head(queue, properties).split(b"\x06000000")
    before += b"\x06"
    after_body = bytes(BODY_BYTES - _BODY.size) + b"\xce"
    step = next(step for step in range(int(messages * 0.618) | 1, 2 * messages) if gcd(step, messages) == 1)
    with Wire(url) as wire:
        wire.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        link.say("ready")
        link.hear("go", GO_SECONDS_MAX)
        first_s = now() + lead_s
        confirms, began, begun_cpu, sent = Confirms(), now(), time.process_time(), 0
        pack, each_s = _BODY.pack, span_s / messages
        while confirms.settled < messages:
            if sent < messages and sent - confirms.settled + BATCH <= WINDOW:
                moment, parts = now(), []
                if moment >= first_s:
                    raise BenchError(f"filling is too slow: {sent} of {messages} in {lead_s:g} s")
                for number in range(sent, min(sent + BATCH, messages)):
                    ttl_ms = int((first_s + number * step % messages * each_s - moment) * 1000)
                    body = pack(number, moment + ttl_ms / 1000)
                    parts.append(b"%b%06d%b%b%b" % (before, ttl_ms, after, body, after_body))
                sent += len(parts)
                wire.socket.sendall(b"".join(parts))
            elif not select.select([wire.socket], [], [], QUIET_SECONDS_MAX)[0]:
                raise BenchError(f"{sent - confirms.settled} publishes stay unconfirmed")
            else:
                confirms.feed(wire.socket.recv(65_536), sent)
        ended = now()
        if ended >= first_s:
            raise BenchError(f"filling took {ended - began:.1f} s, the first of the messages expired meanwhile")
        window = {"seconds": ended - began, "count": messages, "cpu_s": time.process_time() - begun_cpu}
        report = {"published": sent, "confirmed": confirms.settled, "first_s": first_s}
        link.say("stopped", **report)
        link.hear("finish", GO_SECONDS_MAX)
        return {**report, "window": window}


def expired_consume(link: Link, *, url: str, queue: str, messages: int) -> dict[str, Any]:
    """Receive the dead letters, and time them."""
    with Wire(url) as wire:
        wire.call(commands.Basic.Consume(queue=queue, consumer_tag="d", no_ack=True), commands.Basic.ConsumeOk)
        wire.set_wake_seconds(WAKE_SECONDS)
        link.say("ready")
        go = link.hear("go", GO_SECONDS_MAX)
        watch, seen = Stopwatch(go["start"], go["stop"]), bytearray(messages)
        late: list[float] = []
        stream, deadline = _Deliveries(wire), now() + GO_SECONDS_MAX
        while len(late) < messages:
            bodies = stream.receive()
            moment = now()
            for _, body in bodies:
                number, deadline_s = _BODY.unpack_from(body)
                if number >= messages or seen[number]:
                    raise BenchError(f"message {number} came twice, or was never sent")
                seen[number] = 1
                late.append(moment - deadline_s)
            if moment >= watch.mark:
                watch.take(moment, len(late))
            if moment > deadline:
                raise BenchError(f"{len(late)} of {messages} dead letters came")
        watch.take(max(now(), watch.mark), len(late))
        if min(late) < -EARLY_SECONDS_MAX:
            raise BenchError(f"a message left {-min(late) * 1e3:.1f} ms before its time")
        over = sum(each > 0.2 for each in late)
        latency = percentiles_ms(late) | {"max": round(max(late) * 1e3, 4), "over 200 ms": over}
        return {"received": len(late), "latency_ms": latency, "window": watch.report()}


def expiring_flow(link: Link, *, url: str, queue: str, per_second: int, persistent: bool) -> dict[str, Any]:
    """Keep a second's messages of priority 1 in the queue, and take this many a second."""
    properties = commands.Basic.Properties(priority=1, delivery_mode=2 if persistent else 1)
    one = _publish_head(queue, properties) + _FLOW_BODY + b"\xce"
    with Wire(url) as feeder, Wire(url) as eater:
        feeder.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        feeder.socket.sendall(one * per_second)
        confirms = Confirms()
        while confirms.settled < per_second:
            confirms.feed(feeder.socket.recv(65_536), per_second)
        eater.call(commands.Basic.Qos(prefetch_count=PREFETCH), commands.Basic.QosOk)
        eater.call(commands.Basic.Consume(queue=queue, consumer_tag="f"), commands.Basic.ConsumeOk)
        link.say("ready")
        go = link.hear("go", GO_SECONDS_MAX)
        watch, stream, began = Stopwatch(go["start"], go["stop"]), _Deliveries(eater), now()
        published, received, acked = per_second, 0, 0
        unsent = b""
        feeder.socket.setblocking(False)
        eater.socket.setblocking(False)
        stopping = False
        while not stopping or acked < published:
            moment = now()
            due = published if stopping else min(received, int((moment - began) * per_second))
            if min(due, received) > acked:
                if not stopping:
                    unsent += one * (due - acked)
                    published += due - acked
                acked = min(due, received)
                eater.socket.setblocking(True)
                eater.socket.sendall(encode_ack(1, acked, multiple=True))
                eater.socket.setblocking(False)
            if moment >= watch.mark:
                watch.take(moment, acked)
            stopping = stopping or moment >= watch.stop
            writers = [feeder.socket] if unsent else []
            readable, writable, _ = select.select([feeder.socket, eater.socket], writers, [], TICK_SECONDS)
            if writable:
                unsent = unsent[feeder.socket.send(unsent) :]
            if feeder.socket in readable:
                confirms.feed(feeder.socket.recv(65_536), published)
            for _, body in stream.receive() if eater.socket in readable else ():
                received += 1
                if body != _FLOW_BODY:
                    raise BenchError("the flow's consumer was given a message that waits for its time")
            pause_s = moment + TICK_SECONDS - now()
            if pause_s > 0:
                time.sleep(pause_s)
        kept = watch.report()
        link.say("stopped", published=published, confirmed=confirms.settled)
        link.hear("finish", GO_SECONDS_MAX)
        return {"published": published, "received": received, "window": kept}


class _Deliveries:
    """Deliveries from a socket, whatever their sizes: (delivery tag's method payload, body)."""

    def __init__(self, wire: Wire) -> None:
        self._socket = wire.socket
        self._data = bytearray(wire.take_rest())

    def receive(self) -> list[tuple[bytes, bytes]]:
        try:
            chunk = self._socket.recv(1 << 18)
        except BlockingIOError:
            return []
        if not chunk:
            raise BenchError("the broker closed the consumer's connection")
        self._data += chunk
        data = bytes(self._data)
        found, at = [], 0
        for method, body, stop in _contents(data):
            found.append((method, body))
            at = stop
        del self._data[:at]
        return found


def _contents(data: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Whole deliveries of one body frame each: (method payload, body, where the next one begins)."""
    at, end, unpack = 0, len(data), _HEAD.unpack_from
    while at + 7 <= end:
        kind, _, size = unpack(data, at)
        content = at + size + 8
        if kind == 8:
            at = content
            continue
        if content + 7 > end:
            return
        if kind != 1 or data[at + 7 : at + 11] != b"\x00\x3c\x00\x3c":
            raise BenchError(f"not a delivery: {data[at : at + 60]!r}")
        body = content + unpack(data, content)[2] + 8
        if body + 7 > end:
            return
        stop = body + unpack(data, body)[2] + 8
        if stop > end:
            return
        yield data[at + 7 : content - 1], data[body + 7 : stop - 1], stop
        at = stop
