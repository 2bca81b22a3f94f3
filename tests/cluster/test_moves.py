"""What operators ask to be changed: bounds, as few moves as there can be, failure domains, the same everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.cluster.moves import (
    Aim,
    MoveImpossible,
    aim_of,
    desired_set_of,
    grown,
    is_nothing,
    rebalanced,
    shrunk,
    without,
)
from amqpd.cluster.placement import EVEN_SLACK
from amqpd.cluster.records import DesiredSetRecord, MemberRecord
from amqpd.peers.entry import Vote
from amqpd.replication.take_over import SourceRecord
from tests.cluster.directories import member_record

NAMES = "abcdef"
Records = dict[int, SourceRecord]


def source(number: int, leader: str, members: str) -> SourceRecord:
    return SourceRecord(number, Vote(1, leader, 1), tuple(members), tuple(map(ord, members)))


def records(*said: str) -> Records:
    """As in `"abc"`: of these, the first is the leader."""
    return {at: source(at, text[0], "".join(sorted(text))) for at, text in enumerate(said, 1)}


def living(names: str, **labels: str) -> dict[str, MemberRecord]:
    return {name: replace(member_record(name), cluster=labels.get(name, "")) for name in names}


def after(before: Mapping[int, SourceRecord], changes: Mapping[int, Aim]) -> dict[int, Aim]:
    return {number: changes.get(number, aim_of(record)) for number, record in before.items()}


def copies_of(aims: Mapping[int, Aim]) -> Counter[str]:
    return Counter(name for aim in aims.values() for name in aim.members)


def copies_moved(before: Mapping[int, SourceRecord], aims: Mapping[int, Aim]) -> int:
    return sum(len(set(aims[number].members) - set(record.members)) for number, record in before.items())


@st.composite
def clusters(draw: st.DrawFn) -> Records:
    """Of the nodes a to f, all alive, sets of one to four."""
    said = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True), max_size=24)
    return records(*("".join(each) for each in draw(said)))


SLACKS = st.sampled_from([Fraction(0), EVEN_SLACK, Fraction(1, 2)])


def bound(total: int, slack: Fraction) -> int:
    share = Fraction(total, len(NAMES))
    return max(ceil(share), floor((1 + slack) * share))


@given(clusters(), SLACKS)
def test_copies_are_bounded_and_no_more_of_them_move_than_are_above_the_bound(
    before: Records, slack: Fraction
) -> None:
    aims = after(before, rebalanced(before, {}, living(NAMES), slack))
    had, have = copies_of(after(before, {})), copies_of(aims)
    limit = bound(sum(had.values()), slack)
    assert max(have.values(), default=0) <= limit
    assert copies_moved(before, aims) == sum(max(count - limit, 0) for count in had.values())
    for number, aim in aims.items():
        assert len(aim.members) == len(before[number].members)
        assert aim.leader in aim.members


@given(clusters(), SLACKS)
def test_leaders_are_as_even_as_the_sets_allow(before: Records, slack: Fraction) -> None:
    """By Hall's theorem: some nodes have no more sources that can be led nowhere else than the bound."""
    aims = after(before, rebalanced(before, {}, living(NAMES), slack, leaders_only=True))
    assert all(set(aims[number].members) == set(record.members) for number, record in before.items())
    leaders = Counter(aim.leader for aim in aims.values())
    limit = bound(len(before), slack)
    for name, count in leaders.items():
        if count > limit:
            reached = {name}
            while more := {
                each for aim in aims.values() if aim.leader in reached for each in aim.members if each not in reached
            }:
                reached |= more
            assert all(leaders[each] >= limit for each in reached)


@given(clusters(), SLACKS)
def test_what_is_balanced_stays(before: Records, slack: Fraction) -> None:
    aims = after(before, rebalanced(before, {}, living(NAMES), slack))
    moved = {
        number: replace(
            record, members=aims[number].members, leader=record.leader._replace(forwarder=aims[number].leader)
        )
        for number, record in before.items()
    }
    moved = {number: replace(each, generations=tuple(map(ord, each.members))) for number, each in moved.items()}
    again = rebalanced(moved, {}, living(NAMES), slack)
    assert copies_moved(moved, after(moved, again)) == 0
    assert len(again) <= sum(
        count > bound(len(before), slack) for count in Counter(a.leader for a in aims.values()).values()
    )


@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_what_comes_in_does_not_matter(before: Records, random: object) -> None:
    shuffle = random.shuffle  # type: ignore[attr-defined]
    found = rebalanced(before, {}, living(NAMES)), without("a", before, {}, living(NAMES))
    numbers, names = list(before), list(NAMES)
    shuffle(numbers)
    shuffle(names)
    shuffled = {number: before[number] for number in numbers}
    members = living("".join(names))
    assert (rebalanced(shuffled, {}, members), without("a", shuffled, {}, members)) == found


