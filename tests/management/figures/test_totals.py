"""Sums over queues are those of a walk over all of them, whatever clients do, though only few queues are looked at.

Not verified: samples of them (`test_sampling.py`), what other nodes say (`across_nodes/test_answers.py`).
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
import trio
from pamqp import commands

from amqpd.management.figures import totals
from amqpd.management.figures.sampling import Sampler
from amqpd.node.node import Node
from amqpd.node.totals import LOST
from amqpd.topology import plans
from tests.harness.harness import Client, Harness, Message

pytestmark = pytest.mark.trio

Basic, Queue = commands.Basic, commands.Queue
NAMES = ("a", "b", "c")
ACTS = ("publish", "get", "take", "consume", "cancel", "ack", "requeue", "purge", "delete", "declare", "rest", "lose")
STEPS = 400


def walked(node: Node) -> dict[str, tuple[int, ...]]:
    """By virtual host: what all its queues say."""
    found: dict[str, tuple[int, ...]] = {}
    for name, vhost in node.topology.vhosts.items():
        ports = [port for queue in vhost.queues if (port := totals.port_of(node, name, queue)) is not None]
        said = [port.statistics(node.now_ms) for port in ports]
        found[name] = (
            len(ports),
            sum(each.ready for each in said),
            sum(each.unacked for each in said),
            sum(each.consumers for each in said),
        )
    return found


def summed(counts: Counter[str]) -> tuple[int, ...]:
    return tuple(counts[name] for name in ("queues", "messages_ready", "messages_unacknowledged", "consumers"))


class Crowd:
    """Clients of two virtual hosts, and what they do."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = Harness()
        self.harness._apply(plans.create_vhost("other"))
        self.harness.node.now_ms = 1_000_000
        self.clients = [self.entered(name) for name in ("/", "other")]
        self.published: Counter[str] = Counter()

    def entered(self, vhost: str) -> Client:
        client = Client(self.harness)
        client.open(vhost)
        for name in NAMES:
            client.declare(name, durable=True)
        return client

    async def act(self, act: str, sampler: Sampler) -> None:
        at = self.random.randrange(2)
        client, name = self.clients[at], self.random.choice(NAMES)
        vhost, there = client.connection.vhost, self.harness.topology.vhosts[client.connection.vhost].queues
        if act == "rest":
            self.harness.node.now_ms += 1000
            await sampler._look()
        elif act == "lose":
            client.lose()
            self.clients[at] = self.entered(vhost)
        elif act == "declare":
            client.send(Queue.Declare(queue=name, durable=True))
        elif name in there:
            self.with_queue(act, client, name)

    def with_queue(self, act: str, client: Client, name: str) -> None:
        client.collect()
        client.inbox.clear()
        if act == "publish":
            client.publish(b"x", name)
            self.published[client.connection.vhost] += 1
        elif act in ("get", "take"):
            client.send(Basic.Get(queue=name, no_ack=act == "take"))
        elif act == "consume" and name not in client.connection.channels[1].consumers:
            client.call(Basic.Qos(prefetch_count=2), Basic.QosOk)
            client.send(Basic.Consume(queue=name, consumer_tag=name))
        elif act == "cancel":
            client.send(Basic.Cancel(consumer_tag=name))
        elif act == "ack":
            client.send(Basic.Ack(delivery_tag=0, multiple=True))
        elif act == "requeue":
            client.send(Basic.Nack(delivery_tag=0, multiple=True, requeue=True))
        elif act == "purge":
            client.send(Queue.Purge(queue=name))
        elif act == "delete":
            client.send(Queue.Delete(queue=name))


@pytest.mark.parametrize("seed", range(5))
async def test_sums_are_those_of_a_walk_over_all_queues(seed: int) -> None:
    crowd = Crowd(seed)
    node = crowd.harness.node
    sums, sampler = totals.QueueSums(node), Sampler(node, lambda: node.now_ms, lambda: (0, 0))
    seen = set()
    for step in range(STEPS):
        act = crowd.random.choices(ACTS, weights=[1 if each in ("lose", "delete") else 6 for each in ACTS])[0]
        await crowd.act(act, sampler)
        found = await sums.by_vhost()
        assert {name: summed(counts) for name, counts in found.items()} == walked(node), f"step {step}: {act}"
        assert {name: found[name]["publish"] for name in found} == {name: crowd.published[name] for name in found}
        seen |= {name for counts in found.values() for name in +counts}
    assert seen >= {"messages_ready", "messages_unacknowledged", "consumers", "deliver_get", "redeliver", "ack"}
    never = {"redeliver", "confirm", "deliver_no_ack", *LOST}
    assert seen >= {f"{name} rate" for name in totals.RATES if name not in never}


async def test_idle_queues_are_in_the_sums_and_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(0)
    client, node = crowd.clients[0], crowd.harness.node
    client.publish(b"x", "a")
    sums = totals.QueueSums(node)
    assert (await sums.by_vhost())["/"]["messages_ready"] == 1
    node.active.clear()
    monkeypatch.setattr(totals, "update_queue", lambda node, queue: pytest.fail("it is idle"))
    assert (await sums.by_vhost())["/"]["messages_ready"] == 1


async def test_a_queue_out_of_service_counts_though_it_never_was_dispatched() -> None:
    crowd = Crowd(0)
    node = crowd.harness.node
    crowd.clients[0].publish(b"x", "a")
    queue = node.queues["/", "a"]
    node.active.clear()
    node.quarantine(queue, ValueError("a bug"))
    assert (await totals.QueueSums(node).by_vhost())["/"]["messages_ready"] == queue.ready_count == 1


async def test_what_queues_of_a_virtual_host_counted_that_is_gone_counts_on() -> None:
    crowd = Crowd(0)
    client, node = crowd.clients[1], crowd.harness.node
    for _ in range(3):
        client.publish(b"x", "a")
    client.call(Basic.Get(queue="a", no_ack=True), Message)
    sums = totals.QueueSums(node)
    assert (await sums.by_vhost())["other"]["publish"] == 3
    assert +totals.of_gone_vhosts(node) == Counter()
    crowd.harness._apply(plans.delete_vhost(node.topology, "other"))
    assert "other" not in await sums.by_vhost()
    assert +totals.of_gone_vhosts(node) == Counter(publish=3, deliver_get=1, get_no_ack=1)


async def test_sums_of_many_are_kept_for_all_who_look(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(totals, "KEPT_FROM", 1)
    monkeypatch.setattr(totals, "KEPT_S_EACH", 1.0)
    crowd = Crowd(0)
    client = crowd.clients[0]
    sums = totals.QueueSums(crowd.harness.node)
    first = await sums.by_vhost()
    client.publish(b"x", "a")
    assert (await sums.by_vhost())["/"]["messages_ready"] == 0
    await trio.sleep(totals.KEPT_S_MAX)
    assert (await sums.by_vhost())["/"]["messages_ready"] == 1
    assert first["/"]["messages_ready"] == 0, "who has an answer keeps it"
