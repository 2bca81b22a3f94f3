"""The leader of queues is killed under load, again and again: what was confirmed is found at the next leader.

The next leader of quorum queues is another node; that of classic queues is the same node, when it is started again,
and until then no other one serves them. What is verified: nothing confirmed is lost, nothing that was refused or
never sent comes out, nothing that was settled for sure comes back, the order of each publisher is kept, an epoch of a
source has one leader; and how long it takes from the kill until the queues are served, which is printed (`make
takeover-times` measures it beside RabbitMQ). Run it again with the seed that a failure prints: `AMQPD_FAULT_SEED=...
AMQPD_FAULT_ROUNDS=... pytest tests/faults/test_cluster_kill.py`.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator

import pika
import pytest
from pika.exceptions import NackError

from .checker import check
from .cluster import Cluster, serves
from .cluster_judge import two_leaders
from .drain import drain, look
from .history import History, PublisherHistory, QueueHistory
from .test_kill import fault_seed
from .workload import RECEIPTS, start_workers

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

QUEUES = [f"killed{number}" for number in range(3)]
CONSUMED = QUEUES[:1]
ALL = [*QUEUES, RECEIPTS]
ROUNDS, ROUNDS_HEAVY = 1, 50
CONFIRMS_MAX = 15_000
CONFIRMS_DEADLINE_S = 300.0
ROUTES = {f"to-{queue}": ("", queue) for queue in QUEUES} | {"to-all": ("everyone", "")}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("killed"), environment={"AMQPD_FAST_TAKEOVER": "true"})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def run_rounds(cluster: Cluster, seed: int, rounds: int, kind: str = "quorum") -> None:
    """`kind`: of the queues."""
    moments = random.Random(seed)
    publishers = {queue: PublisherHistory(f"to-{queue}", (queue,)) for queue in QUEUES}
    everyone = PublisherHistory("to-all", tuple(QUEUES))
    history = History(
        {publisher.name: publisher for publisher in [*publishers.values(), everyone]},
        {queue: QueueHistory(queue) for queue in QUEUES},
    )
    history.events.append(f"seed {seed}, {rounds} rounds, {kind} queues")
    declare = cluster.declare_quorum if kind == "quorum" else cluster.declare_classic
    declare("a", ALL, QUEUES)
    leader = cluster.leader_of(ALL)
    found_s: list[float] = []
    try:
        for _ in range(rounds):
            confirms = moments.randint(1, CONFIRMS_MAX)
            broker = cluster.brokers[leader]
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
            history.events.append(f"incarnation {history.incarnation}: SIGKILL of {leader} after {confirms} confirms")
            history.incarnation += 1
            if kind == "quorum":
                leader = cluster.leader_of(ALL)
            else:
                refused_elsewhere(cluster, ALL)
                broker.start()
                assert cluster.leader_of(ALL) == leader
            found_s.append(time.monotonic() - killed_s)
            if not broker.running:
                broker.start()
        drain(cluster.brokers[leader].port, history)
        verdict = check(history, acks_are_durable=True)
        print(
            f"seed {seed}: {verdict.text()}\nserved again after s: median {statistics.median(found_s):.2f}, "
            f"worst {max(found_s):.2f}"
        )
        assert verdict.valid, verdict.text()
        assert not (twice := two_leaders({name: broker.log for name, broker in cluster.brokers.items()})), twice
        left = look(cluster.brokers[leader].port, list(history.queues))
        assert not any(left.values()), f"came back after the drain: {left}"
    except BaseException:
        print(history.text())
        print(f"Again with: AMQPD_FAULT_SEED={seed} AMQPD_FAULT_ROUNDS={rounds}")
        print(cluster.log)
        raise


def refused_elsewhere(cluster: Cluster, queues: list[str]) -> None:
    """While the node that has these classic queues is down: of each the others say so, and take no message for it."""
    for broker in cluster.brokers.values():
        if not broker.running:
            continue
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for queue in queues:
                with pytest.raises(NackError):
                    channel.basic_publish("", queue, b"nobody takes it", pika.BasicProperties(delivery_mode=2))
        assert not serves(broker.port, queues)


def delete(cluster: Cluster) -> None:
    """At any node, for another kind of queues."""
    with pika.BlockingConnection(pika.URLParameters(cluster.brokers["a"].url)) as connection:
        channel = connection.channel()
        for queue in ALL:
            channel.queue_delete(queue)


by_kind = pytest.mark.parametrize("kind", ["quorum", "classic"])


@by_kind
@pytest.mark.timeout(600)
def test_the_leader_is_killed(cluster: Cluster, kind: str) -> None:
    run_rounds(cluster, fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS), kind)
    delete(cluster)


@by_kind
@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_the_leader_is_killed_many_times(cluster: Cluster, kind: str) -> None:
    run_rounds(cluster, fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS_HEAVY), kind)
    delete(cluster)
