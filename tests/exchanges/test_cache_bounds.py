"""Caches that clients fill are counted in bytes, alone and together, and given back when their owner goes.

Counted twice where it can be: by the broker's own accounting, and by tracemalloc, which knows nothing of it.
Transactions that are rolled back route without storing: what stays is the caches.
"""

from __future__ import annotations

import pytest
from pamqp import commands

from amqpd.exchanges.cache_memory import CacheMemory
from amqpd.exchanges.hash_slots import PAGE_BYTES
from amqpd.publishing import publish as publishing
from amqpd.publishing import routes, routing
from amqpd.topology import state
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord, Put, QueueRecord
from tests.harness.harness import Client, Harness, publish_bytes
from tests.harness.resident import KIB, MIB, traced
from tests.topology.samples import routed

GROUPS, QUEUES_A_GROUP = 12, 50


def fan_out(harness: Harness) -> None:
    """`wide` is bound to 600 queues: those of group g take what has the word `g` in its routing key."""
    harness._apply([Put(ExchangeRecord("/", "wide", "topic"))])
    for group in range(GROUPS):
        for number in range(QUEUES_A_GROUP):
            name = f"q{group}.{number}"
            harness._apply([Put(QueueRecord("/", name, harness.queue_id(), durable=False))])
            harness._apply([Put(BindingRecord("/", "wide", name, "queue", f"#.g{group}.#"))])


def key_of(subset: int) -> str:
    return ".".join(f"g{group}" for group in range(GROUPS) if subset >> group & 1)


def publish_and_roll_back(client: Client, publishes: list[bytes]) -> None:
    for at in range(0, len(publishes), 100):
        client.raw(b"".join(publishes[at : at + 100]))
        client.call(commands.Tx.Rollback(), commands.Tx.RollbackOk)


def tx_client(harness: Harness) -> Client:
    client = harness.client()
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    return client


def test_the_queues_of_a_route_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "ROUTES_BYTES_MAX", MIB)
    harness = Harness()
    fan_out(harness)
    client = tx_client(harness)
    publishes = [publish_bytes(b"", key_of(subset), "wide") for subset in range(1, 2001)]
    with traced() as resident:
        publish_and_roll_back(client, publishes)
    # The exchange's own cache of names is in it too.
    assert resident[0] < 5 * MIB, f"{resident[0] / MIB:.1f} MiB"
    assert client.connection.routes.nbytes <= MIB


def test_equal_queues_of_routes_are_there_once() -> None:
    """As the attack does it: many keys, all of which go to all queues."""
    harness = Harness()
    fan_out(harness)
    everything = key_of(2**GROUPS - 1)
    client = tx_client(harness)
    publishes = [publish_bytes(b"", f"{everything}.{number}", "wide") for number in range(2000)]
    with traced() as resident:
        publish_and_roll_back(client, publishes)
    assert len(client.connection.routes.known) == 2000
    assert resident[0] < 5 * MIB, f"{resident[0] / MIB:.1f} MiB"


@pytest.mark.slow
def test_the_routes_of_all_connections_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "ALL_ROUTES_BYTES_MAX", 2 * MIB, raising=False)
    harness = Harness()
    clients = [harness.client() for _ in range(8)]
    publishes = b"".join(publish_bytes(b"", f"key.{number}") for number in range(2500))
    with traced() as resident:
        for client in clients:
            client.raw(publishes)
    assert resident[0] < 3 * MIB, f"{resident[0] / MIB:.1f} MiB"
    assert clients[-1].connection.routes.known
    assert not clients[0].connection.routes.known, "the one that was idle longest gives way"


@pytest.mark.parametrize("end", ["lost", "closing", "closed"])
def test_a_connection_that_ends_gives_its_routes_back_at_once(end: str) -> None:
    harness = Harness()
    client = harness.client()
    client.raw(b"".join(publish_bytes(b"", f"key.{number}") for number in range(100)))
    assert len(client.connection.routes.known) == 100
    if end == "lost":
        client.lose()
    elif end == "closing":
        client.connection.force_close("the test says so")
    else:
        client.call(commands.Connection.Close(200, "bye", 0, 0), commands.Connection.CloseOk, 0)
    assert not client.connection.routes.known
    assert harness.node.routes.memory.nbytes == 0


