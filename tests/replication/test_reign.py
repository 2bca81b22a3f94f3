"""Leases: the home's is over before any replica seals another epoch."""

from __future__ import annotations

from amqpd.replication.reign import Reign, SealDelay
from amqpd.replication.seal import Seal


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


def test_peer_whose_disk_is_not_admitted_keeps_no_reign() -> None:
    reign = Reign(1.0, 3)
    reign.answered("b", 10)
    assert not reign.holds(10.5, {"b"})
    reign.answered("c", 10)
    assert reign.holds(10.5, {"b"})


def test_home_alone_in_its_set_always_reigns() -> None:
    assert Reign(1.0, 1).holds(99)


HOME = Seal(3, "a", 1)


def test_replica_waits_longer_than_the_home_reigns() -> None:
    reign, delay = Reign(1.0, 3), SealDelay(1.0, 0)
    delay.answers("link", 10.2)
    reign.answered("b", 10.0)
    ends_s = delay.ends_s(7, HOME, ["link"])
    assert ends_s > 10.2 + 1
    assert not reign.holds(ends_s)


def test_replica_that_has_just_started_waits_for_homes_it_may_have_answered() -> None:
    assert SealDelay(1.0, 50).ends_s(7, HOME, []) == 51.1


def test_answers_about_other_sources_keep_no_reign() -> None:
    delay = SealDelay(1.0, 0)
    delay.answers("link", 10)
    assert delay.ends_s(7, HOME, []) == 1.1


def test_broken_connection_ends_no_reign_before_its_time() -> None:
    delay = SealDelay(1.0, 0)
    delay.answers("link", 10)
    delay.closed("link", [(7, HOME)], 10.5)
    assert delay.ends_s(7, HOME, []) == 11.1
    assert delay.ends_s(8, HOME, []) == 1.1
    delay.closed("other", [], 20)
    assert delay.ends_s(7, HOME, []) == 1.1


def test_old_connection_that_is_noticed_late_takes_nothing_from_the_new_one() -> None:
    delay = SealDelay(1.0, 0)
    delay.answers("old", 10)
    delay.answers("new", 12)
    delay.closed("old", [(7, HOME)], 12.5)
    assert delay.ends_s(7, HOME, ["new"]) == 13.1
