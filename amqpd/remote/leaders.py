"""The leaders of this node's sources, as edges of all nodes know them.

What comes in: sources that begin and end here; messages of edges; connections that end; what is committed; the
members; the time. What goes out: messages to edges; queues that are to be dispatched, or must wait.
Rules: 1. A source has a leader here from the moment that its queues are served until it ends, or stops to be handed
over. 2. What an edge says waits, up to `EARLY_MAX` messages, until the source has begun here, and until this node has
applied the metadata that the edge's node had applied (rule 7 of docs/decisions/remote-protocol.md): else a queue that
is not known yet would pass for one that is gone. 3. A message counts in the session that it
names, whichever connection it came over; a connection that ends takes its sessions with it.
Not here: one of them (`leader.py`), the edges' end (`edges.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from amqpd.journal.operation_marks import Marks
from amqpd.remote.handing import hand_over, taken_over
from amqpd.remote.leader import CLAIM_WAIT_MS, Leader
from amqpd.remote.links import SessionLinks
from amqpd.remote.messages import Attach, FromEdge, FromLeader, Sender
from amqpd.remote.source import LedQueue, SessionHandOver, SourceLog

EARLY_MAX = 1_000
"""messages of one edge for one source that has not begun here; with more the edge attaches again"""
EARLY_SOURCES_MAX = 10_000
HAVE_NOTHING_MAX = 1 << 17
"""nodes and sources that have not begun here; of those above it, claims are waited for"""


class EarlyMessage(NamedTuple):
    """A message of an edge that waits for its leader to begin, or for metadata that its sender knew."""

    sender: Sender
    revision: int
    message: FromEdge


class LeadersHost(ABC):
    """The node, as the leaders of its sources know it."""

    @property
    @abstractmethod
    def now_ms(self) -> int: ...

    @property
    @abstractmethod
    def revision(self) -> int:
        """Of the metadata, up to which this node has applied them."""

    @abstractmethod
    def log_of(self, source: int) -> SourceLog:
        """What its leader writes to."""

    @abstractmethod
    def led_queues(self, source: int) -> Mapping[int, LedQueue]:
        """Its queues, by their ids, as they are whenever they are asked for."""

    @abstractmethod
    def members(self, source: int) -> frozenset[str]:
        """The nodes whose memberships live, and which may have edges at the source."""

    @abstractmethod
    def forgotten(self) -> frozenset[str]:
        """The nodes that are decommissioned, and do not live."""

    @abstractmethod
    def holds_lease(self, source: int) -> bool:
        """Nobody else leads the source by now."""

    @abstractmethod
    def may_deliver(self, source: int, delivers: bool) -> None:
        """Its queues give messages to nobody before the claims of living nodes are known."""

    @abstractmethod
    def to_own_edge(self, sender: Sender, source: int, message: FromLeader) -> None:
        """Its edge is of this node."""


class RemoteLeaders:
    """The leaders of all sources of one node, by their sources."""

    def __init__(self, name: str, links: SessionLinks, host: LeadersHost) -> None:
        """`name`: of this node."""
        self._name, self._links, self._host = name, links, host
        self._of: dict[int, Leader] = {}
        self._delivers: dict[int, bool] = {}
        self._early: dict[tuple[str, int], deque[EarlyMessage]] = {}
        self._have_nothing: dict[tuple[str, int], int] = {}
        """(node, source) -> the highest epoch for which the node has said that it has nothing of the source"""
        self.dirty: dict[int, None] = {}
        """sources whose leaders may have something to send"""
        self._ended_counts = 0, 0
        """differences and refused claims of those that have ended"""

    def __bool__(self) -> bool:
        return bool(self._of)

    def __iter__(self) -> Iterator[Leader]:
        return iter(self._of.values())

    @property
    def differences(self) -> int:
        """How often both ledgers differed, or an edge said what cannot be true, since the start."""
        return self._ended_counts[0] + sum([each.differences for each in self._of.values()])

    @property
    def claims_refused(self) -> int:
        """Deliveries that edges claimed, and that were settled or given to others by then, since the start."""
        return self._ended_counts[1] + sum([each.claims_refused for each in self._of.values()])

    # Sources

    def begins(
        self,
        source: int,
        epoch: int,
        marks: Marks,
        has_edge: bool,
        handed: SessionHandOver | None = None,
        claim_wait_ms: float = CLAIM_WAIT_MS,
    ) -> None:
        """Its queues are served here; all of the log that it begins with is committed. `has_edge`: this node has an
        edge of it, which will attach. `handed`: what the leader before has passed, of the end of this log."""
        host = self._host
        log, queues, members = host.log_of(source), host.led_queues(source), host.members(source)
        leader = taken_over(
            epoch, log, marks, queues, members, host.now_ms, handed, claim_wait_ms=claim_wait_ms, first=0
        )
        leader.out.filled = partial(self._has_more, source)
        if not has_edge:
            leader.has_nothing(self._name)
        self._of[source] = leader
        self.dirty[source] = None
        for (node, of), heard in self._have_nothing.items():
            if of == source and heard >= epoch:
                leader.has_nothing(node)
        leader.tick(host.now_ms)  # it may have nobody to wait for
        self.go_on()
        self._look(source, leader)

    def hands_over(self, source: int) -> SessionHandOver | None:
        """What its leader here passes to the next one. It ends with this: nothing that is said to it later counts."""
        leader = self._of.get(source)
        return hand_over(leader, 0)[0] if leader is not None and leader.holds_lease else None

    def ends(self, source: int) -> None:
        """This node leads it no more."""
        ended = self._of.pop(source, None)
        if ended is not None:
            differences, claims_refused = self._ended_counts
            self._ended_counts = differences + ended.differences, claims_refused + ended.claims_refused
        self._delivers.pop(source, None)
        self.dirty.pop(source, None)

    def committed(self, source: int, position: int) -> None:
        """Its log is, up to there."""
        leader = self._of.get(source)
        if leader is None or position <= leader.committed_position:
            return
        if leader.delivers and not leader.incarnations:
            leader.committed_position = position  # no remote client waits for it
            return
        leader.committed(position)
        self._look(source, leader)

    def queue_gone(self, source: int, queue_id: int) -> None:
        """The queue is deleted."""
        leader = self._of.get(source)
        if leader is not None:
            leader.queue_gone(queue_id)
            self.dirty[source] = None

    def _has_more(self, source: int) -> None:
        self.dirty[source] = None

    def _look(self, source: int, leader: Leader) -> None:
        """What follows for its queues."""
        self.dirty[source] = None
        if self._delivers.get(source) is not leader.delivers:
            self._delivers[source] = leader.delivers
            self._host.may_deliver(source, leader.delivers)

    # Edges

    def receive(self, sender: Sender, source: int, revision: int, message: FromEdge) -> None:
        """What the edge of a node says. `revision`: of the metadata, which the node had applied then."""
        waiting = self._early.get((sender.forwarder, source))
        leader = self._of.get(source)
        if leader is None or revision > self._host.revision or (waiting and not isinstance(message, Attach)):
            self._comes_early(EarlyMessage(sender, revision, message), source)
            return
        if waiting:
            del self._early[sender.forwarder, source]
        self._hand_in(leader, source, sender, message)

    def _hand_in(self, leader: Leader, source: int, sender: Sender, message: FromEdge) -> None:
        leader.receive(sender, message, self._host.now_ms)
        self._look(source, leader)

    def _comes_early(self, early: EarlyMessage, source: int) -> None:
        key = early.sender.forwarder, source
        waiting = self._early.get(key)
        if isinstance(early.message, Attach):
            if waiting is None and len(self._early) >= EARLY_SOURCES_MAX:
                return
            self._early[key] = deque([early])
        elif waiting is None:
            if len(self._early) < EARLY_SOURCES_MAX:
                self._early[key] = deque([early])
        elif len(waiting) >= EARLY_MAX:
            del self._early[key]
            self.lost_session(early.sender, source)
        else:
            waiting.append(early)

    def go_on(self) -> None:
        """More of the metadata is applied, or a source has begun: what waited for that."""
        for key in list(self._early):
            source = key[1]
            leader, waiting = self._of.get(source), self._early.pop(key)
            while leader is not None and waiting and waiting[0].revision <= self._host.revision:
                early = waiting.popleft()
                self._hand_in(leader, source, early.sender, early.message)
            if waiting:
                self._early[key] = waiting

    def has_nothing(self, node: str, sources: Iterable[tuple[int, int]]) -> None:
        """The node has no edge at these sources: pairs of source and the epoch that it knows."""
        for source, epoch in sources:
            leader = self._of.get(source)
            if leader is None:
                if len(self._have_nothing) < HAVE_NOTHING_MAX:
                    self._have_nothing[node, source] = epoch
            elif epoch >= leader.epoch:
                leader.has_nothing(node)
                self._look(source, leader)

    def lost(self, node: str) -> None:
        """The connection that the node has made is: its sessions end."""
        self._early = {key: found for key, found in self._early.items() if key[0] != node}
        self._have_nothing = {key: epoch for key, epoch in self._have_nothing.items() if key[0] != node}
        for source, leader in self._of.items():
            for sender in leader.sessions_of(node):
                leader.lost(sender, self._host.now_ms)
            self._look(source, leader)

    def lost_session(self, sender: Sender, source: int) -> None:
        """What it says is not heard any more: its edge attaches again."""
        leader = self._of.get(source)
        if leader is not None:
            leader.give_up(sender, "too much of it waits for metadata that this node has not read")
            self._look(source, leader)

    def beat(self) -> None:
        """Some times a second."""
        host = self._host
        forgotten = host.forgotten()
        for source, leader in self._of.items():
            leader.lease(host.holds_lease(source), host.now_ms)
            members = host.members(source)
            if members != leader.members:
                leader.membership(members)
            leader.tick(host.now_ms)
            if forgotten:
                leader.forget(forgotten)
            leader.audit()
            self._look(source, leader)
        if self._early:
            self.go_on()

    def flush(self) -> None:
        """Send what the last inputs made necessary."""
        dirty, self.dirty = self.dirty, {}
        for source in dirty:
            leader = self._of.get(source)
            if leader is None:
                continue
            for sender, message in leader.take():
                if sender.forwarder == self._name:
                    self._host.to_own_edge(sender, source, message)
                else:
                    self._links.to_edge(sender, source, message)
            self._sent(source, leader)

    def _sent(self, source: int, leader: Leader) -> None:
        for incarnation in leader.incarnations.values():
            if incarnation.flow.nbytes or incarnation.flow.held_up:
                node = incarnation.member[0]
                incarnation.sent(node == self._name or self._links.edge_has_capacity(node, source))

    def drained(self, source: int) -> None:
        """The connection of one of its sessions has capacity again."""
        leader = self._of.get(source)
        if leader is not None:
            self._sent(source, leader)
