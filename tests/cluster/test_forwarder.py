"""Forwarders together: a source gets its first leader, is copied, and goes to the next one.

What is verified: the wiring of leaders, copies and take-overs, message by message. Not verified here: what faults of
all kinds make of it (the simulator), sockets and disks (`tests/faults/test_cluster_kill.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from amqpd.cluster import led_sources
from amqpd.cluster.led_replica_set import QUESTIONS_MAX, OpenQuestions
from amqpd.cluster.led_sources import GIVES_UP_LEASES
from amqpd.peers.entry import NO_VOTE
from amqpd.peers.messages import Entries
from amqpd.replication.leader import ReplicaSetLeader
from amqpd.replication.take_over import SourceRecord

from .forwarders import LEASE_S, World


def logs(world: World, source: int) -> list[list[bytes]]:
    return [[each.payload for each in machine.entries.get(source, [])] for machine in world.machines.values()]


def told(world: World, name: str, event: str) -> list[dict[str, Any]]:
    return [fields for each, fields in world[name].logged if each == event]


def test_a_source_gets_a_leader() -> None:
    world = World()
    world.new_source(5, "b")
    assert world["b"].serving == {5}
    assert not world["a"].serving
    assert world.records[5].leader.forwarder == "b"
    assert logs(world, 5) == [[b"reserves"]] * 3


def test_what_is_published_is_committed_at_all() -> None:
    world = World()
    world.new_source(5, "a")
    index = world["a"].publish(5, b"one")
    world.move()
    assert world["a"].reports[-1] >= index
    assert logs(world, 5) == [[b"reserves", b"one"]] * 3
    world.wait(0.2)
    assert all(machine.journal.bases[5] == (1, index) for machine in world.machines.values())


def test_without_a_majority_nothing_is_reported() -> None:
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "b")
    world.disconnect("a", "c")
    index = world["a"].publish(5, b"one")
    world.move()
    assert world["a"].reports[-1] < index


def test_a_lost_leader_is_followed_by_another_with_everything_that_it_reported() -> None:
    world = World()
    world.new_source(5, "a")
    world["a"].publish(5, b"one")
    world.move()
    world.kill("a")
    world.wait(3)
    (leader,) = [machine for machine in world.machines.values() if machine.up and machine.serving]
    assert logs(world, 5)[1] == [b"reserves", b"one", b"reserves"]
    leader.publish(5, b"two")
    world.move()
    world.start("a")
    world.wait(1)
    assert logs(world, 5) == [[b"reserves", b"one", b"reserves", b"two"]] * 3


def test_what_only_the_lost_leader_had_is_undone_when_it_comes_back() -> None:
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "b")
    world.disconnect("a", "c")
    world["a"].publish(5, b"never")
    world.move()
    world.kill("a")
    world.wait(3)
    world.start("a")
    world.wait(1)
    (found,) = {tuple(log) for log in logs(world, 5)}
    assert b"never" not in found
    assert found.count(b"reserves") == 2


def test_a_leader_that_a_higher_record_names_ends() -> None:
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "b")
    world.disconnect("a", "c")
    world.wait(4)
    assert [name for name, machine in world.machines.items() if machine.serving] != ["a"]
    assert not world["a"].serving


def test_who_waits_while_a_transaction_is_on_its_way_is_told_with_the_next_one() -> None:
    world = World()
    world.new_source(5, "a")
    machine = world["a"]
    waits = machine.forwarder.led_sources.sources[5].lane
    index = machine.publish(5, b"one")
    waits.gathering = index + 1  # the journal has cut what gathered
    waits.force()
    machine.commit()
    world.move()
    assert machine.reports[-1] == index
    machine.journal.force()
    world.move()
    assert machine.reports[-1] == index + 1


def test_who_waits_is_told_although_somebody_waits_for_the_next_transaction_before_that_one_is_cut() -> None:
    world = World()
    world.new_source(5, "a")
    machine = world["a"]
    waits = machine.forwarder.led_sources.sources[5].lane
    for number in range(3):
        index = machine.journal.index
        if not number:
            waits.force()  # for what is settled before it is written
        waits.gathering = index + 1
        waits.force()  # while the one before is made
        machine.commit()
        world.move()
        assert machine.reports[-1] == waits.reported == index, "it waits for nothing of what comes later"
    machine.journal.force()
    world.move()
    assert waits.reported == index + 1
    machine.journal.force()
    world.move()
    assert machine.forwarder.led_sources.sources[5].replica_set.leader.number == index + 1, "nobody waits, no frame"


def left_out(world: World, source: int) -> ReplicaSetLeader:
    """At the leader "a": `c` is away, and `b` waits for the source's state, which is not sent."""
    world.wait(0.2)
    leader = world["a"].forwarder.led_sources.sources[source].replica_set.leader
    assert leader.sources == {5, 6}, "one replica set"
    world["a"].read_state = lambda *asked: None  # type: ignore[method-assign]
    world.disconnect("a", "b")
    world["a"].publish(source, b"more than is kept for b")
    world.move()
    leader._tails[source].forget(leader.number)
    world.connect("b")
    world.move()
    world.disconnect("a", "c")
    return leader


