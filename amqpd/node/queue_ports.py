"""All queues by their names: those of this node, and those whose homes are other nodes.

What comes in: both, kept by others. What goes out: the port of a name; how many there are.
Rules: 1. A name is in one of the two. 2. What serves clients asks here; what looks after messages asks for the queues
of this node, and does nothing for the others. 3. A queue whose source begins here is made when somebody asks for it,
at the latest: nobody who asks meets one that is elsewhere while its source is served here.
Not here: which is which (`queue_registry.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from amqpd.queues.elsewhere import ElsewhereQueue
from amqpd.queues.port import QueuePort
from amqpd.queues.queue import Queue


class QueuePorts:
    """Of one node."""

    def __init__(
        self,
        here: dict[tuple[str, str], Queue],
        elsewhere: dict[tuple[str, str], ElsewhereQueue],
        serving: Mapping[int, None],
        begin: Callable[[tuple[str, str]], Queue],
    ) -> None:
        """`serving`: sources whose home is here; `begin`: makes the queue, of one of these."""
        self._here = here
        self._elsewhere = elsewhere
        self._serving = serving
        self._begin = begin

    def get(self, key: tuple[str, str]) -> QueuePort | None:
        here = self._here.get(key)
        if here is not None:
            return here
        elsewhere = self._elsewhere.get(key)
        if elsewhere is not None and elsewhere.record.source in self._serving:
            return self._begin(key)
        return elsewhere

    def ports(self) -> list[QueuePort]:
        """All of them, as they are now."""
        return [*self._here.values(), *self._elsewhere.values()]

    def __len__(self) -> int:
        return len(self._here) + len(self._elsewhere)

    def __contains__(self, key: object) -> bool:
        return key in self._here or key in self._elsewhere
