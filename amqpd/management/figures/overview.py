"""The node and its virtual hosts at a glance.

What comes in: the node. What goes out: sums, and a row for each virtual host.
Rules: pure; costs what a walk over queues and connections costs, so it is for people and for one question a second.
Not here: a queue's own facts (`queue_facts.py`), lists (`inventory.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from amqpd.flow.client_counters import CHANNELS, CONNECTIONS, VHOST
from amqpd.node.quarantine import fenced, quarantined

if TYPE_CHECKING:
    from amqpd.node.node import Node


def overview(node: Node) -> dict[str, Any]:
    """`delayed_next_s`: in how many seconds the next delayed message falls due; None when there is none."""
    queues = list(node.queues.values())
    delayed = [delayed_facts(node, vhost) for vhost in node.topology.vhosts]
    unroutable: Counter[str] = Counter()
    for vhost in node.topology.vhosts:
        unroutable.update(unroutable_of(node, vhost))
    return {
        "node": node.identity.name,
        "incarnation": node.identity.incarnation,
        "connections": len(node.connections),
        "channels": node.client_counters.count(CHANNELS),
        "vhosts": len(node.topology.vhosts),
        "queues": len(node.ports),
        "messages_ready": sum(queue.ready_count for queue in queues) + sum(_waiting_in(node).values()),
        "messages_unacknowledged": sum(queue.unacked_count for queue in queues),
        "message_bytes_in_memory": sum(queue.memory_bytes for queue in queues),
        "messages_delayed": sum(each["messages_delayed"] for each in delayed),
        "delayed_next_s": min(
            (each["delayed_next_s"] for each in delayed if each["delayed_next_s"] is not None), default=None
        ),
        "orphans": len(node.orphans),
        "messages_orphaned": node.orphans.messages,
        "unroutable": dict(unroutable),
        "faults": dict(node.faults.counts),
        "queues_out_of_service": quarantined(node),
        "queues_fenced": fenced(node.paged()),
    }


def vhosts(node: Node, filters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """`vhost` is a filter."""
    waiting = _waiting_in(node)
    for name in list(node.topology.vhosts):
        if filters.get("vhost") not in (None, name) or name not in node.topology.vhosts:
            continue
        queues = [queue for queue in node.ports.ports() if queue.record.vhost == name]
        yield {
            "vhost": name,
            "connections": node.client_counters.count(CONNECTIONS, VHOST, name),
            "queues": len(queues),
            "messages_ready": sum(queue.ready_count for queue in queues) + waiting[name],
            "messages_unacknowledged": sum(queue.unacked_count for queue in queues),
            **delayed_facts(node, name),
            "unroutable": unroutable_of(node, name),
        }


def _waiting_in(node: Node) -> Counter[str]:
    """Messages by virtual host, in queues that are not made yet though their source is served here."""
    found: Counter[str] = Counter()
    if node.registry.beginning:
        for queue in node.remote.values():
            found[queue.record.vhost] += node.registry.waiting_in(queue.record)
    return found


def delayed_facts(node: Node, vhost: str) -> dict[str, Any]:
    """How many messages wait for their time, and in how many seconds the first of them is due."""
    store = node.delayed.get(vhost)
    if store is None or not store.ready_count:
        return {"messages_delayed": 0, "delayed_next_s": None}
    due_ms = store.earliest_ms()
    due_s = None if due_ms is None else max(0, due_ms - node.now_ms) / 1000
    return {"messages_delayed": store.ready_count, "delayed_next_s": due_s}


def unroutable_of(node: Node, vhost: str, exchange: str | None = None) -> dict[str, int]:
    """What became of messages that reached no queue: of one exchange, or of all (the default one included)."""
    counts = node.unroutable
    found = counts.of_vhost(vhost) if exchange is None else counts.of_exchange(vhost, exchange)
    return {outcome.value: count for outcome, count in found.items()}
