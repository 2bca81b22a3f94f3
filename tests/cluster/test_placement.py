"""Replica sets and homes: bounds, failure domains, the same everywhere, few moves when a member comes or goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from amqpd.cluster.placement import SLACK, homes, ranked, replica_sets
from amqpd.cluster.records import SOURCES, MemberRecord

ALL = range(1, SOURCES + 1)
NAMES = st.from_regex(r"[a-z0-9]{1,6}@[a-z]", fullmatch=True)
COPIES = st.sampled_from([1, 3, 5])
SLACKS = st.sampled_from([Fraction(0), Fraction(1, 10), SLACK, Fraction(1)])


def member(name: str, cluster: str = "") -> MemberRecord:
    return MemberRecord(name, 1, 1, "h", 1, cluster)


@st.composite
def clusters(
    draw: st.DrawFn, labels: Sequence[str] = ("", "a", "b", "c", "d"), at_least: int = 1
) -> list[MemberRecord]:
    names = draw(st.lists(NAMES, min_size=at_least, max_size=9, unique=True))
    return [member(name, draw(st.sampled_from(labels))) for name in names]


def moved(before: Mapping[int, Sequence[str]], after: Mapping[int, Sequence[str]]) -> int:
    """How many copies have to be made."""
    return sum(len(set(after[source]) - set(before[source])) for source in after)


@given(clusters(), COPIES, st.integers(0, 40), SLACKS)
def test_sets_are_as_large_as_can_be_and_in_as_many_domains(
    members: list[MemberRecord], copies: int, count: int, slack: Fraction
) -> None:
    sets = replica_sets(range(1, count + 1), members, copies, slack)
    domain_of = {each.name: each.domain for each in members}
    sizes = Counter(domain_of.values())
    assert list(sets) == list(range(1, count + 1))
    for source, names in sets.items():
        assert len(set(names)) == len(names) == min(copies, len(members))
        assert list(names) == ranked(source, names)
        used = Counter(domain_of[name] for name in names)
        assert len(used) == min(copies, len(sizes))
        # Nowhere are two more than in a domain that could take one.
        least = min((used[domain] for domain in sizes if used[domain] < sizes[domain]), default=copies)
        assert max(used.values(), default=0) <= least + 1


@given(clusters(labels=[""]), COPIES, st.integers(1, 40), SLACKS)
def test_no_member_has_more_than_its_bound(
    members: list[MemberRecord], copies: int, count: int, slack: Fraction
) -> None:
    sets = replica_sets(range(1, count + 1), members, copies, slack)
    load = Counter(name for names in sets.values() for name in names)
    share = Fraction(min(copies, len(members)) * count, len(members))
    assert max(load.values()) <= ceil((1 + slack) * share)


@given(clusters(), COPIES, st.integers(1, 40), SLACKS)
def test_no_member_has_more_than_its_bound_of_what_its_domain_has(
    members: list[MemberRecord], copies: int, count: int, slack: Fraction
) -> None:
    sets = replica_sets(range(1, count + 1), members, copies, slack)
    load = Counter(name for names in sets.values() for name in names)
    for domain in {each.domain for each in members}:
        names = [each.name for each in members if each.domain == domain]
        share = Fraction(sum(load[name] for name in names), len(names))
        # Sources that have one more in the domain are counted apart: each of the two counts is rounded up.
        assert max(load[name] for name in names) < (1 + slack) * share + 2


@given(st.lists(st.integers(1, 6), min_size=3, max_size=3))
def test_domains_of_which_each_source_has_one_are_even_inside(sizes: list[int]) -> None:
    members = [
        member(f"{label}{at}@x", label) for label, size in zip("abc", sizes, strict=True) for at in range(size)
    ]
    load = Counter(name for names in replica_sets(ALL, members, 3).values() for name in names)
    for label, size in zip("abc", sizes, strict=True):
        counts = [load[each.name] for each in members if each.cluster == label]
        assert sum(counts) == SOURCES
        assert max(counts) <= ceil((1 + SLACK) * Fraction(SOURCES, size))


def test_a_small_domain_has_no_more_than_it_must() -> None:
    """Of four domains that three copies go to, the two large ones are in every set: the small ones share the rest."""
    sizes = {"a": 1, "b": 1, "c": 4, "d": 10}
    members = [member(f"{label}{at}@x", label) for label, size in sizes.items() for at in range(size)]
    load = Counter(name for names in replica_sets(ALL, members, 3).values() for name in names)
    assert max(load["a0@x"], load["b0@x"]) <= (1 + SLACK) * SOURCES / 2
    assert max(load[f"d{at}@x"] for at in range(10)) <= ceil((1 + SLACK) * Fraction(SOURCES, 10))


@given(clusters(), COPIES, st.randoms(use_true_random=False))
def test_the_order_of_what_comes_in_does_not_matter(members: list[MemberRecord], copies: int, random: object) -> None:
    sources = list(range(1, 30))
    sets = replica_sets(sources, members, copies)
    shuffle = random.shuffle  # type: ignore[attr-defined]
    live = [each.name for each in members]
    chosen = homes(sets, live)
    for each in (members, sources, live):
        shuffle(each)
    again = replica_sets(sources, members, copies)
    assert again == sets
    assert homes({source: again[source][::-1] for source in sources}, live) == chosen


def test_every_version_finds_the_same() -> None:
    """Neighbouring versions decide together: another hash would move everything."""
    members = [member(f"{name}@host") for name in "abcde"]
    sets = replica_sets(range(1, 4), members, 3)
    assert {source: "".join(name[0] for name in names) for source, names in sets.items()} == {
        1: "dca",
        2: "ade",
        3: "edb",
    }


@given(clusters(labels=["", "a", "b", "c"], at_least=4), COPIES, st.sampled_from([16, 64, SOURCES]))
def test_few_copies_move_when_a_member_comes_or_goes(members: list[MemberRecord], copies: int, count: int) -> None:
    """Into a domain that is there, or where each is one of its own."""
    *before, newest = members
    assume(not newest.cluster or newest.domain in {each.domain for each in before})
    assume(len({each.domain for each in before}) >= copies)
    sources = range(1, count + 1)
    small, large = replica_sets(sources, before, copies), replica_sets(sources, members, copies)
    own = sum(newest.name in names for names in large.values())
    # What has to move is what the new one has, and back what it had.
    assert moved(small, large) <= 1.5 * own + 8
    assert moved(large, small) <= 1.5 * own + 8


# Homes


@given(clusters(labels=[""]), COPIES, st.integers(1, 60), SLACKS)
def test_homes_are_bounded_where_sets_are_even(
    members: list[MemberRecord], copies: int, count: int, slack: Fraction
) -> None:
    sets = replica_sets(range(1, count + 1), members, copies, slack)
    found = homes(sets, [each.name for each in members], slack=slack)
    assert all(home in sets[source] for source, home in found.items())
    assert set(found) == set(sets)
    # Sets are even themselves up to a rounding: where few sources make that much, the bound is raised by it.
    assert max(Counter(found.values()).values()) <= ceil((1 + slack) * Fraction(count, len(members))) + 1


SETS = st.dictionaries(st.integers(1, 40), st.sets(st.sampled_from("abcdef"), min_size=1, max_size=4), min_size=1)


@given(SETS, st.sets(st.sampled_from("abcdef")))
def test_the_bound_of_homes_is_raised_only_where_there_is_no_other_way(
    sets: dict[int, set[str]], live: set[str]
) -> None:
    found = homes(sets, live, slack=Fraction(0))
    assert set(found) == {source for source, names in sets.items() if names & live}
    if not found:
        return
    assert all(home in sets[source] & live for source, home in found.items())
    least = 1
    while not fits({source: sets[source] & live for source in found}, least):
        least += 1
    present = {name for source in found for name in sets[source] & live}
    assert max(Counter(found.values()).values()) <= max(least, ceil(Fraction(len(found), len(present))))


def fits(sets: Mapping[int, set[str]], bound: int) -> bool:
    """By Hall's theorem, for every choice of members: what has no other member is no more than they may have."""
    names = sorted(set().union(*sets.values()))
    choices = [{name for at, name in enumerate(names) if mask >> at & 1} for mask in range(1 << len(names))]
    return all(sum(each <= some for each in sets.values()) <= bound * len(some) for some in choices)


@given(SETS, st.data())
def test_a_source_stays_at_its_home_while_that_lives(sets: dict[int, set[str]], data: st.DataObject) -> None:
    kept = homes(sets, "abcdef")
    live = data.draw(st.sets(st.sampled_from("abcdef")))
    found = homes(sets, live, kept)
    assert all(found[source] == home for source, home in kept.items() if home in live)
    assert all(found[source] in sets[source] & live for source in found)
    # A home that is no member of the set, or of a source that is none, is none.
    assert homes({1: ["a"]}, "ab", {1: "b", 2: "a"}) == {1: "a"}


@pytest.mark.parametrize("count", [3, 5, 8])
def test_a_lost_members_sources_go_to_all_others(count: int) -> None:
    members = [member(f"{at}@x") for at in range(count)]
    names = [each.name for each in members]
    sets = replica_sets(ALL, members, 3)
    before = homes(sets, names)
    after = homes(sets, names[1:], before)
    took = Counter(after[source] for source, home in before.items() if home == names[0])
    assert set(took) == set(names[1:])
    assert max(Counter(after.values()).values()) <= ceil((1 + SLACK) * Fraction(SOURCES, count - 1))