def test_a_new_node_gets_its_share_and_nothing_else_moves() -> None:
    before = records(*(["abc", "bca", "cab"] * 4))
    aims = after(before, rebalanced(before, {}, living("abcd")))
    assert copies_of(aims) == {"a": 9, "b": 9, "c": 9, "d": 9}
    assert copies_moved(before, aims) == 9


def test_leaders_come_back_to_a_node_that_was_restarted() -> None:
    """Its sources went to the others meanwhile: each of the three has one again, in one move."""
    before = records("abc", "cab", "cab")
    assert rebalanced(before, {}, living("abc")) in ({number: Aim(("a", "b", "c"), "b")} for number in (2, 3))


def test_a_source_without_a_living_leader_is_left_to_its_take_over() -> None:
    before = records("abc", "abc", "bca", "dab")
    before[5] = source(5, "", "abc")
    changes = rebalanced(before, {}, living("abc"))
    assert changes.keys() <= {1, 2, 3}


def test_a_copy_does_not_move_to_where_another_one_fails_with_it() -> None:
    """c and d are in one rack: of the sets that have c none gets d, whose load is nought, except in its place."""
    before = records(*["abc"] * 4)
    aims = after(before, rebalanced(before, {}, living("abcd", c="one", d="one")))
    assert all(not {"c", "d"} <= set(aim.members) for aim in aims.values())
    assert copies_of(aims)["d"] > 0


@given(clusters(), st.sampled_from(NAMES))
def test_a_node_that_is_taken_out_is_replaced_and_nothing_else_changes(before: Records, name: str) -> None:
    changes = without(name, before, {}, living(NAMES))
    assert changes.keys() == {number for number, record in before.items() if name in record.members}
    for number, aim in changes.items():
        record = before[number]
        assert name not in aim.members
        assert len(aim.members) == len(record.members)
        assert set(record.members) - {name} < set(aim.members)
        assert aim.leader in aim.members
        assert record.leader.forwarder in (name, aim.leader)
    # What came is spread: nobody has more than its bound for it.
    before_copies, now = copies_of(after(before, {})), copies_of(after(before, changes))
    limit = ceil(Fraction(5, 4) * Fraction(sum(before_copies.values()), len(NAMES) - 1))
    for number, aim in changes.items():
        [new] = set(aim.members) - set(before[number].members)
        free = set(NAMES) - {name, *before[number].members}
        # More than its bound only if nobody below it could have taken the copy.
        assert now[new] <= max(before_copies[new], limit) or all(now[other] >= limit for other in free)


def test_with_too_few_nodes_none_can_be_taken_out() -> None:
    with pytest.raises(
        MoveImpossible, match="source 1 is on a, b, c, and no other node lives that could take the place"
    ):
        without("a", records("abc"), {}, living("abc"))


def test_a_node_is_added_and_taken_out() -> None:
    abc = Aim(("a", "b", "c"), "a")
    assert grown(1, abc, "d") == Aim(("a", "b", "c", "d"), "a")
    assert shrunk(1, abc, "c", living("abc")) == Aim(("a", "b"), "a")
    assert shrunk(1, abc, "a", living("ac")) == Aim(("b", "c"), "c")
    for wrong, words in (
        (lambda: grown(1, abc, "a"), "a has a copy of source 1 already"),
        (lambda: shrunk(1, abc, "d", "abc"), "d has no copy of source 1"),
        (lambda: shrunk(1, Aim(("a",), "a"), "a", "a"), "a has the only copy of source 1: grow it"),
    ):
        with pytest.raises(MoveImpossible, match=words):
            wrong()


def test_what_is_asked_for_already_is_added_to() -> None:
    [record] = records("abc").values()
    desired_set = DesiredSetRecord(1, ("a", "b", "c", "d"), revision=7)
    assert desired_set_of(grown(1, aim_of(record, desired_set), "e"), record, desired_set) == DesiredSetRecord(
        1, tuple("abcde"), revision=7
    )
    assert is_nothing(desired_set_of(shrunk(1, aim_of(record, desired_set), "d", "abcd"), record, desired_set))
    assert desired_set_of(aim_of(record)._replace(leader="b"), record) == DesiredSetRecord(1, (), "b")
    # A rebalance leaves alone what is on its way.
    assert rebalanced(records("abc", "abc"), {2: DesiredSetRecord(2, (), "b")}, living("ab")) == {}
