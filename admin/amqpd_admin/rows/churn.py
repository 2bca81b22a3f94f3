"""What came and went, in RabbitMQ's fields: connections, channels, queues.

What comes in: the node. What goes out: counts since the start.

Source: rabbit_mgmt_stats.erl of deps/rabbitmq_management (connection_churn_rates).
"""

from __future__ import annotations

from amqpd.node.node import Node

CHURN = (
    *("connection_created", "connection_closed", "channel_created", "channel_closed"),
    *("queue_declared", "queue_created", "queue_deleted"),
)


def churn(node: Node) -> dict[str, int]:
    """By the names in `CHURN`."""
    said = node.totals
    counts = (
        *(said.connections_opened, said.connections_closed, said.channels_opened, said.channels_closed),
        *(said.queues_declared, said.queues_created, said.queues_deleted),
    )
    return dict(zip(CHURN, counts, strict=True))
