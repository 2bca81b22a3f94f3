"""`datadir/disks/election.py`: a start goes on with everything that was ever confirmed, or does not go on.

What is verified: for random runs of several processes on the same disks (each starts with the directories that it can
use, may crash between any two writes, leaves disks behind, repairs emptied ones) the best journal of each start has
all that a majority had before, and so have the definitions that a start takes; the sentences for what cannot be. What
the generator made is counted: a fault that never happened was not tested. The steps are those of
`amqpd.datadir.disks` (opening, roster, repair), without disks.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from amqpd.datadir.disk_record import DiskList, Listed, Record
from amqpd.datadir.disks.election import (
    Position,
    SeenDirectory,
    StartRefused,
    choose,
    furthest,
    is_inside,
    next_list,
    of_last_incarnation,
)
from amqpd.datadir.disks.standing import majority_of

Entry = tuple[int, int, bool]
"""incarnation, number in the one order, it is a change of definitions"""


class Crashed(Exception):
    """The process is gone."""


@dataclass
class Platter:
    """What is in one directory."""

    record: Record | None = None
    incarnation: int = 0
    """begun in its journal"""
    log: list[Entry] = field(default_factory=list)
    """what its journal has, or says that the definitions have"""
    definitions: list[Entry] = field(default_factory=list)

    @property
    def position(self) -> Position:
        revision = len(definitions_in(self.log))
        return self.incarnation, len(self.log) - revision, revision


def definitions_in(log: list[Entry]) -> list[Entry]:
    return [each for each in log if each[2]]


class World:
    """One node's directories, and one process after the other."""

    def __init__(self, seed: int, disks: int) -> None:
        self.chance = random.Random(seed)
        self.platters = [Platter() for _ in range(disks)]
        self.confirmed: list[Entry] = []
        self.served: list[Entry] = []
        self.served_incarnation = 0
        """the definitions with which the last process that served began"""
        self.counts: Counter[str] = Counter()
        self.drawn = 0

    def draw(self) -> str:
        self.drawn += 1
        return f"g{self.drawn}"

    def may_crash(self) -> None:
        if self.chance.random() < 0.06:
            self.counts["crashes"] += 1
            raise Crashed

    def put(self, at: int, record: Record) -> None:
        self.may_crash()
        self.platters[at].record = record

    def run(self, incarnations: int) -> None:
        for _ in range(incarnations):
            try:
                Process(self).live()
            except Crashed:
                continue
            except StartRefused:
                self.counts["refused"] += 1
            if self.chance.random() < 0.3:
                self.lose_one()

    def lose_one(self) -> None:
        """Of what is there, a minority may be emptied: by the newest list, which has to be whole elsewhere."""
        records = [each.record for each in self.platters if each.record is not None]
        if not records:
            return
        newest = max((record.list for record in records), key=lambda each: each.version)
        generations = {each.generation for each in newest.disks if each.inside}
        good = [
            at
            for at, each in enumerate(self.platters)
            if each.record is not None and each.record.whole and each.record.generation in generations
        ]
        # A promise of the start, and what the next start needs, is on the rest: one more than a majority.
        at = self.chance.randrange(len(self.platters))
        if len([each for each in good if each != at]) >= majority_of(len(self.platters)):
            self.platters[at] = Platter()
            self.counts["emptied"] += 1


