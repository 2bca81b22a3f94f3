"""What very many quorum queues cost on three forwarders: `python -m bench.many_queues --cluster --queues 100000`.

What comes in: how many. What goes out: a table: how fast they are declared, the memory and the idle processor time of
each forwarder with none and with all of them, a lone confirm with few and with all, how long it takes until queues
of a leader that was killed are served by others, and how long forwarders with all of them take to start; how long
another queue's publisher waits for a confirm meanwhile.
Rules: 1. A third is declared at each forwarder, which is its leader. 2. Each phase is checked: a queue that does not
answer, or a message that does not come back, is an error; the table says so, and the next phase begins. 3. Progress
goes to standard error, the table to standard output. 4. Every wait has an end.
Not here: many queues of one node (`many-queues` in `bench/scenarios`), what messages cost (`bench/scenarios`), how a
queue is asked for (`probes.py`).
"""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pamqp import commands, frame

from bench.brokers.clusters import RabbitmqCluster
from bench.brokers.forwarders import NAMES, Forwarders
from bench.brokers.private_rabbitmq import install_rabbitmq
from bench.clock import now, percentiles_ms
from bench.errors import BenchError
from bench.probes import Askers, LoneWatch
from bench.roles.closed import Caller
from bench.wire import Wire

QUORUM = {"x-queue-type": "quorum"}
FIRST = "first"
"""the queue of the lone confirms, declared before the others"""
LONE = 300
SINGLE = 200
"""declared one by one"""
SAMPLE = 50
"""queues of a killed leader that are asked for, over all of its names"""
IDLE_SECONDS = 10.0
READY_SECONDS_MAX = 300.0
SERVED_SECONDS_MAX = 120.0
"""after a kill, and after a start"""
PROGRESS_SECONDS_MAX = 60.0
"""without one declaration that is answered"""
REST_SECONDS = 15.0
"""A kill, or a start, is looked at for as long at least."""
SAID_EACH = 5_000


def report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Declarer:
    """One connection with many channels: each has one declaration on its way."""

    def __init__(self, url: str, names: Iterator[str], channels: int) -> None:
        self.wire = Wire(url)
        self._names = names
        self._received = bytearray()
        self.done = 0
        for channel in range(2, channels + 1):
            self.wire.call(commands.Channel.Open(), commands.Channel.OpenOk, channel)
        self.waiting = sum(self._next(channel) for channel in range(1, channels + 1))

    def _next(self, channel: int) -> bool:
        name = next(self._names, None)
        if name is not None:
            self.wire.send(commands.Queue.Declare(queue=name, durable=True, arguments=dict(QUORUM)), channel)
        return name is not None

    def receive(self) -> None:
        """Take what came, and go on with the channels that it was for. Raises BenchError."""
        data = self._received
        data += self.wire.socket.recv(65_536)
        while len(data) >= 7 and len(data) >= (size := 8 + int.from_bytes(data[3:7])):
            _, channel, value = frame.unmarshal(bytes(data[:size]))
            del data[:size]
            if not isinstance(value, commands.Queue.DeclareOk):
                raise BenchError(f"a declaration was answered by {value.name}: {getattr(value, 'reply_text', '')}")
            self.done += 1
            self.waiting += self._next(channel) - 1


def declare(urls: Sequence[str], names: Sequence[str], connections: int, channels: int) -> float:
    """All of them, each at one of the addresses in turn; declarations a second."""
    began, told = now(), 0
    with selectors.DefaultSelector() as selector:
        declarers = []
        for at in range(connections):
            declarers.append(Declarer(urls[at % len(urls)], iter(names[at::connections]), channels))
            selector.register(declarers[-1].wire.socket, selectors.EVENT_READ, declarers[-1])
        while any(each.waiting for each in declarers):
            ready = selector.select(PROGRESS_SECONDS_MAX)
            if not ready:
                raise BenchError(f"no declaration was answered within {PROGRESS_SECONDS_MAX:g} s")
            for key, _ in ready:
                key.data.receive()
            done = sum(each.done for each in declarers)
            if done >= told + SAID_EACH:
                told = done
                report(f"  {done:,} declared, {done / (now() - began):,.0f} a second")
    seconds = now() - began
    for each in declarers:
        each.wire.close()
    return len(names) / seconds


