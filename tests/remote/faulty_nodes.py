"""Two nodes whose source has a log that outlives its leaders: for tests with leaders that are lost and move.

What comes in: as `two_nodes.py`; faults. What goes out: the same; the leader's entries, committed when the test says
so, and what a new leader recovers of them.
Rules: 1. What a lost leader has not committed is gone. 2. A node that is killed comes back with what its disk has: of
the local source, and as another process.
Not here: a majority (`tests/replication/simulation`).
"""

from __future__ import annotations

from typing import Any

from amqpd.journal.numbers import NUMBERS_STEP, Numbers
from amqpd.journal.operation_marks import Marks
from amqpd.journal.records import Recovered, Row, SourceEntry
from amqpd.journal.transaction import JournalTransaction
from amqpd.remote.messages import FromEdge, FromLeader, Sender
from tests.harness.harness import Harness
from tests.remote.simulation.durable import SimulatedRows
from tests.remote.two_nodes import SOURCE, LeaderLane, LinkedSessions, TwoNodes


def rows_in(entry: SourceEntry) -> JournalTransaction:
    """What it has of messages, as a transaction."""
    transaction = JournalTransaction(entry.idx)
    transaction.rows, transaction.settled, transaction.delivered = entry.rows, entry.settled, entry.delivered
    transaction.counts, transaction.dropped = entry.counts, entry.dropped
    return transaction


class NumberedSessions(LinkedSessions):
    """As those, of a process with an incarnation of its own. Classic queues are used at their node alone."""

    is_on = False

    def __init__(self, node: str, rig: FaultyNodes) -> None:
        super().__init__(node, rig, rig.processes[node])
        self.numbered = rig

    def members(self, source: int) -> frozenset[str]:
        return self.numbered.living

    def to_leader(self, node: str, source: int, incarnation: int, session: int, message: FromEdge) -> None:
        if node != self.node:
            super().to_leader(node, source, incarnation, session, message)

    def to_edge(self, sender: Sender, source: int, message: FromLeader) -> None:
        if sender.forwarder != self.node:
            super().to_edge(sender, source, message)


class FaultyNodes(TwoNodes):
    """Nodes a and b, of which either leads the source, in one epoch after the other."""

    def __init__(self, arguments: dict[str, Any] | None = None) -> None:
        self.processes = {"a": 1, "b": 1}
        self.living = frozenset({"a", "b"})
        """nodes whose memberships are"""
        self.commits = True
        """the leader's entries are, as soon as they are on its disk"""
        self.epoch = 0
        self.marks, self.reserved = Marks(), NUMBERS_STEP
        self.log: list[SourceEntry] = []
        """what is committed of the source"""
        self.entries: list[SourceEntry] = []
        """of the leader, that are not committed"""
        self.disk = SimulatedRows()
        """the leader's"""
        super().__init__(arguments)

    def _node(self, name: str) -> Harness:
        rig = self

        class OneOfTwo(Harness):
            cluster_node = name

            def _start(self, journal: Any) -> None:
                self.cluster.sessions = NumberedSessions(name, rig)
                self.cluster.replicated, self.cluster.leaders = True, lambda source: rig.leader
                super()._start(journal)

            def commit(self) -> None:
                super().commit()
                for entry in self.transactions[-1].entries:
                    if entry.epoch == rig.epoch:
                        rig.entries.append(entry)
                        rig.disk.apply(rows_in(entry))

            def rows_of(self, queue_id: int, first: int, last: int) -> list[Row]:
                if queue_id == rig.record.id:
                    return rig.disk.within(queue_id, first, last)
                return super().rows_of(queue_id, first, last)

        return OneOfTwo()

    def begin(self, name: str, epoch: int, recovered: Recovered | None = None, handed: bytes = b"") -> None:
        node, record = self.harness[name].node, getattr(self, "record", None)
        self.leader, self.epoch, self.entries = name, epoch, []
        self.lane = LeaderLane(node.journal, node.journal.stored_index)
        self.disk = SimulatedRows()
        for entry in self.log:
            self.disk.apply(rows_in(entry))
        begins = self.reserved if epoch > 1 else 0
        node.journal.lead(SOURCE, epoch, Numbers(begins, self.reserved), self.lane)
        queues = {} if record is None else {record.id: self.disk.recovered(record.id, begins)}
        node.source_begins(SOURCE, recovered or Recovered(0, queues, {SOURCE: self.marks}), handed)

    def _report(self) -> None:
        node = self.harness[self.leader].node
        if not self.commits or self.lane.reported >= node.journal.stored_index:
            return
        self.lane.reported = node.journal.stored_index
        for entry in self.entries:
            self.reserved = max(self.reserved, entry.reserved)
            for change in entry.marks:
                for record in change.records():
                    self.marks.apply(record)
        self.log += self.entries
        self.entries = []
        node.journal.source_committed(SOURCE, self.lane.reported)
        node.reported(self.lane)
        self.harness[self.leader].step()

    def take_over(self, to: str) -> None:
        """The leader is lost, and this node follows it."""
        before = self.harness[self.leader].node
        before.journal.leave(SOURCE)
        self.leader = ""
        before.source_ends(SOURCE, self.lane)
        self.wire = type(self.wire)(each for each in self.wire if each[0] != each[1])
        self.begin(to, self.epoch + 1)
        for each in self.harness.values():
            each.node.edges.leaders_changed()

    def kill(self, name: str) -> None:
        """Its process ends, and another one begins with its disk. It must not lead."""
        assert name != self.leader
        self.wire.clear()
        harness, other = self.harness[name], self.harness["b" if name == "a" else "a"]
        self.processes[name] += 1
        now_ms = harness.node.now_ms
        harness.automatic = True
        harness.restart()
        harness.node.now_ms = now_ms
        other.node.remote_sessions.leaders.lost(name)
        other.node.edges.links_changed(name)

    def _tell_links(self) -> None:
        for name, other in (("a", "b"), ("b", "a")):
            node = self.harness[name].node
            node.edges.links_changed(other)
            if not self.linked:
                node.remote_sessions.leaders.lost(other)

    def beat(self, ms: int) -> None:
        """So much time passes."""
        for each in self.harness.values():
            each.node.now_ms += ms
            each.node.remote_sessions.beat()
        self.step()

    def some(self, work: int) -> None:
        """So much happens, of what is to happen next."""
        for _ in range(work):
            for each in self.harness.values():
                each.step()
            self._report()
            if self.wire:
                self.arrives()
