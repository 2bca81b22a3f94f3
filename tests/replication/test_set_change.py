"""Steps from one set to another: always one member, always towards what is desired, never without a majority."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.peers.entry import Vote
from amqpd.replication.commit import majority
from amqpd.replication.set_change import Add, HandOver, Remove, Wait, forced, grown, handed_over, next_step, shrunk
from amqpd.replication.take_over import SourceRecord

NAMES = "abcdef"


def record(members: str, leader: str = "a", generations: int = 7) -> SourceRecord:
    return SourceRecord(5, Vote(3, leader, 1), tuple(members), (generations,) * len(members), 9)


SETS = st.sets(st.sampled_from(NAMES), min_size=1).map(sorted)


def majorities(members: tuple[str, ...]) -> list[set[str]]:
    return [set(each) for each in combinations(members, majority(len(members)))]


@given(SETS, SETS, st.data())
def test_any_set_becomes_any_other_in_steps_whose_majorities_meet(
    begin: list[str], desired: list[str], data: st.DataObject
) -> None:
    now = record("".join(begin), data.draw(st.sampled_from(begin)))
    leader = data.draw(st.sampled_from(["", *desired]))
    steps = 0
    while (step := next_step(now, desired, leader, lambda _: True, lambda _: True)) is not None:
        steps += 1
        assert steps <= 2 * len(NAMES)
        before = now
        if isinstance(step, Add):
            now = grown(now, step.member, 7)
        elif isinstance(step, Remove):
            now = shrunk(now, step.member)
        else:
            assert isinstance(step, HandOver)
            assert step.member in now.members
            now = SourceRecord(5, Vote(now.leader.epoch + 1, step.member, 1), now.members, now.generations, 9)
        assert now.leader.forwarder in now.members
        assert len(now.members) <= max(len(begin), len(desired)) + 1
        assert all(one & other for one in majorities(before.members) for other in majorities(now.members))
    assert list(now.members) == desired
    assert leader in ("", now.leader.forwarder)


@given(SETS, SETS, st.sets(st.sampled_from(NAMES)), st.data())
def test_nobody_is_taken_out_when_too_few_of_the_others_have_everything(
    begin: list[str], desired: list[str], counting: set[str], data: st.DataObject
) -> None:
    now = record("".join(begin), data.draw(st.sampled_from(begin)))
    leader = data.draw(st.sampled_from(["", *desired]))
    step = next_step(now, desired, leader, counting.__contains__, counting.__contains__)
    if isinstance(step, Remove):
        left = shrunk(now, step.member)
        assert len({now.leader.forwarder} | (counting & set(left.members))) >= majority(len(left.members))
    if isinstance(step, Add):
        assert step.member in counting
        assert step.member not in now.members
    if isinstance(step, HandOver):
        assert step.member in counting & set(now.members) - {now.leader.forwarder}


@pytest.mark.parametrize(
    ("now", "desired", "leader", "alive", "expected"),
    [
        (record("abc"), "", "", "abc", None),
        (record("abc"), "abc", "a", "abc", None),
        (record("abc"), "", "b", "abc", HandOver("b")),
        (record("abc"), "", "b", "ac", Wait("b does not have everything by now")),
        (record("abc"), "", "d", "abcd", Wait("d is to be the leader, and is not in the set")),
        (record("abc"), "acd", "", "abcd", Add("d")),
        (record("abcd"), "acd", "", "abcd", Remove("b")),
        (record("abc"), "acd", "", "abc", Wait("d does not live")),
        (record("abcd"), "abc", "", "ab", Remove("d")),
        (record("abc"), "ab", "", "a", Wait("without c only 1 of 2 copies would have everything")),
        (record("abcd"), "bcd", "", "abcd", HandOver("b")),
        (record("abcd"), "bcd", "c", "abcd", HandOver("c")),
        (
            record("abcd"),
            "bcd",
            "",
            "a",
            Wait("no other member of the set has everything by now, so a stays the leader"),
        ),
        (record("abcd", "b"), "bcd", "", "abcd", Remove("a")),
        (record("abc"), "def", "", "abcdef", Add("d")),
        (record("abcd"), "def", "", "abcdef", Remove("b")),
        (record("abcde"), "a", "", "abde", Remove("c")),
        (record("abc"), "bcdef", "", "abcef", Add("e")),
    ],
)
def test_what_is_next(
    now: SourceRecord, desired: str, leader: str, alive: str, expected: Add | Remove | HandOver | Wait | None
) -> None:
    assert next_step(now, tuple(desired), leader, alive.__contains__, alive.__contains__) == expected


def test_a_member_that_is_added_brings_the_generation_of_its_disk() -> None:
    more = grown(record("ac"), "b", 12)
    assert (more.members, more.generations, more.leader, more.revision) == (
        ("a", "b", "c"),
        (7, 12, 7),
        Vote(3, "a", 1),
        9,
    )
    with pytest.raises(ValueError, match="is one of"):
        grown(more, "b", 13)


def test_the_leader_is_not_taken_out() -> None:
    for name in "ad":
        with pytest.raises(ValueError, match="cannot be taken out"):
            shrunk(record("abc"), name)


def test_a_source_that_was_handed_over_has_no_leader_and_keeps_its_epoch() -> None:
    assert handed_over(record("abc")).leader == Vote(3, "", 0)


def test_survivors_go_on_above_the_epoch_that_was_given_up() -> None:
    found = forced(record("abc"), ["c", "b"])
    assert (found.members, found.generations, found.leader, found.given_up) == (("b", "c"), (7, 7), Vote(3, "", 0), 3)
    assert found.revision == 9
    for survivors, words in [((), "nobody"), (("c", "x"), "x is not of the set a, b, c")]:
        with pytest.raises(ValueError, match=words):
            forced(record("abc"), survivors)
