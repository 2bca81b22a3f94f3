"""Clients of real nodes that do not lead their queue, with `cluster_remote_queues`.

What is verified: publish, confirm, consume, get, count and purge through each node, of a quorum queue and of a
classic one; a leader that is killed, and one that moves, while a client of another node publishes and holds messages;
the node of a classic queue that is killed and started again; dead letters and delayed messages of another node. Not
verified here: each method and each fault (`tests/remote`), speed (`bench/`).
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.wire import Wire, publish_bytes
from tests.faults.cluster import BETWEEN_QUESTIONS_S, Cluster, serves

PERSISTENT = pika.BasicProperties(delivery_mode=2)
PERSISTENT_MESSAGE = commands.Basic.Properties(delivery_mode=2)
PREFETCH, MESSAGES = 5, 20
PATIENCE_S = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, environment={"AMQPD_CLUSTER_REMOTE_QUEUES": "true"})
    try:
        cluster.start()
        yield cluster
        assert "Traceback" not in cluster.log
    finally:
        cluster.close()


def command(cluster: Cluster, at: str, *words: str) -> str:
    broker = cluster.brokers[at]
    called = [sys.executable, "-m", "amqpd", *words]
    done = subprocess.run(
        called, env=broker.child_environment(), cwd=broker.checkout, capture_output=True, check=True, text=True
    )
    return done.stdout


def leader(cluster: Cluster) -> str:
    found = re.search(r"leader (\w+)@", command(cluster, "a", "quorum", "status", "orders"))
    assert found is not None
    return found[1]


@pytest.fixture
def channel_at(cluster: Cluster) -> Iterator[Callable[[str], BlockingChannel]]:
    """A channel of a connection of its own, at this node."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(
            pika.BlockingConnection(pika.URLParameters(cluster.brokers[name].url))
        ).channel()


def count(channel: BlockingChannel) -> int:
    return int(channel.queue_declare("orders", durable=True, passive=True).method.message_count)


@pytest.mark.parametrize("is_classic", [False, True], ids=["quorum", "classic"])
def test_each_node_serves_a_queue_that_one_of_them_leads(
    cluster: Cluster, channel_at: Callable[[str], BlockingChannel], is_classic: bool
) -> None:
    declare = cluster.declare_classic if is_classic else cluster.declare_quorum
    declare("a", ["orders"])
    for name in "abc":
        channel = channel_at(name)
        channel.confirm_delivery()
        for i in range(MESSAGES):
            channel.basic_publish("", "orders", f"{name}{i}".encode(), PERSISTENT)
        assert count(channel) == MESSAGES
        method, _, body = channel.basic_get("orders", auto_ack=True)
        assert (body, method.message_count) == (f"{name}0".encode(), MESSAGES - 1)
        channel.basic_qos(prefetch_count=PREFETCH)
        bodies = []
        for method, _, body in channel.consume("orders", inactivity_timeout=PATIENCE_S):
            assert method is not None, "nothing came"
            bodies.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(bodies) == MESSAGES - 2:
                break
        channel.cancel()
        assert bodies == [f"{name}{i}".encode() for i in range(1, MESSAGES - 1)]
        assert channel.queue_purge("orders").method.message_count == 1


@pytest.mark.parametrize("moves", [False, True], ids=["killed", "moved"])
def test_a_leader_that_is_lost_is_not_seen_by_clients_of_another_node(
    cluster: Cluster, channel_at: Callable[[str], BlockingChannel], moves: bool
) -> None:
    """They have no error, what is published meanwhile is confirmed, and what they hold does not come again. After a
    move nothing is `redelivered` either: the next leader knows what they had."""
    cluster.declare_quorum("a", ["orders"])
    leads = leader(cluster)
    here = next(name for name in "abc" if name != leads)
    publisher, consumer = channel_at(here), channel_at(here)
    publisher.confirm_delivery()
    consumer.basic_qos(prefetch_count=PREFETCH)
    got: list[tuple[bytes, bool, int]] = []
    consumer.basic_consume(
        "orders", lambda _, method, __, body: got.append((body, method.redelivered, method.delivery_tag))
    )
    for i in range(MESSAGES):
        publisher.basic_publish("", "orders", b"%d" % i, PERSISTENT)
    while len(got) < PREFETCH:
        consumer.connection.process_data_events(PATIENCE_S)
    if moves:
        command(cluster, leads, "quorum", "transfer", "orders", here)
    else:
        cluster.brokers[leads].kill()
    publisher.basic_publish("", "orders", b"after", PERSISTENT)
    settled = 0
    while len(got) < MESSAGES + 1 or settled < len(got):
        for _, _, tag in got[settled:]:
            consumer.basic_ack(tag)
        settled = len(got)
        consumer.connection.process_data_events(PATIENCE_S if len(got) < MESSAGES + 1 else 0)
    assert sorted(body for body, _, _ in got) == sorted([b"after", *(b"%d" % i for i in range(MESSAGES))])
    assert not any(redelivered for _, redelivered, _ in (got if moves else got[:PREFETCH]))
    assert count(publisher) == 0


