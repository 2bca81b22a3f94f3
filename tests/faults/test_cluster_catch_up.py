"""A forwarder was away for longer than entries are kept: it is caught up by state, and then has everything.

What is verified: a majority that needs it confirms again only when it has caught up; what it has is what the queue
had. Real processes and disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from .cluster import Cluster

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

QUORUM = {"x-queue-type": "quorum"}
BODY_BYTES = 100_000
MESSAGES, TAKEN = 750, 250
"""together well above what a leader keeps as entries (64 MB)"""
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, environment={"AMQPD_FAST_TAKEOVER": "true"})
    try:
        cluster.start()
        yield cluster
    except BaseException:
        print(cluster.log)
        raise
    finally:
        cluster.close()


@pytest.fixture
def channel_of(cluster: Cluster) -> Iterator[Callable[[str], BlockingChannel]]:
    """Of a forwarder, in confirm mode."""
    opened: list[pika.BlockingConnection] = []

    def open_one(name: str) -> BlockingChannel:
        opened.append(pika.BlockingConnection(pika.URLParameters(cluster.brokers[name].url)))
        channel = opened[-1].channel()
        channel.confirm_delivery()
        return channel

    yield open_one
    for connection in opened:
        with suppress(AMQPError):  # its broker may be gone
            connection.close()


def body(number: int) -> bytes:
    return (b"%06d" % number).ljust(BODY_BYTES, b".")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_replica_that_was_away_for_long_is_caught_up_by_state(
    cluster: Cluster, channel_of: Callable[[str], BlockingChannel]
) -> None:
    channel = channel_of("a")
    channel.queue_declare("orders", durable=True, arguments=QUORUM)
    channel.basic_publish("", "orders", body(0), PERSISTENT)
    cluster.brokers["c"].kill()
    for number in range(1, MESSAGES):
        channel.basic_publish("", "orders", body(number), PERSISTENT)
    for number in range(TAKEN):
        got: Any = channel.basic_get("orders")
        assert got[2] == body(number)
        channel.basic_ack(got[0].delivery_tag)
    cluster.brokers["c"].start()
    cluster.brokers["b"].kill()
    channel.basic_publish("", "orders", body(MESSAGES), PERSISTENT)  # a majority is a and c
    assert "peer_is_sent_state" in cluster.brokers["a"].log
    cluster.brokers["a"].kill()
    cluster.brokers["b"].start()
    leader = cluster.leader_of(["orders"])
    assert leader in ("b", "c")
    channel = channel_of(leader)
    found = []
    while True:
        got = channel.basic_get("orders", auto_ack=True)
        if got[0] is None:
            break
        assert len(got[2]) == BODY_BYTES
        found.append(int(got[2][:6]))
    assert found == list(range(TAKEN, MESSAGES + 1))
