"""The publisher: one connection, one channel, publishes from a ring, with or without confirms.

What comes in: a route and a size, or a recipe of messages (`roles/recipes.py`), a window of unconfirmed publishes
(0: no confirms) and optionally a number of messages to stop at. What goes out: `stopped` with the number published.
Rules: 1. one send call for as many whole messages as the window or the ring allows; 2. it stops between two
messages, never inside one; 3. with confirms, it has not stopped before every publish is confirmed.
Not here: one message at a time (`closed.py`), a fixed rate (`paced.py`).
"""

from __future__ import annotations

import socket
import time
from typing import Any

from pamqp import commands

from bench.clock import Stopwatch, now
from bench.confirms import Confirms
from bench.encode import PublishRing, encode_publish
from bench.errors import BenchError, name_of_frame
from bench.link import Link
from bench.mixed import MixedRing
from bench.roles.recipes import make_recipe
from bench.wire import Socket, Wire

WAKE_SECONDS = 0.1
SETTLE_SECONDS_MAX = 120.0
GO_SECONDS_MAX = 300.0
RECEIVE_BYTES = 65_536


class Outflow:
    """Sends a ring over a blocking socket; `published` counts the messages sent whole."""

    def __init__(self, sock: Socket, ring: PublishRing | MixedRing) -> None:
        self.published = 0
        self._socket = sock
        self._ring = ring
        self._view = memoryview(ring.data)
        self._lap = 0
        self._at = 0

    def send(self, limit: int) -> int:
        """One send call towards `limit` messages in all. Returns the bytes taken, 0 if the broker takes
        none."""
        ring = self._ring
        end = ring.offset(min(limit - self._lap * ring.messages, ring.messages))
        end = min(end, self._at + ring.send_bytes_max)
        try:
            sent = self._socket.send(self._view[self._at : end])
        except BlockingIOError:
            return 0
        self._at += sent
        self.published = self._lap * ring.messages + ring.whole_until(self._at)
        if self._at == len(self._view):
            self._lap += 1
            self._at = 0
            ring.stamp_lap(self._lap)
        return sent

    def finish_message(self, deadline: float) -> None:
        """Complete a message that was sent in part, so that the stream stays well formed."""
        ring = self._ring
        while self._at != ring.offset(self.published - self._lap * ring.messages):
            if now() > deadline:
                raise BenchError("the broker takes no more bytes, in the middle of a message")
            self.send(self.published + 1)


def publish(
    link: Link,
    *,
    url: str,
    keys: list[str] | None = None,
    exchange: str = "",
    body_bytes: int = 0,
    persistent: bool = False,
    window: int = 0,
    messages: int = 0,
    stream: int = 0,
    ring_messages: int = 0,
    recipe: dict[str, Any] | None = None,
) -> dict[str, Any]:
    with Wire(url) as wire:
        if window:
            wire.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        ring: PublishRing | MixedRing
        if recipe:
            ring = MixedRing(exchange, make_recipe(**recipe))
        else:
            ring = _ring(exchange, keys or [""], body_bytes, persistent, wire.frame_bytes_max, ring_messages, stream)
        wire.set_wake_seconds(WAKE_SECONDS)
        out = Outflow(wire.socket, ring)
        link.say("ready")
        go = link.hear("go", GO_SECONDS_MAX)
        watch = Stopwatch(go["start"], go["stop"])
        last = messages or 1 << 62
        began, begun_cpu = now(), time.process_time()
        confirms = Confirms()
        if window:
            _publish_in_window(wire.socket, out, confirms, watch, window, last)
        else:
            _publish_freely(wire.socket, out, watch, last)
        report = {
            "published": out.published,
            "confirmed": confirms.settled,
            "confirm_frames": confirms.frames,
        }
        link.say("stopped", **report, seconds=now() - began, cpu_s=time.process_time() - begun_cpu)
        link.hear("finish", GO_SECONDS_MAX)
        _check_silence(wire.socket)
        return {**report, "window": watch.report()}


def _ring(
    exchange: str,
    keys: list[str],
    body_bytes: int,
    persistent: bool,
    frame_bytes_max: int,
    messages: int,
    stream: int,
) -> PublishRing:
    pairs = [
        encode_publish(exchange, key, bytes(body_bytes), persistent=persistent, frame_bytes_max=frame_bytes_max)
        for key in keys
    ]
    return PublishRing([one for one, _ in pairs], pairs[0][1], messages, stream=stream)


def _publish_freely(sock: Socket, out: Outflow, watch: Stopwatch, last: int) -> None:
    while out.published < last:
        taken = out.send(last)
        moment = now()
        if moment >= watch.mark:
            watch.take(moment, out.published)
        if moment >= watch.stop:
            break
        if not taken:
            _check_silence(sock)
    out.finish_message(now() + SETTLE_SECONDS_MAX)


def _publish_in_window(
    sock: Socket, out: Outflow, confirms: Confirms, watch: Stopwatch, window: int, last: int
) -> None:
    # Waiting for space for a tenth of the window, not for one message, saves calls; the rest is on its way.
    room_min = max(1, window // 10)
    while confirms.settled < last:
        moment = now()
        if moment >= watch.mark:
            watch.take(moment, confirms.settled)
        if moment >= watch.stop:
            break
        limit = min(confirms.settled + window, last)
        wants = limit - out.published
        flags = 0
        if wants and (wants >= room_min or limit == last):
            out.send(limit)
            flags = socket.MSG_DONTWAIT
        _receive(sock, confirms, out.published, flags)
    deadline = now() + SETTLE_SECONDS_MAX
    out.finish_message(deadline)
    while confirms.settled < out.published:
        if now() > deadline:
            raise BenchError(f"{out.published - confirms.settled} publishes of {out.published} stay unconfirmed")
        _receive(sock, confirms, out.published, 0)


def _receive(sock: Socket, confirms: Confirms, published: int, flags: int) -> None:
    try:
        chunk = sock.recv(RECEIVE_BYTES, flags)
    except BlockingIOError:
        return
    if not chunk:
        raise BenchError("the broker closed the publisher's connection")
    confirms.feed(chunk, published)


def _check_silence(sock: Socket) -> None:
    """Raises BenchError if the broker said something that nobody asked for, for example `channel.close`."""
    try:
        chunk = sock.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return
    raise BenchError(f"unexpected: {name_of_frame(chunk) if chunk else 'end of the connection'}")
