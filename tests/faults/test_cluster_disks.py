"""A cluster whose forwarders have three disks each: the leader is killed and loses one of them, again and again.

What is verified, of quorum and of classic queues: as in `test_cluster_kill.py`, and that the emptied disk has what
the others have in the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ..clients.broker_process import BrokerProcess
from .cluster import Cluster
from .test_cluster_kill import by_kind, run_rounds
from .test_disks import assert_equal, empty, stop, wait_all_in
from .test_kill import fault_seed

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

ROUNDS = 2


def disks_of(broker: BrokerProcess) -> list[Path]:
    return [broker.data_dir, *(broker.data_dir.with_name(f"{broker.data_dir.name}{number}") for number in (2, 3))]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, environment={"AMQPD_FAST_TAKEOVER": "true"})
    for broker in cluster.brokers.values():
        broker.arguments = [word for each in disks_of(broker)[1:] for word in ("--data-dir", str(each))]
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@by_kind
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_leader_is_killed_and_loses_a_disk(cluster: Cluster, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = fault_seed()
    chance = random.Random(seed)
    emptied: list[Path] = []

    def start(broker: BrokerProcess) -> None:
        emptied.append(chance.choice(disks_of(broker)))
        empty(emptied[-1])
        BrokerProcess.start(broker)

    for broker in cluster.brokers.values():
        monkeypatch.setattr(broker, "start", partial(start, broker))
    run_rounds(cluster, seed, ROUNDS, kind)
    assert len(emptied) == ROUNDS
    for broker in cluster.brokers.values():
        wait_all_in(broker, disks_of(broker))
    for name, broker in cluster.brokers.items():
        stop(broker)
        if kind == "quorum" or name == "a":  # the others have nothing of classic queues
            assert_equal(disks_of(broker))
