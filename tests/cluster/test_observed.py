"""What a forwarder says and counts of itself: take-overs, votes, catch-up, copies that are missing.

What is verified: events and numbers, of forwarders in one process. Not verified here: lines of the log
(`test_log_events.py`), what the process shows of it (`tests/faults/test_cluster_kill.py`).
"""

from __future__ import annotations

from typing import Any

import pytest

from amqpd.cluster import led_sources
from amqpd.cluster.statistics import ClusterStatistics
from amqpd.peers.entry import Vote
from amqpd.peers.messages import RequestVote

from .forwarders import LEASE_S, World


def told(world: World, name: str, event: str) -> list[dict[str, Any]]:
    return [fields for known, fields in world[name].logged if known == event]


def numbers(world: World, name: str) -> ClusterStatistics:
    return world[name].forwarder.statistics()


def leader_of(world: World) -> str:
    (leader,) = [name for name, machine in world.machines.items() if machine.up and machine.serving]
    return leader


def test_a_take_over_says_from_whom_to_whom_and_how_long_it_took() -> None:
    world = World()
    world.new_source(5, "a")
    world.kill("a")
    world.wait(3)
    leader = leader_of(world)
    [event] = told(world, leader, "source_taken_over")
    epoch = world.records[5].leader.epoch
    assert (event["source"], event["epoch"], event["from"], event["to"]) == (5, epoch, "a", leader)
    assert 0 <= event["duration_ms"] < 2000
    counters = numbers(world, leader).counters
    assert (counters["take_overs_total"], counters["take_overs_begun_total"]) == (1, 1)


def test_who_is_asked_to_vote_says_so_and_counts() -> None:
    world = World()
    world.new_source(5, "a")
    [event] = told(world, "b", "vote_granted")
    assert event == {"source": 5, "epoch": 1, "from": "", "to": "a", "epoch_before": 0}
    assert numbers(world, "b").counters["votes_granted_total"] == 1


def test_a_vote_that_is_refused_is_counted_as_such() -> None:
    world = World()
    world.new_source(5, "a")
    copies = world["b"].forwarder.copies
    [link] = [each for each in copies._connections if each.forwarder == "a"]
    copies.received(link, RequestVote(9, 5, Vote(0, link.forwarder, link.incarnation)))
    assert told(world, "b", "vote_refused")[-1]["epoch"] == 0
    assert numbers(world, "b").counters["votes_refused_total"] == 1


def test_a_leader_that_ends_in_order_hands_over() -> None:
    world = World()
    world.new_source(5, "a")
    world["a"].forwarder.leave()
    assert told(world, "a", "source_handed_over") == [{"source": 5, "epoch": 1}]
    counters = numbers(world, "a").counters
    assert (counters["hand_overs_total"], counters["sources_lost_total"]) == (1, 0)


def test_a_leader_that_another_one_followed_says_who() -> None:
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "b")
    world.disconnect("a", "c")
    world.wait(4)
    [event] = told(world, "a", "source_lost")
    assert (event["source"], event["epoch"], event["to"]) == (5, 1, world.records[5].leader.forwarder)
    assert event["to"] in "bc"
    assert numbers(world, "a").counters["sources_lost_total"] == 1


def test_a_leader_lease_that_nobody_keeps_is_lost_once_and_comes_back() -> None:
    world = World()
    world.new_source(5, "a")
    world.wait(0.2)
    for name in "bc":
        world[name].swap = lambda record, answered: None  # type: ignore[method-assign]
        world.disconnect("a", name)
    world.wait(2 * LEASE_S)
    [event] = told(world, "a", "leader_lease_lost")
    assert (event["answering"], event["sources"]) == ([], 1)
    gauges = numbers(world, "a").gauges
    assert (gauges["sources_under_replicated"], gauges["sources_without_majority"]) == (1, 1)
    world.connect("a")
    world.wait(0.5)
    assert len(told(world, "a", "leader_lease_back")) == 1
    assert numbers(world, "a").counters["leader_leases_lost_total"] == 1


