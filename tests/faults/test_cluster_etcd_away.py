"""Three forwarders, and etcd is away for long, comes back empty, or with an older copy of its data.

What is verified, of quorum and of classic queues: at each of three leaders a client publishes and consumes on while
etcd does not answer; declarations fail with a reason, within their bound; when etcd answers again, declarations, and
the take-over of a killed leader, are made without anybody's doing, while the classic queue of a killed node waits for
that; an etcd that lost data erases no message, each node reports it, and leaders serve on. Not verified here: one
node with its definitions in etcd (`tests/clients/test_cluster_store.py`), etcd that is away for seconds beside other
faults (`test_cluster_network.py`).
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from .cluster import Cluster, serves

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

NAMES = "abc"
LEADERS = {name: name for name in NAMES} | {f"classic-{name}": name for name in NAMES}
"""the leader of each queue"""
AWAY_S = 12.0
"""longer than all leases"""
AWAY_HEAVY_S = float(os.environ.get("AMQPD_TEST_OUTAGE_S") or 600)
REFUSED_S = 30.0
"""a declaration has its answer by then"""
BETWEEN_DECLARATIONS_S = 5.0
PACE_S = 0.02
"""between two messages: what is tried is whether they get through, not how many"""
ENDED_S = 9.0
"""what begins with SIGTERM is over: containers are killed after ten seconds"""
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, NAMES, {"AMQPD_FAST_TAKEOVER": "true"})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def connected(cluster: Cluster, name: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(cluster.brokers[name].url))


def declare(channel: BlockingChannel, queue: str) -> None:
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})


def declare_at_each(cluster: Cluster, names: str = NAMES) -> None:
    """Queues of both kinds at each of these forwarders, and led there."""
    for name in names:
        cluster.declare_quorum(name, [name])
        assert cluster.leader_of([name]) == name
        cluster.declare_classic(name, [f"classic-{name}"])


class Client(threading.Thread):
    """Publishes to a queue of its own at the queue's forwarder, with confirms, and consumes it with acks."""

    def __init__(self, cluster: Cluster, queue: str) -> None:
        super().__init__(daemon=True, name=f"client of {queue}")
        self._cluster, self._queue = cluster, queue
        self.stopping = threading.Event()
        self.sent: list[bytes] = []
        """and confirmed"""
        self.received: list[bytes] = []

    def run(self) -> None:
        """Until it is told to stop; an exception ends it early, and its counts show that."""
        leader = LEADERS[self._queue]
        with connected(self._cluster, leader) as publishing, connected(self._cluster, leader) as consuming:
            channel, other = publishing.channel(), consuming.channel()
            channel.confirm_delivery()
            other.basic_consume(self._queue, self._take)
            while not self.stopping.is_set():
                body = b"%d" % len(self.sent)
                channel.basic_publish("", self._queue, body, PERSISTENT, mandatory=True)
                self.sent.append(body)
                publishing.process_data_events(0)  # heartbeats
                consuming.process_data_events(PACE_S)
            while len(self.received) < len(self.sent):
                consuming.process_data_events(None)

    def _take(self, channel: BlockingChannel, method: pika.spec.Basic.Deliver, _: object, body: bytes) -> None:
        self.received.append(body)
        channel.basic_ack(method.delivery_tag)


def refused_everywhere(cluster: Cluster, words: str = "the metadata store does not answer") -> None:
    """A declaration at each forwarder, on a new connection."""
    for name in NAMES:
        began_s = time.monotonic()
        with connected(cluster, name) as connection, pytest.raises(ChannelClosedByBroker) as told:
            declare(connection.channel(), "refused")
        assert words in told.value.reply_text
        assert time.monotonic() - began_s < REFUSED_S


