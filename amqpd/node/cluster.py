"""The cluster, as the node of one of its members asks it; and the cluster of a node that is alone.

What comes in: what the node needs to know of other nodes, or of the sources that are led there. What goes out: who
is a member, who leads a source, why a queue cannot be made; sources for new queues.
Rules: 1. It is given to the node when that is made, and answers from then on. 2. Nothing here blocks: an answer is
what is known now, and what takes time calls back. 3. A node that is alone leads what there is, and asks nobody.
Not here: how a cluster knows it (`amqpd/cluster/runner.py`), which queues this node leads itself (`sources.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from amqpd.remote.links import NoSessions, SessionLinks

LOCAL = 0
"""the source of every node for itself (`journal/sqlite/schema.py`)"""

Answer = Callable[[bool], None]


class WantedSource(NamedTuple):
    """The properties that a new queue asks of its source."""

    copies: int = 0
    """on this number of nodes (`x-quorum-initial-group-size`); 0: as the cluster has it"""
    balanced: str = ""
    """It is led by a node by hash of this text, with bounded loads; empty: by this one."""


HERE = WantedSource()


@mypyc_attr(allow_interpreted_subclasses=True)
class Knowledge:
    """What the other nodes that take publishes know of the changes to the topology that this node has applied: here,
    where there are none that do."""

    @property
    def matters(self) -> bool:
        """There are other nodes that take publishes: changes are answered when they know them."""
        return False

    @property
    def has_all(self) -> bool:
        """All of them know all that this node has applied."""
        return True

    def when_known(self, answer: Callable[[], None]) -> None:
        """Call `answer` when they know what this node has applied now (`cluster/sync_point.py`), not before this
        returns. Only where it `matters`."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Cluster:
    """The nodes that share one metadata store, as one of them knows them: here, as one knows them that is alone.
    Nothing is replicated then, and each node that a record names counts as a member."""

    def __init__(self, node: str = "") -> None:
        self.node = node
        """the name under which records have this node; empty: it shares its metadata with no other one"""
        self.sessions: SessionLinks = NoSessions()
        """with nodes whose clients use queues here, or whose queues clients here use"""
        self.knowledge = Knowledge()
        """what other nodes know of the topology"""

    @property
    def incarnation(self) -> int | None:
        """Of this process, as the other nodes know it; None: it is no member yet, or nobody else is there."""
        return None

    @property
    def replicates(self) -> bool:
        """A quorum queue is in a source, which several nodes keep."""
        return False

    def is_member(self, node: str) -> bool:
        """The node of this name is a member, as far as that is known."""
        return True

    def leader_of(self, source: int) -> str:
        """The name of the node that leads the source, as far as that is known; empty: none does."""
        return ""

    def is_moving(self, source: int) -> bool:
        """Whether this node hands the source over, or takes it over, now: who leads it is decided within moments."""
        return False

    def holds_lease(self, source: int) -> bool:
        """This node leads the source, and nobody else can by now: it may deliver to the only consumer of a queue
        (`replication/leader_lease.py`)."""
        return True

    def isolation(self) -> str:
        """Why this node has no part in its cluster now, a sentence without a full stop; empty: it has."""
        return ""

    def cut_off_count(self) -> int:
        """How many sources this node leads, or led and gave up, of which no majority answers."""
        return 0

    def source_for(self, wanted: WantedSource) -> int:
        """The source for a new queue; `LOCAL`: there is none yet that is as it is wanted."""
        return LOCAL

    def want_source(self, wanted: WantedSource, answer: Answer) -> None:
        """There is to be such a source; the answer: whether there is one."""
        answer(False)

    def report_unknown_queues(self, source: int) -> None:
        """Report that this node leads the source, and that it has messages of queues that are not known: these may be
        deleted ones."""

    def report_remote_queue(self, node: str) -> None:
        """Report that the metadata have a classic queue that this other node leads. Empty: that none leads, so that
        one of the members is to claim it."""
