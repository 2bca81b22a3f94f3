"""Wishes are carried out by the home: sets grow and shrink, homes move, and nothing that was confirmed is lost."""

from __future__ import annotations

from amqpd.cluster.records import WishRecord
from tests.cluster.forwarders import RESERVES, World


def a_world(names: str = "abcd", members: str = "abc") -> World:
    world = World(names)
    world.new_source(5, "a", members)
    assert world["a"].serving == {5}
    return world


def payloads(world: World, name: str) -> bytes:
    return b"".join(each.payload for each in world[name].entries.get(5, [])).replace(RESERVES, b"")


def test_a_member_is_added_with_everything_that_was_there() -> None:
    world = a_world()
    world["a"].publish(5, b"1;")
    world.move()
    world.put_wish(WishRecord(5, tuple("abcd")))
    world.wait(2)
    assert world.records[5].members == ("a", "b", "c", "d")
    assert world.wishes == {}
    assert payloads(world, "d") == b"1;"
    world["a"].publish(5, b"2;")
    world.move()
    assert {payloads(world, name) for name in "abcd"} == {b"1;2;"}


def test_a_member_is_replaced() -> None:
    world = a_world()
    world.put_wish(WishRecord(5, tuple("acd")))
    world.wait(2)
    assert world.records[5].members == ("a", "c", "d")
    assert world.wishes == {}
    [lane] = world["a"].forwarder.homes.lanes.values()
    assert lane.key == (("a", "c", "d"), ())
    world["a"].publish(5, b"1;")
    world.move()
    assert payloads(world, "d") == b"1;"
    assert payloads(world, "b") == b""


def test_the_home_moves_to_the_one_that_is_named() -> None:
    world = a_world()
    world["a"].publish(5, b"1;")
    world.move()
    world.put_wish(WishRecord(5, home="c"))
    world.wait(2)
    assert world.records[5].home.forwarder == "c"
    assert world["c"].serving == {5}
    assert world["a"].serving == set()
    assert world["a"].abandoned == [], "nobody has to ask again"
    assert world.wishes == {}


def test_a_home_that_is_to_leave_hands_over_and_is_taken_out() -> None:
    world = a_world()
    world["a"].publish(5, b"1;")
    world.put_wish(WishRecord(5, tuple("bcd")))
    world.wait(4)
    assert world.records[5].members == ("b", "c", "d")
    home = world.records[5].home.forwarder
    assert home in "bcd"
    assert world[home].serving == {5}
    assert payloads(world, home) == b"1;"
    assert world.wishes == {}
