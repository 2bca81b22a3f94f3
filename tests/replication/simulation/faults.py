"""What goes wrong, each by itself: processes, disks, connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

from amqpd.cluster.records import DesiredSetRecord
from tests.replication.simulation.cluster import Cluster
from tests.replication.simulation.machine import Machine
from tests.replication.simulation.process import Process
from tests.replication.simulation.store import LEASE_MS


class Faults:
    """Of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._clock = cluster.clock
        self._copies: dict[str, tuple[int, Any]] = {}

    def _some(self) -> Machine:
        return self._clock.chance.choice(list(self.cluster.machines.values()))

    def crash(self) -> None:
        self.crash_one(self._some())

    def crash_one(self, machine: Machine) -> None:
        process = machine.up
        if process is not None:
            self._clock.counts["crash"] += 1
            self._clock.counts["crash of a leader"] += bool(process.queues)
            machine.end()
            self._clock.after(10, 1200, machine.boot)

    def stop(self) -> None:
        """SIGSTOP, for up to some leases."""
        self.stop_for(self._some().up, 50, 4000)

    def stop_for(self, process: Process | None, low_ms: float, high_ms: float) -> None:
        if process is not None and not process.stopped:
            self._clock.counts["process stopped"] += 1
            process.stopped = True
            self._clock.after(low_ms, high_ms, process.go_on)

    # Starts

    def hurt_starts(self) -> None:
        """One node, two or all are started again, and killed or paused at some step of that, up to three times in a
        row; the store may stall meanwhile."""
        chance, machines = self._clock.chance, list(self.cluster.machines.values())
        if chance.random() < 0.4:
            self._clock.counts["store stalled at a start"] += 1
            self.cluster.store.stalled_until_ms = self._clock.now_ms + chance.uniform(100, 4 * LEASE_MS)
        for machine in chance.sample(machines, chance.choice([1, 2, len(machines)])):
            if machine.process is not None:
                machine.end()
            self._clock.after(10, 50, partial(self._hurt_start, machine, chance.choice([1, 2, 3])))

    def _hurt_start(self, machine: Machine, times: int) -> None:
        machine.boot()
        if times and self.cluster.faults:
            self._clock.after(0, 200, partial(self._hurt, machine, machine.process, times))

    def _hurt(self, machine: Machine, process: Process | None, times: int) -> None:
        """Unless it is a member by now."""
        if process is None or machine.process is not process or process.forwarder is not None or process.stopped:
            return
        if self._clock.chance.random() < 0.5:
            self._clock.counts["start killed"] += 1
            machine.end()
            self._clock.after(10, 200, partial(self._hurt_start, machine, times - 1))
        elif self.cluster.faults:
            self._clock.counts["start paused"] += 1
            name, incarnation = process.name, process.incarnation
            self.stop_for(process, 0.5 * LEASE_MS, 3 * LEASE_MS)
            self._clock.after(LEASE_MS, LEASE_MS, lambda: self.cluster.store.lapse(name, incarnation))

    # Disks

    def wipe(self) -> None:
        """A disk is replaced by an empty one, if a majority of each set is whole without it: else there would be
        nothing to recover from."""
        self.wipe_one(self._some())

    def wipe_one(self, machine: Machine) -> None:
        self._replace(machine, "disk wiped", machine.drive.wipe)

    def _replace(self, machine: Machine, what: str, how: Callable[[], None]) -> None:
        if self._is_spare(machine.name):
            self._clock.counts[what] += 1
            machine.end()
            how()
            self.cluster.replaced(machine.name)
            self._clock.after(10, 1200, machine.boot)

    def keep_copy(self) -> None:
        """Of a disk, as it is now."""
        machine = self._some()
        if machine.up is not None:
            self._copies[machine.name] = machine.up.incarnation, machine.drive.copy()

    def restore(self) -> None:
        """An older copy of a disk is put in its place, under the same condition. It is of an earlier incarnation:
        nothing tells what was copied in the last incarnation of a disk from the disk itself."""
        machine = self._some()
        incarnation, copy = self._copies.get(machine.name, (0, None))
        known = self.cluster.store.known.get(machine.name)
        if copy is not None and known is not None and incarnation < known.incarnation:
            self._replace(machine, "disk restored", lambda: machine.drive.restore(copy))

    def damage(self) -> None:
        """Something on a disk is not what was written, under the same condition. It shows when a process starts."""
        machine = self._some()
        if self._is_spare(machine.name):
            self._clock.counts["disk damaged"] += machine.drive.damage(self._clock.chance)

    def stall(self) -> None:
        """A disk does nothing for a while."""
        machine = self._some()
        self._clock.counts["disk stalled"] += 1
        machine.stalls_until_ms = self._clock.now_ms + self._clock.chance.choice([200, 1500, 4000])

    def _is_spare(self, name: str) -> bool:
        return all(self._is_whole_without(source, name) for source in self.cluster.sets)

    def _is_whole_without(self, source: int, name: str) -> bool:
        """Also on the way to another set, if one is desired: by those that stay in it."""
        store = self.cluster.store
        members, desired_set = store.records[source].members, store.desired_sets.get(source)
        if store.swapping[source]:
            return False
        whole, largest = self._whole(source) - {name}, len(members)
        if desired_set is not None and desired_set.members:
            whole, largest = whole & set(desired_set.members), max(largest, len(desired_set.members)) + 1
        return name not in members or len(whole) > largest // 2

    def _whole(self, source: int) -> set[str]:
        """Members whose disks have all that they ever acknowledged."""
        cluster, record = self.cluster, self.cluster.store.records[source]
        found = set()
        for member, generation in zip(record.members, record.generations, strict=True):
            known = cluster.store.known.get(member)
            if known is not None and known.generation == generation and member not in cluster.unknown:
                found |= {member} if not cluster.machines[member].drive.damaged else set()
        return found

    # Operators

    def desired_set(self) -> None:
        """Another set of some source is desired, or another leader. Not while a disk of the one that it has is
        replaced: the last copy would have to be on that one, by the time."""
        chance, cluster = self._clock.chance, self.cluster
        source, names = chance.choice(list(cluster.sets)), list(cluster.machines)
        now = cluster.members(source)
        desired, leader = now, ""
        if chance.random() < 0.7:
            desired = tuple(sorted(chance.sample(names, min(len(names), chance.choice([1, 2, 3, 3, 4, 5])))))
        if desired == now or chance.random() < 0.5:
            leader = chance.choice(desired)
        if self._whole(source) == set(now):
            self._clock.counts["desired_set"] += 1
            cluster.store.desired_set(DesiredSetRecord(source, desired if desired != now else (), leader))

    def take_back_desired_sets(self) -> None:
        """For a leader that is in the set no more: the last step to another set was under way when it was desired.
        Who reads the reason takes it back."""
        store = self.cluster.store
        for source, desired_set in list(store.desired_sets.items()):
            if not desired_set.members and desired_set.leader not in self.cluster.members(source):
                self._clock.counts["desired set taken back"] += 1
                store.take_back_desired_set(source)

    # The network

    def partition(self) -> None:
        chance, network, names = self._clock.chance, self.cluster.network, list(self.cluster.machines)
        self._clock.counts["partition"] += 1
        kind = chance.choice(["one", "halves", "one way", "none", "none"])
        network.cut.clear()
        self.cluster.store.returns()
        if kind in ("one", "halves"):
            size = 1 if kind == "one" else len(names) // 2
            apart = set(chance.sample(names, size))
            for one, two in combinations(names, 2):
                if (one in apart) != (two in apart):
                    network.cut |= {(one, two), (two, one)}
        elif kind == "one way":
            one, two = chance.sample(names, 2)
            network.cut.add((one, two))
        network.changed()

    def cut_off(self, name: str) -> None:
        others = [each for each in self.cluster.machines if each != name]
        self.cut({(name, each) for each in others} | {(each, name) for each in others})

    def cut(self, directions: set[tuple[str, str]]) -> None:
        """Nothing passes there, and everything elsewhere."""
        self.cluster.network.cut = directions
        self.cluster.network.changed()

    def reconnect(self) -> None:
        self.cut(set())
        self.cluster.store.returns()

    def cut_off_from_store(self, process: Process) -> None:
        """It hears nothing of the store until `reconnect`, or not at all of that."""
        if self._clock.chance.random() < 0.6:
            self._clock.counts["cut off from the store"] += 1
            self.cluster.store.leaves(process.name)
