"""A broker starts, with deleted queues to be forgotten, on a metadata store that does not take that.

What is verified: it gets ready all the same, and says why they are not forgotten; in a cluster it does not wait for
it. Not verified here: which are forgotten (`tests/topology/test_store.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands

from tests.clients.wire import Wire
from tests.harness.etcd import EtcdProcess

from .test_contained import BrokenBroker

HANGS = """
import sys
import trio
import amqpd.broker as b
import amqpd.topology.metadata.etcd.store as s
async def hangs(self, ids, keep=0):
    assert list(ids)
    print("it hangs", file=sys.stderr, flush=True)
    await trio.sleep_forever()
b.DROPPED_IN_CLUSTER_MAX = 0
s.EtcdStore.forget_dropped = hangs
"""
FULL = """
import amqpd.topology.metadata.sqlite.store as s
from amqpd.topology.metadata.store import StoreFull
async def full(self, ids, keep=0):
    assert list(ids)
    raise StoreFull('no space is left for it')
s.SqliteStore.forget_dropped = full
"""


def declare_and_delete(broker: BrokenBroker) -> None:
    wire = Wire(broker.port)
    try:
        wire.open()
        wire.open_channel()
        wire.call(commands.Queue.Declare(queue="q", durable=True), channel=1)
        wire.call(commands.Queue.Delete(queue="q"), channel=1)
    finally:
        wire.socket.close()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")
    process = EtcdProcess(tmp_path / "etcd")
    process.start()
    yield process
    process.stop()


@pytest.mark.slow
def test_a_store_that_is_full_does_not_keep_the_broker_from_starting(tmp_path: Path) -> None:
    broker = BrokenBroker(tmp_path / "data")
    try:
        broker.start()
        declare_and_delete(broker)
        assert broker.terminate() == 0
        broker.breaking = FULL
        broker.start()
        assert "no space is left for it" in broker.wait_log("old deletions are forgotten at a later start")
        declare_and_delete(broker)
        assert broker.terminate() == 0
    finally:
        broker.close()


@pytest.mark.slow
def test_a_node_of_a_cluster_does_not_wait_until_they_are_forgotten(tmp_path: Path, etcd: EtcdProcess) -> None:
    environment = {
        "AMQPD_CLUSTER_STORE": f"etcd://{etcd.endpoint}/test",
        "AMQPD_CLUSTER_LISTEN": "127.0.0.1:0",
        "AMQPD_NODE_NAME": "a",
    }
    broker = BrokenBroker(tmp_path / "data", environment=environment)
    try:
        broker.start()
        declare_and_delete(broker)
        assert broker.terminate() == 0
        broker.breaking = HANGS
        broker.start()
        broker.wait_log("it hangs")
        declare_and_delete(broker)
        assert broker.terminate() == 0
    finally:
        broker.close()
