"""Bind at one node and publish at another right after bind-ok, again and again: is every such publish routed with it?

    python -m tests.faults.sync_point --tries 100000
    python -m tests.faults.sync_point --tries 2000 --faults 20 --cuts

What comes in: how many tries, after how many comes one with a fault, the seed. What goes out: how many tries there
were of each kind, what was missed, and what a declaration and a binding took, as JSON.
Rules: 1. A try makes a change at one node, waits for the broker's answer, and only then publishes at another node,
mandatory and with confirms: what comes back as unroutable was routed without the change. Then it takes the change
back, and publishes at the third node: that must come back. 2. A publish may be confirmed or refused (the queue may be
of a node that is not reached), and it may find its connection closed: no verdict then. 3. A fault: the publishing
node is stopped (SIGSTOP) while the change is made, and continued with the publish in its socket; or its links are cut
(`--cuts`: each node on a machine of its own, root), to the store, to the declaring node, or all of them.
Not here: the machines by themselves (`tests/cluster/test_sync_point.py`).
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pamqp import commands

from ..clients.wire import Wire, publish_bytes
from ..harness.namespaces import HERE, Machines
from .cluster import Cluster

NAMES = "abc"
LEASE_S = 2.0
EXCHANGE, QUEUE = "tries", "orders"
STOPPED_S = 1.5 * LEASE_S
PATIENCE_S = 120.0
ENVIRONMENT = {"AMQPD_CLUSTER_REMOTE_QUEUES": "true", "AMQPD_CLUSTER_LEASE_S": str(LEASE_S)}


@dataclass
class Outcome:
    """Counts of tries by kind, misses as sentences, and seconds that answers took without a fault."""

    tries: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    declare_s: list[float] = field(default_factory=list)
    bind_s: list[float] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        return {
            "tries": dict(sorted(self.tries.items())),
            "verdicts": dict(sorted(self.verdicts.items())),
            "missed": len(self.missed),
            "first_missed": self.missed[:10],
            "declare_ms": percentiles_ms(self.declare_s),
            "bind_ms": percentiles_ms(self.bind_s),
        }


def percentiles_ms(took_s: list[float]) -> dict[str, float]:
    if len(took_s) < 2:
        return {}
    parts = statistics.quantiles(took_s, n=100)
    return {"p50": round(1000 * parts[49], 3), "p99": round(1000 * parts[98], 3)}


class Tries:
    """Clients at each node of a cluster that runs, and the tries that they make."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._wires: dict[tuple[str, str], Wire] = {}
        self.outcome = Outcome()

    def prepare(self) -> None:
        """The exchange, a classic queue of each node, and a quorum queue."""
        self._cluster.declare_quorum(NAMES[0], [QUEUE])
        for name in NAMES:
            self._cluster.declare_classic(name, [f"of-{name}"])
            wire = self._wire(name, "declares")
            declared = wire.call(commands.Exchange.Declare(exchange=EXCHANGE, durable=True), channel=1)
            assert isinstance(declared, commands.Exchange.DeclareOk), declared

    def run(self, tries: int, fault_every: int, cuts: bool) -> None:
        """`fault_every`: of this number of tries the last one has a fault; 0: none has."""
        kinds: list[Callable[[str, str, str, str], None]] = [self._stopped, self._stopped_for_a_moment]
        if cuts:
            kinds += [self._cut_from_store, self._cut_from_declarer, self._cut_from_all]
        for number in range(tries):
            nodes = list(NAMES)
            self._random.shuffle(nodes)
            declares, publishes, third = nodes
            key = f"k{number}"
            if fault_every and number % fault_every == fault_every - 1:
                kind = kinds[number // fault_every % len(kinds)]
                self.outcome.tries[kind.__name__.strip("_")] += 1
                kind(key, declares, publishes, third)
            elif number % 4 == 3:
                self.outcome.tries["declared"] += 1
                self._declared(key, declares, publishes, third)
            else:
                self.outcome.tries["bound"] += 1
                queue = QUEUE if number % 2 else f"of-{declares}"
                self.outcome.bind_s.append(self._bind(key, declares, queue))
                self._publish(publishes, EXCHANGE, key, routed=True)
                self._unbind(key, declares, queue)
                self._publish(third, EXCHANGE, key, routed=False)

    def close(self) -> None:
        for wire in self._wires.values():
            wire.socket.close()

    # Tries

    def _declared(self, key: str, declares: str, publishes: str, third: str) -> None:
        wire, began_s = self._wire(declares, "declares"), time.perf_counter()
        answer = wire.call(commands.Queue.Declare(queue=key, durable=True), channel=1)
        self.outcome.declare_s.append(time.perf_counter() - began_s)
        assert isinstance(answer, commands.Queue.DeclareOk), answer
        self._publish(publishes, "", key, routed=True)
        answer = wire.call(commands.Queue.Delete(queue=key), channel=1)
        assert isinstance(answer, commands.Queue.DeleteOk), answer
        self._publish(third, "", key, routed=False)

    def _stopped(self, key: str, declares: str, publishes: str, third: str) -> None:
        """For longer than a lease; the publish is in its socket when it is continued."""
        with self._stop(publishes):
            stopped_s = time.monotonic()
            self._bind(key, declares, f"of-{declares}")
            time.sleep(max(0.0, STOPPED_S - (time.monotonic() - stopped_s)))  # it is the fault
            self._send(publishes, EXCHANGE, key)
        self._judge(publishes, key, routed=True)
        self._unbind(key, declares, f"of-{declares}")
        self._publish(third, EXCHANGE, key, routed=False)

    def _stopped_for_a_moment(self, key: str, declares: str, publishes: str, third: str) -> None:
        wire = self._wire(declares, "declares")
        with self._stop(publishes):
            wire.send(commands.Queue.Bind(0, f"of-{declares}", EXCHANGE, key), channel=1)
            time.sleep(self._random.uniform(0, LEASE_S / 2))  # it is the fault
        wire.expect(commands.Queue.BindOk)
        self._publish(publishes, EXCHANGE, key, routed=True)
        self._unbind(key, declares, f"of-{declares}")
        self._publish(third, EXCHANGE, key, routed=False)

    def _cut_from_store(self, key: str, declares: str, publishes: str, third: str) -> None:
        self._cut([(publishes, HERE)], key, declares, publishes)

    def _cut_from_declarer(self, key: str, declares: str, publishes: str, third: str) -> None:
        self._cut([(publishes, HERE), (publishes, declares)], key, declares, publishes)

    def _cut_from_all(self, key: str, declares: str, publishes: str, third: str) -> None:
        self._cut([(publishes, HERE), (publishes, declares), (publishes, third)], key, declares, publishes)

    def _cut(self, links: list[tuple[str, str]], key: str, declares: str, publishes: str) -> None:
        machines = self._cluster.machines
        assert machines is not None
        self._wire(publishes, "publishes")
        for one, other in links:
            machines.cut(one, other)
        self._bind(key, declares, f"of-{declares}")
        self._send(publishes, EXCHANGE, key)
        time.sleep(self._random.uniform(0, LEASE_S / 4))  # the cut lasts on
        machines.heal()
        self._judge(publishes, key, routed=True)
        self._unbind(key, declares, f"of-{declares}")
        self._publish(publishes, EXCHANGE, key, routed=False)

    # Steps

    def _wire(self, name: str, does: str) -> Wire:
        """Of this node, made once; its socket is on the node's own machine."""
        wire = self._wires.get((name, does))
        if wire is None:
            with self._cluster.inside(name):
                wire = Wire(self._cluster.brokers[name].port, timeout_s=PATIENCE_S)
            wire.open()
            wire.open_channel()
            if does == "publishes":
                answer = wire.call(commands.Confirm.Select(), channel=1)
                assert isinstance(answer, commands.Confirm.SelectOk), answer
            self._wires[name, does] = wire
        return wire

    def _bind(self, key: str, at: str, queue: str) -> float:
        """What it took."""
        began_s = time.perf_counter()
        answer = self._wire(at, "declares").call(commands.Queue.Bind(0, queue, EXCHANGE, key), channel=1)
        assert isinstance(answer, commands.Queue.BindOk), answer
        return time.perf_counter() - began_s

    def _unbind(self, key: str, at: str, queue: str) -> None:
        answer = self._wire(at, "declares").call(commands.Queue.Unbind(0, queue, EXCHANGE, key), channel=1)
        assert isinstance(answer, commands.Queue.UnbindOk), answer

    def _publish(self, at: str, exchange: str, key: str, *, routed: bool) -> None:
        self._send(at, exchange, key)
        self._judge(at, key, routed=routed)

    def _send(self, at: str, exchange: str, key: str) -> None:
        self._wire(at, "publishes").send_bytes(publish_bytes(1, exchange, key, b"try", mandatory=True))

    def _judge(self, at: str, key: str, *, routed: bool) -> None:
        verdict = self._verdict(at)
        self.outcome.verdicts[verdict] += 1
        if verdict != "closed" and (verdict != "returned") is not routed:
            self.outcome.missed.append(f"{key} at {at}: {verdict}, and it was {'' if routed else 'un'}bound")

    def _verdict(self, at: str) -> str:
        wire = self._wires[at, "publishes"]
        try:
            returned = False
            while True:
                kind, _, payload = wire.read_frame()
                if kind != 1:
                    continue
                method = payload[:4]
                if method == b"\x00\x3c\x00\x32":
                    returned = True
                elif method in (b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"):
                    return "returned" if returned else "acked" if method[3] == 0x50 else "nacked"
                elif method == b"\x00\x0a\x00\x32":
                    raise ConnectionError("connection.close")
        except ConnectionError:
            wire.socket.close()
            del self._wires[at, "publishes"]
            return "closed"

    @contextmanager
    def _stop(self, name: str) -> Iterator[None]:
        broker = self._cluster.brokers[name]
        self._wire(name, "publishes")
        broker.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            broker.send_signal(signal.SIGCONT)


def run(cluster: Cluster, tries: int, fault_every: int = 0, seed: int = 1, *, cuts: bool = False) -> Outcome:
    """Of a cluster that runs, with `ENVIRONMENT`."""
    made = Tries(cluster, seed)
    try:
        made.prepare()
        made.run(tries, fault_every, cuts)
    finally:
        made.close()
    return made.outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=1_000)
    parser.add_argument("--faults", type=int, default=0, help="after how many tries comes one with a fault; 0: never")
    parser.add_argument("--cuts", action="store_true", help="cut links, too")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    machines = Machines(NAMES) if given.cuts else None
    try:
        with tempfile.TemporaryDirectory() as directory:
            cluster = Cluster(Path(directory), NAMES, ENVIRONMENT, machines)
            try:
                cluster.start()
                outcome = run(cluster, given.tries, given.faults, given.seed, cuts=given.cuts)
            finally:
                cluster.close()
    finally:
        if machines is not None:
            machines.close()
    print(json.dumps(outcome.facts(), indent=1))
    return 1 if outcome.missed else 0


if __name__ == "__main__":
    sys.exit(main())
