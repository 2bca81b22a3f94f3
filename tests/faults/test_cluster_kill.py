"""The home of quorum queues is killed under load, again and again: what was confirmed is found at the next home.

What is verified: nothing confirmed is lost, nothing that was refused or never sent comes out, nothing that was
settled for sure comes back, the order of each publisher is kept, an epoch of a source has one home; and how long it
takes from the kill until the next home serves, which is printed (`make takeover-times` measures it beside RabbitMQ).
Run it again with the seed that a failure prints: `AMQPD_FAULT_SEED=... AMQPD_FAULT_ROUNDS=... pytest
tests/faults/test_cluster_kill.py`.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .checker import check
from .cluster import Cluster
from .cluster_judge import two_homes
from .drain import drain, look
from .history import History, PublisherHistory, QueueHistory
from .test_kill import fault_seed
from .workload import RECEIPTS, start_workers

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

QUEUES = [f"quorum{number}" for number in range(3)]
CONSUMED = QUEUES[:1]
ALL = [*QUEUES, RECEIPTS]
ROUNDS, ROUNDS_HEAVY = 1, 50
CONFIRMS_MAX = 15_000
CONFIRMS_DEADLINE_S = 300.0
ROUTES = {f"to-{queue}": ("", queue) for queue in QUEUES} | {"to-all": ("everyone", "")}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, environment={"AMQPD_FAST_TAKEOVER": "true"})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def run_rounds(cluster: Cluster, seed: int, rounds: int) -> None:
    moments = random.Random(seed)
    publishers = {queue: PublisherHistory(f"to-{queue}", (queue,)) for queue in QUEUES}
    everyone = PublisherHistory("to-all", tuple(QUEUES))
    history = History(
        {publisher.name: publisher for publisher in [*publishers.values(), everyone]},
        {queue: QueueHistory(queue) for queue in QUEUES},
    )
    history.events.append(f"seed {seed}, {rounds} rounds")
    cluster.declare_quorum("a", ALL, QUEUES)
    home = cluster.home_of(ALL)
    found_s: list[float] = []
    try:
        for _ in range(rounds):
            confirms = moments.randint(1, CONFIRMS_MAX)
            broker = cluster.brokers[home]
            progress, workers = start_workers(broker.port, history, ROUTES, CONSUMED)
            try:
                progress.wait(confirms, CONFIRMS_DEADLINE_S)
            finally:
                progress.killed = True
                broker.kill()
                killed_s = time.monotonic()
                for worker in workers:
                    worker.join(120)
                    assert not worker.is_alive(), worker.name
            history.events.append(f"life {history.life}: SIGKILL of {home} after {confirms} confirms")
            history.life += 1
            home = cluster.home_of(ALL)
            found_s.append(time.monotonic() - killed_s)
            broker.start()
        drain(cluster.brokers[home].port, history)
        verdict = check(history, acks_are_durable=True)
        print(
            f"seed {seed}: {verdict.text()}\nserved again after s: median {statistics.median(found_s):.2f}, "
            f"worst {max(found_s):.2f}"
        )
        assert verdict.valid, verdict.text()
        assert not (twice := two_homes({name: broker.log for name, broker in cluster.brokers.items()})), twice
        left = look(cluster.brokers[home].port, list(history.queues))
        assert not any(left.values()), f"came back after the drain: {left}"
    except BaseException:
        print(history.text())
        print(f"Again with: AMQPD_FAULT_SEED={seed} AMQPD_FAULT_ROUNDS={rounds}")
        print(cluster.log)
        raise


@pytest.mark.timeout(600)
def test_the_home_is_killed(cluster: Cluster) -> None:
    run_rounds(cluster, fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS))


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_the_home_is_killed_many_times(cluster: Cluster) -> None:
    run_rounds(cluster, fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS_HEAVY))