def test_a_member_that_is_away_is_missing_until_it_has_caught_up() -> None:
    world = World()
    world.new_source(5, "a")
    world.wait(0.2)
    assert numbers(world, "a").gauges["sources_under_replicated"] == 0
    world.disconnect("a", "c")
    world["a"].publish(5, b"one")
    world.wait(2)
    [event] = told(world, "a", "copies_missing")
    assert (event["missing"], event["sources"]) == (("c",), 1)
    assert numbers(world, "a").gauges["sources_under_replicated"] == 1
    assert numbers(world, "a").gauges["sources_without_majority"] == 0
    [lag] = [lag for lag in numbers(world, "a").lags if lag.peer == "c"]
    assert (lag.connected, lag.transactions, lag.lag_bytes) == (False, 1, len(b"one"))
    world.connect("c")
    world.wait(0.5)
    assert [event["sources"] for event in told(world, "a", "copies_complete")] == [1]
    statistics = numbers(world, "a")
    assert statistics.gauges["sources_under_replicated"] == 0
    assert statistics.counters["resent_entries_total"] == 1
    assert statistics.counters["resent_bytes_total"] >= len(b"one")
    [lag] = [lag for lag in statistics.lags if lag.peer == "c"]
    assert (lag.connected, lag.transactions, lag.lag_bytes, lag.sources_behind) == (True, 0, 0, 0)


def test_what_is_over_soon_is_not_said() -> None:
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "c")
    world.wait(0.5)
    world.connect("c")
    world.wait(3)
    assert not told(world, "a", "copies_missing")
    assert not told(world, "a", "copies_complete")


def needs_state(world: World, payload: bytes) -> None:
    """`c` is away while so much is written that it is not kept."""
    world.disconnect("a", "c")
    world["a"].publish(5, payload)
    world.wait(0.2)
    leader = world["a"].forwarder.led_sources.sources[5].replica_set.leader
    leader._tails[5].forget(leader.number)
    world.connect("c")
    world.wait(0.2)


def transfers(world: World) -> tuple[int, int, int, int]:
    """Begun, done, given up, under way."""
    found = numbers(world, "a")
    totals = [found.counters[f"transfers_{name}_total"] for name in ("begun", "done", "given_up")]
    return totals[0], totals[1], totals[2], found.gauges["transfers_under_way"]


def test_state_that_is_sent_is_done_or_given_up_in_the_end() -> None:
    world = World()
    world.new_source(5, "a")
    world.wait(0.2)
    needs_state(world, b"one")
    [event] = told(world, "a", "peer_is_sent_state")
    epoch, index = world["a"].forwarder.base_of(5)
    assert (event["peer"], event["source"], event["base"]) == ("c", 5, f"{epoch}:{index}")
    assert transfers(world) == (1, 1, 0, 0)
    assert numbers(world, "a").counters["state_bytes_sent_total"] > 0

    world["a"].read_state = lambda *asked: None  # type: ignore[method-assign]
    needs_state(world, b"two")
    assert transfers(world) == (2, 1, 0, 1)
    world.disconnect("a", "c")
    assert transfers(world) == (2, 1, 1, 0)


def test_a_peer_that_takes_long_is_behind_until_it_has_caught_up() -> None:
    world = World()
    world.new_source(5, "a")
    world.wait(0.2)
    leader = world["a"].forwarder.led_sources.sources[5].replica_set.leader
    before = leader.answered

    leader.peers["c"].apart = frozenset([5])
    leader.answered = lambda peer, answer: ([], []) if peer == "c" else before(peer, answer)  # type: ignore[method-assign]
    world.wait(2)
    [event] = told(world, "a", "peer_behind")
    assert (event["peer"], event["sources"]) == ("c", 1)
    leader.answered = before  # type: ignore[method-assign]
    world.wait(0.5)
    [event] = told(world, "a", "peer_caught_up")
    assert event["peer"] == "c"
    assert event["duration_ms"] > 1000


def test_publishers_that_wait_for_peers_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(led_sources, "LAG_BYTES_MAX", 10)
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "b")
    world.disconnect("a", "c")
    world["a"].publish(5, b"more than ten bytes")
    world.wait(0.3)
    [event] = told(world, "a", "publishers_wait")
    assert event["open_bytes"] > 10
    world.connect("a")
    world.wait(0.3)
    assert len(told(world, "a", "publishers_go_on")) == 1


def test_copies_are_counted_where_they_are() -> None:
    world = World()
    world.new_source(5, "a")
    world.new_source(6, "b")
    gauges = {name: numbers(world, name).gauges for name in "abc"}
    assert [gauges[name]["sources_led"] for name in "abc"] == [1, 1, 0]
    assert [gauges[name]["sources_copied"] for name in "abc"] == [1, 1, 2]
    facts = numbers(world, "a").facts()
    assert facts["peers"][0]["peer"] in ("b", "c")
    assert all(name.endswith("_total") for name in numbers(world, "a").counters)
