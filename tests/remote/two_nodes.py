"""Two whole nodes in a test: clients of one use a queue that the other leads.

What comes in: what clients of either send. What goes out: the same that real clients see; the messages between the
nodes, which a test may drop, keep or break.
Rules: 1. All is shipped modules, except for sockets, the disk and the metadata store, which are the harness's.
2. `step` goes on until nobody has anything to say.
Not here: real sockets between nodes (`tests/clients`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.lane import Lane
from amqpd.journal.numbers import NUMBERS_STEP, ORIGIN_MS, Numbers
from amqpd.journal.operation_marks import Marks
from amqpd.journal.records import LOCAL, Recovered
from amqpd.journal.transaction import JournalTransaction
from amqpd.remote.encoding import decode_from_edge, decode_from_leader, encode
from amqpd.remote.leader import LEASE_MS, Leader
from amqpd.remote.links import RemoteSource
from amqpd.remote.messages import FromEdge, FromLeader, Sender
from amqpd.vocabulary.records import Put, QueueRecord
from tests.harness.harness import Client, Harness
from tests.remote.simulation.durable import SimulatedRows

SOURCE = 5
QUORUM = {"x-queue-type": "quorum"}
ROUNDS_MAX = 1_000


class LeaderLane(Lane):
    """The lane of the source at its leader, which reports when the rig says so."""

    def __init__(self, journal: JournalBuffer, reported: int) -> None:
        super().__init__(journal.index, reported)
        self.writes = True
        self.forced = 0
        """how often somebody waited"""
        self._journal = journal

    def force(self) -> None:
        self.forced += 1
        self._journal.force()


class LinkedSessions:
    """The connections between the two, as one of them knows them: as long as the rig says so."""

    is_on = True

    def __init__(self, node: str, rig: TwoNodes, incarnation: int) -> None:
        self.node, self.rig = node, rig
        self.incarnation: int | None = incarnation

    def leader_of(self, source: int) -> str:
        return self.rig.leader

    def epoch_of(self, source: int, node: str) -> int:
        return self.rig.epoch if source else self.rig.lives

    def members(self, source: int) -> frozenset[str]:
        return self.rig.members

    def forgotten(self) -> frozenset[str]:
        return self.rig.forgotten

    def is_linked(self, node: str) -> bool:
        return self.rig.linked

    def has_capacity(self, node: str, source: int) -> bool:
        return self.rig.linked

    def edge_has_capacity(self, node: str, source: int) -> bool:
        return self.rig.linked

    def to_leader(self, node: str, source: int, incarnation: int, session: int, message: FromEdge) -> None:
        if self.rig.linked:
            self.rig.wire.append((self.node, node, Sender(self.node, incarnation, session), source, message))

    def to_edge(self, sender: Sender, source: int, message: FromLeader) -> None:
        if self.rig.linked:
            self.rig.wire.append((self.node, sender.forwarder, sender, source, message))


class TwoNodes:
    """Nodes a and b; b leads the source of the queue "q", or has it as a classic queue."""

    def __init__(
        self,
        arguments: dict[str, Any] | None = None,
        is_classic: bool = False,
        durable: bool = True,
        auto_delete: bool = False,
    ) -> None:
        self.leader, self.linked, self.epoch, self.is_classic = "b", True, 1, is_classic
        self.members, self.forgotten = frozenset({"a", "b"}), frozenset[str]()
        self.lives = 0
        """starts of processes of either"""
        self.wire: deque[tuple[str, str, Sender, int, Any]] = deque()
        """(from, to, session, source, message)"""
        self.seen: list[Any] = []
        """all messages that arrived"""
        self.harness = {name: self._node(name) for name in ("a", "b")}
        self.record = QueueRecord(
            "/", "q", (1 << 63) - 256, durable, auto_delete, arguments=arguments or {}, node="b"
        )
        if is_classic:
            self._local_begins()
        else:
            self.record = replace(self.record, arguments={**QUORUM, **(arguments or {})}, source=SOURCE, node="")
            self.begin("b", 1)
        for each in self.harness.values():
            each.topology.apply([Put(self.record)])
            each.node.applied([Put(self.record)])
        self.step()

    def _node(self, name: str) -> Harness:
        rig = self

        class OneOfTwo(Harness):
            cluster_node = name

            def _start(self, journal: Any) -> None:
                rig.lives += 1
                self.cluster.sessions = LinkedSessions(name, rig, rig.lives)
                self.cluster.replicated, self.cluster.leaders = True, lambda source: rig.leader
                super()._start(journal)
                self.node.now_ms = ORIGIN_MS + rig.lives * 10_000

        return OneOfTwo()

    def begin(self, name: str, epoch: int, recovered: Recovered | None = None, handed: bytes = b"") -> None:
        """This node leads the source from now on; the one that did does not."""
        before = self.harness[self.leader].node
        if SOURCE in before.sources.serving:
            before.source_stops(SOURCE)
        node = self.harness[name].node
        self.leader, self.epoch = name, epoch
        journal = node.journal
        self.lane = LeaderLane(journal, journal.index - 1)
        journal.lead(SOURCE, epoch, Numbers(0, NUMBERS_STEP), self.lane)
        node.source_begins(SOURCE, recovered or Recovered(0, {}), handed)

    def move(self, name: str, change: Callable[[bytes], bytes] = bytes) -> None:
        """The leader hands the source over to this node. `change`: what becomes of what it passes on the way."""
        before, after = self.harness[self.leader], self.harness[name]
        before.node.source_stops(SOURCE)
        handed = before.node.remote_sessions.handed(SOURCE)
        before.step()
        self._report()
        before.node.journal.leave(SOURCE)
        recovered = self._log(after)
        self.begin(name, self.epoch + 1, recovered, change(handed))

    def look_for_leaders(self) -> None:
        """All nodes hear who leads."""
        for each in self.harness.values():
            each.node.edges.leaders_changed()
        self.step()

    def _log(self, reader: Harness) -> Recovered:
        """All that leaders have written, at the disk of this node."""
        entries = [entry for each in self.harness.values() for part in each.transactions for entry in part.entries]
        rows, marks = SimulatedRows(), Marks()
        for entry in sorted(entries, key=lambda entry: (entry.epoch, entry.idx)):
            rows.apply(
                cast(
                    JournalTransaction,
                    SimpleNamespace(
                        rows=entry.rows,
                        settled=entry.settled,
                        deletes=entry.retired,
                        delivered=entry.delivered,
                        counts=entry.counts,
                        dropped=entry.dropped,
                    ),
                )
            )
            for change in entry.marks:
                for record in change.records():
                    marks.apply(record)
        number = self.record.id
        reader.rows[number] = found = rows.rows.get(number, {})
        next_seq = max([row.last_seq + 1 for row in found.values()], default=0)
        return Recovered(0, {number: rows.recovered(number, next_seq)}, {SOURCE: marks})

    def _local_begins(self) -> None:
        """The local source of b does; a says that it has nothing of it, if it is so."""
        node = self.harness["b"].node
        node.remote_sessions.local_source_begins()
        source = RemoteSource(LOCAL, "b")
        if source not in self.harness["a"].node.edges:
            node.remote_sessions.leaders.has_nothing("a", [(LOCAL, self.lives)])

    def restart(self) -> None:
        """The process of b is killed, what is not committed is lost, and another one begins. What a said to the
        first one comes to nobody; `heal` dials the next one."""
        self.cut()
        self.harness["b"].restart()
        self._local_begins()

    def client(self, name: str) -> Client:
        client = self.harness[name].client()
        self.step()
        return client

    def step(self) -> None:
        """Until nobody has anything to say."""
        for _ in range(ROUNDS_MAX):
            for each in self.harness.values():
                each.step()
            self._report()
            if not self.wire:
                return
            while self.wire:
                self.arrives()
        raise AssertionError("they talk for ever")

    def _report(self) -> None:
        """All that the leader was handed is committed."""
        node = self.harness[self.leader].node
        if not self.is_classic and self.lane.reported < node.journal.index - 1:
            self.lane.reported = node.journal.index - 1
            node.reported(self.lane)
            self.harness[self.leader].step()

    def arrives(self) -> None:
        """The next message at its end."""
        sent_by, to, sender, source, message = self.wire.popleft()
        node = self.harness[to].node
        data = memoryview(b"".join(encode(message)))
        said: Any = decode_from_leader(data) if sender.forwarder == to else decode_from_edge(data)
        self.seen.append(said)
        if sender.forwarder == to:
            node.edges.receive(sent_by, source, sender.incarnation, sender.session, said)
        else:
            node.remote_sessions.leaders.receive(sender, source, 0, said)
        self.harness[to].step()

    def leader_of_source(self) -> Leader:
        """The leader's end of remote queues, at the node that leads."""
        return self.harness[self.leader].node.remote_sessions.leaders._of[SOURCE]

    def end_what_edges_hold(self) -> None:
        """The time passes after which a leader keeps nothing more for those who are away."""
        for each in self.harness.values():
            each.node.now_ms += int(LEASE_MS)
            each.node.remote_sessions.leaders.beat()

    def cut(self) -> None:
        """The connection between them ends; what was on its way is lost."""
        self.linked = False
        self.wire.clear()
        self._tell_links()

    def heal(self) -> None:
        """There is a connection again."""
        self.linked = True
        self._tell_links()
        self.step()

    def _tell_links(self) -> None:
        self.harness["a"].node.edges.links_changed("b")
        if not self.linked:
            self.harness["b"].node.remote_sessions.leaders.lost("a")
