"""The consumer: one or many connections, each counting its deliveries, with automatic or manual acks.

What comes in: queues per connection, prefetch, `ack_every`. What goes out: the counts. Rules: 1. deliveries
are counted by stride and checked (`count.py`), or one by one (`ledger.py`) where several streams mix; 2. with
manual acks there is one `basic.ack(multiple)` for every `ack_every` messages (a single one each for 1), its tag
computed, all that are due sent with one call; 3. it is done when it has received exactly the total that the runner
names, and nothing more comes.
Not here: timestamps (`paced.py`).
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Any

from pamqp import commands

from bench.applications import ApplicationRecipe
from bench.clock import Stopwatch, now
from bench.count import CHUNK_BYTES, StrideCounter
from bench.encode import SingleAcks, encode_ack
from bench.errors import BenchError
from bench.ledger import Ledger
from bench.link import Link
from bench.mixed import MixedCounter
from bench.mixed_ledger import MixedLedger
from bench.roles.recipes import make_recipe
from bench.wire import Wire

WAKE_SECONDS = 0.05
RECEIVE_BYTES_MIN = 8 * 1024
"""Some 40 deliveries of 100 bytes: far below every prefetch used here, so that acks never wait for it, and
below what a socket's buffer holds when they come as many small segments."""
GO_SECONDS_MAX = 300.0
DRAIN_SECONDS_MAX = 180.0
QUIET_SECONDS = 0.1
"""How long nothing more may come after the last message: catches a message that is delivered twice."""

Counter = StrideCounter | Ledger | MixedCounter | MixedLedger


def consumer_tag(number: int) -> str:
    """All tags have one length, so that all deliveries have one size."""
    return f"c{number:04}"


def make_counter(kind: str = "stride", **arguments: Any) -> Counter:
    if kind == "ledger":
        return Ledger(**arguments)
    if kind == "mixed":
        recipe = make_recipe(**arguments.pop("recipe"))
        return MixedCounter(recipe=recipe, consumer_tag=consumer_tag(0), **arguments)
    if kind == "mixed_ledger":
        recipes = [ApplicationRecipe(publisher) for publisher in range(arguments.pop("publishers"))]
        return MixedLedger(recipes=recipes, consumer_tag=consumer_tag(0), **arguments)
    return StrideCounter(**arguments)


class Tap:
    """One consuming connection; `count` deliveries so far."""

    def __init__(
        self, url: str, queues: list[str], counter: Counter, *, prefetch: int, ack_every: int, at_once: bool = False
    ) -> None:
        self.wire = Wire(url)
        self.socket = self.wire.socket
        self.count = 0
        self.counter = counter
        self._ack_every = ack_every
        self._acked = 0
        self._single_acks = SingleAcks()
        self._unsent = b""
        if prefetch:
            self.wire.call(commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk)
        self._queues = queues
        self.receive_bytes_min = 1 if at_once else RECEIVE_BYTES_MIN

    def subscribe(self, buffer: bytearray) -> None:
        for number, queue in enumerate(self._queues):
            consume = commands.Basic.Consume(
                queue=queue, consumer_tag=consumer_tag(number), no_ack=not self._ack_every
            )
            self.wire.call(consume, commands.Basic.ConsumeOk)
        self.wire.set_wake_seconds(WAKE_SECONDS)
        self.wire.set_receive_bytes_min(self.receive_bytes_min)
        rest = self.wire.take_rest()
        if rest:
            buffer[: len(rest)] = rest
            self._take(buffer, len(rest))

    def receive(self, buffer: bytearray, flags: int = 0) -> bool:
        """One receive call. False if nothing came. Raises BenchError if the connection ended or a count is
        wrong."""
        try:
            size = self.socket.recv_into(buffer, 0, flags)
        except BlockingIOError:
            self._flush()
            return False
        if not size:
            raise BenchError("the broker closed the consumer's connection")
        self._take(buffer, size)
        self._flush()
        return True

    def _flush(self) -> None:
        """Send the acks that are due, without waiting: what the broker does not take now goes with the
        next."""
        if self._unsent:
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                pass

    def _take(self, buffer: bytearray, size: int) -> None:
        self.count = self.counter.feed(buffer, size)
        every = self._ack_every
        if every == 1 and self.count > self._acked:
            self._unsent += self._single_acks.encode(self._acked + 1, self.count)
            self._acked = self.count
        elif every and self.count - self._acked >= every:
            due = range(self._acked + every, self.count + 1, every)
            self._unsent += b"".join([encode_ack(1, tag, multiple=True) for tag in due])
            self._acked = due[-1]

    def finish(self) -> None:
        """Ack the rest; closing the channel tells that the broker has taken all acks."""
        if self._ack_every and self._acked < self.count:
            self._unsent += encode_ack(1, self.count, multiple=True)
        self.wire.set_receive_bytes_min(1)
        self.socket.settimeout(DRAIN_SECONDS_MAX)
        self.socket.sendall(self._unsent)
        self.wire.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
        self.wire.close()


