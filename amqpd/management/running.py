"""A running node, as use cases act on it.

What comes in: the node and what belongs to it. What goes out: what use cases look up in it, or `NotFound`; waits, for
what the node gives to a function: the answer of a change, a message read from the disk.
Rules: 1. A use case that acts on the node calls `run_effects` after it, before the next await: the pump does what the
act made necessary. 2. Nothing of the node goes out of a use case: answers are plain values, so that another node may
give them. 3. What goes wrong in what the node calls is the waiting task's: unless it is the node's end.
Not here: what is done (`connections.py`, `queues.py`, `messages/operations.py` and so on), metadata alone
(`metadata/interface.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import trio

from amqpd.faults import ENDS_NODE
from amqpd.journal.lane import Lanes
from amqpd.management.errors import NotFound, Unavailable
from amqpd.node.node import Node
from amqpd.queues.port import QueuePort
from amqpd.session.durability import Decision
from amqpd.topology.state import VhostTopology


@dataclass(frozen=True)
class Running:
    """A running node, with the parts of it that use cases need."""

    node: Node
    run_effects: Callable[[], None]
    """to be called after anything that acted on the node"""

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
        await until_durable(self.node, self.run_effects, lanes)


async def until_durable(node: Node, run_effects: Callable[[], None], lanes: Lanes) -> None:
    """Returns when all that was handed to the lanes is safe. Raises Unavailable when nobody knows whether it is."""
    answer: NodeAnswer[Decision] = NodeAnswer()
    node.durability.when_durable(answer.give, lanes)
    run_effects()
    if await answer.wait() is Decision.LOST:
        raise Unavailable("the leader of a queue has moved meanwhile: what was done last may not be safe")


T = TypeVar("T")


class NodeAnswer(Generic[T]):
    """The answer of the node for which a use case waits. `give` and `fail` are for the node's side, one of them,
    once; `wait` for the use case."""

    def __init__(self) -> None:
        self._given = trio.Event()
        self._values: list[T] = []
        self._error: Exception | None = None

    def give(self, value: T) -> None:
        self._values.append(value)
        self._given.set()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._given.set()

    def guarded(self, step: Callable[..., None]) -> Callable[..., bool]:
        """The step, for the node to call; what it raises is the answer. It is always done: True."""

        def call(*results: Any) -> bool:
            try:
                step(*results)
            except ENDS_NODE:
                raise
            except Exception as error:  # noqa: BLE001 - raised on by `wait`
                self.fail(error)
            return True

        return call

    async def wait(self) -> T:
        """Raises what it failed with."""
        await self._given.wait()
        if self._error is not None:
            raise self._error
        return self._values[0]