def test_a_source_without_a_majority_holds_back_its_own_clients_only() -> None:
    world = World()
    world.new_source(5, "a")
    world.new_source(6, "a")
    sends_state = world["a"].read_state
    leader = left_out(world, 6)
    waits = world["a"].journal.lanes
    index = world["a"].publish(6, b"nobody else has this")
    assert index == world["a"].publish(5, b"b has this")
    world.move()
    assert leader.left_out.keys() == {6}
    assert waits[5].reported >= index > waits[6].reported

    world["a"].read_state = sends_state  # type: ignore[method-assign]
    world.disconnect("a", "b")
    world.connect("b")
    world.move()
    assert waits[6].reported >= index


def test_a_peer_whose_state_could_not_be_read_is_sent_it_again() -> None:
    """It was waited for, though nothing more of it came."""
    world = World()
    world.new_source(5, "a")
    world.new_source(6, "a")
    reads_state = world["a"].read_state
    leader = left_out(world, 6)
    failures: list[Callable[[], None]] = []
    world["a"].read_state = lambda link, state, sends, failed: failures.append(failed)  # type: ignore[method-assign]
    world.disconnect("a", "b")
    world.connect("b")
    world.move()
    [of_old_connection] = failures
    world.disconnect("a", "b")
    world.connect("b")
    world.move()
    of_old_connection()
    world.wait(1)
    assert len(failures) == 2, "another connection's transfer is under way"
    world["a"].read_state = reads_state  # type: ignore[method-assign]
    failures[1]()
    world.wait(1)
    assert leader.has_all("b", 6)


def test_who_waits_for_another_source_of_the_same_set_is_not_told_that_one_has_ended() -> None:
    world = World()
    world.new_source(5, "a")
    world.new_source(6, "a")
    machine = world["a"]
    waits = dict(machine.journal.lanes)
    index = machine.publish(5, b"one")
    machine.publish(6, b"two")
    machine.forwarder.led_sources.end(5, "a test says so")
    assert machine.abandoned == [(5, waits[5])]
    assert waits[5].lost
    world.move()
    assert waits[6].reported >= index
    assert not waits[6].lost


def test_what_waits_for_a_disk_that_hangs_is_bounded() -> None:
    world = World()
    world.new_source(5, "a")
    commit = world["b"].commit
    world["b"].commit = lambda: False  # type: ignore[method-assign]
    for _ in range(100):
        world["a"].publish(5, b"one")
        world.wait(0.1)
    assert len(world["b"].forwarder.copies._waiting) <= 2
    world["b"].commit = commit  # type: ignore[method-assign]
    world.wait(0.2)
    assert logs(world, 5)[1] == logs(world, 5)[0]
    [replica_set] = world["a"].forwarder.led_sources.replica_sets.values()
    assert replica_set.leader.peers["b"].number == replica_set.leader.number


def test_questions_that_nobody_answers_are_bounded_and_none_counts_from_later_than_it_was_sent() -> None:
    asked = OpenQuestions()
    numbers = {asked.ask(float(second)): second for second in range(10 * QUESTIONS_MAX)}
    assert len(asked._sent) <= QUESTIONS_MAX
    for number in (1, 7, 5 * QUESTIONS_MAX, 10 * QUESTIONS_MAX):
        sent_s = asked.answered(number)
        assert sent_s is None or sent_s <= numbers[number]
    assert sent_s == numbers[number], "the last one is not forgotten"


def test_publishers_wait_while_a_majority_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(led_sources, "LAG_BYTES_MAX", 1000)
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "b")
    world.disconnect("a", "c")
    for _ in range(11):
        world["a"].publish(5, bytes(100))
        world.move()
    assert world["a"].journal.lagging
    world.connect("a")
    world.wait(0.2)
    assert not world["a"].journal.lagging


