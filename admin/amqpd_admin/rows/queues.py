"""A queue in RabbitMQ's fields.

What comes in: a queue, where it is at home. What goes out: a row of few fields, which costs nothing, or of all.
Rules: what RabbitMQ has and amqpd has not (`reductions`, `garbage_collection`, what is paged out) is left out and not
made up.

Source: https://www.rabbitmq.com/docs/http-api-reference, /api/queues; fields as observed of RabbitMQ 3.10.
"""

from __future__ import annotations

from typing import Any

from amqpd.management.figures.inventory import consumer_row
from amqpd.management.peers.queue_figures import facts_of
from amqpd.node.node import Node
from amqpd.queues.port import QueuePort
from amqpd.wire.json_values import to_json
from amqpd_admin.homes import Homes
from amqpd_admin.others import Told
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
TOTALS = ("messages", "messages_ready", "messages_unacknowledged")
DELIVER = ("deliver", "deliver_details")
RECORD = ("vhost", "name", "type", "state", "durable", "auto_delete", "exclusive", "effective_policy_definition")
"""what is known of a queue of which its home says nothing"""


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


def whole(node: Node, queue: QueuePort, homes: Homes) -> Row | None:
    """None for one that is gone. `homes`: they were asked for it."""
    found = node.ports.get((queue.record.vhost, queue.record.name))
    if found is None:
        return None
    figures = homes.figures(found)
    facts = facts_of(node, found, figures)
    row = {"arguments": to_json(found.record.arguments), **homes.about(found)}
    row |= {"policy": facts["policy"] or None, "operator_policy": facts["operator_policy"] or None}
    if found.elsewhere and figures is None:
        return {name: facts[name] for name in RECORD} | row | {"state": homes.silence(found)}
    # RabbitMQ's leaves out basic.get and deliveries without acknowledgement, which are not told apart here.
    facts["message_stats"] = {name: each for name, each in facts["message_stats"].items() if name not in DELIVER}
    # A queue that came to nothing yet has no statistics: tools tell these from zeros.
    if not any(value for value in facts["message_stats"].values() if not isinstance(value, dict)):
        del facts["message_stats"]
    return (
        {name: facts[name] for name in SAME if name in facts}
        | row
        | {
            "messages_details": facts["messages_details"],
            "single_active_consumer_tag": facts["single_active_consumer_tag"],
            "exclusive_consumer_tag": facts["exclusive_consumer_tag"],
        }
    )


def bare(node: Node, queue: QueuePort, homes: Homes, *, totals: bool) -> Row:
    """What it is, without statistics; with `totals`, how many messages there are, which costs nothing either."""
    figures = homes.figures(queue)
    row = small(queue) | {"arguments": to_json(queue.record.arguments), **homes.about(queue)}
    row["state"] = "crashed" if queue.quarantined else homes.state(queue) if queue.elsewhere else "running"
    if (vhost := node.topology.vhosts.get(queue.record.vhost)) is not None:
        policy = vhost.policy_of("queue", queue.record.name, queue.type).name
        row |= {"policy": policy} if policy else {}
    if totals and (figures is not None or not queue.elsewhere):
        told = figures or {"messages_ready": queue.ready_count, "messages_unacknowledged": queue.unacked_count}
        ready, unacked = told.get("messages_ready", 0), told.get("messages_unacknowledged", 0)
        row |= {"messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked}
    return row


def consumer(node: Node, consuming: Consuming | Told) -> Row | None:
    """In RabbitMQ's fields; None for one that is gone."""
    if isinstance(consuming, Told):
        return consumer_fields(*consuming, single=consuming.row["single"])
    if not consuming.here:
        return None
    single = consuming.consumer.queue.single_active_consumer
    return consumer_fields(node.identity.name, consumer_row(*consuming), single=single)


def consumer_fields(node: str, row: Row, *, single: bool) -> Row:
    """Of a row as `inventory.consumer_row` has it. `single`: its queue has one active consumer at a time."""
    number, up = row["channel"], "single_active" if single else "up"
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
            "node": node,
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
