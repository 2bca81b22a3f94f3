"""Orders of events that a review found: each was a way to serve twice, to end the node, or to wait for ever.

What is verified: the wiring of homes, copies and take-overs. Not verified here: what the simulator judges
(`tests/replication/simulation`), the node's half (`tests/node/test_source_moves.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amqpd.cluster.homes import ADMITTED_S
from amqpd.replication import seal as seals
from amqpd.replication.messages import Ask, FetchEntries, FetchParts, Message, RequestSeal
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import SourceRecord
from tests.cluster.forwarders import LEASE_S, World


def test_a_source_whose_home_nobody_ever_heard_of_is_taken_over() -> None:
    """All machines lost power, and the home's does not come back."""
    world = World()
    world.new_source(5, "a")
    for name in "abc":
        world.kill(name)
    for name in "bc":
        world._lives = {}  # a process that starts was told of no members before
        world.start(name)
    world.wait(10 * LEASE_S)
    assert [name for name in "bc" if world[name].serving] != []


def test_who_still_answers_a_home_does_not_take_over_from_it() -> None:
    """Its own replica is one of the majority that lets the home reign, though another member would seal."""
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "c")
    world.wait(1.5 * LEASE_S)
    assert world["a"].forwarder.homes.reigns(5)
    world["b"].forwarder.take_over(world.records[5])
    world.move()
    assert world.records[5].home.forwarder == "a"


def test_a_peer_that_asks_for_a_source_that_there_is_not_loses_its_connection() -> None:
    world = World()
    closed: list[str] = []
    (link,) = [each for each in world["a"].forwarder.copies._connections if each.forwarder == "b"]
    link.close = closed.append
    questions: list[Message] = [Ask(1, 300), RequestSeal(2, 0, Seal(1, "b", 1))]
    questions += [FetchEntries(3, 0, (0, 0)), FetchParts(4, -1, (0, 0))]
    for question in questions:
        world["a"].forwarder.asked(link, question)
    assert len(closed) == 4


def test_what_an_answer_commits_is_told_to_the_journal_when_it_also_asks_for_state() -> None:
    """The numbers that an entry reserves are given when it is committed: without that, publishers pause for ever."""
    world = World()
    world.new_source(5, "a")
    (lane,) = world["a"].forwarder.homes.lanes.values()
    answered = lane.home.answered
    lane.home.answered = lambda peer, answer: (answered(peer, answer)[0], [5])  # type: ignore[method-assign]
    index = world["a"].publish(5, b"one")
    world.move()
    assert world["a"].journal.bases[5] == (1, index)


def test_a_disk_is_admitted_though_the_store_did_not_answer_the_first_time() -> None:
    world = World()
    home = world["a"]
    created = world.swap(SourceRecord(5, seals.NONE, ("a", "b", "c"), (7, 7, 8)))
    assert created is not None
    swap, asked = home.swap, list[SourceRecord]()

    def swaps(record: SourceRecord, answered: Callable[[SourceRecord | None], None]) -> Any:
        if record.home == seals.NONE or record.generations == created.generations or asked:
            return swap(record, answered)
        asked.append(record)
        return None

    home.swap = swaps  # type: ignore[method-assign]
    home.forwarder.record_is(created)
    home.forwarder.take_over(created)
    world.move()
    world.wait(1)
    assert asked
    assert world.records[5].generations == (7, 7, 8)
    world.wait(ADMITTED_S)
    assert world.records[5].generations == (7, 7, 7)