def consume(
    link: Link,
    *,
    url: str,
    queues: list[list[str]],
    prefetch: int = 0,
    ack_every: int = 0,
    counter: dict[str, Any] | None = None,
    counters: list[dict[str, Any]] | None = None,
    subscribe_on_go: bool = False,
    at_once: bool = False,
) -> dict[str, Any]:
    """`queues` holds, per connection, the queues it consumes from; `counter` the `kind` ("stride", "ledger",
    "mixed", "mixed_ledger") and its arguments, `counters` those of each connection where they differ.
    `at_once`: it wakes for every delivery."""
    buffer = bytearray(CHUNK_BYTES)
    kinds = counters or [counter or {}] * len(queues)
    taps = [
        Tap(url, names, make_counter(**kind), prefetch=prefetch, ack_every=ack_every, at_once=at_once)
        for names, kind in zip(queues, kinds, strict=True)
    ]
    if not subscribe_on_go:
        for tap in taps:
            tap.subscribe(buffer)
    link.say("ready")
    go = link.hear("go", GO_SECONDS_MAX)
    began, begun_cpu = now(), time.process_time()
    if subscribe_on_go:
        for tap in taps:
            tap.subscribe(buffer)
    watch = Stopwatch(go["start"], go["stop"])
    step = _single(taps[0], buffer) if len(taps) == 1 else _many(taps, buffer)
    _receive_all(link, taps, step, watch)
    ended, ended_cpu = now(), time.process_time()
    _check_quiet(taps, buffer)
    streams = _streams(taps)
    for tap in taps:
        tap.finish()
    return {
        "received": sum(tap.count for tap in taps),
        "streams": streams,
        "seconds": ended - began,
        "cpu_s": ended_cpu - begun_cpu,
        "ended": ended,
        "window": watch.report(),
    }


def _receive_all(link: Link, taps: list[Tap], step: Callable[[], bool], watch: Stopwatch) -> None:
    """Receive until the count is the total that the runner names after the window."""
    totals: list[int] | None = None
    deadline = watch.stop + DRAIN_SECONDS_MAX
    single = taps[0] if len(taps) == 1 else None
    while True:
        came = step()
        moment = now()
        if moment >= watch.mark:
            watch.take(moment, single.count if single else sum(tap.count for tap in taps))
        if came:
            # A backlog of millions may take longer than any one bound; what ends the wait is that nothing comes.
            deadline = max(deadline, moment + DRAIN_SECONDS_MAX)
        if totals is None and (moment >= watch.stop or not came):
            message = link.poll()
            if message is not None:
                totals = message["totals"]
                deadline = moment + DRAIN_SECONDS_MAX
        counts = [tap.count for tap in taps] if totals is not None else []
        if totals is not None and any(count > total for count, total in zip(counts, totals, strict=True)):
            raise BenchError(f"received {counts}, published were {totals}: something came twice")
        if counts and counts == totals and moment >= watch.stop:
            return
        if moment > deadline:
            raise BenchError(
                f"received {counts or 'some'} of {totals}, then nothing for {DRAIN_SECONDS_MAX:g} s: some are lost"
            )


def _single(tap: Tap, buffer: bytearray) -> Callable[[], bool]:
    return lambda: tap.receive(buffer)


def _many(taps: list[Tap], buffer: bytearray) -> Callable[[], bool]:
    poll = select.epoll()
    by_fd = {tap.socket.fileno(): tap for tap in taps}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)

    def step() -> bool:
        ready = poll.poll(WAKE_SECONDS)
        for fd, _ in ready:
            by_fd[fd].receive(buffer, socket.MSG_DONTWAIT)
        if ready:
            return True
        # Fewer bytes than RECEIVE_BYTES_MIN do not show as readable: look once into every connection.
        return sum(tap.receive(buffer, socket.MSG_DONTWAIT) for tap in taps) > 0

    return step


def _check_quiet(taps: list[Tap], buffer: bytearray) -> None:
    before = sum(tap.count for tap in taps)
    for tap in taps:
        tap.wire.set_receive_bytes_min(1)
    ready = select.select([tap.socket for tap in taps], [], [], QUIET_SECONDS)[0]
    for tap in taps:
        if tap.socket in ready:
            tap.receive(buffer, socket.MSG_DONTWAIT)
    if ready:
        after = sum(tap.count for tap in taps)
        raise BenchError(f"after the last message came {after - before} more: something was delivered twice")


def _streams(taps: list[Tap]) -> dict[str, int] | None:
    """Per stream the number of messages received, over all connections; None where they were not told
    apart."""
    totals: dict[str, int] = {}
    for tap in taps:
        if not isinstance(tap.counter, Ledger | MixedLedger):
            return None
        for stream, due in tap.counter.next_of.items():
            totals[str(stream)] = totals.get(str(stream), 0) + due
    return totals
