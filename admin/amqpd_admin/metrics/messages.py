"""What happened to messages since the start: RabbitMQ's global counters.

What comes in: a look at everything. What goes out: families, by protocol and by type of queue.
Rules: 1. What came is counted by connections, how it left by queues, confirms by channels. 2. `routed` counts what
came into queues: a message that went to three of them three times, as in RabbitMQ; dead letters, delayed messages
that fell due and what operators moved, too.
Not here: one queue's (`queues.py`).

Source: rabbit_global_counters.erl of RabbitMQ, and rabbit_channel.erl for what each of them counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from amqpd.node.node import Node
from amqpd.node.totals import QueueCounts
from amqpd.publishing.unroutable import UnroutableOutcome
from amqpd.queues.facts import Facts
from amqpd_admin.metrics.families import COUNTER, GAUGE, SUMMARY, Family, Part
from amqpd_admin.metrics.node_sums import NodeSums

PROTOCOL = ("amqp091",)
TYPES = {"classic": "rabbit_classic_queue", "quorum": "rabbit_quorum_queue"}
"""a type of queue, as RabbitMQ's labels have it"""

Counts = Facts | QueueCounts
WAYS: dict[str, tuple[str, Callable[[Counts], int]]] = {
    "delivered_consume_manual_ack": (
        "Messages delivered to consumers that acknowledge",
        lambda of: of.delivered - of.got - of.auto_acked,
    ),
    "delivered_consume_auto_ack": (
        "Messages delivered to consumers that do not acknowledge",
        lambda of: of.auto_acked,
    ),
    "delivered_get_manual_ack": (
        "Messages taken by basic.get that are to be acknowledged",
        lambda of: of.got - of.got_auto_acked,
    ),
    "delivered_get_auto_ack": (
        "Messages taken by basic.get without acknowledgement",
        lambda of: of.got_auto_acked,
    ),
    "get_empty": ("How often basic.get found no message", lambda of: of.got_nothing),
    "redelivered": ("Messages delivered again", lambda of: of.redelivered),
    "acknowledged": ("Messages that clients acknowledged", lambda of: of.acked_by_clients),
}
"""what queues count, by RabbitMQ's names"""


def of_type(kind: str) -> str:
    return TYPES.get(kind, f"rabbit_{kind}_queue")


def messages(node: Node, sums: NodeSums) -> Iterator[Part]:
    """All of them."""
    came, unroutable = sums.connections, node.unroutable.totals()
    by_protocol = (
        ("messages_received", "Messages received from publishers", came.published),
        ("messages_received_confirm", "Messages received on channels in confirm mode", came.to_confirm),
        ("messages_confirmed", "Messages confirmed to publishers", came.confirmed),
        (
            "messages_routed",
            "Messages that came into queues, dead letters and delayed ones included",
            sum(each.accepted - each.recovered for each in sums.queues.values()),
        ),
        (
            "messages_unroutable_dropped",
            "Messages that reached no queue, and nobody was told",
            unroutable[UnroutableOutcome.DROPPED],
        ),
        (
            "messages_unroutable_returned",
            "Mandatory messages that reached no queue, and were returned",
            unroutable[UnroutableOutcome.RETURNED],
        ),
    )
    for name, says, value in by_protocol:
        yield Family(f"rabbitmq_global_{name}", COUNTER, says, ("protocol",)), [(PROTOCOL, value)]
    yield (
        Family("rabbitmq_global_publishers", GAUGE, "Connections that have published", ("protocol",)),
        [(PROTOCOL, sums.publishers)],
    )
    yield (
        Family("rabbitmq_global_consumers", GAUGE, "Consumers of queues of this node's clients", ("protocol",)),
        [(PROTOCOL, sums.consumers)],
    )
    yield (
        Family("rabbitmq_message_size_bytes", SUMMARY, "Bodies of messages received from publishers", ("protocol",)),
        [(PROTOCOL, came.published, came.published_bytes)],
    )
    yield from _by_type(sums)


def _by_type(sums: NodeSums) -> Iterator[Part]:
    labels = ("protocol", "queue_type")
    known = {kind: sums.queues.get(kind, QueueCounts()) for kind in {**TYPES, **sums.queues}}
    delivered = Family("rabbitmq_global_messages_delivered", COUNTER, "Messages delivered, in any way", labels)
    yield delivered, [((*PROTOCOL, of_type(kind)), of.delivered) for kind, of in known.items()]
    for name, (says, count) in WAYS.items():
        family = Family(f"rabbitmq_global_messages_{name}", COUNTER, says, labels)
        yield family, [((*PROTOCOL, of_type(kind)), count(of)) for kind, of in known.items()]
