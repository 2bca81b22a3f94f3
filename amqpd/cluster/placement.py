"""Which forwarders keep a source, and which of them is its home: consistent hashing with bounded loads.

What comes in: members with their failure domains, the sources, how many copies. What goes out: a replica set for each
source; a home for each.
Rules: 1. A pure function of what comes in, in whichever order it comes: every forwarder that sees the same members
finds the same. 2. No member has more than its bound: (1 + slack) times its share, rounded up. 3. The copies of a
source are in different failure domains as long as there are any; only then a second one comes into a domain. 4. Few
sources move when a member comes or goes: each has its own order of all members, by hash of the two names alone, and
gets the first ones in it that have space.
Not here: when a set is changed, and in which steps (one member at a time, by the home); weights of members: all count
the same.

After Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads" (arXiv 1608.01350), with an order of
its own for each source in the place of a circle (rendezvous hashing: Thaler, Ravishankar 1998), so that what a full
member overflows does not all go to one neighbour (Chen, Coleman and Shrivastava, arXiv 1908.08762).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from fractions import Fraction
from hashlib import blake2b
from math import ceil
from typing import TypeVar

from amqpd.cluster.records import MemberRecord

# How far a member may be above its share. Less is more even, and moves more sources at each change; with a quarter,
# 256 sources and a handful of members hardly any source meets a full one.
SLACK = Fraction(1, 4)

B = TypeVar("B", str, tuple[str, str])


def ranked(source: int | str, names: Iterable[str]) -> list[str]:
    """In the order in which the source, or what else has this name, would have them. A name that comes or goes leaves
    the others' order alone."""
    return sorted(names, key=lambda name: (_hash(source, name), name))


def next_member(
    source: int,
    members: Iterable[str],
    others: Iterable[str],
    living: Mapping[str, MemberRecord],
    full: Container[str],
) -> str:
    """Which of the others comes into the set of these members: one that lives, does not fail together with one that
    is in it, is in another region, is not `full`; of those that are equally good, the first by hash."""
    used = [living[name] for name in members if name in living]

    def cost(name: str) -> tuple[bool, bool, bool, bool]:
        member = living.get(name)
        if member is None:
            return True, False, False, name in full
        together = any(member.domain == each.domain for each in used)
        near = bool(member.region) and any(member.region == each.region for each in used)
        return False, together, near, name in full

    return min(ranked(source, others), key=cost)


def bound_of(total: int, among: int, slack: Fraction = SLACK) -> int:
    """How many each of this number may have at most, of this total."""
    return ceil((1 + slack) * Fraction(total, max(among, 1)))


def replica_sets(
    sources: Iterable[int], members: Iterable[MemberRecord], copies: int, slack: Fraction = SLACK
) -> dict[int, tuple[str, ...]]:
    """The names of each source's members, as many as there are `copies`, or as there are members."""
    wanted = sorted(set(sources))
    domains: dict[tuple[str, str], list[str]] = {}
    for member in members:
        domains.setdefault(member.domain, []).append(member.name)
    sizes = {domain: len(names) for domain, names in domains.items()}
    order = {source: ranked(source, (name for names in domains.values() for name in names)) for source in wanted}
    everywhere, somewhere = _shares(sizes, copies, len(wanted), slack)
    domain_of = {name: domain for domain, names in domains.items() for name in names}
    extra = _spread({source: _first([domain_of[name] for name in order[source]]) for source in wanted}, *somewhere)
    chosen: dict[int, list[str]] = {source: [] for source in wanted}
    for domain in sorted(domains):
        for more in (0, 1):
            count = everywhere[domain] + more
            there = [source for source in wanted if (domain in extra[source]) == bool(more)]
            names = {source: [name for name in order[source] if domain_of[name] == domain] for source in there}
            bound = ceil((1 + slack) * Fraction(count * len(there), sizes[domain]))
            for source, some in _spread(names, dict.fromkeys(domains[domain], bound), count).items():
                chosen[source] += some
    return {source: tuple(ranked(source, names)) for source, names in chosen.items()}


def homes(
    sets: Mapping[int, Collection[str]],
    live: Collection[str],
    kept: Mapping[int, str] | None = None,
    slack: Fraction = SLACK,
) -> dict[int, str]:
    """A home for each source with a member that is `live`. A source stays at the home that it is `kept` at, if that
    is such a member, however much that one has; the others go where the bound leaves space. Where the sets leave no
    other way the bound is raised by as little as there is a way."""
    candidates = {source: ranked(source, set(sets[source]) & set(live)) for source in sorted(sets)}
    candidates = {source: names for source, names in candidates.items() if names}
    fixed = {source: home for source, home in (kept or {}).items() if home in candidates.get(source, ())}
    present = {name for names in candidates.values() for name in names}
    bound = ceil((1 + slack) * Fraction(len(candidates), max(len(present), 1)))
    while True:
        found = _Homes(candidates, fixed, bound)
        if all(found.place(source) for source in candidates if source not in fixed):
            return dict(sorted(found.home_of.items()))
        bound += 1


