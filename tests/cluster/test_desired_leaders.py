"""A desired leader that could not take over: when it is asked again."""

from __future__ import annotations

from amqpd.cluster.records import DesiredSetRecord
from amqpd.cluster.set_changes import LEADER_AGAIN_S as AGAIN_S
from amqpd.cluster.set_changes import LEADER_AGAIN_S_MAX as AGAIN_S_MAX
from amqpd.cluster.set_changes import DesiredLeaders
from amqpd.peers.entry import NO_VOTE, Vote

DESIRED_SET = DesiredSetRecord(5, leader="c")
HANDED_OVER = Vote(3, "", 0)


def test_the_time_doubles_up_to_a_bound() -> None:
    leaders, now_s, waited = DesiredLeaders("a"), 0.0, list[float]()
    for _ in range(8):
        leaders.took_over(DESIRED_SET, HANDED_OVER, now_s)
        after_s = AGAIN_S
        while leaders.waits(DESIRED_SET, now_s + after_s):
            after_s *= 2
        assert leaders.waits(DESIRED_SET, now_s + after_s - 0.1) != ""
        waited.append(after_s)
        now_s += after_s
    assert waited == [30, 60, 120, 240, 480, 960, AGAIN_S_MAX, AGAIN_S_MAX]


def test_what_is_no_failure_of_the_desired_leader_lets_nobody_wait() -> None:
    leaders = DesiredLeaders("a")
    for before in (NO_VOTE, Vote(3, "b", 1), Vote(3, "a", 1)):
        leaders.took_over(DESIRED_SET, before, 0)
    leaders.took_over(DesiredSetRecord(5, ("a", "b")), HANDED_OVER, 0)
    leaders.took_over(DesiredSetRecord(5, leader="a"), HANDED_OVER, 0)
    assert leaders.waits(DESIRED_SET, 1) == leaders.waits(DesiredSetRecord(5, ("a", "b")), 1) == ""


def test_a_desired_leader_that_had_it_and_lost_it_is_asked_later() -> None:
    leaders = DesiredLeaders("a")
    leaders.took_over(DESIRED_SET, Vote(3, "c", 1), 0)
    assert "c could not" in leaders.waits(DESIRED_SET, 1)


def test_whoever_was_to_have_it_when_this_one_is_to_leave_is_asked_later() -> None:
    leaders, desired_set = DesiredLeaders("a"), DesiredSetRecord(5, ("b", "c"))
    leaders.took_over(desired_set, HANDED_OVER, 0)
    assert "no other member could" in leaders.waits(desired_set, 1)


def test_it_is_forgotten_with_the_desired_set_and_when_the_leader_comes_here() -> None:
    leaders = DesiredLeaders("a")
    leaders.took_over(DESIRED_SET, HANDED_OVER, 0)
    leaders.desired_sets_are({5: DESIRED_SET})
    assert leaders.waits(DESIRED_SET, 1) != ""
    assert leaders.waits(DesiredSetRecord(5, leader="b"), 1) == ""
    leaders.desired_sets_are({5: DesiredSetRecord(5, leader="b")})
    assert leaders.waits(DESIRED_SET, 1) == ""
    leaders.took_over(DESIRED_SET, HANDED_OVER, 0)
    leaders.took_over(DesiredSetRecord(5, leader="a"), HANDED_OVER, 0)
    assert leaders.waits(DESIRED_SET, 1) == ""
