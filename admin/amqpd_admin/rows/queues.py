"""A queue in RabbitMQ's fields.

What comes in: a queue, the node's name. What goes out: a row of few fields, which costs nothing, or of all.
Rules: what RabbitMQ has and amqpd has not (`reductions`, `garbage_collection`, what is paged out) is left out and not
made up.

Source: https://www.rabbitmq.com/docs/http-api-reference, /api/queues; fields as observed of RabbitMQ 3.10.
"""

from __future__ import annotations

from typing import Any

from amqpd.management.inventory import consumer_row, queue_row
from amqpd.node.node import Node
from amqpd.queues.port import QueuePort
from amqpd.session.consumers import Consumer
from amqpd.wire.json_values import to_json
from amqpd_admin.walks import Consuming

Row = dict[str, Any]

SAME = (
    "vhost",
    "name",
    "type",
    "state",
    "durable",
    "auto_delete",
    "exclusive",
    "arguments",
    "messages",
    "messages_ready",
    "messages_unacknowledged",
    "message_bytes",
    "message_bytes_ready",
    "message_bytes_unacknowledged",
    "memory",
    "consumers",
    "consumer_capacity",
    "consumer_utilisation",
    "effective_policy_definition",
    "message_stats",
)
DELIVER = ("deliver", "deliver_details")


def small(queue: QueuePort) -> Row:
    record = queue.record
    return {
        "vhost": record.vhost,
        "name": record.name,
        "type": queue.type,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "exclusive": record.exclusive,
    }


def whole(node: Node, queue: QueuePort) -> Row | None:
    """None for one that is gone."""
    found = node.ports.get((queue.record.vhost, queue.record.name))
    if found is None:
        return None
    facts = queue_row(node, found)
    tag = facts["single_active_consumer_tag"]
    row = {name: facts[name] for name in SAME}
    # RabbitMQ's leaves out basic.get and deliveries without acknowledgement, which are not told apart here.
    row["message_stats"] = {name: each for name, each in row["message_stats"].items() if name not in DELIVER}
    # A queue that came to nothing yet has no statistics: tools tell these from zeros.
    if not any(value for value in row["message_stats"].values() if not isinstance(value, dict)):
        del row["message_stats"]
    return row | {
        "node": node.identity.name,
        "messages_details": facts["messages_details"],
        **_replicas(node, found),
        "policy": facts["policy"] or None,
        "operator_policy": facts["operator_policy"] or None,
        "single_active_consumer_tag": tag,
        "exclusive_consumer_tag": _sole_tag(found),
        "arguments": to_json(found.record.arguments),
    }


def bare(node: Node, queue: QueuePort, *, totals: bool) -> Row:
    """What it is, without statistics; with `totals`, how many messages there are, which costs nothing either."""
    row = small(queue) | {"arguments": to_json(queue.record.arguments), "node": node.identity.name}
    row["state"] = "crashed" if queue.quarantined else "elsewhere" if queue.elsewhere else "running"
    row |= _replicas(node, queue)
    if (vhost := node.topology.vhosts.get(queue.record.vhost)) is not None:
        policy = vhost.policy_of("queue", queue.record.name, queue.type).name
        row |= {"policy": policy} if policy else {}
    if totals:
        ready, unacked = queue.ready_count, queue.unacked_count
        row |= {"messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked}
    return row


def _replicas(node: Node, queue: QueuePort) -> Row:
    """Of a quorum queue on a node alone; in a cluster `amqpd queue` commands know who has it."""
    if not queue.quorum or queue.record.source:
        return {}
    name = node.identity.name
    return {"leader": name, "members": [name], "online": [name]}


def _sole_tag(queue: QueuePort) -> str | None:
    if not queue.exclusive_consumer:
        return None
    # Nobody consumes beside it.
    sole = next(iter(queue.subscribers()), None)
    return sole.tag if isinstance(sole, Consumer) else None


def consumer(node: Node, consuming: Consuming) -> Row | None:
    """In RabbitMQ's fields; None for one that is gone."""
    if not consuming.here:
        return None
    row = consumer_row(*consuming)
    number = row["channel"]
    up = "single_active" if consuming.consumer.queue.single_active_consumer else "up"
    return {
        "consumer_tag": row["consumer_tag"],
        "ack_required": row["ack_required"],
        "exclusive": row["exclusive"],
        "prefetch_count": row["prefetch_count"],
        "active": row["active"],
        "activity_status": up if row["active"] else "waiting",
        "arguments": {"x-priority": row["priority"]} if row["priority"] else {},
        "queue": {"name": row["queue"], "vhost": row["vhost"]},
        "channel_details": {
            "name": f"{row['connection']} ({number})",
            "node": node.identity.name,
            "number": number,
            "user": row["user"],
            "connection_name": row["connection"],
            **address_of(row["connection"]),
        },
    }


def address_of(connection: str) -> Row:
    """Of a connection's name: where its client is."""
    host, _, port = connection.partition(" -> ")[0].rpartition(":")
    return {"peer_host": host.strip("[]"), "peer_port": int(port) if port.isdigit() else 0}
