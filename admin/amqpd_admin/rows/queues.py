"""A queue in RabbitMQ's fields.

What comes in: a queue, where it is led here. What goes out: a row of few fields, which costs nothing, or of all.
Rules: what RabbitMQ has and amqpd has not (`reductions`, `garbage_collection`, what is paged out) is left out and not
made up.

Source: https://www.rabbitmq.com/docs/http-api-reference, /api/queues; fields as observed of RabbitMQ 3.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.across_nodes.queue_figures import facts_of
from amqpd.management.figures.inventory import consumer_row
from amqpd.node.node import Node
from amqpd.queues.port import QueuePort
from amqpd.queues.settings import QUORUM, settings_of
from amqpd.vocabulary.records import QueueRecord
from amqpd.wire.json_values import to_json
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
    "oldest_message_age_s",
    "head_message_timestamp",
    "consumers",
    "consumer_capacity",
    "consumer_utilisation",
    "effective_policy_definition",
    "message_stats",
)
UNACKED = "messages_unacknowledged"
TOTALS = ("messages", "messages_ready", "messages_unacknowledged")
OURS: Row = {"internal": False, "internal_owner": False}
"""no queue is of the broker's own, and hidden"""
RECORD = ("vhost", "name", "type", "state", "durable", "auto_delete", "exclusive", "effective_policy_definition")
"""what is known of a queue of which its leader says nothing"""


def small(queue: QueuePort) -> Row:
    record = queue.record
    return {
        "vhost": record.vhost,
        "name": record.name,
        "type": queue.type,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "exclusive": record.exclusive,
        **OURS,
    }


def whole(node: Node, queue: QueuePort, leaders: Leaders) -> Row | None:
    """None for one that is gone. `leaders`: they were asked for it."""
    found = node.ports.get((queue.record.vhost, queue.record.name))
    if found is None:
        return None
    figures = leaders.figures(found)
    facts = facts_of(node, found, figures)
    row = {"arguments": to_json(found.record.arguments), **OURS, **leaders.about(found), **_owner(node, found.record)}
    row |= {"policy": facts["policy"] or None, "operator_policy": facts["operator_policy"] or None}
    row |= _delivery_limit(found, facts["effective_policy_definition"])
    if found.is_remote and figures is None:
        return {name: facts[name] for name in RECORD} | row | {"state": leaders.silence(found)}
    # A queue that came to nothing yet has no statistics: tools tell these from zeros.
    if not any(value for value in facts["message_stats"].values() if not isinstance(value, dict)):
        del facts["message_stats"]
    return (
        {name: facts[name] for name in SAME if name in facts}
        | row
        | {
            "messages_details": facts["messages_details"],
            "attention": facts["attention"],
            "single_active_consumer_tag": facts["single_active_consumer_tag"],
            "exclusive_consumer_tag": facts["exclusive_consumer_tag"],
        }
        | (_of_quorum(facts) if found.quorum else {})
    )


def _of_quorum(facts: Row) -> Row:
    """All of its messages are on disk, also those that were published as transient; `messages_dlx` are dead letters
    that wait for a queue that takes them, which are among the messages."""
    persistent = {f"{name}_persistent": facts[name] for name in ("messages", "message_bytes") if name in facts}
    return persistent | {"messages_dlx": facts.get("messages_dlx", 0)}


def _owner(node: Node, record: QueueRecord) -> Row:
    """Of an exclusive queue the connection, if it is one of this node."""
    owner = node.connections.get(record.owner or "")
    if owner is None or record.node != node.sources.node:
        return {}
    return {"owner_pid_details": {"name": owner.name, **address_of(owner.name)}}


def bare(node: Node, queue: QueuePort, leaders: Leaders, *, totals: bool) -> Row:
    """What it is, without statistics; with `totals`, how many messages there are, which costs nothing either."""
    figures = leaders.figures(queue)
    row = small(queue) | {"arguments": to_json(queue.record.arguments), **leaders.about(queue)}
    served = leaders.state(queue) if queue.is_remote else "running"
    row["state"] = served if queue.crash_reason is None else "crashed"
    if (vhost := node.topology.vhosts.get(queue.record.vhost)) is not None:
        policy = vhost.policy_of("queue", queue.record.name, queue.type)
        # No statistics, though releases before RabbitMQ 4.3 leave out all but the policy's name.
        row |= {
            "policy": policy.name or None,
            "operator_policy": policy.operator_name or None,
            "effective_policy_definition": to_json(policy.definition),
        }
        row |= _delivery_limit(queue, policy.definition)
    if totals and (figures is not None or not queue.is_remote):
        told = figures or {"messages_ready": queue.ready_count, "messages_unacknowledged": queue.unacked_count}
        ready, unacked = told.get("messages_ready", 0), told.get("messages_unacknowledged", 0)
        row |= {"messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked}
    return row


def _delivery_limit(queue: QueuePort, definition: Mapping[str, Any]) -> Row:
    """How often a message of a quorum queue may come back; clients take a missing limit for none."""
    if queue.type != QUORUM:
        return {}
    limit = settings_of(queue.record.arguments, definition).delivery_limit
    return {"delivery_limit": "unlimited" if limit is None else limit}


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
        # In milliseconds, as of RabbitMQ 4; null: it may take as long as it likes.
        "consumer_timeout": row.get("consumer_timeout"),
        "active": row["active"],
        "activity_status": up if row["active"] else "waiting",
        "arguments": _arguments(row),
        "queue": {"name": row["queue"], "vhost": row["vhost"]},
        **named(row),
        **({"messages_unacknowledged": row[UNACKED]} if UNACKED in row else {}),
        "channel_details": {
            "name": f"{row['connection']} ({number})",
            "node": node,
            "number": number,
            "user": row["user"],
            "connection_name": row["connection"],
            **address_of(row["connection"]),
        },
    }


def _arguments(row: Row) -> Row:
    """Those that mean something here: others are not kept."""
    given = {"x-priority": row["priority"] or None, "x-consumer-timeout": row.get("own_timeout")}
    return {name: value for name, value in given.items() if value is not None}


def named(row: Row) -> Row:
    """What the client calls itself, as a connection's row has it; nothing where nobody says it."""
    return {"user_provided_name": row["client_name"]} if row.get("client_name") else {}


def address_of(connection: str) -> Row:
    """Of a connection's name: where its client is."""
    host, _, port = connection.partition(" -> ")[0].rpartition(":")
    return {"peer_host": host.strip("[]"), "peer_port": int(port) if port.isdigit() else 0}
