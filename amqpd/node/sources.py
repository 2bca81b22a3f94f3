"""Which queues this node leads: those of its own log, and those of the cluster's sources that it serves.

What comes in: sources that are served here from now on, or no more. What goes out: whether a queue is led here; who
leads another one.
Rules: 1. A node that shares its metadata with no other one leads all queues, and nothing of this happens. 2. A queue
is of the source that its record names, for ever; one without a source (a classic queue) is of the node that its
record names. 3. A new queue is led by the node where it is declared, as in RabbitMQ by default
(`x-queue-leader-locator`: client-local), unless it asks for another one.
Not here: what the cluster is asked (`cluster.py`), how a source comes here, and which one a new queue gets
(`amqpd/cluster`), the machines of its queues (`queue_registry.py`).
"""

from __future__ import annotations

from collections import Counter

from amqpd.node.cluster import Cluster
from amqpd.vocabulary.records import QueueRecord, UnreadableQueue


class ServedSources:
    """The queues that one node leads."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.node = cluster.node
        """the name under which records have this node; empty: it shares its metadata with no other one"""
        self.serving: dict[int, None] = {}
        self.queues: Counter[int] = Counter()
        """how many queues each source has"""

    def leads(self, record: QueueRecord) -> bool:
        """This node has the queue's messages and consumers. A queue whose record cannot be read, so that nobody knows
        whose it is, is led by all of them: it is out of service everywhere."""
        if record.source:
            return record.source in self.serving
        return record.node == self.node or (not record.node and isinstance(record, UnreadableQueue))

    def leader_of(self, record: QueueRecord) -> str:
        """The name of the node that leads the queue. Empty: none does, as far as that is known."""
        if record.source:
            return self._cluster.leader_of(record.source)
        return record.node if record.node == self.node or self._cluster.is_member(record.node) else ""
