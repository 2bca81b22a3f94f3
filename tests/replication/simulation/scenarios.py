"""Things that go wrong together, in an order that chance alone seldom finds."""

from __future__ import annotations

from tests.replication.simulation.cluster import Cluster
from tests.replication.simulation.faults import Faults
from tests.replication.simulation.process import Process
from tests.replication.simulation.store import LEASE_MS

WAIT_MS = 1.1 * LEASE_MS
"""so long a replica that has answered a leader votes for no other epoch"""


class Scenarios:
    """Of one cluster."""

    def __init__(self, cluster: Cluster, faults: Faults) -> None:
        self._cluster = cluster
        self._faults = faults
        self._clock = cluster.clock

    def take_over(self, source: int) -> None:
        """Somebody asks a member for it, though nothing is wrong."""
        chance = self._clock.chance
        process = self._cluster.machines[chance.choice(self._cluster.members(source))].up
        if process is not None and (self._cluster.leader_of(source) is None or chance.random() < 0.3):
            self._take_over(process, source)

    def _take_over(self, process: Process, source: int) -> None:
        def begin() -> None:
            if process.forwarder is not None and source in process.there.records:
                self._clock.counts["take-over asked for"] += 1
                process.there.take_over(process.there.records[source])

        process.run(begin)

    def _take_over_soon(self, taker: Process, source: int, low_ms: float, high_ms: float) -> None:
        for _ in range(2):
            self._clock.after(low_ms, high_ms, lambda: self._take_over(taker, source))

    def _leader_and_other(self) -> tuple[Process | None, Process | None, int]:
        """Of some source that has a leader, and another member."""
        chance, cluster = self._clock.chance, self._cluster
        source = chance.choice(list(cluster.sets))
        leaders = [process for process in cluster.up() if source in process.queues]
        if not leaders:
            return None, None, source
        leader = chance.choice(leaders)
        names = [name for name in cluster.members(source) if name != leader.name]
        return leader, cluster.machines[chance.choice(names)].up if names else None, source

    def _others(self, source: int, leader: Process, taker: Process) -> list[str]:
        return [name for name in self._cluster.members(source) if name not in (leader.name, taker.name)]

    def isolate_leader(self) -> None:
        """A leader is cut off, from all or from one, in one direction or both, and another member takes over before
        it can know."""
        leader, taker, source = self._leader_and_other()
        if leader is None or taker is None:
            return
        chance = self._clock.chance
        self._clock.counts["leader cut off"] += 1
        others = chance.choice([[name for name in self._cluster.machines if name != leader.name], [taker.name]])
        out, back = {(leader.name, each) for each in others}, {(each, leader.name) for each in others}
        self._faults.cut(chance.choice([out | back, out | back, out, back]))
        self._faults.cut_off_from_store(leader)
        self._take_over_soon(taker, source, 20, 2500)
        ends_ms = chance.uniform(500, 4000)
        if len(others) > 1 and chance.random() < 0.5:
            # Then another member hears the old leader again, and the new one does not.
            still = {(leader.name, taker.name), (taker.name, leader.name)}
            self._clock.after(ends_ms, ends_ms, lambda: self._faults.cut(still) if self._cluster.faults else None)
            ends_ms += 1500
        self._clock.after(ends_ms, ends_ms, self._faults.reconnect)

    def vote_of_the_late(self) -> None:
        """A member is stopped for longer than a lease, and goes on between a leader and one that wants to be it, with
        a slow disk. The leader hears little of that."""
        leader, taker, source = self._leader_and_other()
        if leader is None or taker is None:
            return
        cluster, chance = self._cluster, self._clock.chance
        names = self._others(source, leader, taker)
        self._clock.counts["member late"] += 1
        self._faults.cut({(leader.name, taker.name), (taker.name, leader.name)})
        self._faults.cut_off_from_store(leader)
        goes_on_ms, stalls_ms = chance.uniform(1.05 * WAIT_MS, 1500), chance.choice([1600, 1900, 2200, 2800])
        for name in names:
            self._faults.stop_for(cluster.machines[name].up, goes_on_ms, goes_on_ms)
            cluster.machines[name].stalls_until_ms = self._clock.now_ms + stalls_ms
        self._take_over_soon(taker, source, 20, 1500)

        out, back = {(leader.name, name) for name in names}, {(name, leader.name) for name in names}

        def cut(more: set[tuple[str, str]]) -> None:
            if cluster.faults:
                self._faults.cut(cluster.network.cut | more)

        # It hears the leader once more, and what it answers to that goes out when its disk is done.
        self._clock.after(goes_on_ms + 20, goes_on_ms + 150, lambda: cut(out))
        self._clock.after(stalls_ms + 20, stalls_ms + 120, lambda: cut(back))
        self._clock.after(stalls_ms + 1000, stalls_ms + 2000, self._faults.reconnect)

    def answers_wait(self) -> None:
        """The disks of those who vote stall for longer than a replica waits: answers to the leader are made all the
        time, and do not go out. Then they hear of the leader no more, and right after that another member asks them
        to vote. When their disks are done, the last answer to the leader, which does not know of the vote, goes out
        with that; and then the leader hears of nobody any more."""
        leader, taker, source = self._leader_and_other()
        if leader is None or taker is None:
            return
        cluster, chance, now_ms = self._cluster, self._clock.chance, self._clock.now_ms
        names = self._others(source, leader, taker)
        self._clock.counts["answers wait for a disk"] += 1
        self._faults.cut({(leader.name, taker.name), (taker.name, leader.name)})
        self._cluster.store.leaves(leader.name)
        asks_ms = chance.uniform(WAIT_MS + 30, WAIT_MS + 250)
        done_ms = asks_ms + chance.uniform(60, 400)
        for name in names:
            cluster.machines[name].stalls_until_ms = now_ms + done_ms
        for at_ms in (0, 20, 40):
            # So that there is something to wait for.
            self._clock.after(at_ms, at_ms, lambda: cluster.publish(source))
        out, back = {(leader.name, name) for name in names}, {(name, leader.name) for name in names}

        def cut(more: set[tuple[str, str]]) -> None:
            if cluster.faults:
                self._faults.cut(cluster.network.cut | more)

        self._clock.after(asks_ms - 10, asks_ms + 20, lambda: cut(out))
        self._clock.after(asks_ms, asks_ms, lambda: self._take_over(taker, source))
        self._clock.after(done_ms + 15, done_ms + 60, lambda: cut(back))
        self._clock.after(done_ms + 800, done_ms + 1800, self._faults.reconnect)

    def left_out_and_lost(self) -> None:
        """A leader has entries on one other disk of five. A third member comes back, answers for the replica set, and
        lacks them: the source is left out. Before that member is sent anything, those two are cut off from the other
        three, which go on without these entries."""
        leader, taker, source = self._leader_and_other()
        if leader is None or taker is None or len(self._others(source, leader, taker)) != 3:
            return
        cluster, clock = self._cluster, self._clock
        holder, lacking = clock.chance.sample(self._others(source, leader, taker), 2)
        clock.counts["third of five comes back"] += 1
        half = {leader.name, holder}
        apart = {(one, two) for one in cluster.machines for two in cluster.machines if (one in half) != (two in half)}
        comes_back = {(leader.name, lacking), (lacking, leader.name)}
        self._faults.cut(apart)
        cluster.break_link(leader.name, lacking)
        for at_ms in (20, 60):
            clock.after(at_ms, at_ms, lambda: cluster.publish(source))

        def cut(directions: set[tuple[str, str]]) -> None:
            if cluster.faults:
                self._faults.cut(directions)

        def come_back() -> None:
            cut(apart - comes_back)
            cluster.connect()
            watch()

        def watch() -> None:
            own = leader.there.led_sources.sources.get(source) if leader.runs else None
            if own is None or clock.now_ms > ends_ms:
                cut(set())
            elif source in own.replica_set.leader.left_out:
                clock.counts["left out, then lost"] += 1
                cut(apart)
                for at_ms in (1, 40):
                    clock.after(at_ms, at_ms, lambda: cluster.publish(source))
                self._take_over_soon(taker, source, WAIT_MS, WAIT_MS + 800)
                clock.after(WAIT_MS + 2000, WAIT_MS + 3000, self._faults.reconnect)
            else:
                clock.after(0.5, 1, watch)

        comes_ms = clock.chance.uniform(150, 400)
        ends_ms = clock.now_ms + comes_ms + 800
        clock.after(comes_ms, comes_ms, come_back)

    def taker_answers(self) -> None:
        """A member that may vote by then begins to take over, answers the old leader again while another one, which
        is stopped, lets it wait, and then nobody hears the leader any more."""
        leader, taker, source = self._leader_and_other()
        if leader is None or taker is None:
            return
        others = self._others(source, leader, taker)
        late = self._cluster.machines[others[0]].up if len(others) == 1 else None
        if late is None:
            return
        self._clock.counts["taker answered"] += 1
        goes_on_ms = self._clock.chance.uniform(WAIT_MS + 120, WAIT_MS + 700)
        self._faults.cut_off(leader.name)
        self._faults.stop_for(late, goes_on_ms, goes_on_ms)
        self._faults.cut_off_from_store(leader)
        self._take_over_soon(taker, source, WAIT_MS + 50, WAIT_MS + 70)
        apart = {(leader.name, late.name), (late.name, leader.name)}
        self._clock.after(
            *(WAIT_MS + 80, WAIT_MS + 100),
            lambda: self._faults.cut(apart) if self._cluster.faults else None,
        )
        ends_ms = self._clock.now_ms + goes_on_ms + 1000

        def watch() -> None:
            """For the moment at which the store says yes."""
            if self._cluster.store.records[source].leader.forwarder == taker.name:
                self._clock.after(0, 50, cut)
            elif self._clock.now_ms < ends_ms:
                self._clock.after(10, 10, watch)

        def cut() -> None:
            if self._cluster.faults:
                self._faults.cut_off(leader.name)
                self._clock.after(500, 2000, self._faults.reconnect)

        self._clock.after(goes_on_ms, goes_on_ms, watch)

    def forget_vote(self) -> None:
        """A member that has voted for a new leader's epoch crashes, or has its disk emptied, and hears of the old
        leader only."""
        leader, taker, source = self._leader_and_other()
        if leader is None or taker is None or len(self._others(source, leader, taker)) != 1:
            return
        (voter,) = self._others(source, leader, taker)
        self._clock.counts["vote forgotten"] += 1
        self._faults.cut_off(leader.name)
        self._faults.cut_off_from_store(leader)
        self._take_over_soon(taker, source, WAIT_MS + 50, WAIT_MS + 400)

        def forgets() -> None:
            if not self._cluster.faults:
                return
            if source in leader.queues and source in taker.queues:
                machine = self._cluster.machines[voter]
                (self._faults.wipe_one if self._clock.chance.random() < 0.5 else self._faults.crash_one)(machine)
                self._faults.cut_off(taker.name)
                self._clock.after(2000, 5000, self._faults.reconnect)
            else:
                self._faults.reconnect()

        self._clock.after(WAIT_MS + 500, WAIT_MS + 1900, forgets)

    def chain_of_leaders(self) -> None:
        """Each new leader is cut off as soon as it is one, up to some times in a row: what it has is nowhere else."""
        leader, _, source = self._leader_and_other()
        if leader is None:
            return
        self._clock.counts["chain of leaders"] += 1
        seen, left = {leader.there.led_sources.sources[source].vote.epoch}, self._clock.chance.choice([1, 2, 3])
        self._cut_off_wholly(leader)
        ends_ms = self._clock.now_ms + 6000

        def watch() -> None:
            nonlocal left
            if not self._cluster.faults:
                return
            if not left or self._clock.now_ms > ends_ms:
                self._clock.after(0, 1500, self._faults.reconnect)
                return
            for process in self._cluster.up():
                own = process.there.led_sources.sources.get(source)
                if own is not None and own.vote.epoch not in seen:
                    seen.add(own.vote.epoch)
                    left -= 1
                    self._clock.counts["leader cut off at once"] += 1
                    self._clock.after(0, 150, lambda process=process: self._cut_off_wholly(process))  # type: ignore[misc]
            self._clock.after(5, 15, watch)

        watch()

    def _cut_off_wholly(self, process: Process) -> None:
        """From the others and from the store; the others reach each other again."""
        if self._cluster.faults:
            self._faults.reconnect()
            self._faults.cut_off(process.name)
            self._cluster.store.leaves(process.name)
            self._cluster.break_links_of(process)