class _Homes:
    """An assignment that grows. A source that finds all its members full makes one of the others move, if that can
    (an augmenting path: Kuhn 1955)."""

    def __init__(self, candidates: Mapping[int, Sequence[str]], fixed: Mapping[int, str], bound: int) -> None:
        self.home_of = dict(fixed)
        self._candidates = candidates
        self._bound = bound
        self._fixed: dict[str, int] = {}
        self._movable: dict[str, set[int]] = {name: set() for names in candidates.values() for name in names}
        for home in fixed.values():
            self._fixed[home] = self._fixed.get(home, 0) + 1

    def place(self, source: int) -> bool:
        return self._place(source, set())

    def _place(self, source: int, tried: set[str]) -> bool:
        for name in self._candidates[source]:
            if self._fixed.get(name, 0) + len(self._movable[name]) < self._bound:
                self._put(source, name)
                return True
        for name in self._candidates[source]:
            if name in tried:
                continue
            tried.add(name)
            for other in sorted(self._movable[name]):
                if self._place(other, tried):
                    self._put(source, name)
                    return True
        return False

    def _put(self, source: int, name: str) -> None:
        if (before := self.home_of.get(source)) is not None:
            self._movable[before].remove(source)
        self._movable[name].add(source)
        self.home_of[source] = name


def _shares(
    sizes: Mapping[B, int], copies: int, sources: int, slack: Fraction
) -> tuple[dict[B, int], tuple[dict[B, int], int]]:
    """How many members of each domain every source has; then, of which domains it has one more: for how many sources
    each can be that, and how many such domains a source has."""
    everywhere = dict.fromkeys(sizes, 0)
    left = min(copies, sum(sizes.values()))
    while left >= len(able := [domain for domain, size in sizes.items() if size > everywhere[domain]]) > 0:
        for domain in able:
            everywhere[domain] += 1
        left -= len(able)
    shares = _even({domain: (everywhere[domain], sizes[domain]) for domain in able}, left, sources)
    return everywhere, ({domain: min(sources, ceil((1 + slack) * share)) for domain, share in shares.items()}, left)


def _even(domains: Mapping[B, tuple[int, int]], left: int, sources: int) -> dict[B, Fraction]:
    """For how many sources each domain should be the one that they have one more of, so that all members have equally
    much, as far as that can be. Of each domain: what every source has of it, and its size."""

    def shares(level: Fraction) -> dict[B, Fraction]:
        """If every member has this number of sources, where that is not less than it has anyhow."""
        return {
            domain: min(max(level * size - have * sources, Fraction(0)), Fraction(sources))
            for domain, (have, size) in domains.items()
        }

    wanted = left * sources
    if not wanted:
        return dict.fromkeys(domains, Fraction(0))
    # Between these levels the sum grows evenly.
    bends = sorted({Fraction((have + more) * sources, size) for have, size in domains.values() for more in (0, 1)})
    above = next(at for at, level in enumerate(bends) if sum(shares(level).values()) >= wanted)
    low, high = bends[above - 1], bends[above]
    at_low, at_high = sum(shares(low).values()), sum(shares(high).values())
    return shares(low + (wanted - at_low) * (high - low) / (at_high - at_low))


def _spread(orders: Mapping[int, Sequence[B]], space: Mapping[B, int], count: int) -> dict[int, list[B]]:
    """Gives each source `count` different ones of its order, the first that have space, and none more than its space.
    There is a way as long as the sum of min(space, sources left) is at least `count` for each source left (Gale and
    Ryser 1957); those with less space than sources left are given away only as far as that stays so."""
    free = dict(space)
    found: dict[int, list[B]] = {}
    for done, (source, order) in enumerate(orders.items()):
        left = len(orders) - done
        scarce = [name for name in free if free[name] < left]
        spare = sum(free[name] for name in scarce) - (count - len(free) + len(scarce)) * (left - 1)
        found[source] = []
        for name in order:
            if len(found[source]) == count:
                break
            if free.get(name, 0) < 1 or (free[name] < left and spare < 1):
                continue
            spare -= free[name] < left
            free[name] -= 1
            found[source].append(name)
        assert len(found[source]) == count, "there was no way from the beginning"
    return found


def _first(names: Iterable[B]) -> list[B]:
    """Each once, where it is first."""
    return list(dict.fromkeys(names))


def _hash(source: int | str, name: str) -> bytes:
    return blake2b(f"{source}/{name}".encode(), digest_size=8).digest()
