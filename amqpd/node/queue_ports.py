"""All queues by their names: those of this node, and those whose homes are other nodes.

What comes in: both, kept by others. What goes out: the port of a name; how many there are.
Rules: 1. A name is in one of the two. 2. What serves clients asks here; what looks after messages asks for the queues
of this node, and does nothing for the others.
Not here: which is which (`queue_registry.py`).
"""

from __future__ import annotations

from amqpd.queues.elsewhere import ElsewhereQueue
from amqpd.queues.port import QueuePort
from amqpd.queues.queue import Queue


class QueuePorts:
    """Of one node."""

    def __init__(self, here: dict[tuple[str, str], Queue], elsewhere: dict[tuple[str, str], ElsewhereQueue]) -> None:
        self._here = here
        self._elsewhere = elsewhere

    def get(self, key: tuple[str, str]) -> QueuePort | None:
        here = self._here.get(key)
        return self._elsewhere.get(key) if here is None else here

    def ports(self) -> list[QueuePort]:
        """All of them, as they are now."""
        return [*self._here.values(), *self._elsewhere.values()]

    def __len__(self) -> int:
        return len(self._here) + len(self._elsewhere)

    def __contains__(self, key: object) -> bool:
        return key in self._here or key in self._elsewhere
