"""Forwarders on machines of their own: processes, links and etcd fail under load, again and again.

What is verified: nothing confirmed at any side of a cut is lost, nothing that was refused comes out, what was settled
for sure stays so, the order of each publisher is kept; every publisher gets an answer, or its connection ends; who is
cut off from every majority confirms nothing; an epoch of a source has one leader; at the end all copies are equal, on
all disks. Printed: what was done, how often, and how long it took to the first confirm anywhere. Not verified: loss
and delay of single packets (no netem here). Run it again with the seed that a failure prints: `AMQPD_FAULT_SEED=...
AMQPD_FAULT_ROUNDS=... AMQPD_TEST_NODES=... pytest tests/faults/test_cluster_network.py`, or `make cluster-rounds`;
AMQPD_FAULT_LOGS names a directory that keeps the whole logs of the brokers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from ..harness.namespaces import Machines
from .checker import check
from .cluster import Cluster
from .cluster_faults import LEASE_S
from .cluster_judge import leaders_of, two_leaders, wait_equal
from .cluster_rounds import NEIGHBOURS, QUEUES, Rounds
from .drain import drain, look
from .probes import QUEUE
from .test_kill import fault_seed
from .workload import RECEIPTS

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

NAMES = "abcdefg"[: int(os.environ.get("AMQPD_TEST_NODES") or 3)]
ETCDS = 3
ROUNDS, ROUNDS_HEAVY = 2, 100
"""the long run makes each kind of fault three times"""
DAY_S = 86_400


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    machines = Machines(NAMES)
    try:
        environment = {"AMQPD_CLUSTER_LEASE_S": str(LEASE_S), "AMQPD_CLUSTER_COPIES": str(len(NAMES) - 1 | 1)}
        cluster = Cluster(tmp_path, NAMES, environment, machines, etcds=ETCDS, power=True)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()
    finally:
        machines.close()


T = TypeVar("T")


def led_here(cluster: Cluster, queues: list[str], do: Callable[[int, list[str]], T]) -> T:
    """With these queues, which have one leader, over its port."""
    leader = cluster.leader_of(queues)
    with cluster.inside(leader):
        return do(cluster.brokers[leader].port, queues)


def run_rounds(cluster: Cluster, seed: int, rounds: int) -> None:
    running = Rounds(cluster, seed)
    history = running.history
    history.events.append(f"seed {seed}, {rounds} rounds")
    try:
        cluster.declare_quorum(NAMES[0], [*QUEUES, QUEUE, RECEIPTS], QUEUES)
        for name, neighbour in zip(NAMES[1:], NEIGHBOURS, strict=False):
            cluster.declare_quorum(name, [neighbour])
        running.run(rounds)
        sources = wait_equal(cluster)
        history.incarnation += 1
        groups = [[*QUEUES, QUEUE], *([neighbour] for neighbour in NEIGHBOURS)]
        for queues in groups:
            led_here(cluster, queues, lambda port, names: drain(port, history, names))
        verdict = check(history, acks_are_durable=True)
        epochs = leaders_of({name: broker.log for name, broker in cluster.brokers.items()})
        print(f"seed {seed}, {rounds} rounds, {len(NAMES)} forwarders: {verdict.text()}\n{running.table()}")
        print(f"{len(epochs)} epochs had a leader each; {sources} sources have equal copies")
        assert verdict.valid, verdict.text()
        assert not (twice := two_leaders({name: broker.log for name, broker in cluster.brokers.items()})), twice
        for queues in groups:
            left = led_here(cluster, queues, look)
            assert not any(left.values()), f"came back after the drain: {left}"
        if rounds >= len(running.counts):
            assert all(running.counts.values()), running.table()
    except BaseException:
        print(history.text())
        print(f"Again with: make cluster-rounds SEED={seed} ROUNDS={rounds} NODES={len(NAMES)}")
        print(cluster.log)
        raise
    finally:
        if keep := os.environ.get("AMQPD_FAULT_LOGS"):
            for name, broker in cluster.brokers.items():
                Path(keep, f"{seed}-{name}.log").write_text(broker.log)


@pytest.mark.timeout(1200)
def test_the_network_fails(cluster: Cluster) -> None:
    run_rounds(cluster, fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS))


@pytest.mark.heavy
@pytest.mark.timeout(DAY_S)
def test_the_network_fails_many_times(cluster: Cluster) -> None:
    run_rounds(cluster, fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS_HEAVY))
