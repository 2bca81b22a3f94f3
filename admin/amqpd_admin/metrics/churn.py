"""What is there now, and what came and went since the start: connections, channels, consumers, queues.

What comes in: the node, a look at it. What goes out: families.
Rules: 1. A connection counts when it has opened a virtual host, as in RabbitMQ. 2. Queues are those of this node: in
a cluster each node has its own, and sums are right.
Not here: single ones (`queues.py`, `channels.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from amqpd.flow.client_counters import CHANNELS, CONNECTIONS
from amqpd.node.node import Node
from amqpd_admin.metrics.families import COUNTER, GAUGE, Part, one
from amqpd_admin.metrics.node_sums import NodeSums


def totals(node: Node) -> Iterator[Part]:
    """What is there; without consumers (`consumers`), which are counted one by one."""
    yield one("rabbitmq_connections", GAUGE, "Connections that are open", node.client_counters.count(CONNECTIONS))
    yield one("rabbitmq_channels", GAUGE, "Channels that are open", node.client_counters.count(CHANNELS))
    yield one("rabbitmq_queues", GAUGE, "Queues of this node", len(node.queues))


def consumers(sums: NodeSums) -> Part:
    return one("rabbitmq_consumers", GAUGE, "Consumers of this node's clients", sums.consumers)


def churn(node: Node) -> Iterator[Part]:
    """What came and went."""
    said = node.totals
    counts = (
        ("connections_opened", "Connections that were opened", said.connections_opened),
        ("connections_closed", "Connections that were closed or lost", said.connections_closed),
        ("channels_opened", "Channels that were opened", said.channels_opened),
        ("channels_closed", "Channels that were closed", said.channels_closed),
        ("queues_declared", "Declarations of queues that succeeded", said.queues_declared),
        ("queues_created", "Queues that were created", said.queues_created),
        ("queues_deleted", "Queues that were deleted, or ended by themselves", said.queues_deleted),
    )
    for name, says, value in counts:
        yield one(f"rabbitmq_{name}", COUNTER, says, value)


def traffic(sums: NodeSums) -> Iterator[Part]:
    """Bytes through all sockets."""
    came, went = sums.connections.bytes_in, sums.connections.bytes_out
    yield one("rabbitmq_connection_incoming_bytes", COUNTER, "Bytes received from clients", came)
    yield one("rabbitmq_connection_outgoing_bytes", COUNTER, "Bytes sent to clients", went)