def lone(caller: Caller) -> dict[str, float]:
    """Of a publisher that waits for each confirm."""
    taken = []
    for _ in range(LONE):
        began = now()
        caller.publish()
        caller.receive()
        taken.append(now() - began)
    return percentiles_ms(taken)


def check(url: str, name: str) -> None:
    """A message goes into it, is confirmed, and comes out. Raises BenchError."""
    caller = Caller(url, name, 100, 1, persistent=True)
    caller.publish()
    caller.receive()
    got = caller.wire.call(commands.Basic.Get(queue=name, no_ack=True), commands.Basic.GetOk)
    caller.wire.close()
    if got.message_count:
        raise BenchError(f"queue {name} has {got.message_count} messages more than it got")


class Table:
    def __init__(self) -> None:
        self._rows: list[tuple[str, str]] = []

    def add(self, what: str, value: str) -> None:
        report(f"{what}: {value}")
        self._rows.append((what, value))

    def __str__(self) -> str:
        return "\n".join(
            ["| what | figure |", "| --- | ---: |", *(f"| {what} | {value} |" for what, value in self._rows)]
        )


class Run:
    def __init__(self, forwarders: Forwarders, table: Table, queues: int, connections: int, channels: int) -> None:
        self._forwarders, self.table = forwarders, table
        self._queues, self._connections, self._channels = queues, connections, channels
        self._urls = [forwarders.url(name) for name in NAMES]
        self._of = {name: [f"{name}-{number}" for number in range(queues // 3)] for name in NAMES}

    def __call__(self) -> bool:
        """Whether all of it went well."""
        self.table.add("load average at the start", f"{os.getloadavg()[0]:.1f}")
        few = self._memory()
        self._idle("none")
        with Wire(self._urls[0]) as wire:
            declaration = commands.Queue.Declare(queue=FIRST, durable=True, arguments=dict(QUORUM))
            wire.call(declaration, commands.Queue.DeclareOk)
        caller = Caller(self._urls[0], FIRST, 100, 1, persistent=True)
        lone(caller)
        self._lone(caller, "one queue")
        self._declare()
        self._lone(caller, "all queues")
        caller.wire.close()
        self._idle("all")
        for name, nbytes in self._memory().items():
            grown = (nbytes - few[name]) / self._queues
            self.table.add(f"memory of {name}, MB (bytes for each queue)", f"{nbytes / 1e6:,.0f} ({grown:,.0f})")
        etcd = self._forwarders.disk_bytes("etcd")
        self.table.add(
            "etcd: memory, disk, MB", f"{self._forwarders.memory_bytes('etcd') / 1e6:,.0f}, {etcd / 1e6:,.0f}"
        )
        done = [self._phase(each) for each in (self._take_over, self._restart_killed, self._start_again)]
        self.table.add("load average at the end", f"{os.getloadavg()[0]:.1f}")
        return all(done)

    def _phase(self, phase: Callable[[], None]) -> bool:
        try:
            phase()
        except BenchError as error:
            self.table.add("**not done**", str(error))
            return False
        return True

    def _memory(self) -> dict[str, int]:
        return {name: self._forwarders.memory_bytes(name) for name in NAMES}

    def _idle(self, queues: str) -> None:
        before = {name: self._forwarders.processor_s(name) for name in NAMES}
        began = now()
        # Nobody does anything meanwhile: that is what is looked at.
        selectors.DefaultSelector().select(IDLE_SECONDS)
        taken = {name: (self._forwarders.processor_s(name) - before[name]) / (now() - began) for name in NAMES}
        self.table.add(f"idle, {queues}: % of a processor", ", ".join(f"{100 * each:.1f}" for each in taken.values()))

    def _lone(self, caller: Caller, what: str) -> None:
        figures = lone(caller)
        self.table.add(f"a lone confirm, {what}: p50, p99, ms", f"{figures['p50']:.2f}, {figures['p99']:.2f}")

    def _declare(self) -> None:
        single = [f"single-{number}" for number in range(SINGLE)]
        rate = declare(self._urls[:1], single, 1, 1)
        self.table.add("declared one by one, a second", f"{rate:,.0f}")
        began = now()
        for name in NAMES:
            report(f"{len(self._of[name]):,} queues at {name}")
            url = self._forwarders.url(name)
            rate = declare([url], self._of[name], self._connections, self._channels)
            self.table.add(
                f"declared at {name}, {self._connections * self._channels} at once, a second", f"{rate:,.0f}"
            )
        self.table.add("all declared after, s", f"{now() - began:,.1f}")

    def _sample(self, name: str) -> list[str]:
        names = self._of[name]
        return names[:: max(1, len(names) // SAMPLE)]

    def _take_over(self) -> None:
        """Of the queues of one of the three."""
        others = [self._forwarders.url(name) for name in NAMES if name != "b"]
        sample = self._sample("b")
        with LoneWatch(self._urls[0], FIRST) as watch, Askers(others) as askers:
            self._forwarders.kill("b")
            began = now()
            deadline = began + SERVED_SECONDS_MAX
            wheres = [askers.served(sample[0], deadline)]
            self.table.add("kill -9 of a leader: until a queue of it is served, s", f"{now() - began:.2f}")
            wheres += [askers.served(name, deadline) for name in sample[1:]]
            self.table.add(f"until {len(sample)} of all over them are, s", f"{now() - began:.2f}")
            self._rest(began + REST_SECONDS)
        self.table.add("longest lone confirm of another leader meanwhile, ms", str(watch))
        for url, name in zip(wheres, sample, strict=True):
            check(url, name)

    def _restart_killed(self) -> None:
        with LoneWatch(self._urls[0], FIRST) as watch:
            ready = self._forwarders.start("b")
            self.table.add("the killed one starts, s", f"{ready['b']:.1f}")
            self._rest(now() + REST_SECONDS)
        self.table.add("longest lone confirm of another leader meanwhile, ms", str(watch))

    def _start_again(self) -> None:
        self.table.add("all three stop, s", f"{self._forwarders.stop(*NAMES):.1f}")
        began = now()
        ready = self._forwarders.start(*NAMES)
        self.table.add("all three start, s", ", ".join(f"{each:.1f}" for each in ready.values()))
        deadline = now() + SERVED_SECONDS_MAX
        with Askers(self._urls) as askers:
            for name in NAMES:
                askers.served(self._of[name][0], deadline)
            self.table.add("until a queue of each leader is served, s", f"{now() - began:.1f}")
            for name in NAMES:
                sample = self._sample(name)
                wheres = [askers.served(each, deadline) for each in sample]
                check(wheres[-1], sample[-1])
        self.table.add("until queues all over them are served, s", f"{now() - began:.1f}")
        self._rest(now() + REST_SECONDS)
        for name, nbytes in self._memory().items():
            self.table.add(f"memory of {name} then, MB", f"{nbytes / 1e6:,.0f}")

    def _rest(self, until: float) -> None:
        """What goes on behind what was asked for is looked at, too."""
        selectors.DefaultSelector().select(max(0.0, until - now()))


def of_rabbitmq(work_dir: Path | None) -> float:
    """Quorum queues that three nodes of it declare one by one, a second. Raises BenchError."""
    with RabbitmqCluster(install_rabbitmq(), None if work_dir is None else str(work_dir)) as broker:
        return declare([broker.url], [f"single-{number}" for number in range(SINGLE)], 1, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.many_queues", description="Very many quorum queues.")
    parser.add_argument("--cluster", action="store_true", required=True, help="on three forwarders of amqpd")
    parser.add_argument("--queues", type=int, default=100_000, help="default 100,000")
    parser.add_argument("--connections", type=int, default=4, help="that declare (4)")
    parser.add_argument("--channels", type=int, default=32, help="of each connection, one declaration each (32)")
    parser.add_argument("--rabbitmq", action="store_true", help="how fast three nodes of it declare one by one, too")
    parser.add_argument("--work-dir", type=Path, help="where the data go; without it to a temporary directory")
    options = parser.parse_args()
    # Also then the forwarders end, and their directory goes.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    table, went_well = Table(), False
    with tempfile.TemporaryDirectory(prefix="bench-queues-", dir=options.work_dir) as directory:
        try:
            with Forwarders(Path(directory), READY_SECONDS_MAX) as forwarders:
                run = Run(forwarders, table, options.queues, options.connections, options.channels)
                went_well = run()
            if options.rabbitmq:
                rate = of_rabbitmq(options.work_dir)
                table.add("RabbitMQ: declared one by one, a second", f"{rate:,.0f}")
        except BenchError as error:
            report(f"bench.many_queues: {error}")
            went_well = False
    print(table)
    return 0 if went_well else 1


if __name__ == "__main__":
    sys.exit(main())
