"""Sessions of remote queues over data links: what this node's edges and leaders say to those of other nodes.

What comes in: messages of the node's edges and leaders; events of data links; the roster, when it changes. What goes
out: the same messages at the other end.
Rules: 1. A data link to each other member is wanted: a client may use any queue at any time. 2. A peer that says what
cannot be read, or names an incarnation that is not of its process, loses its link. 3. What is said to a leader names
the change of the metadata that this node had applied last (`RemoteLeaders.receive`). 4. To a leader that has begun
this node says of which of its sources it has nothing, so that it need not wait for this node's claims. 5. A node's
local source, which has its classic queues, has the number 0 in what is said to that node and by it; its epoch is the
incarnation of that node's process.
Not here: the links (`data_links.py`), the bytes (`amqpd/remote/encoding.py`), what the messages do (`amqpd/remote`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from amqpd.cluster.data_links import DataLink, DataLinks
from amqpd.cluster.roster import Roster
from amqpd.journal.records import LOCAL
from amqpd.node.node import Node
from amqpd.peers.entry import SOURCES_MAX, Vote
from amqpd.peers.formats import MalformedMessage
from amqpd.peers.messages import HoldsNothing, SourceEpoch, ToEdge, ToLeader
from amqpd.remote.edges import INCARNATION_BITS
from amqpd.remote.encoding import decode_from_edge, decode_from_leader, encode
from amqpd.remote.figures import edge_figures, leader_figures, stuck_sentences
from amqpd.remote.links import RemoteSource
from amqpd.remote.messages import FromEdge, FromLeader, Sender


class SessionsRunner(Protocol):
    """The runner of a node's part in the cluster, as sessions ask it."""

    @property
    def incarnation(self) -> int | None:
        """Of this process, as the other nodes know it; None: it is no member yet."""
        ...

    def leader_of(self, source: int) -> str:
        """See `Cluster.leader_of`."""
        ...

    def knows_sessions(self, name: str) -> bool:
        """The node has said that it knows sessions of remote queues."""
        ...

    def may_mark(self, source: int) -> bool:
        """All copies of the source read what its leader here writes of remote clients."""
        ...


