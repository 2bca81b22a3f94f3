"""What only the leader of a queue knows of it, as other nodes of its cluster are told.

What comes in: a queue; at another node, what its leader said. What goes out: a row of what is not nothing; the row of
facts (`figures/queue_facts.py`) with that in it.
Rules: 1. What follows from the queue's record and its policies is not sent: all nodes have these. 2. What is nothing
is not sent either: most of very many queues are idle.
Not here: asking (`rows.py`).
"""

from __future__ import annotations

from typing import Any

from amqpd.management.figures.inventory import queue_row
from amqpd.node.node import Node
from amqpd.queues.port import QueuePort
from amqpd.session.consumers import Consumer

Row = dict[str, Any]

KNOWN = frozenset(
    (
        *("vhost", "name", "type", "durable", "auto_delete", "exclusive", "arguments", "settings"),
        *("policy", "operator_policy", "effective_policy_definition"),
    )
)


def figures_of(node: Node, vhost: str, name: str) -> Row | None:
    """None: it is not here."""
    queue = node.ports.get((vhost, name))
    if queue is None or queue.is_remote or queue.is_deleted:
        return None
    facts = {**queue_row(node, queue), "exclusive_consumer_tag": sole_tag(queue)}
    told = {member: value for member, value in facts.items() if member not in KNOWN and _says(value)}
    return {"vhost": vhost, "name": name, **told}


def facts_of(node: Node, queue: QueuePort, figures: Row | None = None) -> Row:
    """All that is known. `figures`: of a queue whose leader is another node, what that says."""
    return {**queue_row(node, queue), "exclusive_consumer_tag": sole_tag(queue), **(figures or {})}


def sole_tag(queue: QueuePort) -> str | None:
    """Of its exclusive consumer."""
    if not queue.exclusive_consumer:
        return None
    # Nobody consumes beside it.
    sole = next(iter(queue.subscribers()), None)
    return sole.tag if isinstance(sole, Consumer) else None


def _says(value: Any) -> bool:
    return any(map(_says, value.values())) if isinstance(value, dict) else bool(value)
