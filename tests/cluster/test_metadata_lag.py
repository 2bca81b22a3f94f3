"""A node that hears of a newer metadata revision than it has asks its store, and says so.

What is verified: when, how often, and what ends it; that only what the members of a set read is said to them.
"""

from __future__ import annotations

from typing import Any

from amqpd.cluster.metadata_lag import MetadataLag
from amqpd.cluster.shell import LeaderLink
from amqpd.peers.messages import Cut, Heartbeat, Message
from amqpd.peers.versions import HIGHEST, LOWEST
from tests.cluster.forwarders import World

LEASE_S = 2.0


class Node:
    """What a node's lag asks of the node."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.revision = self.heard_revision = 50
        self.asked = 0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.lag = MetadataLag(self, LEASE_S)  # type: ignore[arg-type]

    def catch_up_with_store(self) -> None:
        self.asked += 1

    def log(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def beats(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.now_s += 0.1
            self.lag.beat()


def test_a_node_that_is_behind_for_a_lease_asks_its_store_and_says_so_if_that_has_more() -> None:
    node = Node()
    node.lag.heard("b", 50)
    node.lag.heard("c", 57)
    node.beats(1.9)
    assert node.asked == 0, "a watch may be as late"
    node.beats(6.0)
    assert (node.asked, node.events) == (3, []), "nobody knows yet whether c says what is"
    node.revision = 57
    node.beats(0.1)
    assert node.events == [("metadata_behind", {"revision": 57, "told": 50, "peer": "c"})]
    node.beats(10)
    assert (node.asked, len(node.events)) == (3, 1)


def test_a_watch_that_was_late_is_no_reason_to_warn() -> None:
    node = Node()
    node.lag.heard("c", 57)
    node.beats(3.0)
    assert node.asked == 1
    node.revision = node.heard_revision = 57
    node.beats(10)
    assert (node.asked, node.events) == (1, [])


def test_a_store_that_is_read_in_part_is_asked_again_and_told_of_once() -> None:
    node = Node()
    node.lag.heard("c", 57)
    node.beats(3.0)
    node.revision = 55
    node.beats(3.0)
    assert node.events == []
    node.revision = 60
    node.beats(10)
    assert [event for event, _ in node.events] == ["metadata_behind"]


def test_a_revision_counts_as_long_as_there_is_a_link_to_who_said_it() -> None:
    node = Node()
    node.lag.heard("c", 2**60)
    node.lag.lost("c")
    node.lag.heard("b", 0)
    node.beats(10)
    assert (node.lag.behind, node.asked, node.events) == (0, 0, [])


def heard_by(world: World, name: str) -> list[Message]:
    found: list[Message] = []
    forwarder = world[name].forwarder
    before = forwarder.asked

    def asked(incoming: LeaderLink, message: Message) -> None:
        found.append(message)
        before(incoming, message)

    forwarder.asked = asked  # type: ignore[method-assign]
    return found


def test_a_frame_names_a_revision_when_all_of_its_set_read_it() -> None:
    world = World()
    for name, version in (("b", HIGHEST), ("c", LOWEST)):
        world["a"].forwarder.led_sources.dialed(name, 7, version)
    world.new_source(1, "a")
    found = heard_by(world, "b")

    def cut_now() -> list[int]:
        found.clear()
        world["a"].publish(1, b"x")
        world.move()
        return [each.frame.revision for each in found if isinstance(each, Cut)]

    assert set(cut_now()) == {0}, "c does not read it, and the frame is the same for all"
    world["a"].forwarder.led_sources.dialed("c", 7, HIGHEST)
    assert ("set_version", HIGHEST) in [(event, fields.get("version")) for event, fields in world["a"].logged]
    assert set(cut_now()) == {world.revision}
    world["a"].forwarder.lost("c")
    assert set(cut_now()) == {world.revision}, "what it said last counts while it is away"
    found.clear()
    world.wait(0.2)
    assert {each.revision for each in found if isinstance(each, Heartbeat)} == {world.revision}