class Process:
    """One incarnation of the node."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = world.chance
        self.platters = world.platters
        count = len(self.platters)
        away = self.chance.randint(0, count - majority_of(count)) if self.chance.random() < 0.6 else 0
        gone = set(self.chance.sample(range(count), away))
        self.usable = [at for at in range(count) if at not in gone]

    def live(self) -> None:
        seen = [
            SeenDirectory(f"/{at}", each.record, bool(each.log), "" if at in self.usable else "it is away")
            for at, each in enumerate(self.platters)
        ]
        for at, each in enumerate(seen):
            if at not in self.usable:
                each.record, each.has_journal = None, False
        chosen = choose(seen, accept_loss=False)
        members = chosen.members
        best = furthest({at: self.platters[at].position for at in members})
        assert self.platters[best].log[: len(self.world.confirmed)] == self.world.confirmed, "confirmed and lost"
        before = chosen.newest or DiskList("n", (0, 0), (Listed(self.world.draw(), f"/{best}", True),))
        incarnation = max(chosen.promised, before.version[0], self.platters[best].incarnation) + 1
        for at in members:
            record = self.platters[at].record
            generation = before.disks[0].generation if record is None else record.generation
            self.world.put(at, Record(generation, True, incarnation, before))
            seen[at].record = self.platters[at].record
        candidates = of_last_incarnation({at: self.platters[at].position for at in members})
        richest = max(candidates, key=lambda at: (len(self.platters[at].definitions), is_inside(seen[at], before)))
        definitions = list(self.platters[richest].definitions)
        declared = definitions_in(self.world.confirmed)
        assert definitions[: len(declared)] == declared, "declared and lost"
        assert len(definitions) >= self.platters[best].position[2], "less than its journal says"
        count = len(self.world.served)
        assert definitions[:count] == self.world.served, "served and lost"
        assert all(each[0] == self.world.served_incarnation for each in definitions[count:]), "gone, and there again"
        inside = [at for at in members if self.platters[at].position == self.platters[best].position]
        for at in inside:
            self.world.may_crash()
            self.platters[at].definitions = list(definitions)
        for at in [*(at for at in members if at not in inside), *(at for at in self.usable if at not in members)]:
            if len(inside) < majority_of(len(self.platters)):
                if at not in members:
                    self.world.put(at, Record(self.world.draw(), False, incarnation, before))
                    seen[at].record = self.platters[at].record
                self.world.may_crash()
                self.platters[at].definitions = list(definitions)
                self.world.may_crash()
                self.platters[at].log = list(self.platters[best].log)
                self.platters[at].incarnation = self.platters[best].incarnation
                inside.append(at)
                self.world.counts["made equal"] += 1
        assert len(inside) >= majority_of(len(self.platters))
        self.list = next_list(seen, before, "n", (incarnation, 0), inside, self.world.draw)
        self.incarnation, self.number = incarnation, 0
        known = {each.generation for each in before.disks}
        new = [at for at in sorted({*inside, *members}) if self.list.disks[at].generation not in known]
        for at in new:
            self.world.put(at, Record(self.list.disks[at].generation, True, incarnation, before))
        for at in [*new, *(at for at in sorted({*inside, *members}) if at not in new)]:
            self.world.put(at, Record(self.list.disks[at].generation, True, incarnation, self.list))
        self.world.counts["starts"] += 1
        self.inside = set(inside)
        # What the journal had not noted of the definitions yet, this incarnation's first note says.
        self.order = self.platters[best].log + definitions[self.platters[best].position[2] :]
        for at in inside:
            self.world.may_crash()
            self.platters[at].incarnation = incarnation
        self.world.served, self.world.served_incarnation = definitions, incarnation
        self.serve()

    def serve(self) -> None:
        for _ in range(self.chance.randint(0, 40)):
            self.world.may_crash()
            act = self.chance.random()
            if act < 0.6:
                # One step at a time: the next is cut when a majority has the one before.
                if len(self.world.confirmed) == len(self.order) or not self.order:
                    self.order.append((self.incarnation, len(self.order), act < 0.2))
                self.store()
            elif act < 0.7 and len(self.inside) > majority_of(len(self.platters)):
                self.inside.discard(self.chance.choice(sorted(self.inside)))
                self.tell(self.inside)
                self.world.counts["left behind"] += 1
            elif act < 0.85:
                self.repair()

    def store(self) -> None:
        for at in self.chance.sample(sorted(self.inside), self.chance.randint(1, len(self.inside))):
            log, definitions = self.platters[at].log, self.platters[at].definitions
            if len(log) < len(self.order):
                self.world.may_crash()
                entry = self.order[len(log)]
                if entry[2] and entry not in definitions:
                    definitions.append(entry)
                    self.world.counts["declared"] += 1
                    self.world.may_crash()
                log.append(entry)
        reached = sorted((len(self.platters[at].log) for at in self.inside), reverse=True)
        stored = reached[majority_of(len(self.platters)) - 1]
        if stored > len(self.world.confirmed):
            self.world.confirmed = self.order[:stored]

    def repair(self) -> None:
        away = [at for at in self.usable if at not in self.inside]
        if not away:
            return
        at = self.chance.choice(away)
        whole = (record := self.platters[at].record) is not None and record.whole
        whole = whole and record is not None and record.generation == self.list.disks[at].generation
        generation = self.list.disks[at].generation
        if not whole:
            generation = self.world.draw()
            self.world.put(at, Record(generation, False, self.incarnation, self.list))
        full = [each for each in self.inside if len(self.platters[each].log) >= len(self.world.confirmed)]
        source = self.platters[min(full)]
        self.world.may_crash()
        self.platters[at].definitions = list(source.definitions)
        self.world.may_crash()
        self.platters[at].log, self.platters[at].incarnation = list(source.log), self.incarnation
        self.tell({*self.inside, at}, {at: generation})
        self.inside.add(at)
        self.world.counts["repaired"] += 1

    def tell(self, inside: set[int], generations: dict[int, str] | None = None) -> None:
        given = generations or {}
        self.number += 1
        self.list = DiskList(
            "n",
            (self.incarnation, self.number),
            tuple(
                Listed(given.get(at, each.generation), each.path, at in inside)
                for at, each in enumerate(self.list.disks)
            ),
        )
        for at in sorted(inside, key=lambda _: self.chance.random()):
            self.world.put(at, Record(self.list.disks[at].generation, True, self.incarnation, self.list))


@pytest.mark.parametrize("disks", [2, 3, 5])
def test_nothing_that_was_confirmed_is_lost(disks: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(700):
        world = World(seed, disks)
        try:
            world.run(15)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        counts += world.counts
        counts["confirmed"] += len(world.confirmed)
    print(counts)
    wanted = {"starts", "crashes", "confirmed", "declared"} | (
        {"emptied", "left behind", "repaired", "made equal"} if disks > 2 else set()
    )
    assert all(counts[each] > 50 for each in wanted), counts


def listed(*inside: bool) -> DiskList:
    return DiskList("n", (3, 1), tuple(Listed(f"g{at}", f"/{at}", is_in) for at, is_in in enumerate(inside)))


def seen(at: int, of: DiskList, *, whole: bool = True) -> SeenDirectory:
    return SeenDirectory(f"/{at}", Record(f"g{at}", whole, 3, of), True)


def test_two_of_three_are_enough_and_one_is_not() -> None:
    of = listed(True, True, True)
    chosen = choose([seen(0, of), seen(1, of), SeenDirectory("/2", unusable="I/O error")], accept_loss=False)
    assert chosen.members == [0, 1]
    with pytest.raises(
        StartRefused, match=r"1 of the 3 .*, 2 are needed: /1 and /2 are missing.*/2: I/O error.*accept-loss"
    ):
        choose([seen(0, of), SeenDirectory("/1"), SeenDirectory("/2", unusable="I/O error")], accept_loss=False)
    assert choose([seen(0, of), SeenDirectory("/1"), SeenDirectory("/2")], accept_loss=True).members == [0]


def test_a_disk_whose_repair_did_not_end_counts_for_nothing() -> None:
    of = listed(True, True, True)
    with pytest.raises(StartRefused):
        choose([seen(0, of), seen(1, of, whole=False), SeenDirectory("/2")], accept_loss=False)


def test_a_disk_that_was_replaced_and_comes_back_counts_for_nothing() -> None:
    """It is in an older list, with the generation that the newer one has not any more."""
    old, new = listed(True, True, True), DiskList("n", (4, 0), (*listed(True, True).disks, Listed("g9", "/2", True)))
    chosen = choose([seen(0, new), seen(1, new), seen(2, old)], accept_loss=False)
    assert chosen.members == [0, 1]
    with pytest.raises(StartRefused):
        choose([seen(0, new), SeenDirectory("/1"), seen(2, old)], accept_loss=False)


def test_a_disk_that_moved_is_known_by_its_generation() -> None:
    of = listed(True, True, True)
    moved = SeenDirectory("/elsewhere", Record("g2", True, 3, of), True)
    found = [seen(0, of), seen(1, of), moved]
    assert choose(found, accept_loss=False).members == [0, 1, 2]
    following = next_list(found, of, "n", (4, 0), [0, 1, 2], lambda: "new")
    assert [each.generation for each in following.disks] == ["g0", "g1", "g2"]


def test_a_list_cannot_change_by_more_than_a_minority() -> None:
    of = listed(True, True, True)
    with pytest.raises(StartRefused):
        choose([seen(0, of), SeenDirectory("/new"), SeenDirectory("/newer")], accept_loss=False)


def test_two_directories_with_a_journal_and_no_list_are_refused() -> None:
    with pytest.raises(StartRefused, match=r"/0 and /1 have a journal each"):
        choose(
            [SeenDirectory("/0", None, True), SeenDirectory("/1", None, True), SeenDirectory("/2")], accept_loss=False
        )
    assert choose(
        [SeenDirectory("/0"), SeenDirectory("/1", None, True), SeenDirectory("/2")], accept_loss=False
    ).members == [1]


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_journal_of_its_own_beside_directories_with_a_list_is_refused(accept_loss: bool) -> None:
    of = listed(True, True, True)
    with pytest.raises(StartRefused, match=r"^/0 has a journal of its own, beside /1 and /2 of a node: empty it"):
        choose([SeenDirectory("/0", None, True), seen(1, of), seen(2, of)], accept_loss=accept_loss)
    damaged = SeenDirectory("/0", None, True, has_record=True)
    assert choose([damaged, seen(1, of), seen(2, of)], accept_loss=accept_loss).members == [1, 2]


def test_directories_of_two_nodes_are_refused() -> None:
    of = listed(True, True, True)
    other = DiskList("m", (9, 0), of.disks)
    with pytest.raises(StartRefused, match="belong to different nodes"):
        choose([seen(0, of), seen(1, other), SeenDirectory("/2")], accept_loss=False)


def test_definitions_are_of_a_disk_of_the_last_incarnation() -> None:
    """What one that was away has more of is of nobody."""
    assert of_last_incarnation({0: (3, 9, 9), 1: (4, 1, 2), 2: (4, 2, 2)}) == [1, 2]


def test_what_the_journal_says_of_definitions_decides_too() -> None:
    assert furthest({0: (3, 9, 4), 1: (3, 9, 5), 2: (3, 8, 5)}) == 1