class Sessions:
    """The sessions of one node with other nodes, at both ends."""

    def __init__(self, name: str, links: DataLinks, runner: SessionsRunner, is_on: bool) -> None:
        """`name`: of this node. `is_on`: there are sessions (`cluster_remote_queues`)."""
        self._name, self._links, self._runner, self._is_on = name, links, runner, is_on
        self._seen: set[str] = set()
        """nodes that have dialed since the start"""
        self._edges: dict[str, DataLink] = {}
        """by their nodes, those that have dialed this one"""
        self._node: Node
        self._roster: Roster | None = None
        self._votes: dict[int, Vote] = {}
        """who led each source when the roster changed last: the roster itself is one object, which changes"""
        self._wanted: frozenset[str] = frozenset()
        self._forgotten: frozenset[str] = frozenset()

    def start(self, node: Node) -> None:
        self._node = node
        if self._is_on:
            self._links.tell(self)

    # The cluster

    def roster_changed(self, roster: Roster) -> None:
        """Other members, or other leaders."""
        if not self._is_on:
            return
        self._roster = roster
        self._forgotten = frozenset(roster.forgotten.keys() - roster.known.keys() - roster.members.keys())
        wanted, before = frozenset(roster.members) - {self._name}, self._wanted
        self._wanted = wanted
        for name in wanted - before:
            self._links.want(name)
        for name in before - wanted:
            self._links.drop(name)
        votes, led_before = {source: record.leader for source, record in roster.records.items()}, self._votes
        self._votes = votes
        self._node.edges.leaders_changed()
        moved = [source for source, vote in votes.items() if led_before.get(source) != vote]
        for name in {votes[source].forwarder for source in moved} & wanted:
            if self.is_linked(name):
                self._tell_nothing(name, moved)

    def _tell_nothing(self, leader: str, among: Iterable[int]) -> None:
        """Of those of the sources that the leader leads."""
        edges, votes = self._node.edges, self._votes
        sources = [
            SourceEpoch(source, votes[source].epoch)
            for source in among
            if votes[source].forwarder == leader and RemoteSource(source) not in edges
        ]
        for at in range(0, len(sources), SOURCES_MAX):
            self._links.send(leader, HoldsNothing(tuple(sources[at : at + SOURCES_MAX])))

    def figures(self) -> dict[str, int | float]:
        """Of remote queues, at both ends; nothing while they are off."""
        if not self._is_on:
            return {}
        node = self._node
        return edge_figures(node.edges, node.now_ms) | leader_figures(node.remote_sessions.leaders)

    def sentences(self) -> list[str]:
        """Of leaders that do not decide what clients of this node asked of them, for operators."""
        return stuck_sentences(self._node.edges, self._node.now_ms) if self._is_on else []

    @property
    def is_on(self) -> bool:
        return self._is_on

    @property
    def incarnation(self) -> int | None:
        """Of this process, as the other nodes know it; None: it is no member yet."""
        return self._runner.incarnation

    def leader_of(self, source: int) -> str:
        """As far as that is known; empty: it has none."""
        return self._runner.leader_of(source)

    def epoch_of(self, source: int, node: str) -> int:
        """In which the node leads it; 0: nobody does."""
        if source == LOCAL:
            return self._links.incarnation_of(node) or 0
        record = None if self._roster is None else self._roster.records.get(source)
        return 0 if record is None else record.leader.epoch

    def members(self, source: int) -> frozenset[str]:
        """Those whose clients may use queues of the source here: all that know sessions, as far as that was heard.
        The local source begins with the process, which has heard nothing of anybody then: so it is all of them."""
        return frozenset([each for each in self._names() if source == LOCAL or self._knows(each)])

    def forgotten(self) -> frozenset[str]:
        """Whose names may be given again. One that is only missing in the store is none of them: that may have gone
        back."""
        return self._forgotten

    def _names(self) -> Collection[str]:
        return self._roster.members if self._roster is not None else ()

    def _knows(self, name: str) -> bool:
        return name == self._name or name in self._seen or self._runner.knows_sessions(name)

    # What edges and leaders of this node say

    def is_linked(self, node: str) -> bool:
        """There is a data link to this node, and all members know sessions: while one of an older version may keep a
        copy, its leader may write nothing of remote clients."""
        return self._links.incarnation_of(node) is not None and all(map(self._knows, self._names()))

    def has_capacity(self, node: str, source: int) -> bool:
        """Of the link to the leader at this node."""
        return self._links.has_capacity(node, source)

    def edge_has_capacity(self, node: str, source: int) -> bool:
        """Of the link from the edge of this node."""
        link = self._edges.get(node)
        return link is None or link.has_capacity(source)

    def to_leader(self, node: str, source: int, incarnation: int, session: int, message: FromEdge) -> None:
        """Of this node's edge."""
        revision = self._node.services.metadata_told
        self._links.send(node, ToLeader(source, incarnation, session, revision, tuple(encode(message))))

    def to_edge(self, sender: Sender, source: int, message: FromLeader) -> None:
        """Of a leader at this node."""
        link = self._edges.get(sender.forwarder)
        if link is not None:
            link.send(ToEdge(source, sender.incarnation, sender.session, tuple(encode(message))))

    # `DataEvents`

    def edge_linked(self, peer: str, incarnation: int) -> None:
        self._node.edges.links_changed(peer)
        self._tell_nothing(peer, self._votes)
        if RemoteSource(LOCAL, peer) not in self._node.edges:
            self._links.send(peer, HoldsNothing((SourceEpoch(LOCAL, incarnation),)))

    def edge_lost(self, peer: str) -> None:
        self._node.edges.links_changed(peer)

    def edge_drained(self, peer: str, source: int) -> None:
        self._node.edges.drained(peer, source)

    def from_leader(self, peer: str, message: ToEdge) -> None:
        try:
            said = decode_from_leader(memoryview(message.body))
        except MalformedMessage as error:
            self._links.close(peer, f"what its leader of source {message.source} says is no message: {error}")
            return
        self._node.edges.receive(peer, message.source, message.incarnation, message.session, said)

    def accepted(self, link: DataLink) -> None:
        self._edges[link.forwarder] = link
        self._seen.add(link.forwarder)

    def left(self, link: DataLink) -> None:
        if self._edges.get(link.forwarder) is link:  # else the sessions are a newer link's by now
            del self._edges[link.forwarder]
            self._node.remote_sessions.leaders.lost(link.forwarder)

    def drained(self, link: DataLink, source: int) -> None:
        self._node.remote_sessions.leaders.drained(source)

    def from_edge(self, link: DataLink, message: ToLeader | HoldsNothing) -> None:
        if self._edges.get(link.forwarder) is not link:
            return  # a newer one has taken its place
        leaders = self._node.remote_sessions.leaders
        if isinstance(message, HoldsNothing):
            leaders.has_nothing(link.forwarder, message.sources)
            return
        if not self._runner.may_mark(message.source):
            self._links.note_dropped()
            return
        if message.incarnation >> INCARNATION_BITS != link.incarnation:
            link.close(f"it speaks for incarnation {message.incarnation}, which is not of its process")
            return
        try:
            said: Any = decode_from_edge(memoryview(message.body))
        except MalformedMessage as error:
            link.close(f"what its edge at source {message.source} says is no message: {error}")
            return
        sender = Sender(link.forwarder, message.incarnation, message.session)
        leaders.receive(sender, message.source, message.revision, said)
