"""What a leader that hands its source over passes to the next one of remote clients.

What is verified: it comes to the leader that a planned move, or the end of a process, makes; with another end of the
log, from somebody else than the leader, or after another leader it is void; it has a bound, and no node is sent it
that does not know it. Not verified: what is in it (`tests/remote`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from amqpd.cluster import followed_sources
from amqpd.cluster.records import DesiredSetRecord
from amqpd.peers.messages import Ended, HandedSessions, Message
from amqpd.peers.versions import HAS_DATA_LINKS
from tests.cluster.forwarders import World

OF_A = b"sessions of a"


@pytest.fixture
def world() -> World:
    world = World()
    world.new_source(5, "a")
    world["a"].publish(5, b"one")
    world.wait(2)  # nobody puts a vote off because it has just started
    return world


def asked_to_move(world: World, name: str = "b") -> None:
    world.put_desired_set(DesiredSetRecord(5, (), name))
    world.wait(3)
    assert world[name].serving == {5}


def changing(world: World, change: Callable[[Message], list[Message]]) -> None:
    """What a says to others is changed on its way."""
    send = world["a"].send

    def sends(peer: str, message: Message) -> None:
        for each in change(message):
            send(peer, each)

    world["a"].send = sends  # type: ignore[method-assign]


def test_the_leader_that_a_source_is_moved_to_has_it(world: World) -> None:
    asked_to_move(world)
    assert world["b"].handed == {5: OF_A}
    world["b"].publish(5, b"two")
    world.move()
    assert world["c"].forwarder.copies.handed(5, (1, 1)) == b"", "b leads, and c has forgotten it"


def test_so_has_the_one_that_takes_over_from_a_process_that_ends(world: World) -> None:
    world["a"].forwarder.stop_sources()
    world.wait(0.2)
    world["a"].forwarder.leave()
    world.move()
    world["a"].up = False
    world.tell_members()
    world.wait(0.5)
    [handed] = [world[name].handed for name in "bc" if world[name].serving]
    assert handed == {5: OF_A}


def test_a_leader_that_is_lost_passes_nothing(world: World) -> None:
    world.kill("a")
    world.tell_members()
    world.wait(10)
    [handed] = [world[name].handed for name in "bc" if world[name].serving]
    assert handed == {5: b""}


@pytest.mark.parametrize("idx", [-1, 1])
@pytest.mark.parametrize("epoch", [-1, 0, 1])
def test_with_another_end_of_the_log_it_is_void(world: World, epoch: int, idx: int) -> None:
    def moved(message: Message) -> list[Message]:
        if isinstance(message, HandedSessions):
            position = message.position[0] + epoch, message.position[1] + idx
            return [replace(message, position=position)]
        return [message]

    changing(world, moved)
    asked_to_move(world)
    assert world["b"].handed == {5: b""}


def test_a_link_that_breaks_before_it_has_come_is_a_take_over(world: World) -> None:
    changing(world, lambda message: [] if isinstance(message, HandedSessions | Ended) else [message])
    asked_to_move(world)
    assert world["b"].handed == {5: b""}


def test_who_is_not_the_leader_passes_nothing(world: World) -> None:
    last = world["b"].forwarder.replicas[5].log.last
    world.send("c", "b", HandedSessions(5, last, (b"a lie",)))
    world.move()
    assert world["b"].forwarder.copies.handed(5, last) == b""


def test_a_source_that_there_is_not_costs_the_link(world: World) -> None:
    world.send("a", "b", HandedSessions(1 << 40, (1, 1), (b"a lie",)))
    with pytest.raises(AssertionError, match="there is no source"):
        world.move()


def test_what_is_kept_for_a_next_leader_has_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_sources, "HANDED_BYTES_MAX", 10)
    asked_to_move(world)
    assert world["b"].handed == {5: b""}


def test_a_node_that_does_not_know_it_is_not_sent_it() -> None:
    world = World()
    world.versions = {"b": HAS_DATA_LINKS - 1}
    for name in "bc":
        world.disconnect("a", name)
    world.connect("a")
    sent: list[Message] = []
    world.new_source(5, "a")
    world["a"].publish(5, b"one")
    world.wait(2)
    changing(world, lambda message: [sent.append(message) or message])  # type: ignore[func-returns-value]
    asked_to_move(world)
    assert len([each for each in sent if isinstance(each, HandedSessions)]) == 1
    assert world["b"].handed == {5: b""}
