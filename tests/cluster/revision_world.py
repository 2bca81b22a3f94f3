"""Nodes that say and hear applied revisions, without sockets and clocks: what may happen to them, in any order.

What comes in: a seed. What goes out: whether each publish was routed with every change that was answered before it
began; counts of what happened.
Rules: 1. The machines are those that ship (`AppliedRevisions`, with `SyncPoint` and `Currency`); the store, the links
and the time are played. 2. A node applies the store's events late, the roster's apart from the topology's; it is
paused with messages in its sockets, cut off from peers and from the store, ended, killed, started again. 3. What cuts
nodes off from a majority ends before they would be given up (`GIVEN_UP_LEASES`): behind that the law does not hold,
which is said in docs/decisions/sync-point.md.
Not here: the tests (`test_sync_point.py`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from amqpd.cluster.applied_revisions import AppliedRevisions
from amqpd.cluster.records import KnownRecord, MemberRecord
from amqpd.cluster.roster import Roster
from amqpd.peers.messages import AppliedRevision, AskRevision

LEASE_S = 1.0
STEP_S = 0.04
"""between two things that happen, in the middle"""
BEAT_S = LEASE_S / 20
CUT_MAX_S = 3 * LEASE_S
NAMES = ("a", "b", "c", "d", "e")


@dataclass
class Stored:
    """What the store has at one revision: members by name with their incarnations, and who is known."""

    members: dict[str, int]
    known: dict[str, int]


class Link:
    """One end of a data link, as a node sends over it."""

    def __init__(self, world: World, sender: str, receiver: str) -> None:
        self.world, self.sender, self.forwarder = world, sender, receiver
        self.waiting: list[Any] = []
        """what is on its way to the other end"""
        self.other: Link
        self.open = True
        self.silent_since_s: float | None = None

    def send(self, message: AskRevision | AppliedRevision) -> None:
        if self.open:
            self.waiting.append(message)

    def close(self, why: str) -> None:
        raise AssertionError(why)


class Node:
    """The host of one node's revisions."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        self.world, self.name, self.incarnation = world, name, incarnation
        self.topology_revision = self.roster_revision = world.revision
        """read linearizably at the start"""
        self.roster = Roster()
        self.paused = self.news = self.is_current = False
        self.store_cut = False
        self.reads: list[tuple[float, int | None, Callable[[int | None], None]]] = []
        self.renewed_s = world.now_s
        self.revisions = AppliedRevisions(name, LEASE_S, self, True)
        self.revisions.generation = "1"
        self._load()

    @property
    def now_s(self) -> float:
        return self.world.now_s

    @property
    def applied_revision(self) -> int:
        return min(self.topology_revision, self.roster_revision)

    def has_news(self) -> None:
        self.news = True

    def read_store(self, ended: Callable[[int | None], None]) -> None:
        # What it finds is of some moment before it ends, here of its begin: the worst.
        revision = None if self.store_cut else self.world.revision
        self.reads.append((self.world.now_s + self.world.random.expovariate(1 / STEP_S), revision, ended))

    def answer(self, answer: Callable[[], None]) -> None:
        answer()

    def set_current(self, current: bool) -> None:
        self.is_current = current

    def apply_topology(self) -> None:
        """The next event of the store."""
        self.topology_revision += 1
        for answer in self.world.asked.pop((self.name, self.incarnation, self.topology_revision), []):
            self.revisions.when_known(answer)
        self.news = True

    def apply_roster(self) -> None:
        self.roster_revision += 1
        self._load()
        self.news = True

    def _load(self) -> None:
        stored = self.world.store[self.roster_revision]
        before = {**self.roster.lapsed, **self.roster.members}
        self.roster.revision = self.roster_revision
        self.roster.members = {
            name: MemberRecord(name, incarnation, 1, "", 1) for name, incarnation in stored.members.items()
        }
        self.roster.known = {name: KnownRecord(name, number, 1) for name, number in stored.known.items()}
        self.roster.lapsed = {name: each for name, each in before.items() if name not in stored.members}
        self.revisions.roster_changed(self.roster, lambda name: True)


