"""Which queues this node leads: those of its own log, and those of the cluster's sources that it serves.

What comes in: sources that are served here from now on, or no more. What goes out: a source for a new queue; who
leads another one.
Rules: 1. A node that shares its metadata with no other one leads all queues, and nothing of this happens. 2. A queue
is of the source that its record names, for ever; one without a source (a classic queue) is of the node that its
record names. 3. A new queue is led by the node where it is declared, as in RabbitMQ by default
(`x-queue-leader-locator`: client-local), unless it asks for another one.
Not here: how a source comes here, and which one a new queue gets (`amqpd/cluster`), the machines of its queues
(`queue_registry.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from amqpd.vocabulary.records import QueueRecord, UnreadableQueue

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
    """The queues that one node leads, and what it knows of the leaders of the others."""

    def __init__(self) -> None:
        self.node = ""
        """the name under which records have this node; empty: it shares its metadata with no other one"""
        self.lives: Callable[[str], bool] = _always
        """the node of this name is a member of the cluster, as far as that is known"""
        self.clustered = False
        """quorum queues are replicated"""
        self.serving: dict[int, None] = {}
        self.queues: Counter[int] = Counter()
        """how many queues each source has"""
        self.home_of: Callable[[int], str] = _nowhere
        """the name of the node that is the home of a source, as far as that is known; empty if it has none"""
        self.reigns: Callable[[int], bool] = _always_reigns
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

    def leads(self, record: QueueRecord) -> bool:
        """This node has the queue's messages and consumers. A queue whose record cannot be read, so that nobody knows
        whose it is, is led by all of them: it is out of service everywhere."""
        if record.source:
            return record.source in self.serving
        return record.node == self.node or (not record.node and isinstance(record, UnreadableQueue))

    def leader_of(self, record: QueueRecord) -> str:
        """The name of the node that leads the queue. Empty: none does, as far as that is known."""
        if record.source:
            return self.home_of(record.source)
        return record.node if record.node == self.node or self.lives(record.node) else ""


def _nowhere(source: int) -> str:
    return ""


def _well() -> str:
    return ""


def _always(name: str) -> bool:
    return True


def _always_reigns(source: int) -> bool:
    return True


def _zero() -> int:
    return 0


def _none(wanted: Wanted) -> int:
    return LOCAL


def _nothing(source: int) -> None:
    pass


def _refuse(wanted: Wanted, answer: Answer) -> None:
    answer(False)
