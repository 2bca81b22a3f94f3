"""The edges of this node: one at each source that another node leads and that clients of this node use.

What comes in: queues that look for their source; connections that begin and end; leaders that change; messages; the
time. What goes out: messages, over the connections to leaders; lanes that have more to report.
Rules: 1. An edge is made when a client first uses a queue of its source, and stays: what a leader has to know of it
are some numbers. 2. A source is reached while there is a connection to its leader, and for `AWAY_MS` after the last
session, so that clients do not notice a leader that moves. 3. This node may become the leader of a source of which it
has an edge: the edge's session is with this node then, without a connection (`to_self`).
Not here: one of them (`edge_source.py`), the leaders' end (`leaders.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from amqpd.journal.lane import Lane
from amqpd.remote.edge import EdgeState
from amqpd.remote.edge_source import EdgeSource
from amqpd.remote.links import RemoteSource, SessionLinks
from amqpd.remote.messages import FromEdge, FromLeader, Sender

AWAY_MS = 10_000
"""Without a session: as long as a declaration waits for a source that moves (`flow/leader_moves.py`)."""
INCARNATION_BITS = 20
"""The lower bits of an edge's incarnation, for those that follow each other at one source; above them is the
incarnation of its node's process."""

NOBODY = "", 0

ToSelf = Callable[[Sender, int, int, FromEdge], None]


class RemoteEdges:
    """All edges of one node, by their sources."""

    def __init__(
        self,
        name: str,
        links: SessionLinks,
        now_ms: Callable[[], int],
        reported: Callable[[Lane], None],
        led_in: Callable[[int], int],
    ) -> None:
        """`name`: of this node; `reported`: see `Node.reported`; `led_in`: the epoch in which this node leads the
        source now; 0: it does not."""
        self._name = name
        self._links = links
        self._now_ms = now_ms
        self._reported = reported
        self._led_in = led_in
        self.to_self: ToSelf = _nobody
        """takes what an edge says to a leader of this node"""
        self.lagging = False
        """a lane of one of them is (`Lane.lagging`)"""
        self._lagging: set[RemoteSource] = set()
        """sources of which it is: what changes that, makes them dirty"""
        self.dirty: dict[EdgeSource, None] = {}
        """those that may have something to send"""
        self._of: dict[RemoteSource, EdgeSource] = {}
        self._lost_ms: dict[str, int] = {}
        """by node, when the connection to it ended, while there is none"""

    def __contains__(self, source: object) -> bool:
        return source in self._of

    def __iter__(self) -> Iterator[EdgeSource]:
        return iter(self._of.values())

    def reaches(self, source: RemoteSource) -> bool:
        """Clients of this node can use queues of the source, which another node leads."""
        of = self._of.get(source)
        if of is not None and (of.is_attached or self._now_ms() - of.away_since_ms < AWAY_MS):
            return True
        if of is None and self._now_ms() - self._lost_ms.get(self._known_leader(source), -AWAY_MS) < AWAY_MS:
            return True  # nobody has used it yet, and its leader is about to be followed, or to come back
        return bool(self._leading(source)[0])

    def _known_leader(self, source: RemoteSource) -> str:
        """The node that leads it, reached or not; empty: none does, as far as that is known."""
        return self._links.leader_of(source.number) if source.number else source.node

    def _leading(self, source: RemoteSource) -> tuple[str, int]:
        """The node that a session would be with now, and the epoch in which it leads; empty: none."""
        leader, number = self._known_leader(source), source.number
        if leader == self._name:
            epoch = self._led_in(number) if number else 0
            return (leader, epoch) if epoch else NOBODY
        return (leader, self._links.epoch_of(number, leader)) if leader and self._links.is_linked(leader) else NOBODY

    def of(self, source: RemoteSource) -> EdgeSource:
        """The source of a queue that a client uses; it will send what is asked of it now."""
        of = self._of.get(source)
        if of is None:
            incarnation = self._links.incarnation
            assert incarnation is not None, "only a member's queues have sources"
            of = self._of[source] = EdgeSource(source, self._name, incarnation << INCARNATION_BITS)
            of.away_since_ms = self._now_ms()
            of.attach(*self._leading(source), self._now_ms())
        self.dirty[of] = None
        return of

    # Connections and leaders

    def links_changed(self, node: str) -> None:
        """There is another connection to this node than before, or none any more."""
        if self._links.is_linked(node):
            self._lost_ms.pop(node, None)
        else:
            self._lost_ms[node] = self._now_ms()
        for of in self._of.values():
            if of.leader == node or self._known_leader(of.source) == node:
                self._attach(of)

    def leaders_changed(self) -> None:
        """Others may lead some of the sources, or the same one in another epoch: its sessions are void."""
        for of in self._of.values():
            if self._leading(of.source) != (of.leader, of.epoch):
                self._attach(of)

    def _attach(self, of: EdgeSource) -> None:
        of.attach(*self._leading(of.source), self._now_ms())
        self.dirty[of] = None

    def drained(self, node: str, source: int) -> None:
        """The connection to the leader of this source at the node has capacity again."""
        of = self._of.get(RemoteSource.at(node, source))
        if of is not None:
            self.dirty[of] = None

    def beat(self) -> None:
        """Some times a second."""
        self.leaders_changed()
        now_ms = self._now_ms()
        for of in self._of.values():
            of.beat(now_ms)
            if of.source.node and not of.is_attached and now_ms - of.away_since_ms >= AWAY_MS:
                of.give_up()
            self.dirty[of] = None

    # Messages

    def receive(self, node: str, source: int, incarnation: int, session: int, message: FromLeader) -> None:
        """What a leader at that node says to this node's edge."""
        of = self._of.get(RemoteSource.at(node, source))
        if of is None or of.leader != node or of.edge.incarnation != incarnation:
            return  # it was meant for another process, or comes from a leader that is none any more
        of.receive(session, message, self._now_ms())
        self._look(of)

    def _look(self, of: EdgeSource) -> None:
        """What follows of what its leader has said."""
        edge = of.edge
        if edge.lane.reported > of.reported:
            of.reported = edge.lane.reported
            self._reported(edge.lane)
        if edge.state is EdgeState.ENDED:
            of.begin_again(self._now_ms())
        self.dirty[of] = None

    def flush(self) -> None:
        """Send what the last inputs made necessary."""
        dirty, self.dirty = self.dirty, {}
        for of in dirty:
            edge, number = of.edge, of.source.number
            (self._lagging.add if edge.lane.lagging else self._lagging.discard)(of.source)
            if of.leader not in ("", self._name) and not self._links.has_capacity(of.leader, number):
                continue  # `drained` follows, or another link
            for message in of.take():
                if of.leader == self._name:
                    self.to_self(Sender(self._name, edge.incarnation, edge.session), number, 0, message)
                else:
                    self._links.to_leader(of.leader, number, edge.incarnation, edge.session, message)
        self.lagging = bool(self._lagging)


def _nobody(sender: Sender, source: int, revision: int, message: FromEdge) -> None:
    raise AssertionError("no leader of this node is known")
