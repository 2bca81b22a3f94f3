"""Starts of real nodes: one that is stopped (SIGSTOP) for longer than it waits for etcd, one that was forgotten."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from amqpd.setting_types import complete_node_name
from amqpd.topology.metadata.etcd.patience import WAIT_S

from ..clients.broker_process import BrokerProcess
from .cluster import Cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, "ab")
    try:
        made.start()
        yield made
    finally:
        made.etcd.go_on()
        made.close()


def test_a_node_that_is_stopped_while_it_asks_etcd_goes_on(cluster: Cluster) -> None:
    """It has asked, and is answered while it is stopped. A second time when it is further."""
    broker = cluster.brokers["b"]
    broker.kill()
    cluster.etcd.pause()
    broker.spawn()
    while not asks(broker, cluster.etcd.port):
        time.sleep(0.01)
    for recovered in (False, True):
        if recovered:
            broker.wait_log(r"\brecovered\b")
        broker.send_signal(signal.SIGSTOP)
        cluster.etcd.go_on()
        time.sleep(WAIT_S + 1)  # that is the pause
        broker.send_signal(signal.SIGCONT)
    broker.wait_ready()


def asks(broker: BrokerProcess, port: int) -> bool:
    """It is connected to etcd, whose system takes connections also while etcd is stopped."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(broker.broker_pid).net_connections("tcp")
        return any(each.raddr and each.raddr.port == port for each in found)
    return False


def test_a_node_that_was_forgotten_does_not_come_back_by_itself(cluster: Cluster) -> None:
    broker, name = cluster.brokers["b"], str(complete_node_name("b"))
    assert broker.terminate() == 0
    assert f"{name} is forgotten" in ask(cluster, "forget", "b")
    broker.spawn()
    assert broker.wait() == 1
    sentence = broker.log.splitlines()[-1]
    assert sentence.startswith(f"amqpd: an operator has taken the node {name}, with this disk, out of the cluster")
    assert f"amqpd cluster readmit {name}" in sentence
    assert f"node {name} at 127.0.0.1:" in ask(cluster, "status"), "the nodes that go on say who asks"
    needs = json.loads(run(cluster, "status", "--data-dir", str(cluster.brokers["a"].data_dir), "--json"))[
        "needs_attention"
    ]
    assert ("forgotten", name) in {(need["kind"], need["subject"]["node"]) for need in needs}
    assert f"{name} may start again" in ask(cluster, "readmit", "b")
    broker.start()
    assert broker.terminate() == 0
    ask(cluster, "forget", "b")
    shutil.rmtree(broker.data_dir)
    broker.start()
    assert {row["name"]: row["lives"] for row in cluster.status()["members"]}[name]


def ask(cluster: Cluster, *words: str) -> str:
    return run(cluster, "cluster", *words)


def run(cluster: Cluster, *words: str) -> str:
    broker = cluster.brokers["a"]
    found = subprocess.run(
        [sys.executable, "-m", "amqpd", *words],
        env=broker.child_environment(),
        cwd=broker.checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout
