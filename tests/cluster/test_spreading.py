"""What failovers piled up on one node is spread: slowly, only when all is well, and never what somebody wanted there.

What is verified: the choice as a function; the budget and what it waits for, in a cluster of three in one process.
Not verified here: how a source gets to its next leader (`test_set_changes.py`).
"""

from __future__ import annotations

from collections import Counter

import pytest

from amqpd.cluster import spreading
from amqpd.cluster.records import DesiredSetRecord
from amqpd.cluster.spreading import next_move
from amqpd.peers.entry import Vote
from amqpd.replication.take_over import SourceRecord

from .forwarders import LEASE_S, World

SETTLED_S, GAP_S = 6.0, 1.0
"""instead of a minute, and a quarter of one"""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "SETTLED_S", SETTLED_S)
    monkeypatch.setattr(spreading, "MOVES_A_MINUTE", 60 / GAP_S)
    monkeypatch.setattr(spreading, "LOOK_S", GAP_S / 4)


def records(leaders: str, members: str = "abc") -> dict[int, SourceRecord]:
    return {
        number: SourceRecord(number, Vote(3, leader, 1), tuple(members), (7,) * len(members))
        for number, leader in enumerate(leaders, 1)
    }


def moved(leaders: str, name: str = "a", living: str = "abc", candidates: str = "", behind: str = "") -> object:
    found = records(leaders)
    able = (
        list(map(int, candidates)) if candidates else [each for each in found if found[each].leader.forwarder == name]
    )
    return next_move(name, found, tuple(living), able, lambda member, source: member not in behind)


@pytest.mark.parametrize(
    ("leaders", "expected"),
    [
        ("aaabbbccc", None),
        ("aaaabbbbcc", None),
        ("abc", None),
        ("", None),
    ],
)
def test_what_is_even_enough_stays(leaders: str, expected: object) -> None:
    assert moved(leaders) is expected


def test_the_node_with_most_moves_to_the_one_with_least() -> None:
    found = moved("aaaaaabbc")
    assert isinstance(found, tuple)
    assert found[1] == "c"
    assert moved("aaaaaabbc", name="b") is None
    assert moved("aaabbb", name="b") is None, "of two with as many the first"


def test_only_candidates_move_and_only_to_members_that_live_and_have_everything() -> None:
    assert moved("aaaaaabbc", candidates="4") == (4, "c")
    assert moved("aaaaaabbc", candidates="4", behind="c") == (4, "b")
    assert moved("aaaaaabbc", candidates="4", behind="bc") is None
    assert moved("aaaaaabbc", candidates="4", living="ab") == (4, "b")
    assert next_move("a", records("aaaaaabbc"), "abc", [], lambda member, source: True) is None


def test_moving_one_after_the_other_ends_and_is_even() -> None:
    found = records("a" * 12)
    for _ in range(20):
        move = next_move("a", found, "abc", list(range(1, 13)), lambda member, source: True)
        if move is None:
            break
        source, to = move
        found[source] = SourceRecord(source, Vote(4, to, 1), found[source].members, found[source].generations)
    loads = Counter(record.leader.forwarder for record in found.values())
    assert sorted(loads.values()) in ([4, 4, 4], [3, 4, 5])


def led(world: World) -> dict[str, int]:
    return {
        name: len(machine.forwarder.led_sources.sources) for name, machine in world.machines.items() if machine.up
    }


def after_a_failover() -> World:
    """Six sources were at a, which came back: b and c have them."""
    world = World(spreads=True)
    for source in range(1, 7):
        world.new_source(source, "a")
    world.wait(2 * LEASE_S)
    assert led(world) == {"a": 6, "b": 0, "c": 0}
    world.kill("a")
    world.tell_members()
    world.wait(3 * LEASE_S)
    world.start("a")
    world.wait(LEASE_S)
    assert led(world)["a"] == 0
    assert sum(led(world).values()) == 6
    return world


def test_what_was_taken_over_goes_back_within_the_budget() -> None:
    world = after_a_failover()
    assert led(world)["a"] == 0, "the members are not the same for long enough"
    world.wait(SETTLED_S - 2 * LEASE_S)
    assert led(world)["a"] <= 1
    world.wait(4 * GAP_S)
    after = led(world)
    assert max(after.values()) - min(after.values()) <= 1, after
    moves = sum(machine.forwarder.counters.sources_spread for machine in world.machines.values())
    assert moves == after["a"]
    world.wait(2 * GAP_S)
    assert led(world) == after, "it stays so"
    assert not world.desired_sets


def test_nothing_is_spread_while_something_is_desired_or_a_copy_is_missing() -> None:
    world = after_a_failover()
    world.put_desired_set(DesiredSetRecord(99, (), "b"))
    world.wait(SETTLED_S + 2 * GAP_S)
    assert led(world)["a"] == 0
    world.put_desired_set(world.desired_sets[99], drops=True)
    world.disconnect("b", "c")
    world.wait(2 * GAP_S)
    assert led(world)["a"] == 0


def test_what_was_declared_at_a_node_stays_there() -> None:
    world = World(spreads=True)
    for source in range(1, 7):
        world.new_source(source, "a")
    world.wait(SETTLED_S + 3 * GAP_S)
    assert led(world) == {"a": 6, "b": 0, "c": 0}
