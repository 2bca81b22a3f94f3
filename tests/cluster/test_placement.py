"""The order in which a source would have members: the same everywhere, and it stays when others come or go."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from amqpd.cluster.placement import SLACK, bound_of, next_member, ranked
from amqpd.cluster.records import SOURCES, MemberRecord

NAMES = st.lists(st.from_regex(r"[a-z0-9]{1,6}@[a-z]", fullmatch=True), min_size=1, max_size=9, unique=True)


def member(name: str, cluster: str = "", region: str = "") -> MemberRecord:
    return MemberRecord(name, 1, 1, "h", 1, cluster, region)


@given(NAMES, st.integers(1, SOURCES), st.randoms(use_true_random=False))
def test_the_order_of_what_comes_in_does_not_matter(names: list[str], source: int, random: object) -> None:
    order = ranked(source, names)
    random.shuffle(names)  # type: ignore[attr-defined]
    assert ranked(source, names) == order


@given(NAMES, st.integers(1, SOURCES))
def test_the_order_of_the_others_stays_when_one_goes(names: list[str], source: int) -> None:
    gone = names[0]
    assert ranked(source, names[1:]) == [name for name in ranked(source, names) if name != gone]


def test_every_version_finds_the_same() -> None:
    """Neighbouring versions decide together: another hash would move everything."""
    names = [f"{name}@host" for name in "abcde"]
    assert ["".join(name[0] for name in ranked(source, names))[:3] for source in (1, 2, 3)] == ["dca", "ade", "edb"]


def test_a_lost_members_sources_go_to_all_others() -> None:
    names = [f"{at}@x" for at in range(5)]
    mine = [source for source in range(1, SOURCES + 1) if ranked(source, names)[0] == names[0]]
    took = Counter(ranked(source, names[1:])[0] for source in mine)
    assert set(took) == set(names[1:])


def test_the_next_one_lives_and_fails_with_nobody_and_is_far_and_has_space() -> None:
    living = {name: member(name, cluster, region) for name, cluster, region in ALL}
    for source in range(1, 30):
        left, chosen = ["dead", *living.keys() - {"first"}], list[str]()
        while left:
            chosen.append(next_member(source, ["first"], left, living, {"full"}))
            left.remove(chosen[-1])
        assert chosen == ["space", "full", "near", "together", "dead"]


ALL = [
    ("first", "rack 1", "north"),
    ("together", "rack 1", "north"),
    ("near", "rack 2", "north"),
    ("full", "rack 3", "south"),
    ("space", "rack 4", "south"),
]


@given(st.integers(0, 1000), st.integers(0, 20))
def test_a_bound_is_above_the_share(total: int, among: int) -> None:
    assert bound_of(total, among) == ceil((1 + SLACK) * Fraction(total, max(among, 1)))
    assert bound_of(total, among) * max(among, 1) >= total
