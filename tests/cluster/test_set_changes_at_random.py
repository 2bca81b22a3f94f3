"""Orders of events, drawn from a seed: desired sets, publishes, crashes, partitions, a store that does not answer,
swaps of which nobody hears; each time with everything under way at any moment. Then all is healed.

What is verified: everything that a client was told is safe is in the log in the end, once; who lives has the same
log; the desired set is fulfilled. What a client waits for is known as a session knows it: a lane and a number.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from amqpd.cluster import leftovers
from amqpd.cluster.records import DesiredSetRecord
from amqpd.journal.lane import Lane
from amqpd.peers.entry import LogEntry, Position
from amqpd.peers.messages import Acknowledgement, Opening
from amqpd.replication.commit import majority
from amqpd.replication.leader import ReplicaSetLeader
from amqpd.replication.receiver import Receiver
from amqpd.replication.replica import Write
from tests.cluster.forwarders import LEASE_S, RESERVES, Machine, World
from tests.harness.slow import slow

SOURCE = 5
NAMES = "abcde"
SEEDS = 150
STEPS = 120
DROP_S = 2.0
"""in place of `leftovers.DROP_S`: so that much is dropped, and at once"""


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World(NAMES)
        self.world.new_source(SOURCE, "a", "abc")
        self.counts: Counter[str] = Counter()
        self._number = 0
        self._open: list[tuple[Machine, Lane, int, bytes]] = []
        self.confirmed: list[bytes] = []
        self._bases: dict[str, Position] = {}
        self._cut: set[tuple[str, str]] = set()

    def step(self) -> None:
        """One thing that happens."""
        what = self.chance.choices(
            [
                self.publish,
                self.move_some,
                self.time,
                self.desired_set,
                self.kill,
                self.start,
                self.cut,
                self.heal,
                self.store,
            ],
            [30, 40, 12, 4, 1.5, 3, 1.5, 3, 1],
        )[0]
        what()
        self.look()

    def look(self) -> None:
        """Clients hear of what is safe."""
        waiting = []
        for machine, lane, number, payload in self._open:
            lost = any(of == SOURCE and where is lane for of, where in machine.abandoned)
            if not machine.up or lost:
                self.counts["unknown"] += 1
            elif lane.reported >= number:
                self.confirmed.append(payload)
                self.stands(lambda entry, payload=payload: payload in entry.payload, payload)  # type: ignore[misc]
            else:
                waiting.append((machine, lane, number, payload))
        self._open = waiting
        for name, machine in self.world.machines.items():
            base = machine.forwarder.base_of(SOURCE)
            if base > self._bases.get(name, (0, 0)):
                self.stands(lambda entry, base=base: entry.position == base, base)  # type: ignore[misc]
            self._bases[name] = base

    def stands(self, is_it: Callable[[LogEntry], bool], what: object) -> None:
        """What is said to be committed is on the disks of a majority: of the set that the store's record has now, or
        had before."""
        has = {
            name
            for name, machine in self.world.machines.items()
            if any(map(is_it, reversed(machine.entries.get(SOURCE, []))))
        }
        sets = self.world.sets[SOURCE][-2:]
        assert any(len(has.intersection(members)) >= majority(len(members)) for members in sets), (what, has, sets)

    def publish(self) -> None:
        for machine in self.world.machines.values():
            if machine.up and SOURCE in machine.serving and SOURCE in machine.journal.lanes:
                self._number += 1
                payload = b"<%d>" % self._number
                number = machine.publish(SOURCE, payload)
                self._open.append((machine, machine.journal.lanes[SOURCE], number, payload))

    def move_some(self) -> None:
        """Messages arrive and disks commit, in between."""
        for _ in range(self.chance.randint(1, 12)):
            if self.world.deliver() and self.chance.random() < 0.7:
                continue
            machine = self.chance.choice(list(self.world.machines.values()))
            if machine.up:
                machine.commit()

    def time(self) -> None:
        self.world.now_s += self.chance.choice([0.05, 0.05, 0.5, 1.5])
        for machine in self.world.machines.values():
            if machine.up:
                machine.forwarder.beat()

    def desired_set(self) -> None:
        members = tuple(sorted(self.chance.sample(NAMES, self.chance.randint(1, 4))))
        leader = self.chance.choice(["", *members])
        if self.chance.random() < 0.3:
            leader = self.chance.choice(self.world.records[SOURCE].members)
            members = ()
        self.put(members, leader)

    def put(self, members: tuple[str, ...], leader: str) -> None:
        now = self.world.desired_sets.get(SOURCE)
        self.world.put_desired_set(
            DesiredSetRecord(SOURCE, members, leader, "", now.revision if now is not None else 0)
        )
        self.counts["desired_sets"] += 1

    def kill(self) -> None:
        up = [name for name, machine in self.world.machines.items() if machine.up]
        if len(up) > 3:
            self.world.kill(self.chance.choice(up))
            self.counts["kills"] += 1

    def start(self) -> None:
        down = [name for name, machine in self.world.machines.items() if not machine.up]
        if down:
            name = self.chance.choice(down)
            self.world.start(name)
            self._apply_cuts()

    def cut(self) -> None:
        one, other = self.chance.sample(NAMES, 2)
        self._cut.add((one, other))
        self.counts["cuts"] += 1
        self._apply_cuts()

    def _apply_cuts(self) -> None:
        for one, other in self._cut:
            self.world.disconnect(one, other)

    def heal(self) -> None:
        self._cut.clear()
        for name, machine in self.world.machines.items():
            if machine.up:
                self.world.connect(name)

    def store(self) -> None:
        self.world.store_answers = self.chance.random() < 0.5
        self.world.store_loses_answers = self.chance.random() < 0.3
        self.counts["store"] += 1

    def end(self) -> None:
        """Everything works again."""
        self.world.store_answers, self.world.store_loses_answers = True, False
        for _ in NAMES:
            self.start()
        self.heal()
        self.world.tell_members()
        # What was desired last may be impossible.
        self.put(tuple(sorted(self.chance.sample(NAMES, 3))), "")
        for _ in range(40):
            self.world.wait(3 * LEASE_S)
            self.look()
            if not self.world.desired_sets and not self._open and self._serving():
                break
        self.publish()
        self.world.wait(3 * DROP_S)
        self.look()

    def _serving(self) -> list[str]:
        return [name for name, machine in self.world.machines.items() if SOURCE in machine.serving]

    def judge(self) -> None:
        world = self.world
        [leader] = self._serving()
        record = world.records[SOURCE]
        assert record.leader.forwarder == leader, record
        assert not world.desired_sets, world.desired_sets
        assert not self._open, "somebody waits for ever"
        logs = {name: self.log(name) for name in record.members}
        for name, log in logs.items():
            assert log == logs[leader], name
        left = [name for name in NAMES if name not in record.members and world[name].entries.get(SOURCE)]
        assert not left, "copies that are none any more"
        for payload in self.confirmed:
            assert logs[leader].count(payload) == 1, payload

    def log(self, name: str) -> bytes:
        entries = self.world[name].entries.get(SOURCE, [])
        assert all(after.before == before.position for before, after in pairwise(entries))
        return b"".join(entry.payload for entry in entries).replace(RESERVES, b"")


def run(seed: int) -> Run:
    found = Run(seed)
    try:
        for _ in range(STEPS):
            found.step()
        found.end()
        found.judge()
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return found


@pytest.mark.parametrize("first", [0, *map(slow, range(50, SEEDS, 50))])
def test_nothing_confirmed_is_lost_whatever_happens_while_a_set_changes(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "DROP_S", DROP_S)
    counts: Counter[str] = Counter()
    for seed in range(first, first + 50):
        found = run(seed)
        counts += found.counts
        counts["confirmed"] += len(found.confirmed)
        for machine in found.world.machines.values():
            counts.update(machine.events)
    print(counts)
    for event in (
        "confirmed",
        "unknown",
        "member_learns",
        "member_added",
        "member_removed",
        "source_handed_over",
        "copy_dropped",
    ):
        assert counts[event] > 10, (event, counts)


def run_some(seeds: int) -> None:
    for seed in range(seeds):
        run(seed)


def _from_the_beginning(leader: ReplicaSetLeader, source: int) -> int:
    return leader.left_out.get(source, leader.passed)


def _opens_from_the_beginning(receiver: Receiver, opening: Opening, writes: list[Write]) -> Acknowledgement:
    sources = tuple(each._replace(since=0) for each in opening.sources)
    return _open(receiver, replace(opening, sources=sources), writes)


_open = Receiver.open


@pytest.mark.parametrize(
    ("where", "name", "mistake"),
    [
        (ReplicaSetLeader, "committed_of", _from_the_beginning),
        (Receiver, "open", _opens_from_the_beginning),
        (Receiver, "left", lambda receiver, source: None),
    ],
    ids=[
        "the new set speaks of what it did not have",
        "a peer takes numbers of the new set for what came before",
        "a peer takes numbers of the old set for what comes later",
    ],
)
def test_a_mistake_is_found(where: type, name: str, mistake: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "DROP_S", DROP_S)
    monkeypatch.setattr(where, name, mistake)
    with pytest.raises(AssertionError):
        run_some(20)
