"""Remote queues, as the node has them: its edges at sources of other nodes, and edges of all nodes at its own ones.

What comes in: sources that are served here from now on, or no more; what is committed; connections between nodes and
their messages; the members; the time. What goes out: messages to other nodes; messages into queues, and to consumers.
Rules: 1. What was asked of edges and leaders in a tick is sent at its end (`exchange`). 2. What this node's edge says
to this node's leader goes from one to the other in the same tick, some times at most. 3. The local source, which has
the classic queues of this node, begins once, when the node has become a member of its cluster: its epoch is the
incarnation of the process. From the recovery until the claims of other nodes are known its queues give nothing to
anybody, and the numbers that their messages get are above all that an earlier process can have given.
Not here: the protocol (`amqpd.remote`), connections (`amqpd.cluster`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.lane import Lane
from amqpd.journal.numbers import first_after_start
from amqpd.journal.operation_marks import MarkRecord, Marks
from amqpd.journal.records import LOCAL
from amqpd.node.led_queue import JournalledQueue
from amqpd.node.ports import NodePort
from amqpd.node.queue_registry import QueueRegistry
from amqpd.remote.handed_bytes import encode_hand_over, read_hand_over
from amqpd.remote.leaders import LeadersHost, RemoteLeaders
from amqpd.remote.links import RemoteSource
from amqpd.remote.messages import FromLeader, Sender
from amqpd.remote.source import LedQueue, SourceLog
from amqpd.vocabulary.records import QueueRecord

ROUNDS_MAX = 8
"""between an edge and a leader of this node in one tick; what is left goes on in the next one"""
LOCAL_CLAIM_WAIT_MS = 2_000.0
"""For what other nodes' clients hold of classic queues, after a start: the others have to dial this process first. As
long as the membership of one that is gone takes to end."""


class JournalLog(SourceLog):
    """The log of a source, as its leader here appends to it."""

    def __init__(self, journal: JournalBuffer, source: int) -> None:
        self._journal, self._source = journal, source

    @property
    def position(self) -> int:
        return self._journal.index

    def note(self, record: MarkRecord) -> None:
        self._journal.note_mark(self._source, record)

    def force(self) -> None:
        journal, source = self._journal, self._source
        (journal.led_sources[source].lane if source else journal.lane).force()


class LedQueues(Mapping[int, LedQueue]):
    """The queues of a source that is led here, by their ids. Iterating finds those that a remote client has named:
    there may be very many others, and none of them is made for this."""

    def __init__(self, node: NodePort, registry: QueueRegistry, source: int) -> None:
        self._node, self._registry, self._source = node, registry, source
        self._named: dict[int, LedQueue] = {}

    def __getitem__(self, queue_id: int) -> LedQueue:
        found = self._registry.queue_of(self._source, queue_id)
        if found is None:
            self._named.pop(queue_id, None)
            raise KeyError(queue_id)
        led = self._named.get(queue_id)
        if led is None:
            led = self._named[queue_id] = JournalledQueue(self._node, found)
        return led

    def forget(self, queue_id: int) -> bool:
        """It is deleted: whether a remote client has named it."""
        return self._named.pop(queue_id, None) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._named))

    def __len__(self) -> int:
        return len(self._named)


class RemoteSessions(LeadersHost):
    """Both ends of remote queues, of one node."""

    def __init__(self, node: NodePort, registry: QueueRegistry) -> None:
        cluster = node.cluster
        self._node, self._registry = node, registry
        self.leaders = RemoteLeaders(cluster.node, cluster.sessions, self)
        self._source_of: dict[Lane, int] = {}
        """of sources that are led here"""
        self._handed: dict[int, bytes] = {}
        """of sources that have stopped, and were not led here to the end yet"""
        self._local_marks = Marks()
        """until the local source begins"""
        self._led: dict[int, LedQueues] = {}
        node.edges.to_self = self.leaders.receive

    @property
    def now_ms(self) -> int:
        return self._node.now_ms

    @property
    def revision(self) -> int:
        return self._node.services.metadata_applied

    # Sources of this node

    def recovers(self, marks: Marks) -> None:
        """The local source is recovered. Nobody gets anything of it before it begins."""
        node = self._node
        if node.cluster.sessions.is_on:
            node.journal.begins = first_after_start(node.now_ms)
            self._local_marks = marks
            self._registry.may_deliver(LOCAL, False)

    def local_source_begins(self) -> None:
        """This node is a member of its cluster, and knows the others."""
        sessions = self._node.cluster.sessions
        if sessions.is_on:
            assert sessions.incarnation is not None, "it is a member"
            lane, marks, self._local_marks = self._node.journal.lane, self._local_marks, Marks()
            self._source_of[lane] = LOCAL
            self.leaders.begins(LOCAL, sessions.incarnation, marks, False, claim_wait_ms=LOCAL_CLAIM_WAIT_MS)
            self.exchange()

    def source_begins(self, source: int, marks: Marks, handed: bytes) -> None:
        """Its queues are served here. `handed`: what the leader before has passed; with nothing that can be read it
        is taken over as from a lost one."""
        led = self._node.journal.led_sources[source]
        self._source_of[led.lane] = source
        passed, why = read_hand_over(handed if self.members(source) else b"", self.now_ms)  # no members, no sessions
        if why:
            self._node.log("hand_over_unreadable", source=source, reason=why)
        self.leaders.begins(source, led.epoch, marks, RemoteSource(source) in self._node.edges, passed)
        self._node.edges.leaders_changed()
        self.exchange()

    def source_stops(self, source: int) -> None:
        """Another node is to lead it, and its queues are served to the end of this call."""
        passed = self.leaders.hands_over(source)
        if passed is not None:
            self._handed[source] = encode_hand_over(passed, self.now_ms)

    def handed(self, source: int) -> bytes:
        """What the next leader is to know, since the source has stopped; empty: nothing. Once."""
        return self._handed.pop(source, b"")

    def source_ends(self, source: int) -> None:
        """It is led here no more, or stops."""
        self.leaders.ends(source)
        self._led.pop(source, None)
        self._source_of = {lane: each for lane, each in self._source_of.items() if each != source}
        self._node.edges.leaders_changed()

    def queue_gone(self, record: QueueRecord) -> None:
        """The queue is deleted; most are known to nobody else."""
        led = self._led.get(record.source)
        if led is not None and led.forget(record.id):
            self.leaders.queue_gone(record.source, record.id)

    def reported(self, lane: Lane) -> None:
        """More of what was handed to the lane is committed."""
        source = self._source_of.get(lane)
        if source is not None:
            self.leaders.committed(source, lane.reported)

    def metadata_applied(self) -> None:
        """More of the metadata is."""
        self.leaders.go_on()

    # Other nodes

    def beat(self) -> None:
        """Some times a second."""
        self.leaders.beat()
        self._node.edges.beat()

    def exchange(self) -> None:
        """Send what the last inputs made necessary."""
        edges, leaders = self._node.edges, self.leaders
        for _ in range(ROUNDS_MAX):
            if not (edges.dirty or leaders.dirty):
                return
            edges.flush()
            leaders.flush()
            self._node.congestion.leaders_lag = edges.lagging

    # What the leaders ask

    def log_of(self, source: int) -> SourceLog:
        return JournalLog(self._node.journal, source)

    def led_queues(self, source: int) -> Mapping[int, LedQueue]:
        found = self._led[source] = LedQueues(self._node, self._registry, source)
        return found

    def members(self, source: int) -> frozenset[str]:
        return self._node.cluster.sessions.members(source)

    def forgotten(self) -> frozenset[str]:
        return self._node.cluster.sessions.forgotten()

    def holds_lease(self, source: int) -> bool:
        return source == LOCAL or self._node.cluster.holds_lease(source)

    def may_deliver(self, source: int, delivers: bool) -> None:
        self._registry.may_deliver(source, delivers)

    def to_own_edge(self, sender: Sender, source: int, message: FromLeader) -> None:
        self._node.edges.receive(sender.forwarder, source, sender.incarnation, sender.session, message)
