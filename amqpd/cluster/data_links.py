"""Data links of a node: the connections that sessions of remote queues go over, at both ends.

A node dials a peer whose queues its clients use, as the edge (`want`); it takes peers in that use its queues, as the
leader of those. All sessions of a pair of nodes in one direction share a link, with turns. Links of replication are
others (`runner.py`), and nothing of a data link counts for what is said of those.

What comes in: events of data links (`LinkEvents`), beats; messages of sessions, to send. What goes out: `DataEvents`,
to the node, each as a call on the loop after which the node acts on what it made necessary; figures for operators.
Rules: 1. `send` never waits and tells nothing: who has much to send asks `has_capacity` before, and is told when
there is some again. So little waits for a link, and no session behind the backlog of another one. A session that asks
nobody loses its link to the bound. 2. Over a link that has ended nothing goes: a session is begun again when there is
another one. 3. Each end says some times in a lease that it lives, also while it takes nothing in; an end that hears
nothing for a lease time ends the link. Beats are counted, not seconds: a process that was stopped itself judges
nobody by that, and one that takes nothing in does not, either. 4. While this node's journal is full, nothing is heard
of edges: they are held up by and by. 5. Until the node has said who is to be told, messages are dropped and counted.
Not here: what the messages say (`amqpd/remote/`), dialing (`amqpd/peers/links/`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from amqpd.cluster.session_turns import SessionTurns
from amqpd.peers.links.link import PeerLink
from amqpd.peers.links.links import Links
from amqpd.peers.messages import (
    AppliedRevision,
    AskRevision,
    DataHeartbeat,
    HoldsNothing,
    Message,
    ToEdge,
    ToLeader,
)

CAPACITY_BYTES = 4 << 20
"""While more waits for a link, sessions that have something waiting hand over no more: some tens of milliseconds of a
gigabit a second, and more than is on its way at a time."""
WAITING_BYTES_MAX = 64 << 20
"""What may wait for one link, before the message that is one too much: `CAPACITY_BYTES`, and what each of 256
sessions may have that had nothing waiting."""
AHEAD_BYTES = 256 << 10
"""What is given to the link ahead of what it has sent: the turns of sessions come behind it. A larger message goes by
itself."""
HEAD_BYTES = 64
"""what a message has beside its body, roughly: also one without a body takes memory"""
HEARTBEATS = 4
"""in a lease time"""
OF_NO_SOURCE = -1
"""0 is the local source of the node that leads"""

Do = Callable[[Callable[[], None]], None]
"""makes a call on the loop, and has the node act on what that made necessary"""


class DataEvents(Protocol):
    """The receiver of the events of data links. All of it is called on the loop, and does not wait. What is said of a
    link comes between its begin and its end."""

    def edge_linked(self, peer: str, incarnation: int) -> None:
        """There is a data link to this peer, whose process has this incarnation: sessions with it can begin."""

    def edge_lost(self, peer: str) -> None:
        """The data link to this peer has ended, and its sessions with it."""

    def edge_drained(self, peer: str, source: int) -> None:
        """There is capacity for the session of this source with this peer again (`DataLinks.has_capacity`)."""

    def from_leader(self, peer: str, message: ToEdge) -> None:
        """Over the data link to this peer. Raises nothing for what it says: a lie is answered with
        `DataLinks.close`."""

    def accepted(self, link: DataLink) -> None:
        """A peer has dialed this node, as an edge."""

    def left(self, link: DataLink) -> None:
        """One that was accepted has ended, and its sessions with it."""

    def drained(self, link: DataLink, source: int) -> None:
        """There is capacity for the session of this source again (`DataLink.has_capacity`)."""

    def from_edge(self, link: DataLink, message: ToLeader | HoldsNothing) -> None:
        """Over an accepted link. Raises nothing for what it says: a lie is answered with `DataLink.close`."""


class RevisionEvents(Protocol):
    """The receiver of what is said over data links of revisions of the metadata (`applied_revisions.py`), and of
    their begins and ends. As `DataEvents`, but not dropped when nobody serves sessions."""

    def dialed(self, link: DataLink) -> None:
        """There is a data link to this peer."""

    def lost(self, peer: str) -> None:
        """There is none any more."""

    def accepted(self, link: DataLink) -> None:
        """A peer has dialed this node."""

    def left(self, link: DataLink) -> None:
        """One that was accepted has ended."""

    def asked(self, link: DataLink, message: AskRevision) -> None:
        """Over an accepted link."""

    def heard(self, link: DataLink, message: AppliedRevision) -> None:
        """Over a dialed one."""

    def facts(self) -> dict[str, Any]:
        """For JSON."""


@dataclass(slots=True)
class DataCounters:
    """Counts of what went wrong over the data links of one process since it began."""

    links_lost: int = 0
    """that this node had dialed"""
    links_closed: int = 0
    """because of what came over them, or since they were not read"""
    dropped: int = 0
    """messages for sources that are not served here, or before anybody was there to be told"""


class DataLink:
    """One data connection with a peer, whichever of the two has dialed it."""

    def __init__(
        self, link: PeerLink, drained: Callable[[DataLink, int], None], close: Callable[[DataLink, str], None]
    ) -> None:
        """`drained`: see `has_capacity`. `close`: ends it and says so."""
        self.forwarder = link.peer.forwarder
        """the peer's name"""
        self.incarnation = link.peer.incarnation
        """of its process"""
        self._link = link
        self._drained = drained
        self._close = close
        self._turns = SessionTurns()
        self._held_up: dict[int, None] = {}
        """sources whose sessions are told when there is capacity, in the order in which they asked"""
        self._stopped_by: set[str] = set()
        """why nothing is taken in"""
        self._silent_beats = self._in_bytes = 0
        link.sent = self._send_more

    def __repr__(self) -> str:
        return f"<DataLink, {self._link!r}>"

    @property
    def waiting_bytes(self) -> int:
        """What waits to be sent; what the system has taken is not in it."""
        return self._link.out_bytes + self._turns.nbytes

    @property
    def ended(self) -> bool:
        return self._link.ended

    def send(self, message: Message) -> None:
        """Behind what its session has waiting, or at once. Over a link that has ended it goes nowhere."""
        if self._link.ended:
            return
        nbytes = weight_of(message)
        if not self._turns.nbytes and self._takes(nbytes):
            self._link.send(message)
        elif self._turns.nbytes > WAITING_BYTES_MAX:
            self.close(f"it does not take what is sent: {self.waiting_bytes} bytes wait")
        else:
            self._turns.add(_source_of(message), message, nbytes)

    def has_capacity(self, source: int) -> bool:
        """The session of this source may hand over more, at most a frame's worth. If not, `drained` follows when it
        may, unless the link ends before."""
        if self.waiting_bytes <= CAPACITY_BYTES or not self._turns.nbytes_of(source):
            return True
        self._held_up[source] = None
        return False

    def pause(self, why: str = "") -> None:
        """Take nothing in until `resume` with the same reason: the peer is held up by and by."""
        self._stopped_by.add(why)
        self._link.pause()

    def resume(self, why: str = "") -> None:
        self._stopped_by.discard(why)
        if not self._stopped_by:
            self._link.resume()

    def close(self, why: str) -> None:
        """The peer did what it may not: the log has it. What waits is not sent."""
        if not self._link.ended:
            self._close(self, why)

    def end(self, why: str) -> None:
        """As links end by themselves, too: only they say so."""
        self._turns = SessionTurns()
        self._held_up.clear()
        self._link.close(why)

    def heard(self) -> None:
        """A message has come."""
        self._silent_beats = 0

    def beat(self, heartbeat: bool, silent_beats_max: int) -> None:
        """`heartbeat`: one is due. `silent_beats_max`: beats in which nothing comes before the link ends."""
        if heartbeat and not self.waiting_bytes:  # else the peer hears from it anyway
            self.send(DataHeartbeat())
        if self._stopped_by or self._link.in_bytes != self._in_bytes:
            self._silent_beats = 0
        self._in_bytes = self._link.in_bytes
        self._silent_beats += 1
        if self._silent_beats > silent_beats_max and not self._link.ended:
            self.end("nothing came from it for the time of a lease")

    def _takes(self, nbytes: int) -> bool:
        return not self._link.out_bytes or self._link.out_bytes + nbytes <= AHEAD_BYTES

    def _send_more(self) -> None:
        """Something was sent. While something waits its turn, something waits in the link, too: so this is called
        again."""
        turns = self._turns
        while turns.nbytes and self._takes(turns.next_bytes()) and not self._link.ended:
            self._link.send(turns.take())
        if self._held_up:
            little = self.waiting_bytes <= CAPACITY_BYTES // 2
            for source in [each for each in self._held_up if little or not turns.nbytes_of(each)]:
                del self._held_up[source]
                self._drained(self, source)