@dataclass
class World:
    """All of it. `run` raises AssertionError when a publish misses what was answered."""

    seed: int
    nodes_max: int = 3
    random: random.Random = field(init=False)
    counts: Counter[str] = field(default_factory=Counter)
    now_s: float = 1_000.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.revision = 1
        self.store = {1: Stored({}, {})}
        self.nodes: dict[str, Node] = {}
        self.links: dict[tuple[str, str], Link] = {}
        """by dialer and acceptor, the dialer's end"""
        self.cut: set[frozenset[str]] = set()
        self.cut_since_s: float | None = None
        self.quiet_until_s = 0.0
        self.answered = 0
        """the newest change that was answered"""
        self.asked: dict[tuple[str, int, int], list[Callable[[], None]]] = {}
        self.incarnations: Counter[str] = Counter()
        self.beats_s: dict[str, float] = {}
        self.slow: dict[str, float] = {}
        """by node, how seldom it applies what its watches tell"""

    # The store

    def commit(self, stored: Stored | None = None) -> int:
        before = self.store[self.revision]
        self.revision += 1
        self.store[self.revision] = before if stored is None else stored
        return self.revision

    def _with(self, members: dict[str, int], known: dict[str, int]) -> None:
        self.commit(Stored(members, known))

    # What happens

    def run(self, steps: int) -> None:
        for name in NAMES[: self.random.randint(1, self.nodes_max)]:
            self.join(name)
        happenings: list[tuple[int, Callable[[], None]]] = [
            (30, self.apply),
            (30, self.deliver),
            (10, self.change),
            (20, self.publish),
            (1, self.pause),
            (2, self.resume),
            (1, self.cut_link),
            (1, self.cut_store),
            (1, self.heal),
            (1, self.end),
            (2, self.start),
            (1, self.change_speed),
        ]
        weights = [weight for weight, _ in happenings]
        for _ in range(steps):
            self.now_s += self.random.expovariate(1 / STEP_S) * self.random.choice((0.1, 0.3, 1))
            self.time_passes()
            self.random.choices(happenings, weights)[0][1]()

    def _running(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.paused]

    def _any(self) -> Node | None:
        running = self._running()
        return self.random.choice(running) if running else None

    def time_passes(self) -> None:
        for node in self._running():
            if self.now_s >= self.beats_s.get(node.name, 0.0):
                self.beats_s[node.name] = self.now_s + BEAT_S
                node.revisions.beat()
            for read in [each for each in node.reads if each[0] <= self.now_s]:
                node.reads.remove(read)
                read[2](None if node.store_cut else read[1])
            if node.news:
                node.news = False
                node.revisions.flush()
            stored = self.store[self.revision]
            if not node.store_cut:
                if stored.members.get(node.name) != node.incarnation:
                    self._with({**stored.members, node.name: node.incarnation}, stored.known)
                node.renewed_s = self.now_s
        stored = self.store[self.revision]
        for name, incarnation in stored.members.items():
            member = self.nodes.get(name)
            gone = member is None or member.incarnation != incarnation
            if (gone and self.random.random() < 0.02) or (
                not gone and member is not None and self.now_s - member.renewed_s > 1.3 * LEASE_S
            ):
                self.counts["lapsed"] += 1
                self._with({each: of for each, of in stored.members.items() if each != name}, stored.known)
                break
        if self.cut_since_s is not None and self.now_s - self.cut_since_s > CUT_MAX_S:
            self.heal()
        self._links_pass()

    def _links_pass(self) -> None:
        for pair, link in list(self.links.items()):
            if self._is_cut(*pair) or any(self.nodes[name].paused for name in pair):
                link.silent_since_s = self.now_s if link.silent_since_s is None else link.silent_since_s
                if self.now_s - link.silent_since_s > LEASE_S:
                    self._lose(pair)
            else:
                link.silent_since_s = None
        for dialer in self._running():
            for name in self.nodes:
                pair = dialer.name, name
                free = name != dialer.name and pair not in self.links and not self._is_cut(*pair)
                if free and not self.nodes[name].paused and self.random.random() < 0.2:
                    self._dial(pair)

    def _dial(self, pair: tuple[str, str]) -> None:
        there, back = Link(self, pair[0], pair[1]), Link(self, pair[1], pair[0])
        there.other, back.other = back, there
        self.links[pair] = there
        self.nodes[pair[1]].revisions.accepted(back)
        self.nodes[pair[0]].revisions.dialed(there)

    def _lose(self, pair: tuple[str, str]) -> None:
        link = self.links.pop(pair)
        link.open = link.other.open = False
        # One that is paused learns it when it goes on: before anything else, as good as late.
        if pair[0] in self.nodes:
            self.nodes[pair[0]].revisions.lost(pair[1])
        if pair[1] in self.nodes:
            self.nodes[pair[1]].revisions.left(link.other)

    def _is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.cut

    def apply(self) -> None:
        node = self._any()
        if node is None or node.store_cut or self.random.random() < self.slow.get(node.name, 0.0):
            return
        for _ in range(self.random.randint(1, 3)):
            if node.topology_revision < self.revision:
                node.apply_topology()
            if node.roster_revision < self.revision and self.random.random() < 0.9:
                node.apply_roster()

    def deliver(self) -> None:
        ends = [each for link in self.links.values() for each in (link, link.other) if each.waiting]
        ends = [each for each in ends if not self._is_cut(each.sender, each.forwarder)]
        ends = [each for each in ends if not self.nodes[each.forwarder].paused]
        if not ends:
            return
        end = self.random.choice(ends)
        for _ in range(self.random.randint(1, 3)):
            if end.waiting and end.open:
                message, receiver = end.waiting.pop(0), self.nodes[end.forwarder].revisions
                if isinstance(message, AskRevision):
                    receiver.asked(end.other, message)
                else:
                    receiver.heard(end.other, message)

    def change(self) -> None:
        node = self._any()
        if node is None or node.store_cut:
            return
        revision = self.commit()
        self.counts["changes"] += 1
        self.asked.setdefault((node.name, node.incarnation, revision), []).append(partial(self._known, revision))

    def _known(self, revision: int) -> None:
        self.counts["answers"] += 1
        self.answered = max(self.answered, revision)

    def publish(self) -> None:
        node = self._any()
        if node is None:
            return
        answered = self.answered  # before it begins
        node.revisions.look()
        if not node.is_current:
            self.counts["publishes that waited"] += 1
            return
        self.counts["publishes"] += 1
        assert node.topology_revision >= answered, (
            f"seed {self.seed}: {node.name} is current at {node.topology_revision}, {answered} was answered"
        )

    # Faults

    def pause(self) -> None:
        node = self._any()
        if node is not None and len(self._running()) > 1:
            node.paused = True
            self.counts["pauses"] += 1

    def resume(self) -> None:
        paused = [node for node in self.nodes.values() if node.paused]
        if paused:
            node = self.random.choice(paused)
            node.paused = False
            if self.random.random() < 0.5:
                # What waits in its clients' sockets is read before anything else.
                answered = self.answered
                node.revisions.look()
                assert not node.is_current or node.topology_revision >= answered, f"seed {self.seed}: {node.name}"

    def _may_cut(self) -> bool:
        if self.now_s < self.quiet_until_s:
            return False
        self.cut_since_s = self.now_s if self.cut_since_s is None else self.cut_since_s
        return True

    def cut_link(self) -> None:
        if len(self.nodes) > 1 and self._may_cut():
            pair = self.random.sample(sorted(self.nodes), 2)
            others = [name for name in self.nodes if name != pair[0]]
            for other in others if self.random.random() < 0.3 else [pair[1]]:
                self.cut.add(frozenset((pair[0], other)))
            self.counts["cuts"] += 1

    def cut_store(self) -> None:
        node = self._any()
        if node is not None and self._may_cut():
            node.store_cut = True
            self.counts["cuts from the store"] += 1

    def heal(self) -> None:
        if self.cut_since_s is not None:
            self.cut.clear()
            self.cut_since_s, self.quiet_until_s = None, self.now_s + 2 * LEASE_S
            for node in self.nodes.values():
                node.store_cut = False

    def end(self) -> None:
        """In order, or killed."""
        if len(self.nodes) < 2:
            return
        name = self.random.choice(sorted(self.nodes))
        node = self.nodes[name]
        in_order = not node.paused and not node.store_cut and self.random.random() < 0.5
        for pair in [pair for pair in self.links if name in pair]:
            self._lose(pair)
        del self.nodes[name]
        for key in [key for key in self.asked if key[0] == name]:
            del self.asked[key]
        self.counts["ended in order" if in_order else "killed"] += 1
        if in_order:
            stored = self.store[self.revision]
            members = {each: of for each, of in stored.members.items() if each != name}
            self._with(members, {**stored.known, name: node.incarnation + 1})

    def start(self) -> None:
        free = [name for name in NAMES[: self.nodes_max] if name not in self.nodes]
        if free and self.random.random() < 0.5:
            self.join(self.random.choice(free))

    def join(self, name: str) -> None:
        self.incarnations[name] += 2
        incarnation = self.incarnations[name]
        stored = self.store[self.revision]
        self._with({**stored.members, name: incarnation}, {**stored.known, name: incarnation})
        self.nodes[name] = Node(self, name, incarnation)
        self.counts["starts"] += 1

    def change_speed(self) -> None:
        node = self._any()
        if node is not None:
            self.slow[node.name] = self.random.choice((0.0, 0.0, 0.9, 1.0))