def test_publishers_of_a_set_whose_majority_answers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(led_sources, "LAG_BYTES_MAX", 1000)
    world = World("abcde")
    world.new_source(5, "a", "abc")
    world.new_source(6, "a", "ade")
    world.disconnect("a", "b")
    world.disconnect("a", "c")
    waits = dict(world["a"].journal.lanes)
    for _ in range(11):
        world["a"].publish(5, bytes(100))
        world["a"].publish(6, bytes(100))
        world.move()
    assert (waits[5].lagging, waits[6].lagging) == (True, False)
    world["a"].forwarder.led_sources.end(5, "a test says so")
    assert not waits[5].lagging, "who waits goes on, to be told"
    assert not world["a"].journal.lagging


def test_publishers_of_a_source_that_is_left_out_wait_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(led_sources, "LAG_BYTES_MAX", 1000)
    world = World()
    world.new_source(5, "a")
    world.new_source(6, "a")
    leader = left_out(world, 6)
    leader._kept_bytes_max = 500
    for _ in range(11):
        world["a"].publish(5, bytes(100))
        world["a"].publish(6, bytes(100))
        world.move()
    waits = world["a"].journal.lanes
    assert leader.left_out.keys() == {6}
    assert (waits[5].lagging, waits[6].lagging) == (False, True)


def test_what_all_sources_that_wait_have_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(led_sources, "LAG_BYTES_MAX", 1000)
    monkeypatch.setattr(led_sources, "LAGGING_BYTES_MAX", 2000)
    world = World("abcde")
    world.new_source(5, "a", "abc")
    world.new_source(6, "a", "ade")
    for name in "bcde":
        world.disconnect("a", name)
    for _ in range(11):
        world["a"].publish(5, bytes(100))
        world.move()
    assert (world["a"].journal.lagging, world["a"].journal.overfull) == (True, False)
    for _ in range(11):
        world["a"].publish(6, bytes(100))
        world.move()
    assert world["a"].journal.overfull
    world.connect("a")
    world.wait(0.2)
    assert (world["a"].journal.lagging, world["a"].journal.overfull) == (False, False)


def test_a_forwarder_that_leaves_is_followed_at_once() -> None:
    world = World()
    world.new_source(5, "a")
    world["a"].publish(5, b"one")
    world.wait(2)  # nobody puts a vote off because it has just started
    world["a"].forwarder.leave()
    world.move()
    assert not world["a"].serving
    world["a"].up = False
    world.tell_members()
    world.wait(0.5)
    assert sum(machine.up and bool(machine.serving) for machine in world.machines.values()) == 1
    assert logs(world, 5)[1][:2] == [b"reserves", b"one"]


def test_a_member_that_answers_the_leader_does_not_take_its_source_over() -> None:
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "c")
    world.wait(1.2)  # c would vote for another epoch
    world["b"].forwarder.takeovers.begin(world.records[5])
    world.wait(0.5)
    assert world.records[5].leader.forwarder == "a"
    assert world["a"].serving == {5}


def test_a_leader_that_is_heard_again_while_the_store_is_asked_is_not_followed_by_another() -> None:
    world = World()
    world.new_source(5, "a")
    asked: list[tuple[str, SourceRecord, Callable[[SourceRecord | None], None]]] = []
    for name in "bc":
        world[name].swap = lambda record, answered, name=name: asked.append((name, record, answered))  # type: ignore[method-assign,misc]
    world.disconnect("a", "b")
    world.disconnect("a", "c")
    for _ in range(30):
        world.wait(0.1)
    world.connect("a")
    world.wait(0.1)
    name, record, answered = asked[0]
    answered(world.swap(record))
    assert not world[name].forwarder.copies.would_vote(5, name)
    assert world[name].events[-1] == "take_over_lost"


def test_an_attempt_goes_on_for_as_long_as_something_comes() -> None:
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "c")
    for name in "bc":
        world[name].swap = lambda record, answered: None  # type: ignore[method-assign]
    world.kill("a")
    world.wait(1.5)
    takeovers = world["c"].forwarder.takeovers
    takeovers.received("b", Entries(max(takeovers._requests), ()))
    world.wait(1.5)
    assert 5 in takeovers
    world.wait(1)
    assert "take_over_lost" in world["c"].events


def test_a_leader_that_holds_its_lease_is_not_followed_by_one_that_did_not_hear_it() -> None:
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "c")
    world.wait(2)
    world.connect("c")
    world["c"].forwarder.takeovers.begin(world.records[5])
    world.wait(1)
    assert world.records[5].leader.forwarder == "a"
    assert world["a"].serving == {5}


