"""Orders of events that a review found: each was a way to serve twice, to end the node, or to wait for ever.

What is verified: the wiring of leaders, copies and take-overs. Not verified here: what the simulator judges
(`tests/replication/simulation`), the node's half (`tests/node/test_source_moves.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from amqpd.cluster.led_sources import ADMITTED_S
from amqpd.cluster.shell import OwnLog
from amqpd.peers.entry import NO_VOTE, Vote
from amqpd.peers.messages import (
    Acknowledgement,
    FetchEntries,
    FetchParts,
    Message,
    RequestPreVote,
    RequestVote,
)
from amqpd.replication.take_over import SourceRecord
from tests.cluster.forwarders import LEASE_S, World


def test_a_source_whose_leader_nobody_ever_heard_of_is_taken_over() -> None:
    """All machines lost power, and the leader's does not come back."""
    world = World()
    world.new_source(5, "a")
    for name in "abc":
        world.kill(name)
    for name in "bc":
        world._incarnations = {}  # a process that starts was told of no members before
        world.start(name)
    world.wait(10 * LEASE_S)
    assert [name for name in "bc" if world[name].serving] != []


def test_who_still_answers_a_leader_does_not_take_over_from_it() -> None:
    """Its own replica is one of the majority that lets the leader hold its leader lease, though another member would
    vote."""
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "c")
    world.wait(1.5 * LEASE_S)
    assert world["a"].forwarder.led_sources.holds_lease(5)
    world["b"].forwarder.take_over(world.records[5])
    world.move()
    assert world.records[5].leader.forwarder == "a"


def test_who_has_voted_for_the_next_leader_holds_its_lease_no_more() -> None:
    """A late answer of the third member made it deliver again, beside the next leader, until the store told it."""
    world = World()
    world.new_source(5, "a")
    world.wait(LEASE_S)
    leaders = world["a"].forwarder.led_sources
    (link,) = [each for each in world["a"].forwarder.copies._connections if each.forwarder == "b"]
    assert leaders.holds_lease(5)
    world["a"].forwarder.asked(link, RequestVote(1, 5, Vote(9, "b", 1)))
    assert leaders.sources[5].replica_set.leader_lease.holds(world.now_s)
    assert not leaders.holds_lease(5)


def test_a_peer_that_asks_for_a_source_that_there_is_not_loses_its_connection() -> None:
    world = World()
    closed: list[str] = []
    (link,) = [each for each in world["a"].forwarder.copies._connections if each.forwarder == "b"]
    link.close = closed.append
    questions: list[Message] = [RequestPreVote(1, 300), RequestVote(2, 0, Vote(1, "b", 1))]
    questions += [FetchEntries(3, 0, (0, 0)), FetchParts(4, -1, (0, 0))]
    for question in questions:
        world["a"].forwarder.asked(link, question)
    assert len(closed) == 4


def test_what_an_answer_commits_is_told_to_the_journal_when_it_also_asks_for_state() -> None:
    """The numbers that an entry reserves are given when it is committed: without that, publishers pause for ever."""
    world = World()
    world.new_source(5, "a")
    (replica_set,) = world["a"].forwarder.led_sources.replica_sets.values()
    answered = replica_set.leader.answered
    asks = [5, 5]  # each peer once: what is sent is answered, too

    def answers(peer: str, answer: Acknowledgement) -> tuple[list[Any], list[int]]:
        return answered(peer, answer)[0], [asks.pop()] if asks else []

    replica_set.leader.answered = answers  # type: ignore[method-assign]
    index = world["a"].publish(5, b"one")
    world.move()
    assert world["a"].journal.bases[5] == (1, index)


def test_a_disk_is_admitted_though_the_store_did_not_answer_the_first_time() -> None:
    world = World()
    leader = world["a"]
    created = world.swap(SourceRecord(5, NO_VOTE, ("a", "b", "c"), (7, 7, 8)))
    assert created is not None
    swap, asked = leader.swap, list[SourceRecord]()

    def swaps(record: SourceRecord, answered: Callable[[SourceRecord | None], None]) -> Any:
        if record.leader == NO_VOTE or record.generations == created.generations or asked:
            return swap(record, answered)
        asked.append(record)
        return None

    leader.swap = swaps  # type: ignore[method-assign]
    leader.forwarder.note_record(created)
    leader.forwarder.take_over(created)
    world.move()
    world.wait(1)
    assert asked
    assert world.records[5].generations == (7, 7, 8)
    world.wait(ADMITTED_S)
    assert world.records[5].generations == (7, 7, 7)


def test_an_attempt_that_a_majority_refuses_ends_at_once() -> None:
    """It took the two seconds of an attempt, which came on top of the old leader's leader lease."""
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "b")
    world["b"].forwarder.refused("a")  # nobody listens there, says somebody in between
    world.wait(0.5)
    assert "take_over_lost" in world["b"].events
    assert world["a"].serving == {5}


def test_who_wins_after_somebody_else_is_in_the_store_is_no_leader() -> None:
    """It had heard of that record before it won, so no later one would have ended it: a leader that the store does
    not know, and that holds its leader lease, for ever."""
    world = World()
    world.new_source(5, "a")
    held: list[tuple[str, int, Callable[..., None]]] = []
    for name in "bc":
        world[name].read_own = lambda source, answered, name=name: held.append((name, source, answered))  # type: ignore[method-assign,misc]
    world.kill("a")
    while not held:
        world.wait(0.1)
    taker, _, won = held[0]
    other = "b" if taker == "c" else "c"
    before = world.records[5]
    assert world.swap(replace(before, leader=Vote(before.leader.epoch + 1, other, 1))) is not None
    world.move()
    for name in "bc":
        del world[name].read_own  # type: ignore[method-assign]
    won(OwnLog([], 0))
    world.move()
    assert not world[taker].serving
    world.wait(3)
    (leader,) = [name for name in "bc" if world[name].serving]
    assert world.records[5].leader.forwarder == leader
