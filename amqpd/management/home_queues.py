"""Queues whose messages an operator wants to see or change.

What comes in: a name. What goes out: the queue, if its home is here.
Rules: 1. Where it is not, the sentence says which command knows where.
Not here: queues as everybody lists them (`inventory.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqpd.management.errors import NotFound
from amqpd.queues.home import HomeQueue

if TYPE_CHECKING:
    from amqpd.node.node import Node


def home_queue(node: Node, vhost: str, name: str) -> HomeQueue:
    """Raises NotFound."""
    queue = node.queues.get((vhost, name))
    if queue is not None:
        return queue
    if (vhost, name) in node.elsewhere:
        raise NotFound(
            f"the home of the queue '{name}' in virtual host '{vhost}' is another node: `amqpd cluster status` says "
            "which one, ask there"
        )
    raise NotFound(f"there is no queue '{name}' in virtual host '{vhost}'")