def test_dead_letters_and_delayed_messages_come_to_a_queue_of_another_node_whose_leader_is_killed(
    cluster: Cluster, channel_at: Callable[[str], BlockingChannel]
) -> None:
    """Each once: the process where they died, or waited, lives."""
    cluster.declare_quorum("a", ["orders"])
    leads = leader(cluster)
    here = next(name for name in "abc" if name != leads)
    channel = channel_at(here)
    channel.confirm_delivery()
    to_orders = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders", "x-message-ttl": 100}
    channel.queue_declare("dying", durable=True, arguments=to_orders)
    delayed = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 100})
    expected = []
    for i in range(MESSAGES):
        if i == MESSAGES // 2:
            cluster.brokers[leads].kill()
        channel.basic_publish("", "dying", b"dead %d" % i, PERSISTENT)
        channel.basic_publish("", "orders", b"delayed %d" % i, delayed)
        expected += [b"dead %d" % i, b"delayed %d" % i]
    bodies = []
    for method, _, body in channel.consume("orders", auto_ack=True, inactivity_timeout=PATIENCE_S):
        assert method is not None, f"{len(bodies)} came, and nothing more"
        bodies.append(body)
        if len(bodies) == len(expected):
            break
    channel.cancel()
    assert sorted(bodies) == sorted(expected)
    assert count(channel) == 0
    left = channel.queue_declare("dying", durable=True, passive=True)
    assert left.method.message_count == 0


def test_the_node_of_a_classic_queue_is_killed_and_started_again(
    cluster: Cluster, channel_at: Callable[[str], BlockingChannel]
) -> None:
    """For clients of another node nothing that was confirmed is lost, and nothing comes twice that is not
    `redelivered`. Within ten seconds, and
    if they are linked again within two, which a busy machine does not always keep, they see nothing of it."""
    cluster.declare_classic("a", ["orders"])
    consumer = channel_at("b")
    consumer.basic_qos(prefetch_count=PREFETCH)
    got, cancelled = list[tuple[bytes, bool, int]](), list[object]()

    def consume() -> None:
        consumer.basic_consume(
            "orders", lambda _, method, __, body: got.append((body, method.redelivered, method.delivery_tag))
        )

    consumer.add_on_cancel_callback(cancelled.append)
    consume()
    with Wire(cluster.brokers["b"].port) as publisher:
        publisher.open()
        publisher.open_channel()
        publisher.call(commands.Confirm.Select(), channel=1)
        for i in range(MESSAGES):
            publisher.send_bytes(publish_bytes(1, "", "orders", b"%d" % i, PERSISTENT_MESSAGE))
        while len(got) < PREFETCH:
            consumer.connection.process_data_events(PATIENCE_S)
        cluster.brokers["a"].kill()
        for i in range(MESSAGES, 2 * MESSAGES):
            publisher.send_bytes(publish_bytes(1, "", "orders", b"%d" % i, PERSISTENT_MESSAGE))
        cluster.brokers["a"].start()
        refused, decided = set[int](), 0
        while decided < 2 * MESSAGES:
            answer = publisher.read_method()[1]
            if isinstance(answer, commands.Basic.Nack):
                refused.add(answer.delivery_tag)
            else:
                assert isinstance(answer, commands.Basic.Ack), answer
                decided = max(decided, answer.delivery_tag)
            while decided + 1 in refused:
                decided += 1
    confirmed = {b"%d" % i for i in range(2 * MESSAGES) if i + 1 not in refused}
    consumer.connection.process_data_events(0)
    if cancelled:
        while not serves(cluster.brokers["b"].port, ["orders"]):
            time.sleep(BETWEEN_QUESTIONS_S)
        consume()
    settled = 0
    while not confirmed <= {body for body, _, _ in got} or settled < len(got):
        for _, _, tag in got[settled:]:
            consumer.basic_ack(tag)
        settled = len(got)
        consumer.connection.process_data_events(PATIENCE_S if settled == len(got) else 0)
    seen = set[bytes]()
    for body, redelivered, _ in got:
        assert redelivered or body not in seen, body
        seen.add(body)
    assert not any(redelivered for _, redelivered, _ in got[:PREFETCH])
    assert count(consumer) == 0
