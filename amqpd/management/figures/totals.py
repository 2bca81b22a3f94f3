"""Sums over the queues of virtual hosts, how much clients have, what came and went: of this node, in steps.

What comes in: the node; which virtual hosts, which user. What goes out: counts by RabbitMQ's names; with ` rate`
behind the name, messages a second.
Rules: 1. A walk goes over copies of references, and what has gone by its turn is passed over. 2. Sums look only at
queues to which something happened lately: the others are in `node.totals` as they are. Sums of many are kept a
hundred times as long as it took to add them up, so that any number of people who look cost a hundredth of the time.
3. No queue is made because somebody looks: of one whose source begins here, what waits in the journal counts. 4.
Queues are counted by the topology, which all nodes of a cluster share; messages and consumers are those of this node.
5. Counters go on counting what queues counted that are gone.
Not here: sums over several nodes (`across_nodes/rows.py` has what the others say), fields (`admin/`).

Source for names of what came and went: rabbit_mgmt_stats.erl of deps/rabbitmq_management (connection_churn_rates).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import trio

from amqpd.flow.client_counters import CHANNELS, CONNECTIONS, CONSUMERS, USER, VHOST
from amqpd.management.pacing import WalkPace
from amqpd.node.node import Node
from amqpd.node.totals import LOST, NOTHING, SENT, SUMS, TAKEN
from amqpd.queues.dispatchable import Dispatchable
from amqpd.queues.facts import taken
from amqpd.queues.leader import LeaderQueue
from amqpd.queues.port import QueuePort

RATES = (*SENT[:2], *LOST, *TAKEN)
"""of messages; those that clients published come first"""
CHURN = (
    *("connection_created", "connection_closed", "channel_created", "channel_closed"),
    *("queue_declared", "queue_created", "queue_deleted"),
)
# To look at a thousand takes some milliseconds. Of fewer, everybody gets what is now.
KEPT_FROM = 1000
# A hundred times what it takes to look at one queue or virtual host.
KEPT_S_EACH = 0.0005
KEPT_S_MAX = 5.0

Counts = Counter[str]


def queues(node: Node, vhosts: Collection[str]) -> Iterator[QueuePort | None]:
    """Those of these virtual hosts; None at a step that passes one over."""
    for name in vhosts:
        vhost = node.topology.vhosts.get(name)
        yield None
        for queue in list(vhost.queues) if vhost is not None else ():
            yield port_of(node, name, queue)


def port_of(node: Node, vhost: str, name: str) -> QueuePort | None:
    """None: it is gone. One of a source that begins here is not made."""
    found = node.queues.get((vhost, name)) or node.remote.get((vhost, name))
    return None if found is None or found.is_deleted else found


def queue_of(node: Node, dispatched: Dispatchable) -> LeaderQueue | None:
    """The same, if it is a queue of this node, and still is. Others, such as delayed messages, are none for an
    operator."""
    record = dispatched.record
    found = node.queues.get((record.vhost, record.name))
    return found if found is dispatched else None


def update_queue(node: Node, queue: LeaderQueue) -> None:
    """Add to the node's sums what the queue has done since its last update."""
    node.totals.update_queue(queue.record.vhost, queue.facts, queue.ready_count, queue.unacked_count)


class QueueSums:
    """The sums over all queues of a node, by virtual host."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._making = trio.Lock()
        self._kept: dict[str, Counts] = {}
        self._until_s = 0.0

    async def by_vhost(self) -> Mapping[str, Counts]:
        """Of all virtual hosts. They are not to be changed."""
        async with self._making:
            if not self._kept or trio.current_time() >= self._until_s:
                looked_at, self._kept = await self._made()
                seconds = min(looked_at * KEPT_S_EACH, KEPT_S_MAX) if looked_at >= KEPT_FROM else 0.0
                self._until_s = trio.current_time() + seconds
            return self._kept

    async def _made(self) -> tuple[int, dict[str, Counts]]:
        """And how many things were looked at."""
        node, pace, found, looked_at = self._node, WalkPace(), dict[str, Counts](), 0
        for dispatched in list(node.active):
            await pace.step()
            looked_at += 1
            if (queue := queue_of(node, dispatched)) is not None:
                update_queue(node, queue)
                counts = found.setdefault(queue.record.vhost, Counter())
                rates = queue.facts.rates(node.now_ms)
                for name, rate in zip(TAKEN, taken(rates.__getitem__), strict=True):
                    counts[f"{name} rate"] += rate
                counts["messages rate"] += rates["accepted"] - rates["left"]  # type: ignore[assignment]
        for connection in list(node.connections.values()):
            await pace.step()
            looked_at += 1
            node.totals.update_connection(connection)
            moving = node.totals.traffic.of(connection)
            if connection.vhost not in node.topology.vhosts:
                continue
            counts = found.setdefault(connection.vhost, Counter())
            for name, rate in zip(SENT[1:], (moving.confirmed, moving.octets_in, moving.octets_out), strict=True):
                counts[f"{name} rate"] += rate  # type: ignore[assignment]
        node.totals.update_unroutable(node.unroutable)
        for name, vhost in list(node.topology.vhosts.items()):
            await pace.step()
            looked_at += 1
            counts = found.setdefault(name, Counter())
            for counted in (SENT[0], *LOST):
                if (rated := node.totals.rated.get((name, counted))) is not None:
                    counts[f"{counted} rate"] = rated.rate(node.now_ms)  # type: ignore[assignment]
            counts.update(dict(zip(SUMS, node.totals.sums_by_vhost.get(name, NOTHING), strict=True)))
            counts["queues"] = len(vhost.queues)
            counts["consumers"] = node.client_counters.count(CONSUMERS, VHOST, name)
        for begun in list(node.remote.values()) if node.registry.beginning else ():
            await pace.step()
            looked_at += 1
            counts = found.setdefault(begun.record.vhost, Counter())
            counts["messages_ready"] += node.registry.waiting_in(begun.record)
        return looked_at, found


async def of_clients(node: Node, user: str | None) -> Counts:
    """Connections and channels, of all users or one; of one its consumers, too: those of all are in the sums."""
    client_counters = node.client_counters
    if user is None:
        return Counter(connections=len(node.connections), channels=client_counters.count(CHANNELS))
    consumers, pace = 0, WalkPace()
    for connection in list(node.connections.values()):
        await pace.step()
        if connection.user == user:
            consumers += sum(len(channel.consumers) for channel in list(connection.channels.values()))
    return Counter(
        connections=client_counters.count(CONNECTIONS, USER, user),
        channels=client_counters.count(CHANNELS, USER, user),
        consumers=consumers,
    )


def churn(node: Node) -> dict[str, int]:
    """What came and went since the start, by the names in `CHURN`."""
    said = node.totals
    counts = (
        *(said.connections_opened, said.connections_closed, said.channels_opened, said.channels_closed),
        *(said.queues_declared, said.queues_created, said.queues_deleted),
    )
    return dict(zip(CHURN, counts, strict=True))


def of_gone_vhosts(node: Node) -> Counts:
    """What queues counted whose virtual hosts are gone: with it, no counter becomes less when one is deleted."""
    node.totals.keep_vhosts(node.topology.vhosts)
    found = dict(zip(SUMS, node.totals.of_gone_vhosts, strict=True))
    return Counter({name: found[name] for name in RATES})
