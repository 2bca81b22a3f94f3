"""N connections, each with one confirmed publish at a time: the next goes out when the last one's confirm is
in.

What comes in: a route and the number of connections. What goes out: `stopped` with the publishes of each, and
the round trips' percentiles where there is one connection. Rules: 1. one process, one epoll, all connections;
2. per round trip one receive and one send call; 3. every confirm must carry the tag that is due.
Not here: the consumer that keeps the queue empty (`consume.py`, in a process of its own).
"""

from __future__ import annotations

import select
from typing import Any

from pamqp import commands

from bench.clock import Stopwatch, now, percentiles_ms
from bench.confirms import CONFIRM_BYTES
from bench.encode import STAMP, encode_publish, stamp
from bench.errors import BenchError, name_of_frame
from bench.link import Link
from bench.wire import Wire

GO_SECONDS_MAX = 300.0
SETTLE_SECONDS_MAX = 60.0
EVENTS_MAX = 256
LATENCIES_MAX = 2_000_000

_ACK_START = bytes([1, 0, 1, 0, 0, 0, 13, 0, 60, 0, 80])


class Caller:
    """One connection. `confirmed` publishes are done; one more is on its way while `waiting`."""

    def __init__(self, url: str, key: str, body_bytes: int, stream: int, *, persistent: bool) -> None:
        self.wire = Wire(url)
        self.wire.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        one, self._body_at = encode_publish("", key, bytes(body_bytes), persistent=persistent)
        self._data = bytearray(one)
        self._first = stamp(stream, 0)
        self.confirmed = 0
        self.waiting = False
        self.recv, self._send = self.wire.socket.recv, self.wire.socket.send

    def publish(self) -> None:
        data = self._data
        STAMP.pack_into(data, self._body_at, self._first + self.confirmed)
        if self._send(data) != len(data):
            raise BenchError("the broker does not take a single message")
        self.waiting = True

    def receive(self) -> None:
        """Take the confirm that is due. Raises BenchError if it is another one, or something else."""
        data = self.recv(CONFIRM_BYTES)
        while len(data) < CONFIRM_BYTES:
            more = self.recv(CONFIRM_BYTES - len(data))
            if not more:
                raise BenchError(f"the broker closed a connection: {name_of_frame(data)}")
            data += more
        self.confirmed += 1
        self.waiting = False
        if int.from_bytes(data[11:19]) != self.confirmed or not data.startswith(_ACK_START):
            raise BenchError(f"confirm {self.confirmed} was due, came {name_of_frame(data)} {data.hex(' ')}")


def closed(
    link: Link, *, url: str, key: str, connections: int, body_bytes: int, persistent: bool = False
) -> dict[str, Any]:
    callers = [Caller(url, key, body_bytes, stream, persistent=persistent) for stream in range(connections)]
    link.say("ready")
    go = link.hear("go", GO_SECONDS_MAX)
    watch = Stopwatch(go["start"], go["stop"])
    latencies: list[float] = []
    if connections == 1:
        _one(callers[0], watch, latencies)
    else:
        _many(callers, watch)
    report = {
        "published": sum(caller.confirmed for caller in callers),
        "confirmed": sum(caller.confirmed for caller in callers),
        "streams": {str(stream): caller.confirmed for stream, caller in enumerate(callers)},
        "latency_ms": percentiles_ms(latencies),
    }
    link.say("stopped", **report)
    link.hear("finish", GO_SECONDS_MAX)
    for caller in callers:
        caller.wire.close()
    return {**report, "window": watch.report()}


def _one(caller: Caller, watch: Stopwatch, latencies: list[float]) -> None:
    caller.wire.socket.settimeout(None)
    caller.wire.set_wake_seconds(SETTLE_SECONDS_MAX)
    sent = now()
    while sent < watch.stop:
        caller.publish()
        caller.receive()
        moment = now()
        if len(latencies) < LATENCIES_MAX:
            latencies.append(moment - sent)
        if moment >= watch.mark:
            watch.take(moment, caller.confirmed)
            latencies.clear() if watch.mark == watch.stop else None
        sent = moment


def _many(callers: list[Caller], watch: Stopwatch) -> None:
    by_fd = {caller.wire.socket.fileno(): caller for caller in callers}
    poll = select.epoll()
    for fd, caller in by_fd.items():
        caller.wire.set_wake_seconds(SETTLE_SECONDS_MAX)
        poll.register(fd, select.EPOLLIN)
    for caller in callers:
        caller.publish()
    moment, confirmed = now(), 0
    while moment < watch.stop:
        ready = poll.poll(1.0, EVENTS_MAX)
        for fd, _ in ready:
            caller = by_fd[fd]
            caller.receive()
            caller.publish()
        confirmed += len(ready)
        moment = now()
        if moment >= watch.mark:
            watch.take(moment, confirmed)
    for caller in callers:
        caller.receive()
    poll.close()
