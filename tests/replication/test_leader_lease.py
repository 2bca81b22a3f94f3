"""Leases: the leader's is over before any replica votes for another epoch."""

from __future__ import annotations

from amqpd.peers.entry import Vote
from amqpd.replication.leader_lease import LeaderLease, VoteDelay


def test_leader_with_one_of_two_peers_holds_its_lease_from_the_question_on() -> None:
    leader_lease = LeaderLease(1.0, 3)
    assert not leader_lease.holds(10)
    leader_lease.answered("b", 10)
    assert leader_lease.holds(11)
    assert not leader_lease.holds(11.01)


def test_late_answer_to_an_old_question_takes_nothing_back() -> None:
    leader_lease = LeaderLease(1.0, 3)
    leader_lease.answered("b", 10)
    leader_lease.answered("b", 9)
    assert leader_lease.holds(11)


def test_broken_connection_ends_what_its_peer_had_said() -> None:
    leader_lease = LeaderLease(1.0, 5)
    leader_lease.answered("b", 10)
    leader_lease.answered("c", 10)
    assert leader_lease.holds(10.5)
    leader_lease.closed("c")
    assert not leader_lease.holds(10.5)


def test_peer_whose_disk_is_not_admitted_keeps_no_leader_lease() -> None:
    leader_lease = LeaderLease(1.0, 3)
    leader_lease.answered("b", 10)
    assert not leader_lease.holds(10.5, {"b"})
    leader_lease.answered("c", 10)
    assert leader_lease.holds(10.5, {"b"})


def test_leader_alone_in_its_set_always_holds_its_lease() -> None:
    assert LeaderLease(1.0, 1).holds(99)


LEADER = Vote(3, "a", 1)


def test_replica_waits_longer_than_the_leader_lease() -> None:
    leader_lease, delay = LeaderLease(1.0, 3), VoteDelay(1.0, 0)
    delay.answers("link", 10.2)
    leader_lease.answered("b", 10.0)
    ends_s = delay.ends_s(7, LEADER, ["link"])
    assert ends_s > 10.2 + 1
    assert not leader_lease.holds(ends_s)


def test_replica_that_has_just_started_waits_for_leaders_it_may_have_answered() -> None:
    assert VoteDelay(1.0, 50).ends_s(7, LEADER, []) == 51.1


def test_answers_about_other_sources_keep_no_leader_lease() -> None:
    delay = VoteDelay(1.0, 0)
    delay.answers("link", 10)
    assert delay.ends_s(7, LEADER, []) == 1.1


def test_broken_connection_ends_no_leader_lease_before_its_time() -> None:
    delay = VoteDelay(1.0, 0)
    delay.answers("link", 10)
    delay.closed("link", [(7, LEADER)], 10.5)
    assert delay.ends_s(7, LEADER, []) == 11.1
    assert delay.ends_s(8, LEADER, []) == 1.1
    delay.closed("other", [], 20)
    assert delay.ends_s(7, LEADER, []) == 1.1


def test_old_connection_that_is_noticed_late_takes_nothing_from_the_new_one() -> None:
    delay = VoteDelay(1.0, 0)
    delay.answers("old", 10)
    delay.answers("new", 12)
    delay.closed("old", [(7, LEADER)], 12.5)
    assert delay.ends_s(7, LEADER, ["new"]) == 13.1