def weight_of(message: Message) -> int:
    """What a message takes, in bytes."""
    return HEAD_BYTES + (sum(map(len, message.pieces)) if isinstance(message, ToLeader | ToEdge) else 0)


def _source_of(message: Message) -> int:
    return message.source if isinstance(message, ToLeader | ToEdge) else OF_NO_SOURCE


class DataLinks:
    """All data links of one node, and who is told what comes over them: the `LinkEvents` of that purpose."""

    def __init__(
        self, do: Do, is_full: Callable[[], bool], closed: Callable[[str, str], None], beats_in_lease: int
    ) -> None:
        """`is_full`: the journal takes no more for now. `closed`: a peer's data link was ended, and why.
        `beats_in_lease`: how often `beat` is called in a lease time."""
        self.counters = DataCounters()
        self._do = do
        self._is_full = is_full
        self._closed = closed
        self._silent_beats_max = beats_in_lease
        self._heartbeat_every = max(1, beats_in_lease // HEARTBEATS)
        self._beats = 0
        self._events: DataEvents | None = None
        self.revisions: RevisionEvents | None = None
        """set before there are links"""
        self._links: Links | None = None
        self._wanted: set[str] = set()
        """before there are links"""
        self._to: dict[str, DataLink] = {}
        """leaders that were dialed"""
        self._from: dict[PeerLink, DataLink] = {}
        """edges that dialed"""
        self._full: set[DataLink] = set()
        """that are paused since the journal is full"""

    def tell(self, events: DataEvents) -> None:
        """Who is told, from now on; before there are links."""
        self._events = events

    def begin(self, links: Links) -> None:
        """`links`: those of this node, which is a member now; they tell this of data links."""
        self._links = links
        for peer in self._wanted:
            links.want_data(peer)

    # For edges

    def want(self, peer: str) -> None:
        """Clients here use queues that this peer leads: a data link to it is kept from now on."""
        self._wanted.add(peer)
        if self._links is not None:
            self._links.want_data(peer)

    def drop(self, peer: str) -> None:
        """No client here uses a queue of this peer any more."""
        self._wanted.discard(peer)
        if self._links is not None:
            self._links.drop_data(peer)

    def incarnation_of(self, peer: str) -> int | None:
        """Of the process at the other end of the data link to this peer; None: there is no link."""
        link = self._to.get(peer)
        return None if link is None else link.incarnation

    def send(self, peer: str, message: ToLeader | HoldsNothing) -> None:
        """Over the data link to this peer; without one it goes nowhere."""
        link = self._to.get(peer)
        if link is not None:
            link.send(message)

    def has_capacity(self, peer: str, source: int) -> bool:
        """The session of this source may hand over more. If not, `edge_drained` follows when it may; without a link
        it may not, and `edge_linked` follows."""
        link = self._to.get(peer)
        return link is not None and link.has_capacity(source)

    def close(self, peer: str, why: str) -> None:
        """The leader did what it may not: its link ends, and is dialed again."""
        link = self._to.get(peer)
        if link is not None:
            link.close(why)

    # `LinkEvents`

    def dialed(self, link: PeerLink) -> None:
        peer = link.peer.forwarder
        made = self._to[peer] = DataLink(link, self._edge_drained, self._close)
        if self.revisions is not None:
            self.revisions.dialed(made)
        if self._events is not None:
            self._do(partial(self._events.edge_linked, peer, link.peer.incarnation))

    def lost(self, link: PeerLink, why: str) -> None:
        peer = link.peer.forwarder
        del self._to[peer]
        self.counters.links_lost += 1
        if self.revisions is not None:
            self.revisions.lost(peer)
        if self._events is not None:
            self._do(partial(self._events.edge_lost, peer))

    def refused(self, name: str) -> None:
        """Links of replication say that, too, and what follows from it is theirs."""

    def accepted(self, link: PeerLink) -> None:
        made = self._from[link] = DataLink(link, self._drained, self._close)
        if self.revisions is not None:
            self.revisions.accepted(made)
        if self._events is not None:
            self._do(partial(self._events.accepted, made))

    def left(self, link: PeerLink) -> None:
        gone = self._from.pop(link)
        self._full.discard(gone)
        if self.revisions is not None:
            self.revisions.left(gone)
        if self._events is not None:
            self._do(partial(self._events.left, gone))

    def received(self, link: PeerLink, message: Message) -> None:
        """Links see to it that an edge's messages come from edges, and a leader's from leaders."""
        peer = link.peer.forwarder
        edge = self._from.get(link)
        of = self._to[peer] if edge is None else edge
        of.heard()
        if isinstance(message, DataHeartbeat):
            return
        if isinstance(message, AskRevision | AppliedRevision):
            self._of_revisions(of, message)
            return
        if self._events is None:
            self.note_dropped()
        elif isinstance(message, ToEdge):
            self._do(partial(self._events.from_leader, peer, message))
        elif edge is not None and isinstance(message, ToLeader | HoldsNothing):
            self._do(partial(self._events.from_edge, edge, message))
            if self._is_full():
                self._full.add(edge)
                edge.pause("full")

    def _of_revisions(self, link: DataLink, message: AskRevision | AppliedRevision) -> None:
        if self.revisions is None:
            return
        if isinstance(message, AskRevision):
            self.revisions.asked(link, message)
        else:
            self._do(partial(self.revisions.heard, link, message))

    def note_dropped(self) -> None:
        """A message was for a source that is not served here."""
        self.counters.dropped += 1

    def _edge_drained(self, link: DataLink, source: int) -> None:
        if self._events is not None:
            self._do(partial(self._events.edge_drained, link.forwarder, source))

    def _drained(self, link: DataLink, source: int) -> None:
        if self._events is not None:
            self._do(partial(self._events.drained, link, source))

    def _close(self, link: DataLink, why: str) -> None:
        self.counters.links_closed += 1
        self._closed(link.forwarder, why)
        link.end(why)

    # The runner

    def beat(self) -> None:
        """Some times in a lease."""
        self.look_at_journal()
        self._beats += 1
        heartbeat = self._beats % self._heartbeat_every == 0
        for link in [*self._to.values(), *self._from.values()]:
            link.beat(heartbeat, self._silent_beats_max)

    def look_at_journal(self) -> None:
        """It may take more by now."""
        if self._full and not self._is_full():
            for link in self._full:
                link.resume("full")
            self._full.clear()

    def sentences(self) -> list[str]:
        """Of peers whose queues clients here use, and to which there is no data link: one each, for operators."""
        if self._links is None:
            return []
        return [
            f"This node has no data connection to {peer}, whose queues its clients use: {trouble.reason}."
            for peer, trouble in self._links.data_troubles.items()
        ]

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "data_links_lost_total": self.counters.links_lost,
            "data_links_closed_total": self.counters.links_closed,
            "data_messages_dropped_total": self.counters.dropped,
            "data_links_to": sorted(self._to),
            "data_links_from": sorted(link.forwarder for link in self._from.values()),
            "data_links_missing": self.sentences(),
            **({} if self.revisions is None else self.revisions.facts()),
        }
