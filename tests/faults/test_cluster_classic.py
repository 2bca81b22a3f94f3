"""Classic queues in a cluster of real nodes: each is of one node, whatever happens at the others.

What is verified: what clients of another node are told, while its node lives and while it is down; a node that comes
back has what it had; the queues of a node that was forgotten go to others, and what its disk has of them is parked;
queues without a node (of a version before, or imported while no node lived) get one, and no message is lost by that.
Not verified here: which node claims what (`tests/cluster/test_unclaimed_queues.py`), two nodes in one process
(`tests/node/test_whose_queue.py`).
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pika.exceptions
import pytest
import trio

from amqpd.setting_types import host_name
from amqpd.topology.metadata.codec import decode_record, encode_record
from amqpd.topology.metadata.etcd.gateway import EtcdAccess
from amqpd.topology.metadata.etcd.store import EtcdStore
from amqpd.topology.metadata.store import PutKey
from amqpd.vocabulary.records import QueueRecord

from .cluster import serves
from .test_cluster_operators import BETWEEN_QUESTIONS_S, SEEN_DEADLINE_S, Make, Operated, make, start

__all__ = ["make"]

HOST = host_name()


def leader(name: str) -> str:
    return f"{name}@{HOST}"


def declare(cluster: Operated, at: str, queue: str, **options: Any) -> None:
    with cluster.channel(at) as channel:
        channel.queue_declare(queue, durable=True, **options)


def refusal(cluster: Operated, at: str, act: Callable[[Any], object]) -> str:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused, cluster.channel(at) as channel:
        act(channel)
    assert refused.value.reply_code == 404
    return str(refused.value.reply_text)


def until(holds: Callable[[], object], cluster: Operated) -> None:
    deadline = time.monotonic() + SEEN_DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, cluster.log
        time.sleep(BETWEEN_QUESTIONS_S)  # another process does it


def counts(cluster: Operated, at: str) -> dict[str, int | None]:
    """Messages by queue, as a node's command line says them."""
    return {row["name"]: row["messages"] for row in json.loads(cluster.ok(at, "queue", "list", "--json"))}


def test_another_node_leaves_a_queue_alone_and_says_whose_it_is(make: Make) -> None:
    cluster = make("abc", up="abc")
    declare(cluster, "a", "orders")
    declare(cluster, "a", "leaving", auto_delete=True)
    declare(cluster, "a", "expiring", arguments={"x-expires": 1_000})
    cluster.publish("a", "orders", [b"1", b"2"])
    with cluster.channel("a") as consuming:
        for queue in ("leaving", "expiring"):
            consuming.basic_consume(queue, lambda *_: None)
        for act in (
            lambda channel: channel.queue_declare("orders", passive=True),
            lambda channel: channel.queue_declare("orders", durable=True),
            lambda channel: channel.basic_consume("leaving", lambda *_: None),
            lambda channel: channel.basic_get("expiring"),
            lambda channel: channel.queue_delete("orders", if_empty=True),
            lambda channel: channel.queue_purge("orders"),
        ):
            said = refusal(cluster, "b", act)
            assert f"home node '{leader('a')}' of durable queue" in said
            assert said.endswith("is another node: connect to that one")
        with cluster.channel("b") as channel:
            channel.confirm_delivery()
            with pytest.raises(pika.exceptions.NackError):
                channel.basic_publish("", "orders", b"3", pika.BasicProperties(delivery_mode=2))
        # The others count three times as long as the queue may be unused.
        consuming.connection.process_data_events(3)
        assert counts(cluster, "c") == {"orders": 2, "leaving": 0, "expiring": 0}
    # Its own node ends them: the one with its last consumer, the other when its time has come.
    until(lambda: counts(cluster, "b") == {"orders": 2}, cluster)
    assert "2 ready messages are gone" in cluster.ok("b", "queue", "purge", "orders")
    assert cluster.ok("c", "queue", "delete", "orders", "--if-empty").startswith("deleted queue")
    declare(cluster, "b", "orders")
    assert serves(cluster.brokers["b"].port, ["orders"])


