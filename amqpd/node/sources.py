"""Which of the cluster's sources have their home at this node, so that queues of theirs live here.

What comes in: sources that are served here from now on, or no more. What goes out: a source for a new queue; where
the home of another one is.
Rules: 1. A node that is not in a cluster has the local source only, and nothing of this happens. 2. A queue is of the
source that its record names, for ever. 3. A new queue's home is where it is declared, as in RabbitMQ by default
(`x-queue-leader-locator`: client-local).
Not here: how a source comes here (`amqpd/cluster`), the machines of its queues (`queue_registry.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

LOCAL = 0
"""the source of every node for itself (`journal/sqlite/schema.py`)"""

Answer = Callable[[bool], None]


class Sources:
    """Of one node."""

    def __init__(self) -> None:
        self.clustered = False
        """quorum queues are replicated"""
        self.serving: dict[int, None] = {}
        self.queues: Counter[int] = Counter()
        """how many queues each source has"""
        self.home_of: Callable[[int], str] = _nowhere
        """the name of the node that is the home of a source, as far as that is known; empty if it has none"""
        self.reigns: Callable[[int], bool] = _always
        """this node may deliver to the only consumer of a queue of the source (`replication/reign.py`)"""
        self.want: Callable[[Answer], None] = _refuse
        """Some source is to be served here; the answer: whether there is one."""
        self.is_full: Callable[[int], bool] = _always
        """the source has as many copies as it can have: one that was made while fewer nodes were known has not, and
        gets no new queues"""

    def choose(self) -> int:
        """The one that is served here with the fewest queues; `LOCAL`: there is none yet."""
        full = filter(self.is_full, self.serving)
        return min(full, key=lambda source: (self.queues[source], source), default=LOCAL)


def _nowhere(source: int) -> str:
    return ""


def _always(source: int) -> bool:
    return True


def _refuse(answer: Answer) -> None:
    answer(False)
