"""Leases: the home's is over before any replica seals another epoch."""

from __future__ import annotations

from amqpd.replication.reign import Patience, Reign


def test_home_with_one_of_two_peers_reigns_for_a_lease_from_the_question() -> None:
    reign = Reign(1.0, 3)
    assert not reign.holds(10)
    reign.answered("b", 10)
    assert reign.holds(11)
    assert not reign.holds(11.01)


def test_late_answer_to_an_old_question_takes_nothing_back() -> None:
    reign = Reign(1.0, 3)
    reign.answered("b", 10)
    reign.answered("b", 9)
    assert reign.holds(11)


def test_broken_connection_ends_what_its_peer_had_said() -> None:
    reign = Reign(1.0, 5)
    reign.answered("b", 10)
    reign.answered("c", 10)
    assert reign.holds(10.5)
    reign.closed("c")
    assert not reign.holds(10.5)


def test_home_alone_in_its_set_always_reigns() -> None:
    assert Reign(1.0, 1).holds(99)


def test_replica_waits_longer_than_the_home_reigns() -> None:
    reign, patience = Reign(1.0, 3), Patience(1.0, 0)
    patience.answers("a", 1, 10.2)
    reign.answered("b", 10.0)
    assert patience.ends_s("a", 1) > 10.2 + 1
    assert not reign.holds(patience.ends_s("a", 1))


def test_replica_that_has_just_started_waits_for_whom_it_may_have_answered() -> None:
    assert Patience(1.0, 50).ends_s("a", 1) == 51.1


def test_another_life_is_another_home() -> None:
    patience = Patience(1.0, 0)
    patience.answers("a", 1, 10)
    assert patience.ends_s("a", 2) == 1.1
    patience.forget(11)
    assert patience.ends_s("a", 1) == 1.1
