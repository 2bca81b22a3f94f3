"""What goes wrong, each by itself: processes, disks, connections."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

from tests.replication.simulation.cluster import Cluster
from tests.replication.simulation.machine import Machine
from tests.replication.simulation.process import Process


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
            self._clock.counts["crash of a home"] += bool(process.queues)
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
            self.cluster.unknown.add(machine.name)
            self._clock.after(10, 1200, machine.boot)

    def keep_copy(self) -> None:
        """Of a disk, as it is now."""
        machine = self._some()
        if machine.up is not None:
            self._copies[machine.name] = machine.up.life, machine.drive.copy()

    def restore(self) -> None:
        """An older copy of a disk is put in its place, under the same condition. It is of an earlier life: nothing
        tells what was copied in the last life of a disk from the disk itself."""
        machine = self._some()
        life, copy = self._copies.get(machine.name, (0, None))
        known = self.cluster.store.known.get(machine.name)
        if copy is not None and known is not None and life < known.life:
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
        cluster = self.cluster
        return all(
            self._is_whole_without(source, name) for source, members in cluster.sets.items() if name in members
        )

    def _is_whole_without(self, source: int, name: str) -> bool:
        record, machines = self.cluster.store.records[source], self.cluster.machines
        whole = 0
        for member, generation in zip(record.members, record.generations, strict=True):
            known = self.cluster.store.known.get(member)
            if member != name and known is not None and known.generation == generation:
                whole += not machines[member].drive.damaged and member not in self.cluster.unknown
        return whole > len(record.members) // 2

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
