"""Queues whose messages an operator wants to see or change.

What comes in: a name. What goes out: the queue, if it is led here.
Rules: 1. Where it is not, the sentence names the node that leads it. 2. What lasts several turns looks again after
each: what is done to a queue whose leader has moved would be done to this copy alone.
Not here: queues as everybody lists them (`figures/inventory.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqpd.management.errors import AtAnotherNode, Conflict, NotFound
from amqpd.queues.dispatchable import Dispatchable
from amqpd.queues.leader import LeaderQueue
from amqpd.queues.states import AWAY
from amqpd.vocabulary.records import QueueRecord

if TYPE_CHECKING:
    from amqpd.node.node import Node


def leader_queue(node: Node, vhost: str, name: str) -> LeaderQueue:
    """The queue, which this node leads. Raises NotFound, AtAnotherNode."""
    queue = node.ports.get((vhost, name))
    if isinstance(queue, LeaderQueue):
        return queue
    if queue is not None:
        leader = node.sources.leader_of(queue.record)
        if leader:
            raise AtAnotherNode(
                f"node '{leader}' leads the queue '{name}' in virtual host '{vhost}': only there are its messages "
                "looked at, deleted and moved"
            )
        reason = why_unled(queue.record)
        raise AtAnotherNode(f"no node leads the queue '{name}' in virtual host '{vhost}' at present: {reason}")
    raise NotFound(f"there is no queue '{name}' in virtual host '{vhost}'")


def why_unled(record: QueueRecord) -> str:
    """Why no node leads this queue of a cluster."""
    if record.source:
        return "`amqpd quorum status` says why"
    if record.node:
        return f"its node '{record.node}' is down or inaccessible"
    return "it gets a node when all nodes of the cluster have been started"


def require_here(queue: Dispatchable) -> None:
    """After something was waited for. Raises Conflict."""
    if queue.is_deleted:
        raise Conflict(f"the queue '{queue.record.name}' was deleted meanwhile")
    if queue.state in AWAY:
        raise Conflict(f"the leader of the queue '{queue.record.name}' became another node meanwhile: go on there")