def test_a_node_that_ends_in_order_is_followed_at_once() -> None:
    world = World()
    world.new_source(1, "a")
    world.new_source(2, "a")
    world.wait(2 * LEASE_S)  # of a process that has just started nobody knows whom it answered before
    a = world["a"].forwarder
    world["a"].publish(1, b"last")
    a.stop_sources()
    assert not a.is_settled, "what was under way is not committed yet"
    world.move()
    assert a.is_settled
    assert not world["a"].serving, "nothing comes in any more"
    assert a.is_moving(1), "what is published meanwhile waits"
    a.leave()
    world.move()
    assert a.has_left
    assert a.is_moving(1), "until its client is sent away"
    assert [record.leader.forwarder for record in world.records.values()] == ["", ""]
    # It is still a member, and is heard: nobody has to wait for its silence.
    world.wait(LEASE_S / 2)
    served = world["b"].serving | world["c"].serving
    assert served == {1, 2}
    assert {record.leader.forwarder for record in world.records.values()} <= {"b", "c"}
    follower = next(world[name] for name in "bc" if 1 in world[name].serving)
    assert b"last" in [each.payload for each in follower.entries[1]]
    assert not a.led_sources.sources


def test_a_leader_that_is_cut_off_tells_its_clients_then_gives_up_and_begins_again() -> None:
    world = World()
    world.new_source(1, "a")
    world.wait(LEASE_S)
    a = world["a"].forwarder
    world.store_answers = False
    world.disconnect("a", "b")
    world.wait(3 * LEASE_S)
    assert not world["a"].told_cut_off, "c is a majority with it"
    world.disconnect("a", "c")
    world.disconnect("b", "c")
    world.wait(2 * LEASE_S)
    assert world["a"].told_cut_off[-1] == 1
    assert not a.is_moving(1), "nobody knows when that is decided"
    assert a.led_sources.sources[1].lane.lagging, "its publishers wait"
    assert a.statistics().gauges["sources_cut_off"] == 1
    # A majority is back in time: all goes on.
    world.connect("a")
    world.wait(LEASE_S / 4)
    assert world["a"].told_cut_off[-1] == 0
    assert not a.led_sources.sources[1].lane.lagging
    assert world["a"].serving == {1}
    # Not in time: it gives up, and says so until somebody is the leader again.
    for pair in ("ab", "ac", "bc"):
        world.disconnect(*pair)
    world.wait((GIVES_UP_LEASES + 2) * LEASE_S)
    assert not a.led_sources.sources
    assert world["a"].told_cut_off[-1] == 0
    assert a.statistics().gauges["sources_cut_off"] == 1
    assert not a.is_moving(1)
    world.connect("a")
    world.store_answers = True
    world.wait(5 * LEASE_S)
    assert world["a"].serving == {1}
    assert a.statistics().gauges["sources_cut_off"] == 0


def test_without_links_to_a_majority_nobody_stands_as_a_candidate() -> None:
    """One that all others refuse tried to take over every source, every two seconds, for ever."""
    world = World()
    world.new_source(5, "a")
    world.new_source(6, "b")
    for other in "ab":
        world.disconnect("c", other)
    world.wait(20)
    assert world["c"].forwarder.counters.take_overs_begun == 0
    assert [world.records[source].leader.forwarder for source in (5, 6)] == ["a", "b"]
    # Its turn comes when it has links again.
    world.connect("c")
    world.kill("a")
    world.wait(5)
    assert world.records[5].leader.forwarder in "bc"


def test_a_link_to_one_of_three_is_enough_to_take_over() -> None:
    world = World()
    world.new_source(5, "a")
    world.kill("a")
    world.wait(3)
    leader = world.records[5].leader.forwarder
    assert leader in "bc"
    assert world[leader].serving == {5}


def test_a_source_that_was_taken_back_is_not_tried_any_more() -> None:
    world = World()
    created = world.swap(SourceRecord(9, NO_VOTE, ("a", "b", "c"), (7, 7, 7)))
    assert created is not None
    world.new_source(5, "a")
    machine = world["a"]
    machine.forwarder.records[9] = created
    machine.forwarder.record_gone(9)
    assert 9 not in machine.forwarder.records
    machine.forwarder.record_gone(5)
    assert 5 in machine.forwarder.records, "a store that has gone back"
