"""One incarnation of a forwarder: the code that ships, on a simulated world.

What comes in: the disk of its machine, messages, what the store says, what clients do; the time. What goes out: what
a forwarder asks of its `Shell`; what the law is to hear.
Rules: 1. `Forwarder`, `JournalBuffer`, `JournalWriter`, `OwnDisk` and a queue's `Messages` are the shipped ones, put
together as `amqpd/cluster/runner.py` and `amqpd/broker.py` do. 2. All that happens in it goes through `run`: a
process that is stopped does it later, one that has ended never.
Not here: what outlasts it (`machine.py`), connections (`cluster.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from amqpd.cluster.claims import Claim
from amqpd.cluster.forwarder import Forwarder
from amqpd.cluster.led_replica_set import SourceLeadership
from amqpd.cluster.own_disk import OwnDisk, replicas_of
from amqpd.cluster.records import DesiredSetRecord
from amqpd.cluster.shell import LeaderLink, OwnLog, ProcessIdentity, Shell
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.lane import Lane
from amqpd.journal.records import Recovered
from amqpd.journal.writer import JournalWriter
from amqpd.peers.entry import LogEntry, Position
from amqpd.peers.messages import Message, SnapshotPart
from amqpd.replication.replica import Write
from amqpd.replication.take_over import SourceRecord
from tests.replication.simulation.hearing import HeardJournal
from tests.replication.simulation.law import LawBroken
from tests.replication.simulation.queue import Confirms, SimulatedQueue
from tests.replication.simulation.starting import Start
from tests.replication.simulation.store import LEASE_S
from tests.replication.simulation.tasks import Task

if TYPE_CHECKING:
    from tests.replication.simulation.cluster import Cluster
    from tests.replication.simulation.links import SimulatedLink
    from tests.replication.simulation.machine import Machine

EVENTS = {
    "source_taken_over": "take-over won",
    "take_over_lost": "take-over lost",
    "source_lost": "leader lost to another one",
    "disk_admitted": "disk admitted",
    "peer_is_sent_state": "peer is sent state",
    "member_learns": "member learns",
    "member_added": "member added",
    "member_removed": "member removed",
    "source_handed_over": "source handed over",
    "copy_dropped": "copy dropped",
    "set_version": "set has another version",
}


class Process(Shell):
    """It runs from when it is made until `up` is false."""

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        self.machine = machine
        self.name = machine.name
        self.version = cluster.version_of(machine.name)
        """of the messages, the highest that it speaks"""
        self.cluster = cluster
        self.clock = cluster.clock
        self.up = True
        self.stopped = False
        """nothing of it runs (SIGSTOP): what comes waits"""
        self._waits: deque[Callable[[], None]] = deque()
        self.disk: Any = machine.drive.open()
        recovered = self.disk.recover()
        self.journal = JournalBuffer(recovered.index)
        self.heard = HeardJournal(self)
        self.writer = JournalWriter(self.journal, self.disk, self._durable, _nobody, cut=self._cut)
        self.own = OwnDisk(self.disk, self.journal, self.writer)
        self.forwarder: Forwarder | None = None
        self.incarnation = 0
        """the incarnation that it claims; 0: none as yet"""
        self.dialed: dict[str, SimulatedLink] = {}
        self.incoming: dict[str, SimulatedLink] = {}
        self.queues: dict[int, SimulatedQueue] = {}
        self.confirms = Confirms(self)
        self._members: dict[str, int] = {}
        for source in cluster.sets:
            cluster.law.stands(self.name, source, self.disk)
        self.start(self.writer.run())
        self.disk_number = cluster.disks[self.name]
        Start(self).look()

    def begin(self, claim: Claim) -> None:
        """It is a member."""
        self.cluster.unknown.discard(self.name)
        self.forwarder = Forwarder(
            ProcessIdentity(self.name, claim.incarnation, claim.generation),
            self,
            self.heard,  # type: ignore[arg-type]
            replicas_of(self.disk),
            LEASE_S,
            self.clock.chance.random,
            self._reported,
            fast_takeover=self.cluster.fast_takeover,
        )
        self.cluster.store.watch(self.name, lambda *news: self.run(partial(self._changed, *news)))
        self._beats()
        self.cluster.bugs.joined(self)

    @property
    def there(self) -> Forwarder:
        assert self.forwarder is not None
        return self.forwarder

    @property
    def runs(self) -> bool:
        """It is a member, and not stopped."""
        return self.up and not self.stopped and self.forwarder is not None

    # What happens in it

    def run(self, what: Callable[[], None]) -> None:
        """Now, or when it goes on."""
        if not self.up:
            return
        if self.stopped or self._waits:
            self._waits.append(what)
            return
        what()
        self.settle()

    def settle(self) -> None:
        """As the node does after each turn."""
        if self.journal.unwritten.news:
            self.journal.drop_settled()
        if self.journal.pending:
            self.writer.want_commit()

    def go_on(self) -> None:
        """SIGCONT: all that has come, in order, and other things between."""
        self.stopped = False
        self._next_waiting()

    def _next_waiting(self) -> None:
        if self._waits and not self.stopped and self.up:
            self._waits.popleft()()
            self.settle()
            self.clock.after(0, 2, self._next_waiting)

    def start(self, coroutine: Any) -> None:
        """A task of its own."""
        task = Task(self.clock, self.run, partial(self.machine.thread, self), coroutine)
        self.clock.at(self.clock.now_ms, lambda: self.run(task.begin))

    def _beats(self) -> None:
        beat_ms = self.cluster.beat_ms
        self.clock.after(beat_ms / 2, beat_ms, lambda: self.run(self._beat))

    def _beat(self) -> None:
        self.there.beat()
        self._beats()

    # Shell

    @property
    def now_s(self) -> float:
        return self.clock.now_ms / 1000

    @property
    def revision(self) -> int:
        return self.cluster.store.revision

    heard_revision = revision

    def catch_up_with_store(self) -> None:
        """The simulated store tells everybody everything."""

    def send(self, peer: str, message: Message) -> None:
        link = self.dialed.get(peer)
        if link is not None:
            link.ask(message)

    def swap(self, record: SourceRecord, answered: Callable[[SourceRecord | None], None]) -> None:
        own = self.there.led_sources.sources.get(record.source)
        before = own.record if own is not None else record
        admitted = disks_of(record) - disks_of(before)

        def back(found: SourceRecord | None) -> None:
            if found is not None:
                for name, _ in sorted(admitted):
                    self.cluster.admitted(name, found)
            answered(found)

        self.cluster.store.swap(self.name, record, lambda found: self.run(partial(back, found)))

    def read_log(self, source: int, after: Position, answered: Callable[[list[LogEntry]], None]) -> None:
        self._answer(self.own.log_entries(source, after), answered)

    def read_own(self, source: int, answered: Callable[[OwnLog], None]) -> None:
        self._answer(self.own.own_log(source, self.there.base_of(source)), answered)

    def read_state(
        self,
        link: str | LeaderLink,
        state: SnapshotPart,
        sends: Callable[[SnapshotPart], bool],
        failed: Callable[[], None],
    ) -> None:
        self.clock.counts["state that is a difference"] += state.after > (0, 0)
        self.start(self.own.send_state(state, sends, failed, self._room))

    async def _room(self) -> None:
        """The simulated network takes everything."""

    def served(self, source: int) -> None:
        own = self.there.led_sources.sources[source]
        self._answer(self.own.queues_of(source), partial(self._serve, source, own))

    def _serve(self, source: int, own: SourceLeadership, recovered: Recovered) -> None:
        if self.there.led_sources.sources.get(source) is own and not self.there.stops(source):
            self.clock.counts["source served"] += 1
            if not self.machine.drive.damaged:
                self.cluster.law.stands(self.name, source, self.disk)
            self.queues[source] = SimulatedQueue(self, source, own.vote.epoch, recovered.queues.get(source))

    def ended(self, source: int, lane: Lane) -> None:
        self.queues.pop(source, None)
        self.confirms.abandon(lane)

    def cut_off(self, lanes: list[Lane]) -> None:
        pass  # its clients wait

    def stops(self, source: int) -> None:
        self.queues.pop(source, None)  # they may not be read yet

    def handed_sessions(self, source: int) -> bytes:
        return b""  # nobody has remote clients here

    def put_desired_set(self, desired_set: DesiredSetRecord) -> None:
        self.cluster.store.change_desired_set(self.name, desired_set, drops=False)

    def drop_desired_set(self, desired_set: DesiredSetRecord) -> None:
        self.cluster.store.change_desired_set(self.name, desired_set, drops=True)

    def log(self, event: str, **fields: Any) -> None:
        if event == "replica_contradicts":
            raise LawBroken(f"{fields['peer']} has committed something else than its leader: {fields}")
        if event in ("member_added", "member_removed"):
            self.clock.counts["set becomes even"] += len(fields["members"]) % 2 == 0
        self.clock.counts[EVENTS.get(event, event)] += 1

    def _answer(self, asked: Awaitable[Any], answered: Callable[[Any], None]) -> None:
        async def asking() -> None:
            answered(await asked)

        self.start(asking())

    # The journal

    def _durable(self, index: int) -> None:
        self.own.stored()
        if self.forwarder is not None:
            self.forwarder.stored(index)

    def _cut(self, index: int, payloads: dict[int, bytes]) -> list[Write]:
        return self.heard.writes(self.there.led_sources.cut(index, payloads))

    def _reported(self, lane: Lane) -> None:
        self.confirms.reported(lane)

    # The store

    def _changed(
        self, incarnations: Mapping[str, int], records: list[SourceRecord], desired_sets: dict[int, DesiredSetRecord]
    ) -> None:
        if incarnations != self._members:
            self.there.members_are(incarnations, self._members)
            self._members = dict(incarnations)
        self.there.desired_sets_are(desired_sets)
        for record in records:
            self.there.note_record(record)
        if self.name not in incarnations:
            self.clock.after(50, 500, lambda: self.run(lambda: self.cluster.store.renew(self.name, self.incarnation)))

    # Clients

    def publish(self, source: int, number: int) -> None:
        """Somebody publishes here."""
        queue = self.queues.get(source)
        if queue is None:
            self.cluster.refuse(source, number)
        elif self.journal.full or self.journal.lane_of(source).lagging:
            self.clock.counts["publishers wait"] += 1
        else:
            self.confirms.wait(source, queue.publish(number))

    def deliver(self, source: int) -> None:
        """To an exclusive consumer."""
        queue = self.queues.get(source)
        if queue is not None and self.there.led_sources.holds_lease(source):
            self.clock.counts["delivered"] += 1
            if not self.cluster.fast_takeover:
                self.cluster.law.deliver(source, queue.epoch)

    # Connections

    def link(self, peer: str, incarnation: int, link: SimulatedLink, dialed: bool) -> LeaderLink | None:
        """There is one more: this process has dialed it, or was."""
        if dialed:
            self.dialed[peer] = link
            self.there.dialed(peer, incarnation, link.generation, link.version)
            return None
        before = self.incoming.pop(peer, None)
        if before is not None:
            before.left()
        self.incoming[peer] = link
        leader = LeaderLink(peer, incarnation, link.answer, link.refuse)
        self.there.accepted(leader)
        return leader


def disks_of(record: SourceRecord) -> set[tuple[str, int]]:
    """Those that count, with their generations."""
    return set(zip(record.members, record.generations, strict=True))


def _nobody(full: bool) -> None:
    raise AssertionError("no disk is full")
