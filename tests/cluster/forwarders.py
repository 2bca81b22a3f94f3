"""Forwarders in one process: messages, disks and the store move when a test says so.

What comes in: names. What goes out: a `World` that delivers, writes and beats.
Rules: 1. Nothing happens by itself; `settle` goes on until nothing is left to be moved. 2. The journal is the real
buffer's interface with a list of writes in place of the disk.
Not here: faults of all kinds (`tests/replication/simulation`).
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from amqpd.cluster.forwarder import Forwarder
from amqpd.cluster.records import SOURCES, DesiredSetRecord
from amqpd.cluster.shell import LeaderLink, OwnLog, ProcessIdentity, Shell
from amqpd.journal.lane import Lane
from amqpd.journal.numbers import Numbers
from amqpd.peers.entry import NO_VOTE, START, LogEntry, Position, Vote
from amqpd.peers.messages import FROM_ACCEPTOR, Message, SnapshotPart
from amqpd.peers.versions import HIGHEST
from amqpd.replication.log import Log
from amqpd.replication.replica import (
    Appended,
    Replica,
    Replicas,
    StateBegin,
    StateDiscard,
    StateEnd,
    StateInstall,
    StatePart,
    Undone,
    VoteCast,
    Write,
    source_of,
)
from amqpd.replication.take_over import SourceRecord

LEASE_S = 1.0
RESERVES = b"reserves"
"""payload of an entry that has nothing else"""


class FakeJournal:
    """What the forwarder needs of `JournalBuffer`."""

    def __init__(self) -> None:
        self.index, self.stored_index = 1, 0
        self.lanes: dict[int, Lane] = {}
        """of the leaders"""
        self.wrote: list[Write] = []
        self.leaders: dict[int, tuple[int, Numbers]] = {}
        self.wanted: dict[int, bytes] = {}
        """payloads that gather"""
        self.bases: dict[int, Position] = {}
        self.forced = self.lagging = self.overfull = False

    def write(self, writes: list[Write]) -> int:
        self.wrote += writes
        self.forced = True
        return self.index

    def note_committed(self, source: int, position: Position) -> None:
        self.bases[source] = position

    def nothing_committed(self, source: int) -> None:
        self.bases.pop(source, None)

    def leave_out(self, source: int) -> None:
        self.wrote = [write for write in self.wrote if source_of(write) != source]
        self.bases.pop(source, None)

    def lead(self, source: int, epoch: int, numbers: Numbers, lane: Lane) -> None:
        self.leaders[source] = epoch, numbers
        self.lanes[source] = lane
        self.wanted[source] = RESERVES

    def move(self, source: int) -> None:
        self.wanted.setdefault(source, RESERVES)

    def leave(self, source: int) -> None:
        self.leaders.pop(source, None)
        self.lanes.pop(source, None)
        self.wanted.pop(source, None)

    def source_committed(self, source: int, index: int) -> None:
        pass

    def force(self) -> None:
        self.forced = True


class Machine(Shell):
    """One process, with its disk."""

    def __init__(self, world: World, name: str, before: Machine | None = None) -> None:
        """`before`: the process that had its disk."""
        self.world, self.name = world, name
        self.incarnation: int = 1 if before is None else before.incarnation + 1
        self.up = True
        self.journal = FakeJournal()
        self.entries: dict[int, list[LogEntry]] = {} if before is None else before.entries
        """source -> its log on the disk"""
        self.votes: dict[int, Vote] = {} if before is None else before.votes
        self.bases: dict[int, Position] = {} if before is None else before.bases
        """up to where they are known to be committed"""
        self.staged: dict[int, list[LogEntry]] = {}
        """beside it; gone with the process"""
        self._ends: dict[int, Position] = {}
        """of the state that is staged"""
        self.serving: set[int] = set()
        self.has_sessions = True
        """with edges of remote queues"""
        self.passes: dict[int, bytes] = {}
        """what it hands over of them, of sources that stop"""
        self.handed: dict[int, bytes] = {}
        """what it was handed, of sources that it has served"""
        self.events: list[str] = []
        self.logged: list[tuple[str, dict[str, Any]]] = []
        self.reports: list[int] = []
        self.told_cut_off: list[int] = []
        """of how many sources no majority answered"""
        self.abandoned: list[tuple[int, Lane]] = []
        """sources that ended, and lanes of which somebody may wait for them"""
        replicas = Replicas(self._replica(source) for source in range(1, SOURCES + 1))
        self.forwarder = Forwarder(
            ProcessIdentity(name, self.incarnation, 7),
            self,
            self.journal,  # type: ignore[arg-type]
            replicas,
            LEASE_S,
            lambda: 0.5,
            lambda lane: self.reports.append(lane.reported),
            fast_takeover=True,
            spreads=world.spreads,
        )

    def _replica(self, source: int) -> Replica:
        entries = self.entries.get(source, [])
        log = Log(self.bases.get(source, START))
        for entry in entries:
            if entry.position > log.base:
                log.append(entry)
        return Replica(source, log, self.votes.get(source, NO_VOTE))

    # Shell

    @property
    def now_s(self) -> float:
        return self.world.now_s

    @property
    def revision(self) -> int:
        return self.world.revision

    heard_revision = revision

    def catch_up_with_store(self) -> None:
        self.events.append("catch up with store")

    def send(self, peer: str, message: Message) -> None:
        self.world.send(self.name, peer, message)

    def swap(self, record: SourceRecord, answered: Callable[[SourceRecord | None], None]) -> None:
        self.world.later(self, lambda: answered(self.world.swap(record)))

    def read_log(self, source: int, after: Position, answered: Callable[[list[LogEntry]], None]) -> None:
        found = [each for each in self.entries.get(source, []) if each.position > after]
        self.world.later(self, lambda: answered(found))

    def read_own(self, source: int, answered: Callable[[OwnLog], None]) -> None:
        def read() -> None:
            base = self.forwarder.base_of(source)
            answered(OwnLog([each for each in self.entries.get(source, []) if each.position > base], 0))

        self.world.later(self, read)

    def read_state(
        self,
        link: str | LeaderLink,
        state: SnapshotPart,
        sends: Callable[[SnapshotPart], bool],
        failed: Callable[[], None],
    ) -> None:
        """Two parts, one in a later turn than the other."""
        self.events.append("state")
        found = [each for each in self.entries.get(state.source, []) if state.after < each.position <= state.base]
        half = len(found) // 2

        def first() -> None:
            if sends(replace(state, part=pickle.dumps(found[:half]))):
                second = replace(state, part=pickle.dumps(found[half:]), first=False, last=True)
                self.world.later(self, lambda: last(second))

        def last(part: SnapshotPart) -> None:
            sends(part)

        self.world.later(self, first)

    def served(self, source: int) -> None:
        self.serving.add(source)
        self.handed[source] = self.forwarder.led_sources.sources[source].handed

    def ended(self, source: int, lane: Lane) -> None:
        self.serving.discard(source)
        self.abandoned.append((source, lane))

    def cut_off(self, lanes: list[Lane]) -> None:
        self.told_cut_off.append(len(lanes))

    def stops(self, source: int) -> None:
        self.serving.discard(source)
        if self.has_sessions:
            self.passes[source] = b"sessions of %s" % self.name.encode()

    def handed_sessions(self, source: int) -> bytes:
        return self.passes.pop(source, b"")

    def put_desired_set(self, desired_set: DesiredSetRecord) -> None:
        self.world.later(self, lambda: self.world.put_desired_set(desired_set))

    def drop_desired_set(self, desired_set: DesiredSetRecord) -> None:
        self.world.later(self, lambda: self.world.put_desired_set(desired_set, drops=True))

    def log(self, event: str, **fields: Any) -> None:
        self.events.append(event)
        self.logged.append((event, fields))

    # What a test does

    def publish(self, source: int, payload: bytes) -> int:
        """The transaction that it gathers in."""
        gathers = self.journal.wanted.get(source, b"")
        self.journal.wanted[source] = payload if gathers == RESERVES else gathers + payload
        if source in self.journal.lanes:
            self.journal.lanes[source].force()
        return self.journal.index

    def commit(self) -> bool:
        """One transaction, if there is something."""
        journal = self.journal
        if not (journal.wanted or journal.wrote or journal.forced):
            return False
        index = journal.index
        wanted, journal.wanted = journal.wanted, {}
        writes, journal.wrote = journal.wrote, []
        journal.forced = False
        journal.index += 1
        for lane in journal.lanes.values():
            lane.gathering = journal.index
        writes = [*writes, *self.forwarder.led_sources.cut(index, wanted)]
        for write in writes:
            self._carry_out(write)
        for source, base in journal.bases.items():
            # Of a copy that was dropped meanwhile there is nothing.
            if source not in self.staged and self.entries.get(source):
                self.bases[source] = max(base, self.bases.get(source, START))
        journal.stored_index = index
        self.forwarder.stored(index)
        return True

    def _carry_out(self, write: Write) -> None:
        source = write.entry.source if isinstance(write, Appended) else write.source
        log = self.staged.get(source, self.entries.setdefault(source, []))
        if isinstance(write, Appended):
            before = write.entry.before
            assert not log or before in (log[-1].position, self.bases.get(source)) or source in self.staged
            log.append(write.entry)
        elif isinstance(write, VoteCast):
            self.votes[source] = write.vote
        elif isinstance(write, Undone):
            log[:] = [each for each in log if each.position <= write.position]
        elif isinstance(write, StateBegin):
            self._ends[source] = write.after
            self.staged[source] = [each for each in self.entries[source] if each.position <= write.after]
        elif isinstance(write, StatePart):
            log.extend(pickle.loads(write.part))
        elif isinstance(write, StateEnd):
            self._ends[source] = write.base
        elif isinstance(write, StateInstall):
            self.entries[source], self.bases[source] = self.staged.pop(source), self._ends.pop(source)
        elif isinstance(write, StateDiscard):
            self.staged.pop(source, None)


class World:
    def __init__(self, names: str = "abc", *, spreads: bool = False) -> None:
        self.now_s = 100.0
        self.spreads = spreads
        self.records: dict[int, SourceRecord] = {}
        self.sets: dict[int, list[tuple[str, ...]]] = {}
        """that each source has had"""
        self.desired_sets: dict[int, DesiredSetRecord] = {}
        self.store_answers = True
        self.store_loses_answers = False
        self.revision = 0
        """of the store"""
        self.versions: dict[str, int] = {}
        """of the messages, by name of a node that does not speak the highest"""
        self._moves: deque[Callable[[], None]] = deque()
        self._links: dict[tuple[str, str], LeaderLink] = {}
        """of who dialed and who was dialed"""
        self.machines: dict[str, Machine] = {}
        for name in names:
            self.machines[name] = Machine(self, name)
        self._incarnations: dict[str, int] = {}
        self.tell_members()
        for name in names:
            self.connect(name)

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    # The store

    def swap(self, record: SourceRecord) -> SourceRecord | None:
        now = self.records.get(record.source)
        if not self.store_answers:
            return None
        if record.revision != (now.revision if now is not None else 0):
            return None
        self.revision += 1
        put = self.records[record.source] = replace(record, revision=self.revision)
        sets = self.sets.setdefault(record.source, [])
        if not sets or sets[-1] != record.members:
            sets.append(record.members)
        for machine in self.machines.values():
            self.later(machine, lambda machine=machine: machine.forwarder.note_record(put))  # type: ignore[misc]
        return None if self.store_loses_answers else put

    def put_desired_set(self, desired_set: DesiredSetRecord, drops: bool = False) -> None:
        now = self.desired_sets.get(desired_set.source)
        if desired_set.revision != (now.revision if now is not None else 0) or not self.store_answers:
            return
        self.revision += 1
        if drops:
            del self.desired_sets[desired_set.source]
        else:
            self.desired_sets[desired_set.source] = replace(desired_set, revision=self.revision)
        desired_sets = dict(self.desired_sets)
        for machine in self.machines.values():
            self.later(machine, lambda machine=machine: machine.forwarder.desired_sets_are(desired_sets))  # type: ignore[misc]

    def tell_members(self) -> None:
        incarnations = {name: machine.incarnation for name, machine in self.machines.items() if machine.up}
        for machine in self.machines.values():
            machine.forwarder.members_are(incarnations, self._incarnations)
        self._incarnations = incarnations

    # The network

    def later(self, machine: Machine, what: Callable[[], None]) -> None:
        self._moves.append(lambda: what() if machine.up else None)

    def send(self, sender: str, receiver: str, message: Message) -> None:
        link = self._links.get((sender, receiver))
        if link is not None:
            machine = self.machines[receiver]
            self.later(machine, lambda: machine.forwarder.asked(link, message) if link.open else None)

    def connect(self, name: str) -> None:
        """Everybody dials it, and it dials everybody."""
        for other in self.machines:
            if other != name and self.machines[other].up:
                self._dial(name, other)
                self._dial(other, name)

    def _dial(self, one: str, other: str) -> None:
        if (one, other) in self._links:
            return
        dialer, acceptor = self.machines[one], self.machines[other]

        def back(message: Message) -> None:
            assert type(message) in FROM_ACCEPTOR
            self.later(dialer, lambda: dialer.forwarder.answered(other, message) if link.open else None)

        def close(why: str) -> None:
            raise AssertionError(why)

        link = self._links[one, other] = LeaderLink(one, dialer.incarnation, back, close)
        acceptor.forwarder.accepted(link)
        dialer.forwarder.dialed(other, acceptor.incarnation, 7, self.versions.get(other, HIGHEST))

    def disconnect(self, one: str, other: str) -> None:
        for pair in ((one, other), (other, one)):
            link = self._links.pop(pair, None)
            if link is not None:
                if self.machines[pair[1]].up:
                    self.machines[pair[1]].forwarder.left(link)
                link.open = False
                if self.machines[pair[0]].up:
                    self.machines[pair[0]].forwarder.lost(pair[1])

    def kill(self, name: str) -> None:
        """What was on its way stays so; what was on its disk is there."""
        self.machines[name].up = False
        for other in self.machines:
            if other != name:
                self.disconnect(name, other)
                self.machines[other].forwarder.refused(name)

    def start(self, name: str) -> None:
        old = self.machines[name]
        self.machines[name] = Machine(self, name, old)
        self.tell_members()
        for record in self.records.values():
            self.machines[name].forwarder.note_record(record)
        self.machines[name].forwarder.desired_sets_are(dict(self.desired_sets))
        self.connect(name)

    # Time

    def deliver(self) -> bool:
        """The next thing that is on its way; False: nothing is."""
        if not self._moves:
            return False
        self._moves.popleft()()
        return True

    def move(self) -> None:
        """Until nothing is on its way and nothing is to be written."""
        moved = True
        while moved:
            moved = False
            while self._moves:
                self._moves.popleft()()
                moved = True
            for machine in self.machines.values():
                moved = (machine.up and machine.commit()) or moved

    def wait(self, seconds: float) -> None:
        """Beats go on meanwhile."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += LEASE_S / 20
            for machine in self.machines.values():
                if machine.up:
                    machine.forwarder.beat()
            self.move()

    def new_source(self, source: int, leader: str, members: str = "") -> None:
        """Taken over for the first time."""
        names = tuple(members or self.machines)
        created = self.swap(SourceRecord(source, NO_VOTE, names, (7,) * len(names)))
        assert created is not None
        machine = self.machines[leader]
        machine.forwarder.note_record(created)
        machine.forwarder.take_over(created)
        self.move()
