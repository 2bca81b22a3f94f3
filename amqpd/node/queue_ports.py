"""All queues by their names: those of this node, and those whose leaders are other nodes.

What comes in: both, kept by others. What goes out: the port of a name; how many there are.
Rules: 1. A name is in one of the two. 2. What serves clients asks here; what looks after messages asks for the queues
of this node, and does nothing for the others. 3. A queue whose source begins here is made when somebody asks for it,
at the latest: nobody who asks meets one that is remote while its source is served here.
Not here: which is which (`queue_registry.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from amqpd.queues.port import QueuePort
from amqpd.queues.queue import Queue


class QueuePorts:
    """The ports of all queues that one node knows, by name: of its own queues and of remote ones."""

    def __init__(
        self,
        here: dict[tuple[str, str], Queue],
        remote: dict[tuple[str, str], QueuePort],
        serving: Mapping[int, None],
        begin: Callable[[tuple[str, str]], Queue],
    ) -> None:
        """`serving`: sources led here; `begin`: makes the queue, of one of these."""
        self._here = here
        self._remote = remote
        self._serving = serving
        self._begin = begin

    def get(self, key: tuple[str, str]) -> QueuePort | None:
        here = self._here.get(key)
        if here is not None:
            return here
        remote = self._remote.get(key)
        if remote is not None and remote.record.source in self._serving:
            return self._begin(key)
        return remote

    def ports(self) -> list[QueuePort]:
        """All of them, as they are now."""
        return [*self._here.values(), *self._remote.values()]

    def __len__(self) -> int:
        return len(self._here) + len(self._remote)

    def __contains__(self, key: object) -> bool:
        return key in self._here or key in self._remote
