"""The consumer that waits for a broker to come back.

What comes in: an address that nobody may serve yet, a queue, how many messages are in it. What goes out: the moments
(CLOCK_MONOTONIC) when the connection was open, when the first message was there, when all were. Rules: 1. it knocks
every KNOCK_SECONDS until a handshake succeeds: a refused connection is answered by the system, not by the broker; 2.
a consumer that is told that its queue is not there yet knocks again; 3. manual acks, prefetch 2000, one ack for
200, as in `durable-confirm`.
Not here: consumers of a broker that runs (`consume.py`).
"""

from __future__ import annotations

from time import sleep
from typing import Any

from bench.clock import Stopwatch, now
from bench.count import CHUNK_BYTES, StrideCounter
from bench.errors import BenchError
from bench.link import Link
from bench.roles.consume import Tap

KNOCK_SECONDS = 0.005
GO_SECONDS_MAX = 300.0
BACK_SECONDS_MAX = 300.0
DRAIN_SECONDS_MAX = 180.0
PREFETCH = 2000
ACK_EVERY = 200


def restarted_consume(link: Link, *, url: str, queue: str, messages: int) -> dict[str, Any]:
    buffer = bytearray(CHUNK_BYTES)
    link.say("ready")
    link.hear("go", GO_SECONDS_MAX)
    watch = Stopwatch(0.0, 0.0)
    watch.take(now(), 0)
    tap, open_at = _open(url, queue, buffer)
    first_at = now() if tap.count else 0.0
    deadline = now() + DRAIN_SECONDS_MAX
    while tap.count < messages:
        if tap.receive(buffer):
            moment = now()
            first_at = first_at or (moment if tap.count else 0.0)
            deadline = moment + DRAIN_SECONDS_MAX
        elif now() > deadline:
            raise BenchError(f"{tap.count} of {messages} messages came back")
    all_at = now()
    watch.take(all_at, tap.count)
    if tap.count > messages:
        raise BenchError(f"{tap.count} messages came back, {messages} were published")
    tap.finish()
    return {
        "received": tap.count,
        "open_at": open_at,
        "first_at": first_at,
        "all_at": all_at,
        "window": watch.report(),
    }


def _open(url: str, queue: str, buffer: bytearray) -> tuple[Tap, float]:
    """A subscribed connection, and the moment when the handshake was done."""
    deadline = now() + BACK_SECONDS_MAX
    while True:
        try:
            tap = Tap(url, [queue], StrideCounter(), prefetch=PREFETCH, ack_every=ACK_EVERY)
            open_at = now()
            tap.subscribe(buffer)
            return tap, open_at
        except (OSError, BenchError) as error:
            if now() > deadline:
                raise BenchError(f"not back after {BACK_SECONDS_MAX:g} s: {error}") from error
        sleep(KNOCK_SECONDS)