def test_a_queue_of_a_node_that_is_down_waits_for_it(make: Make) -> None:
    cluster = make("abc", up="abc")
    declare(cluster, "a", "orders")
    cluster.publish("a", "orders", [b"1", b"2"])
    cluster.brokers["a"].kill()
    down = f"NOT_FOUND - home node '{leader('a')}' of durable queue 'orders' in vhost '/' is down or inaccessible"
    until(
        lambda: refusal(cluster, "b", lambda channel: channel.queue_declare("orders", durable=True)) == down, cluster
    )
    broker = cluster.brokers["a"]
    broker.start()
    assert "classic queues of this node are empty" not in broker.log
    assert cluster.drain("orders") == [b"1", b"2"]
    # With its disk it loses them, and says so.
    cluster.publish("a", "orders", [b"3"])
    broker.kill()
    shutil.rmtree(broker.data_dir)
    broker.start()
    assert cluster.drain("orders") == []
    assert 'event="classic queues of this node are empty" component=broker queues=1' in broker.log, broker.log


@pytest.mark.slow
def test_the_queues_of_a_forgotten_node_go_to_others_and_its_messages_are_parked(make: Make) -> None:
    cluster = make("abc", up="abc")
    for number in range(4):
        declare(cluster, "c", f"q{number}")
        cluster.publish("c", f"q{number}", [b"on c"])
    cluster.brokers["c"].kill()
    cluster.ok("a", "cluster", "forget", "c")
    until(lambda: all(any(serves(cluster.brokers[at].port, [f"q{n}"]) for at in "ab") for n in range(4)), cluster)
    assert counts(cluster, "a") == {f"q{number}": 0 for number in range(4)}
    cluster.ok("a", "cluster", "readmit", "c")
    cluster.brokers["c"].start()
    assert len(json.loads(cluster.ok("c", "orphans", "list", "--json"))) == 4
    assert counts(cluster, "c") == {f"q{number}": 0 for number in range(4)}


@pytest.mark.slow
def test_queues_that_no_node_has_claimed_get_one_and_keep_their_messages(make: Make) -> None:
    """As in a store of before 0.2, where each node had a queue of its own of that name."""
    cluster = make("abc", up="abc")
    for at in "ab":
        declare(cluster, at, f"of-{at}")
        cluster.publish(at, f"of-{at}", [b"1", b"2"])
    declare(cluster, "c", "idle")
    for broker in cluster.brokers.values():
        assert broker.terminate() == 0
    trio.run(without_nodes, cluster)
    start(cluster, "c")
    said = refusal(cluster, "c", lambda channel: channel.queue_declare("idle", durable=True))
    assert said == (
        "NOT_FOUND - durable queue 'idle' in vhost '/' has no node yet: it gets one when all nodes of the cluster "
        "have been started, or were forgotten"
    )
    start(cluster, "ab")
    assert serves(cluster.brokers["a"].port, ["of-a"])
    assert serves(cluster.brokers["b"].port, ["of-b"])
    until(lambda: any(serves(broker.port, ["idle"]) for broker in cluster.brokers.values()), cluster)
    for at in "ab":
        assert cluster.drain(f"of-{at}") == [b"1", b"2"]


async def without_nodes(cluster: Operated) -> None:
    """Takes the nodes out of all queues' records."""
    store = EtcdStore(EtcdAccess((cluster.etcd.endpoint,), None), "test/", "these tests", make=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for entry in (await store.range("topology/queue/")).entries:
            record = decode_record(entry.key, entry.value)
            assert isinstance(record, QueueRecord)
            assert record.node
            await store.transact((), (PutKey(entry.key, encode_record(replace(record, node=""))),))
        await store.aclose()
