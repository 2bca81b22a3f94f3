"""What both ends of remote queues need of the cluster: who leads a source, and connections between nodes.

What comes in: nothing. What goes out: an interface, which `amqpd/cluster/sessions.py` fills; that of a node which is
alone.
Rules: 1. None of it waits. A message for a node to which there is no connection is lost, as one on its way is when a
connection ends: sessions are made for that. 2. What this node says to itself does not come here.
Not here: the bytes (`encoding.py`), the connections (`amqpd.peers.links`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from amqpd.journal.records import LOCAL
from amqpd.remote.messages import FromEdge, FromLeader, Sender
from amqpd.vocabulary.records import QueueRecord


class RemoteSource(NamedTuple):
    """A source that another node leads, as edges tell them apart: by its number in the cluster, or, of a node's local
    source, which has the classic queues of that node, by the node."""

    number: int
    """`LOCAL`: that of `node`. Messages to a node name its local source so, too."""
    node: str = ""
    """empty: the node that leads the source now"""

    def __str__(self) -> str:
        return str(self.number) if self.number else f"of classic queues of {self.node}"

    @classmethod
    def of_record(cls, record: QueueRecord) -> RemoteSource:
        """The one that the queue's messages are in."""
        return cls(record.source) if record.source else cls(LOCAL, record.node)

    @classmethod
    def at(cls, node: str, number: int) -> RemoteSource:
        """The one that this node means with the number, as its leader."""
        return cls(number) if number else cls(LOCAL, node)


class SessionLinks(Protocol):
    """The connections over which sessions go, and the leaders that they go to."""

    @property
    def is_on(self) -> bool:
        """Clients of other nodes may use queues of this node, and those of this node queues of others."""
        ...

    @property
    def incarnation(self) -> int | None:
        """Of this process, as the other nodes know it; None: it is no member yet, or nobody else is there."""
        ...

    def leader_of(self, source: int) -> str:
        """The name of the node that leads the source, which is not a local one, as far as that is known; empty: none
        does."""
        ...

    def epoch_of(self, source: int, node: str) -> int:
        """In which the node leads it, as far as that is known; of its local source: the incarnation of its
        process."""
        ...

    def members(self, source: int) -> frozenset[str]:
        """The nodes whose memberships live, and whose clients may use queues of this source here."""
        ...

    def forgotten(self) -> frozenset[str]:
        """The nodes that are decommissioned, and do not live."""
        ...

    def is_linked(self, node: str) -> bool:
        """There is a connection to this node, for sessions with the sources that it leads."""
        ...

    def has_capacity(self, node: str, source: int) -> bool:
        """This node's edge at the source may send more to the source's leader at that node; if not, it is told when
        it may."""
        ...

    def edge_has_capacity(self, node: str, source: int) -> bool:
        """The leader of the source, at this node, may send more to the edge of that node; if not, it is told when it
        may."""
        ...

    def to_leader(self, node: str, source: int, incarnation: int, session: int, message: FromEdge) -> None:
        """Of this node's edge at the source, over the connection to its leader."""
        ...

    def to_edge(self, sender: Sender, source: int, message: FromLeader) -> None:
        """Of the source's leader, over the connection that the edge's node has made."""
        ...


class NoSessions:
    """Of a node without a cluster: nobody is there to talk to."""

    is_on = False
    incarnation: int | None = None

    def leader_of(self, source: int) -> str:
        return ""

    def epoch_of(self, source: int, node: str) -> int:
        return 0

    def members(self, source: int) -> frozenset[str]:
        return frozenset()

    def forgotten(self) -> frozenset[str]:
        return frozenset()

    def is_linked(self, node: str) -> bool:
        return False

    def has_capacity(self, node: str, source: int) -> bool:
        return False

    def edge_has_capacity(self, node: str, source: int) -> bool:
        return False

    def to_leader(self, node: str, source: int, incarnation: int, session: int, message: FromEdge) -> None:
        pass

    def to_edge(self, sender: Sender, source: int, message: FromLeader) -> None:
        pass