def run_outage(cluster: Cluster, away_s: float) -> None:
    declare_at_each(cluster)
    clients = [Client(cluster, queue) for queue in LEADERS]
    for client in clients:
        client.start()
    cluster.etcd.pause()
    until_s = time.monotonic() + away_s
    declarations = 0
    while True:
        refused_everywhere(cluster)
        declarations += len(NAMES)
        if time.monotonic() > until_s:
            break
        clients[0].join(BETWEEN_DECLARATIONS_S)  # a client that ends meanwhile has failed
    before = [len(client.sent) for client in clients]
    cluster.etcd.go_on()
    for name in NAMES:
        cluster.brokers[name].wait_log("declarations are made again")
        with connected(cluster, name) as connection:
            declare(connection.channel(), f"after-{name}")
    for client in clients:
        client.stopping.set()
        client.join(60)
        assert not client.is_alive(), client.name
        assert client.received == client.sent, client.name
    print(f"{away_s:.0f} s without etcd: {declarations} declarations refused, {before} messages at the three leaders")
    # Each did its work to the end: a round trip takes no second.
    assert min(before) > away_s
    assert all(cluster.leader_of([queue]) == name for queue, name in LEADERS.items())
    cluster.brokers["a"].kill()
    assert cluster.leader_of(["a", "after-a"]) != "a"
    assert not any(serves(cluster.brokers[name].port, ["classic-a"]) for name in "bc")
    cluster.brokers["a"].start()
    assert cluster.leader_of(["classic-a"]) == "a"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_clients_of_three_leaders_go_on_without_etcd(cluster: Cluster) -> None:
    run_outage(cluster, AWAY_S)


@pytest.mark.heavy
@pytest.mark.timeout(AWAY_HEAVY_S + 900)
def test_clients_of_three_leaders_go_on_without_etcd_for_long(cluster: Cluster) -> None:
    run_outage(cluster, AWAY_HEAVY_S)


def keep(cluster: Cluster, body: bytes) -> None:
    """One message to each queue, at its leader."""
    for queue, name in LEADERS.items():
        with connected(cluster, name) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", queue, body, PERSISTENT, mandatory=True)


def read(cluster: Cluster) -> dict[str, list[bytes]]:
    """What each queue has; taken off."""
    found: dict[str, list[bytes]] = {}
    with ExitStack() as closing:
        for queue, name in LEADERS.items():
            channel = closing.enter_context(connected(cluster, name)).channel()
            found[queue] = []
            while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                found[queue].append(got[2])
    return found


@pytest.mark.timeout(300)
def test_an_emptied_etcd_erases_no_message_of_a_cluster(cluster: Cluster) -> None:
    declare_at_each(cluster)
    keep(cluster, b"kept")
    cluster.etcd.kill()
    shutil.rmtree(cluster.etcd.directory)
    cluster.etcd.start()
    for broker in cluster.brokers.values():
        assert "is not what it was" in broker.wait_log("the metadata store went back")
    refused_everywhere(cluster, "the metadata store was emptied, replaced or put back")
    keep(cluster, b"kept too")
    assert read(cluster) == {queue: [b"kept", b"kept too"] for queue in LEADERS}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_older_copy_of_etcd_erases_no_message_of_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    declare_at_each(cluster, "a")
    cluster.etcd.stop()
    shutil.copytree(cluster.etcd.directory, tmp_path / "backup")
    cluster.etcd.start()
    declare_at_each(cluster, "bc")
    keep(cluster, b"kept")
    cluster.etcd.stop()
    shutil.rmtree(cluster.etcd.directory)
    shutil.copytree(tmp_path / "backup", cluster.etcd.directory)
    cluster.etcd.start()
    for broker in cluster.brokers.values():
        assert "is not what it was" in broker.wait_log("the metadata store went back")
    keep(cluster, b"kept too")
    assert read(cluster) == {queue: [b"kept", b"kept too"] for queue in LEADERS}
    # Nobody starts with definitions that are older than its messages, though others have written behind them.
    assert cluster.brokers["c"].terminate() == 0
    cluster.brokers["c"].spawn()
    assert cluster.brokers["c"].wait() == 1
    assert "was put back to an older copy" in cluster.brokers["c"].log


@pytest.mark.slow
def test_a_node_ends_in_time_while_etcd_is_away(cluster: Cluster) -> None:
    declare_at_each(cluster)
    for etcd in cluster.etcds:
        etcd.stop()
    broker = cluster.brokers["a"]
    began = time.monotonic()
    broker.send_signal(signal.SIGTERM)
    broker.wait()
    assert time.monotonic() - began < ENDED_S, broker.log[-3000:]
    assert "event=drained" in broker.log
