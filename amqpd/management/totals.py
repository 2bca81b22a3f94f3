"""Sums over the queues of virtual hosts, how much clients have, what came and went: of this node, in steps.

What comes in: the node; which virtual hosts, which user. What goes out: counts by RabbitMQ's names; with ` rate`
behind the name, messages a second.
Rules: 1. A walk goes over copies of names, and what has gone by its turn is passed over. 2. No queue is made because
somebody looks: of one whose source begins here, what waits in the journal counts. 3. Queues are counted by the
topology, which all nodes of a cluster share; messages and consumers are those of this node.
Not here: sums over several nodes (`peer_rows.py` has what the others say), fields (`admin/`).

Source for names of what came and went: rabbit_mgmt_stats.erl of deps/rabbitmq_management (connection_churn_rates).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from amqpd.management.pacing import Pace
from amqpd.node.node import Node
from amqpd.queues.port import QueuePort

RATES = {"publish": "accepted", "deliver_get": "delivered", "redeliver": "redelivered", "ack": "acked"}
CHURN = (
    *("connection_created", "connection_closed", "channel_created", "channel_closed"),
    *("queue_declared", "queue_created", "queue_deleted"),
)

Counts = dict[str, float]


def queues(node: Node, vhosts: Collection[str]) -> Iterator[QueuePort | None]:
    """Those of these virtual hosts; None at a step that passes one over."""
    for name in vhosts:
        yield from _part(node, name, 0, None)


def _part(node: Node, name: str, begin: int, end: int | None) -> Iterator[QueuePort | None]:
    vhost = node.topology.vhosts.get(name)
    if vhost is None:
        return
    yield None
    for queue in list(islice(vhost.queues, begin, end)):
        found = node.queues.get((name, queue)) or node.elsewhere.get((name, queue))
        yield None if found is None or found.deleted else found


async def sums(node: Node, vhosts: Collection[str], pace: Pace | None = None) -> Counter[str]:
    """Over all queues in these."""
    return await _sums(node, queues(node, vhosts), pace or Pace())


async def sums_of_part(node: Node, vhost: str, begin: int, end: int, pace: Pace) -> Counter[str]:
    """Over those of one virtual host with these numbers, in the order in which it has them."""
    return await _sums(node, _part(node, vhost, begin, end), pace)


async def _sums(node: Node, found: Iterable[QueuePort | None], pace: Pace) -> Counter[str]:
    counts: Counter[str] = Counter()
    beginning = node.registry.beginning
    for queue in found:
        await pace.step()
        if queue is None:
            continue
        counts["queues"] += 1
        if queue.elsewhere:
            counts["messages_ready"] += node.registry.waiting_in(queue.record) if beginning else 0
            continue
        said = queue.statistics(node.now_ms)
        counts["consumers"] += said.consumers
        counts["messages_ready"] += said.ready
        counts["messages_unacknowledged"] += said.unacked
        for name, ours in RATES.items():
            counts[name] += said.totals[ours]
            counts[f"{name} rate"] += said.rates[ours]  # type: ignore[assignment]
        counts["publish"] -= said.totals["recovered"]
        counts["messages rate"] += said.rates["accepted"] - said.rates["left"]  # type: ignore[assignment]
    return counts


async def of_clients(node: Node, user: str | None) -> Counter[str]:
    """Connections and channels, of all users or one; of one its consumers, too: of all, queues know how many."""
    census = node.census
    if user is None:
        return Counter(connections=len(node.connections), channels=census.channels)
    consumers, pace = 0, Pace()
    for connection in list(node.connections.values()):
        await pace.step()
        if connection.user == user:
            consumers += sum(len(channel.consumers) for channel in list(connection.channels.values()))
    return Counter(
        connections=census.connections_by_user[user], channels=census.channels_by_user[user], consumers=consumers
    )


def churn(node: Node) -> dict[str, int]:
    """What came and went since the start, by the names in `CHURN`."""
    said = node.totals
    counts = (
        *(said.connections_opened, said.connections_closed, said.channels_opened, said.channels_closed),
        *(said.queues_declared, said.queues_created, said.queues_deleted),
    )
    return dict(zip(CHURN, counts, strict=True))


def of_gone_queues(node: Node) -> Counter[str]:
    """What queues of all virtual hosts counted that are gone: with it, a counter does not become less when a queue is
    deleted."""
    counts: Counter[str] = Counter()
    for gone in node.totals.of_queues.values():
        counts["publish"] += gone.accepted - gone.recovered
        counts["deliver_get"] += gone.delivered
        counts["redeliver"] += gone.redelivered
        counts["ack"] += gone.acked_by_clients + gone.auto_acked + gone.got_auto_acked
    return counts
