"""Nodes whose machines are called otherwise at the next start, as containers are: they go on as who they were."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ..clients.broker_process import BrokerFailed, BrokerProcess
from .cluster import Cluster

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a host name of one's own needs root and unshare"
)


def called(host: str) -> Sequence[str]:
    return ("unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh")


def test_a_node_alone_keeps_its_name_until_another_one_is_set(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, environment={"AMQPD_NODE_NAME": "a"}, prefix=called("old"))
    try:
        broker.start()
        broker.terminate()
        broker.prefix = list(called("new"))
        broker.start()
        assert "node_name=a@old" in broker.wait_log("the machine's name changed")
        broker.terminate()
        broker.environment["AMQPD_NODE_NAME"] = "a@new"
        broker.start()
        assert "before=a@old" in broker.wait_log("the node has another name from now on")
    finally:
        broker.close()


@pytest.mark.slow
def test_a_cluster_whose_machines_are_called_otherwise_goes_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        for name, broker in cluster.brokers.items():
            broker.prefix = list(called(f"{name}-1"))
        cluster.start()
        cluster.declare_quorum("a", ["q"])
        cluster.declare_classic("b", ["classic"])
        for broker in cluster.brokers.values():
            broker.terminate(60)
        for name, broker in cluster.brokers.items():
            broker.prefix = list(called(f"{name}-2"))
            broker.spawn()
        for broker in cluster.brokers.values():
            broker.wait_ready()
        cluster.leader_of(["q"])
        assert cluster.leader_of(["classic"]) == "b"
        assert {"a@a-1", "b@b-1", "c@c-1"} <= set(re.findall(r"\w@\w-\d", json.dumps(cluster.status())))
        assert "-2" not in json.dumps(cluster.status())
        broker = cluster.brokers["a"]
        broker.terminate(60)
        broker.environment["AMQPD_NODE_NAME"] = "d"
        with pytest.raises(BrokerFailed, match="has the data of the cluster's node a@a-1"):
            broker.start()
    finally:
        cluster.close()
