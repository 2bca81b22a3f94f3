"""Which of the cluster's sources have their home at this node, so that queues of theirs live here.

What comes in: sources that are served here from now on, or no more. What goes out: a source for a new queue; where
the home of another one is.
Rules: 1. A node that is not in a cluster has the local source only, and nothing of this happens. 2. A queue is of the
source that its record names, for ever. 3. A new queue's home is where it is declared, as in RabbitMQ by default
(`x-queue-leader-locator`: client-local), unless it asks for another one.
Not here: how a source comes here, and which one a new queue gets (`amqpd/cluster`), the machines of its queues
(`queue_registry.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

LOCAL = 0
"""the source of every node for itself (`journal/sqlite/schema.py`)"""

Answer = Callable[[bool], None]


class Wanted(NamedTuple):
    """What a new queue asks of its source."""

    copies: int = 0
    """on this number of nodes (`x-quorum-initial-group-size`); 0: as the cluster has it"""
    balanced: str = ""
    """Its home is a node by hash of this text, with bounded loads; empty: it is here."""


HERE = Wanted()


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
        self.cut_off: Callable[[], int] = _zero
        """how many sources this node leads, or led and gave up, of which no majority answers"""
        self.isolated: Callable[[], str] = _well
        """why this node has no part in its cluster now, a sentence without a full stop; empty: it has"""
        self.choose: Callable[[Wanted], int] = _none
        """the source for a new queue; `LOCAL`: there is none yet that is as it is wanted"""
        self.want: Callable[[Wanted, Answer], None] = _refuse
        """There is to be such a source; the answer: whether there is one."""
        self.unclaimed: Callable[[int], None] = _nothing
        """told of a source that is served here, and has messages of queues that are not known: they may be deleted"""


def _nowhere(source: int) -> str:
    return ""


def _well() -> str:
    return ""


def _always(source: int) -> bool:
    return True


def _zero() -> int:
    return 0


def _none(wanted: Wanted) -> int:
    return LOCAL


def _nothing(source: int) -> None:
    pass


def _refuse(wanted: Wanted, answer: Answer) -> None:
    answer(False)
