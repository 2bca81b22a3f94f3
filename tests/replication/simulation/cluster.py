"""All forwarders of one run, with what they stand on, and the faults that happen to them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import combinations, count

from amqpd.replication.take_over import SourceRecord
from tests.replication.simulation.bugs import NoBug
from tests.replication.simulation.clock import Clock
from tests.replication.simulation.disk import SimulatedDisk
from tests.replication.simulation.law import Law, LawBroken
from tests.replication.simulation.network import SimulatedNetwork
from tests.replication.simulation.node import Node
from tests.replication.simulation.store import SimulatedStore

TICK_MS = 3.0
STEP_LOST = 0.1
"""how likely it is that a connection over which nothing passes is ended in one step"""


class Cluster:
    """`sets`: source -> its members."""

    def __init__(self, seed: int, names: list[str], sets: dict[int, tuple[str, ...]], bugs: NoBug) -> None:
        self.clock = Clock(seed)
        self.network = SimulatedNetwork(self.clock)
        self.store = SimulatedStore(self.clock, sets)
        self.law = Law()
        self.bugs = bugs
        self.sets = sets
        self.nodes = {
            name: Node(name, self, SimulatedDisk(self.clock, [s for s, members in sets.items() if name in members]))
            for name in names
        }
        self._values = count(1)
        self.faults = self.supervised = True
        self.kept_bytes_max = self.behind_bytes_max = self.missed_bytes_max = 1 << 20
        self.settles = 0.0
        """how often somebody settles when somebody publishes"""
        self.idle_ms = 0
        """so long nobody publishes, again and again"""
        self.fast_takeover = False
        """nobody waits for the reign of a home that is cut off: it may deliver for a while, as another one does"""
        for node in self.nodes.values():
            bugs.disk(node.disk)
            node.boot()
            self._ticks(node)

    def _ticks(self, node: Node) -> None:
        if node.up and not node.stopped:
            node.tick()
            for source in node.homes:
                node.deliver(source)
        self.clock.after(TICK_MS / 2, TICK_MS, lambda: self._ticks(node))

    def publish(self, source: int) -> None:
        """Somebody publishes at each forwarder that takes itself for the home; sometimes nobody for a while."""
        if self.idle_ms and self.clock.now_ms % (2 * self.idle_ms) > self.idle_ms:
            return
        for node in self.nodes.values():
            if node.up and not node.stopped and source in node.homes:
                node.publish(source, b"%d" % next(self._values))
                if self.clock.chance.random() < self.settles:
                    node.settle(source)

    def take_over(self, source: int) -> None:
        """Some member thinks that it should: when there is no home, and sometimes when there is one."""
        node = self.nodes[self.clock.chance.choice(self.sets[source])]
        if node.up and not node.stopped and (self.home_of(source) is None or self.clock.chance.random() < 0.3):
            node.take_overs.begin(source)

    def connect(self) -> None:
        """Every pair that can reach each other and is not connected."""
        for one in self.nodes.values():
            for two in self.nodes.values():
                if one is two:
                    continue
                passes = self.network.passes(one.name, two.name) and self.network.passes(two.name, one.name)
                if not one.up:
                    continue
                if not (passes and two.up):
                    # A partition shows by a timeout, a dead process at once.
                    if not two.up or self.clock.chance.random() < STEP_LOST:
                        one.disconnected(two.name)
                elif two.name not in one.links or not one.links[two.name].there.open:
                    one.connected(two.name)

    def break_link(self) -> None:
        node = self.clock.chance.choice(list(self.nodes.values()))
        if node.up and node.links:
            self.clock.counts["connection broken"] += 1
            node.disconnected(self.clock.chance.choice(list(node.links)))

    def crash(self) -> None:
        node = self.clock.chance.choice(list(self.nodes.values()))
        if node.up:
            self.clock.counts["crash"] += 1
            self.clock.counts["crash of a home"] += bool(node.homes)
            homes = {source: seal for source, (seal, _) in node.homes.items()}
            node.crash()

            def back() -> None:
                if not node.up:
                    node.boot()
                    self.bugs.booted(node, homes)

            self.clock.after(1, 120, back)

    def wipe(self) -> None:
        """The disk of a forwarder is replaced by an empty one, if a majority of each set is whole without it: else
        there would be nothing to recover from."""
        self._wipe(self.clock.chance.choice(list(self.nodes.values())))

    def _wipe(self, node: Node) -> None:
        if all(self._whole(source, node.name) for source in node.disk.kept):
            self.clock.counts["disk wiped"] += 1
            if node.up:
                node.crash()
            node.disk.wipe()
            self.clock.after(1, 120, lambda: None if node.up else node.boot())

    def damage(self) -> None:
        """Something on a disk is not what was written, under the same condition. It shows when a process starts."""
        node = self.clock.chance.choice(list(self.nodes.values()))
        if all(self._whole(source, node.name) for source in node.disk.kept):
            node.disk.damage()

    def stall(self) -> None:
        """A disk does nothing for a while."""
        disk = self.clock.chance.choice(list(self.nodes.values())).disk
        self.clock.counts["disk stalled"] += 1
        disk.stalls_until_ms = self.clock.now_ms + self.clock.chance.choice([20, 150, 400])

    def _whole(self, source: int, without: str) -> bool:
        record = self.store.records[source]
        disks = [(name, self.nodes[name].disk) for name in record.members if name != without]
        whole = [name for name, disk in disks if record.counts(name, disk.generation) and not disk.damaged]
        return len(whole) > len(record.members) // 2

    def stop(self) -> None:
        """SIGSTOP, for up to some leases."""
        self._stop_for(self.clock.chance.choice(list(self.nodes.values())), 5, 400)

    def _stop_for(self, node: Node, low_ms: float, high_ms: float) -> None:
        if node.up and not node.stopped:
            self.clock.counts["process stopped"] += 1
            life = node.life
            node.stop()
            self.clock.after(low_ms, high_ms, lambda: node.go_on() if node.life == life else None)

    def tell_committed(self) -> None:
        """Whoever is a home says so, which keeps its reign."""
        for node in self.nodes.values():
            if node.up and not node.stopped:
                node.tell_committed()

    def partition(self) -> None:
        chance, names = self.clock.chance, list(self.nodes)
        self.clock.counts["partition"] += 1
        kind = chance.choice(["one", "halves", "one way", "none", "none"])
        self.network.cut.clear()
        if kind in ("one", "halves"):
            size = 1 if kind == "one" else len(names) // 2
            apart = set(chance.sample(names, size))
            for one, two in combinations(names, 2):
                if (one in apart) != (two in apart):
                    self.network.cut |= {(one, two), (two, one)}
        elif kind == "one way":
            one, two = chance.sample(names, 2)
            self.network.cut.add((one, two))
        self.network.changed()

    def isolate_home(self) -> None:
        """A home is cut off, from all or from one, in one direction or both, and another member takes over before it
        can know."""
        home, taker, source = self._home_and_other()
        if home is None or taker is None:
            return
        chance = self.clock.chance
        self.clock.counts["home cut off"] += 1
        others = chance.choice([[name for name in self.nodes if name != home.name], [taker.name]])
        out, back = {(home.name, each) for each in others}, {(each, home.name) for each in others}
        self.network.cut = chance.choice([out | back, out | back, out, back])
        self.network.changed()
        self._take_over_soon(taker, source, 2, 250)
        self.clock.after(50, 400, self._reconnect)

    def seal_of_the_late(self) -> None:
        """A member is stopped for longer than a lease, and goes on between a home and one that wants to be it, with a
        slow disk. The home hears little of that."""
        home, taker, source = self._home_and_other()
        if home is None or taker is None:
            return
        chance = self.clock.chance
        late = [self.nodes[name] for name in self.sets[source] if name not in (home.name, taker.name)]
        self.clock.counts["member late"] += 1
        self.network.cut = {(home.name, taker.name), (taker.name, home.name)}
        self.network.changed()
        stalls_ms = chance.choice([160, 190, 220])
        for node in late:
            self._stop_for(node, 115, 200)
            node.disk.stalls_until_ms = self.clock.now_ms + stalls_ms
        self._take_over_soon(taker, source, 2, 150)

        def cut() -> None:
            if self.faults:
                self.network.cut |= {(node.name, home.name) for node in late}
                self.network.changed()
                self.clock.after(50, 200, self._reconnect)

        self.clock.after(stalls_ms + 2, stalls_ms + 12, cut)

    def taker_answers(self) -> None:
        """A member that may seal by then begins to take over, answers the old home again while another one, which is
        stopped, lets it wait, and then nobody hears the home any more."""
        home, taker, source = self._home_and_other()
        if home is None or taker is None or self._stopped_for_long(home, taker, source) is None:
            return
        self.clock.counts["taker answered"] += 1
        self.network.cut = {(home.name, taker.name), (taker.name, home.name)}
        self.network.changed()
        self._take_over_soon(taker, source, 115, 117)
        self.clock.after(118, 120, self._reconnect)

    def _stopped_for_long(self, home: Node, taker: Node, source: int) -> Node | None:
        """The only other member; when it goes on, the home is cut off."""
        others = [self.nodes[name] for name in self.sets[source] if name not in (home.name, taker.name)]
        if len(others) != 1 or not others[0].up or others[0].stopped:
            return None
        node, life, goes_on_ms = others[0], others[0].life, self.clock.chance.uniform(150, 250)
        self.clock.counts["process stopped"] += 1
        node.stop()
        self.clock.after(goes_on_ms, goes_on_ms, lambda: node.go_on() if node.life == life else None)

        ends_ms = self.clock.now_ms + goes_on_ms + 100

        def watch() -> None:
            """For the moment at which the store says yes."""
            if self.store.records[source].home.forwarder == taker.name:
                self.clock.after(0, 5, cut)
            elif self.clock.now_ms < ends_ms:
                self.clock.after(1, 1, watch)

        def cut() -> None:
            if self.faults:
                self._cut_off(home.name)
                self.clock.after(50, 200, self._reconnect)

        self.clock.after(goes_on_ms, goes_on_ms, watch)
        return node

    def forget_seal(self) -> None:
        """A member that has sealed a new home's epoch has its disk emptied, and hears of the old home only."""
        home, taker, source = self._home_and_other()
        if home is None or taker is None or len(self.sets[source]) != 3:
            return
        (voter,) = (self.nodes[name] for name in self.sets[source] if name not in (home.name, taker.name))
        self.clock.counts["seal forgotten"] += 1
        self._cut_off(home.name)
        self._take_over_soon(taker, source, 115, 150)

        def forgets() -> None:
            if not self.faults:
                return
            if source in home.homes and source in taker.homes and home.up:
                self._wipe(voter)
                self._cut_off(taker.name)
                self.clock.after(200, 500, self._reconnect)
            else:
                self._reconnect()

        self.clock.after(160, 300, forgets)

    def _home_and_other(self) -> tuple[Node | None, Node | None, int]:
        """Of some source that has a home, and another member."""
        chance = self.clock.chance
        source = chance.choice(list(self.sets))
        homes = [node for node in self.nodes.values() if node.up and not node.stopped and source in node.homes]
        if not homes:
            return None, None, source
        home = chance.choice(homes)
        return home, self.nodes[chance.choice([name for name in self.sets[source] if name != home.name])], source

    def _take_over_soon(self, taker: Node, source: int, low_ms: float, high_ms: float) -> None:
        for _ in range(2):
            self.clock.after(
                low_ms, high_ms, lambda: taker.take_overs.begin(source) if taker.up and not taker.stopped else None
            )

    def _cut_off(self, name: str) -> None:
        others = [each for each in self.nodes if each != name]
        self.network.cut = {(name, each) for each in others} | {(each, name) for each in others}
        self.network.changed()

    def _reconnect(self) -> None:
        self.network.cut = set()
        self.network.changed()

    def crashed(self, node: Node) -> None:
        for other in self.nodes.values():
            if other.up:
                other.disconnected(node.name)
        if self.supervised:
            # Its supervisor says so, in clusters that have one.
            life = node.life
            for other in self.nodes.values():
                tell = other.of_this_life(partial(other.ended, node.name, life))
                self.network.message(node.name, other.name, tell)

    def admitted(self, name: str, source: int, asked: SourceRecord) -> None:
        """The store names the forwarder's disk: it has everything that was committed in older epochs."""
        if asked.counts(name, self.nodes[name].disk.generation):
            self.law.admitted(name, source, self.nodes[name].disk.kept[source], asked.home.epoch)

    def contradicted(self, name: str, sources: Iterable[int]) -> None:
        raise LawBroken(f"{name} has committed something else than its home, of sources {sorted(sources)}")

    # --- the end

    def heal(self) -> None:
        self.faults = False
        self.network.cut.clear()
        self.network.changed()
        self.network.loss = self.network.flips = self.store.silence = 0.0
        for node in self.nodes.values():
            node.disk.slow, node.disk.stalls_until_ms = 1.0, 0.0
            if not node.up:
                node.boot()
            elif node.stopped:
                node.go_on()

    def home_of(self, source: int) -> Node | None:
        """Whom the store and a majority take for it."""
        record = self.store.records[source]
        for node in self.nodes.values():
            if source in node.homes and node.homes[source][0] == record.home == node.replicas[source].seal:
                return node
        return None

    def equal(self, source: int) -> bool:
        """All members have the same, and know it to be committed."""
        members = [self.nodes[name] for name in self.sets[source]]
        kept = [node.memory[source] for node in members]
        return all(
            (each.base, each.rows, each.tail) == (kept[0].base, kept[0].rows, [])
            and node.replicas[source].log.last == each.base
            for node, each in zip(members, kept, strict=True)
        )

    def end(self) -> None:
        """Raises LawBroken."""
        for source, members in self.sets.items():
            for name in members:
                self.law.stands(name, source, self.nodes[name].memory[source])
        self.law.end()
