"""A running node, as use cases act on it.

What comes in: the node and what belongs to it. What goes out: what use cases look up in it, or `NotFound`; waits.
Rules: 1. A use case that acts on the node calls `settle` after it, before the next await: the pump does what the act
made necessary. 2. Nothing of the node goes out of a use case: answers are plain values, so that another node may give
them.
Not here: what is done (`connections.py`, `queues.py`, `messages/operations.py` and so on), metadata alone
(`metadata/interface.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amqpd.flow.alarms import AlarmBoard
from amqpd.journal.lane import Lanes
from amqpd.management.answers import NodeAnswer
from amqpd.management.errors import NotFound, Unavailable
from amqpd.node.node import Node
from amqpd.queues.port import QueuePort
from amqpd.session.durability import Decision
from amqpd.topology.state import VhostTopology


@dataclass(frozen=True)
class Running:
    """A running node, with the parts of it that use cases need."""

    node: Node
    settle: Callable[[], None]
    """to be called after anything that acted on the node"""
    board: AlarmBoard

    def vhost(self, name: str) -> VhostTopology:
        """The topology of a virtual host. Raises NotFound."""
        found = self.node.topology.vhosts.get(name)
        if found is None:
            raise NotFound(f"there is no virtual host '{name}': `amqpd vhost list` says which there are")
        return found

    def queue(self, vhost: str, name: str) -> QueuePort:
        """The queue of this name. Raises NotFound."""
        found = self.node.ports.get((vhost, name))
        if found is None:
            raise NotFound(f"there is no queue '{name}' in virtual host '{vhost}'")
        return found

    async def durable(self, lanes: Lanes) -> None:
        """Returns when all that was handed to the lanes is safe."""
        await until_durable(self.node, self.settle, lanes)


async def until_durable(node: Node, settle: Callable[[], None], lanes: Lanes) -> None:
    """Returns when all that was handed to the lanes is safe. Raises Unavailable when nobody knows whether it is."""
    answer: NodeAnswer[Decision] = NodeAnswer()
    node.durability.when_durable(answer.give, lanes)
    settle()
    if await answer.wait() is Decision.LOST:
        raise Unavailable("the leader of a queue has moved meanwhile: what was done last may not be safe")
