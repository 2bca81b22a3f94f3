"""All connections, channels and queues of a node, added up for one scrape.

What comes in: the node. What goes out: sums, with what those counted that are gone.
Rules: 1. What is gone and what is there are taken down at one moment, and then looked at one by one while the broker
goes on: whatever goes meanwhile still has its counts, and is in no sum twice. 2. Sizes and lengths are of what is
there when its turn comes.
Not here: names (the other modules).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy

import trio

from amqpd.node.node import Node
from amqpd.node.totals import QueueCounts
from amqpd.queues.port import Statistics
from amqpd.queues.queue import Queue
from amqpd.session.ports import ConnectionBase

# Connections or queues: one to two milliseconds.
AT_ONCE = 50
GAUGES: dict[str, Callable[[Statistics], int]] = {
    "ready": lambda said: said.ready,
    "unacked": lambda said: said.unacked,
    "ready_bytes": lambda said: said.ready_bytes,
    "unacked_bytes": lambda said: said.unacked_bytes,
    "memory_bytes": lambda said: said.memory_bytes,
    "consumers": lambda said: said.consumers,
}
"""of `Statistics`"""


class NodeSums:
    """The sums over all connections, channels and queues of a node, at one scrape."""

    def __init__(self, node: Node) -> None:
        totals = node.totals
        self.totals = totals
        self.connections = copy(totals.of_connections)
        self.queues: dict[str, QueueCounts] = {kind: copy(known) for kind, known in totals.of_queues.items()}
        """by type"""
        self.publishers = self.consumers = 0
        self.channels: Counter[str] = Counter()
        """gauges of channels, added up"""
        self.lengths: Counter[str] = Counter(dict.fromkeys((*GAUGES, "out_of_service", "fenced"), 0))
        """gauges of queues, added up"""
        self.oldest_s: float | None = None
        """age of the oldest message"""

    @property
    def all_queues(self) -> QueueCounts:
        """Of all types together."""
        found = QueueCounts()
        for known in self.queues.values():
            found.add(known)
        return found


async def sum_up(node: Node) -> NodeSums:
    sums = NodeSums(node)
    connections, queues = list(node.connections.values()), list(node.queues.values())
    for at, connection in enumerate(connections, 1):
        _add_connection(sums, connection)
        if at % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    for at, queue in enumerate(queues, 1):
        _add_queue(sums, queue, node.now_ms)
        if at % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    return sums


def _add_connection(sums: NodeSums, connection: ConnectionBase) -> None:
    sums.connections.add(connection)
    sums.publishers += connection.publishing
    channels = sums.channels
    for channel in connection.channels.values():
        sums.consumers += len(channel.consumers)
        channels["unacked"] += channel.unacked.count
        if (confirms := channel.confirms) is not None:
            channels["unconfirmed"] += confirms.published - confirms.told - confirms.refusals


def _add_queue(sums: NodeSums, queue: Queue, now_ms: int) -> None:
    sums.queues.setdefault(queue.type, QueueCounts()).add(queue.facts)
    if queue.is_deleted or queue.is_remote:
        return
    said = queue.statistics(now_ms)
    for name, value in GAUGES.items():
        sums.lengths[name] += value(said)
    sums.lengths["out_of_service"] += queue.crash_reason is not None
    sums.lengths["fenced"] += queue.damage
    if said.oldest_ms is not None:
        sums.oldest_s = max(sums.oldest_s or 0.0, (now_ms - said.oldest_ms) / 1000)
