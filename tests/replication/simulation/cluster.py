"""All forwarders of one run, with what they stand on; who is connected, who uses them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from amqpd.peers.versions import HIGHEST, LOWEST
from amqpd.replication.take_over import SourceRecord
from tests.replication.simulation.bugs import NoBug
from tests.replication.simulation.clock import Clock
from tests.replication.simulation.law import Law, live_of
from tests.replication.simulation.links import SimulatedLink
from tests.replication.simulation.machine import Machine
from tests.replication.simulation.network import SimulatedNetwork
from tests.replication.simulation.process import Process
from tests.replication.simulation.store import LEASE_MS, SimulatedStore

MIXED = 0.3
"""of the clusters"""
STEP_LOST = 0.1
"""how likely it is that a connection over which nothing passes is ended in one step"""


class Cluster:
    """`sets`: source -> its members in the beginning; `drive`: makes the place of a disk, by name and what hears of
    damage."""

    def __init__(
        self,
        clock: Clock,
        names: list[str],
        sets: dict[int, tuple[str, ...]],
        bugs: NoBug,
        drive: Callable[[str, Callable[[], None]], Any],
    ) -> None:
        self.clock = clock
        self.network = SimulatedNetwork(self.clock)
        self.law = Law()
        self.store = SimulatedStore(self.clock, sets, self.law)
        self.bugs = bugs
        self.sets = sets
        self._values = count(1)
        self._versions = random.Random(f"versions of {clock.seed}")
        self.mixed = self._versions.random() < MIXED
        """nodes of two neighbouring versions are in it, and each start may be of the other one"""
        self.faults = self.supervised = True
        self.beat_ms = 300.0
        self.settles = 0.0
        """how often somebody settles when somebody publishes"""
        self.dead_letters = 0.0
        """how often a message goes on to another source then"""
        self.idle_ms = 0
        """so long nobody publishes, again and again"""
        self.fast_takeover = False
        """nobody waits for the leader lease of a leader whose port is closed: it may deliver for a while beside
        another"""
        self.unknown: set[str] = set()
        """whose disk was replaced, and no process has begun with it since"""
        self.disks: Counter[str] = Counter()
        """by machine: how often there has come to be another disk in its place, or one that has lost something"""
        self._refused: dict[int, deque[int]] = defaultdict(deque)
        """source -> publishes that were refused, and whose clients have not sent the message again"""
        self._links: dict[tuple[str, str], SimulatedLink] = {}
        """by dialer and acceptor"""

        self.machines = {name: Machine(name, self, drive(name, partial(self._damaged, name))) for name in names}

    def _damaged(self, name: str) -> None:
        self.clock.counts["damage found at restart"] += 1
        self.replaced(name)

    def replaced(self, name: str) -> None:
        """What is in the place of this machine's disk is not what has acknowledged anything."""
        self.unknown.add(name)
        self.disks[name] += 1

    def version_of(self, name: str) -> int:
        """Of the program that is started there."""
        before = self.mixed and self.faults and self._versions.random() < 0.5
        if before:
            self.clock.counts["start of the version before"] += 1
        return LOWEST if before else HIGHEST

    def begin(self) -> None:
        for machine in self.machines.values():
            self.bugs.drive(machine.drive)
            machine.boot()

    def up(self) -> Iterator[Process]:
        """Processes that are members and not stopped."""
        return (process for machine in self.machines.values() if (process := machine.up) is not None)

    def members(self, source: int) -> tuple[str, ...]:
        """Of its set, as the store has it."""
        return self.store.records[source].members

    # Clients

    def publish(self, source: int) -> None:
        """Somebody publishes wherever the source is served, or where it was; sometimes nobody for a while."""
        if self.idle_ms and self.clock.now_ms % (2 * self.idle_ms) > self.idle_ms:
            return
        chance = self.clock.chance
        for process in self.up():
            if source in process.queues:
                process.run(lambda process=process: self._use(process, source))  # type: ignore[misc]
            elif source in process.there.led_sources.sources and chance.random() < 0.1:
                process.publish(source, next(self._values))

    def _use(self, process: Process, source: int) -> None:
        chance = self.clock.chance
        if source not in process.queues:
            return  # it was stopped meanwhile
        for _ in range(chance.choice([1, 1, 1, 4])):
            process.publish(source, self._next(process, source))
        if chance.random() < self.settles:
            process.queues[source].consume(chance.choice([1, 1, 2, 20]))
        if chance.random() < self.dead_letters:
            target = chance.choice(list(self.sets))
            if target != source and target in process.queues and not process.journal.full:
                process.queues[source].let_go(process.queues[target], next(self._values))

    def _next(self, process: Process, source: int) -> int:
        """A publish; of a message that was refused before, if there is one."""
        number, refused = next(self._values), self._refused[source]
        if refused and not process.journal.full:
            self.law.sent_again[b"%08d" % number] = b"%08d" % refused.popleft()
        return number

    def refuse(self, source: int, number: int) -> None:
        """A client hears that this publish is not there."""
        self.law.refuse(source, b"%08d" % number)
        self._refused[source].append(number)

    def deliver(self) -> None:
        """Wherever somebody takes itself for the leader."""
        for process in self.up():
            for source in list(process.queues):
                process.deliver(source)

    def publish_last(self, source: int, process: Process) -> None:
        process.run(lambda: process.publish(source, next(self._values)))

    # Connections

    def connect(self) -> None:
        """Everybody dials everybody; what cannot be reached is noticed."""
        for one in self.up():
            for machine in self.machines.values():
                if machine.name != one.name:
                    self._dial(one, machine)

    def _dial(self, one: Process, machine: Machine) -> None:
        link, two = self._links.get((one.name, machine.name)), machine.process
        passes = not self.network.cut or self.network.connects(one.name, machine.name)
        if passes and two is not None and two.forwarder is not None:
            if link is None or not link.open or link.dialer is not one or link.acceptor is not two:
                if link is not None:
                    link.breaks()
                self._links[one.name, machine.name] = SimulatedLink(one, two)
            return
        if two is None and passes:
            one.run(lambda: one.there.refused(machine.name))
        # A partition shows by a timeout, a dead process at once.
        if link is not None and (two is None or self.clock.chance.random() < STEP_LOST):
            link.breaks()

    def break_some_link(self) -> None:
        open_links = [link for link in self._links.values() if link.open]
        if open_links:
            self.clock.counts["connection broken"] += 1
            self.clock.chance.choice(open_links).breaks()

    def break_link(self, dialer: str, acceptor: str) -> None:
        link = self._links.get((dialer, acceptor))
        if link is not None:
            link.breaks()

    def break_links_of(self, process: Process) -> None:
        for link in self._links.values():
            if process in (link.dialer, link.acceptor):
                link.breaks()

    def ended(self, process: Process) -> None:
        """Its connections are reset; its supervisor says so, in clusters that have one; else its lease runs out."""
        for link in self._links.values():
            if link.dialer is process or link.acceptor is process:
                if link.dialer is not process:
                    link.breaks()
                else:
                    link.there.open = link.back.open = False
                    self.clock.after(0, 50, lambda link=link: link.acceptor.run(link.left))  # type: ignore[misc]
        name, incarnation = process.name, process.incarnation
        self.clock.after(0.5 * LEASE_MS, 1.5 * LEASE_MS, lambda: self.store.lapse(name, incarnation))

    def admitted(self, name: str, record: SourceRecord) -> None:
        """The store names the forwarder's disk: it has everything that was committed in older epochs."""
        process = self.machines[name].process
        if self.machines[name].drive.damaged:
            return
        if process is not None and process.forwarder is not None and record.counts(name, process.there.generation):
            self.law.admitted(name, record.source, process.disk, record.leader.epoch)

    # The end

    def heal(self) -> None:
        self.faults = False
        self.store.returns()
        self.network.cut.clear()
        self.network.changed()
        self.network.flips = self.store.silence = self.store.stalled_until_ms = 0.0
        for machine in self.machines.values():
            machine.slow, machine.stalls_until_ms = 1.0, 0.0
            machine.boot()
            if machine.process is not None and machine.process.stopped:
                machine.process.go_on()

    def leader_of(self, source: int) -> Process | None:
        """Who serves it, and is the leader in the store."""
        record = self.store.records[source]
        process = self.machines[record.leader.forwarder].up if record.leader.forwarder in self.machines else None
        if process is None or source not in process.queues:
            return None
        return process if process.there.led_sources.sources[source].vote == record.leader else None

    def equal(self, source: int) -> bool:
        """All members have the same on their disks, and know it to be committed; and it has what is asked of it."""
        if source in self.store.desired_sets:
            return False
        found = [self.machines[name].up for name in self.members(source)]
        members = [process for process in found if process is not None]
        if len(members) < len(found):
            return False
        heads = [process.disk.head(source) for process in members]
        if any(head.position != head.committed or head.committed != heads[0].committed for head in heads):
            return False
        live = [live_of(process.disk.recovered_of([source]).queues.get(source)) for process in members]
        return all(each == live[0] for each in live)

    def said(self, source: int) -> list[str]:
        """How far each member is, for whoever reads why it is stuck."""
        found = []
        for name in self.members(source):
            process = self.machines[name].process
            if process is None or process.forwarder is None:
                found.append(f"{name} is no member")
            else:
                head = process.disk.head(source)
                found.append(f"{name} {process.incarnation}: {head.committed}..{head.position}")
        return found

    def end(self) -> None:
        """Raises LawBroken."""
        for source in self.sets:
            for name in self.members(source):
                process = self.machines[name].process
                assert process is not None
                self.law.stands(name, source, process.disk)
                self._compare_values(name, source, process)
        self.law.end()

    def _compare_values(self, name: str, source: int, process: Process) -> None:
        live = live_of(process.disk.recovered_of([source]).queues.get(source))
        values = {seq: value for value, seq in self.law.sequences[source].values.items()}
        self.law.reads(name, source, process.disk, {seq: values[seq] for seq in live})