def test_an_idle_connection_keeps_no_routes_of_an_earlier_topology() -> None:
    """They hold queues that are deleted."""
    harness = Harness()
    client, other = harness.client(), harness.client()
    client.publish(b"x", "q")
    other.declare("another")
    assert client.connection.routes.known
    client.connection.liveness.on_timer(0.0)
    assert not client.connection.routes.known
    client.publish(b"x", "q")
    assert client.connection.routes.known


def test_the_nodes_own_routes_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letter routing keys are chosen by clients."""
    monkeypatch.setattr(routes, "NODE_ROUTES_BYTES_MAX", 256 * KIB, raising=False)
    harness = Harness()
    fan_out(harness)
    with traced() as resident:
        for subset in range(1, 1000):
            routing.find(harness.node, "/", "wide", key_of(subset))
    # The exchange's own cache of names is in it too.
    assert resident[0] < 3 * MIB, f"{resident[0] / MIB:.1f} MiB"


def test_hash_exchanges_cost_what_they_are_used_for() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q")
    count = 200
    for number in range(count):
        harness._apply([Put(ExchangeRecord("/", f"hash{number}", "x-consistent-hash"))])
        harness._apply([Put(BindingRecord("/", f"hash{number}", "q", "queue", "1"))])
    with traced() as resident:
        for number in range(count):
            client.publish(b"", "k", f"hash{number}")
    assert resident[0] < count * 4 * KIB, f"{resident[0] / count / KIB:.0f} KiB for each exchange"


def test_what_exchanges_remember_is_bounded_together_and_goes_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MATCH_CACHES_BYTES_MAX", 20 * PAGE_BYTES)
    topology = state.Topology()
    harness = Harness()
    topology.apply([Put(record) for record in harness.topology.vhost_records.values()])
    for number in range(40):
        topology.apply([Put(ExchangeRecord("/", f"hash{number}", "x-consistent-hash"))])
        topology.apply([Put(BindingRecord("/", f"hash{number}", "q", "queue", "1"))])
        topology.apply([Put(ExchangeRecord("/", f"topic{number}", "topic"))])
        topology.apply([Put(BindingRecord("/", f"topic{number}", "q", "queue", "a.*"))])
    topology.apply([Put(QueueRecord("/", "q", 1))])
    vhost, memory = topology.vhosts["/"], topology._match_caches
    for key in range(60):
        for number in range(40):
            assert routed(vhost, f"hash{number}", str(key)) == ("q",)
            assert routed(vhost, f"topic{number}", f"a.{key}") == ("q",)
            assert memory.nbytes <= memory.bytes_max
    assert memory.nbytes > 0
    for number in range(40):
        for name in (f"hash{number}", f"topic{number}"):
            vhost.delete_exchange(name)
    assert memory.nbytes == 0


def test_a_weight_is_bounded_and_one_that_is_stored_already_stays() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q")
    harness._apply([Put(ExchangeRecord("/", "hash", "x-consistent-hash"))])
    harness._apply([Put(BindingRecord("/", "hash", "q", "queue", "1000000"))])
    client.publish(b"x", "k", "hash")
    assert harness.node.queues["/", "q"].backlog.ready == 1
    client.call(commands.Queue.Bind(queue="q", exchange="hash", routing_key="10000"), commands.Queue.BindOk)
    close = client.call(commands.Queue.Bind(queue="q", exchange="hash", routing_key="10001"), commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (
        406,
        "PRECONDITION_FAILED - The binding key must not be greater than 10000",
    )


class Remembered:
    def __init__(self) -> None:
        self.forgot = 0

    def forget(self) -> None:
        self.forgot += 1


def test_the_cache_that_was_not_added_to_for_longest_gives_way() -> None:
    memory = CacheMemory(100)
    one, two, three = Remembered(), Remembered(), Remembered()
    for cache in (one, two, one):
        memory.charge(cache, 40 if cache is two else 20)
    memory.charge(three, 30)
    assert (one.forgot, two.forgot, three.forgot, memory.nbytes) == (0, 1, 0, 70)
    memory.release(one, 10)
    assert (memory.held_by(one), memory.nbytes) == (30, 60)
    memory.charge(three, 90)
    assert (one.forgot, three.forgot) == (1, 1)
    assert (memory.held_by(three), memory.nbytes) == (90, 90), "alone, it keeps what it has just added"
    memory.release(three)
    assert memory.nbytes == 0
    assert memory.nbytes == 0
