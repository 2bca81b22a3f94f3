"""Desired sets are carried out by the leader: sets grow and shrink, leaders move, and nothing that was confirmed is
lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from amqpd.cluster import leftovers, set_changes
from amqpd.cluster.records import DesiredSetRecord
from amqpd.peers.entry import START, Vote
from amqpd.replication.replica import Write
from amqpd.replication.set_change import forced
from amqpd.replication.take_over import SourceRecord
from tests.cluster.forwarders import LEASE_S, RESERVES, World


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
    world.put_desired_set(DesiredSetRecord(5, tuple("abcd")))
    world.wait(2)
    assert world.records[5].members == ("a", "b", "c", "d")
    assert world.desired_sets == {}
    assert payloads(world, "d") == b"1;"
    world["a"].publish(5, b"2;")
    world.move()
    assert {payloads(world, name) for name in "abcd"} == {b"1;2;"}


def voted_higher(world: World) -> None:
    """By `d`, which learns above that only."""
    writes: list[Write] = []
    assert world["d"].forwarder.replicas.cast_vote(5, Vote(9, "c", 1), writes)
    world["d"].journal.write(writes)


def test_a_member_that_has_voted_for_a_higher_epoch_learns_above_that() -> None:
    """The store was put back, say, and forgot the leader that `d` voted for."""
    world = a_world()
    world["a"].publish(5, b"1;")
    world.move()
    voted_higher(world)
    world.put_desired_set(DesiredSetRecord(5, tuple("abcd")))
    world.wait(5)
    assert world.records[5].members == ("a", "b", "c", "d")
    assert world.records[5].leader.epoch > 9
    assert world.records[5].leader.forwarder == "a"
    assert world["a"].serving == {5}
    assert world["a"].abandoned == [], "nobody has to ask again"
    assert payloads(world, "d") == b"1;"


def test_a_leader_that_hands_over_to_itself_first_does_not_count_that_as_a_failure() -> None:
    world = a_world()
    voted_higher(world)
    world.put_desired_set(DesiredSetRecord(5, tuple("abcd"), "c"))
    world.wait(6)
    assert world.records[5].members == ("a", "b", "c", "d")
    assert world["c"].serving == {5}
    assert world.desired_sets == {}


def test_a_leader_that_was_to_hand_over_to_itself_does_not_when_another_is_desired_meanwhile() -> None:
    world = a_world()
    voted_higher(world)
    swap, lost = world["a"].swap, list[SourceRecord]()

    def loses_the_first(record: SourceRecord, answered: Callable[[SourceRecord | None], None]) -> None:
        if lost:
            swap(record, answered)
        else:
            lost.append(record)
            world.put_desired_set(DesiredSetRecord(5, leader="c", revision=world.desired_sets[5].revision))
            answered(None)

    world["a"].swap = loses_the_first  # type: ignore[method-assign]
    world.put_desired_set(DesiredSetRecord(5, tuple("abcd")))
    world.wait(4)
    assert lost, "it was to go on above what d has voted for"
    assert world["c"].serving == {5}
    assert world["a"].events.count("source_taken_over") == 1, "at the beginning"
    assert world.desired_sets == {}


def test_a_member_is_replaced() -> None:
    world = a_world()
    world.put_desired_set(DesiredSetRecord(5, tuple("acd")))
    world.wait(2)
    assert world.records[5].members == ("a", "c", "d")
    assert world.desired_sets == {}
    [replica_set] = world["a"].forwarder.led_sources.replica_sets.values()
    assert replica_set.key == (("a", "c", "d"), ())
    world["a"].publish(5, b"1;")
    world.move()
    assert payloads(world, "d") == b"1;"
    assert payloads(world, "b") == b""


def test_the_leader_moves_to_the_one_that_is_named() -> None:
    world = a_world()
    world["a"].publish(5, b"1;")
    world.move()
    world.put_desired_set(DesiredSetRecord(5, leader="c"))
    world.wait(2)
    assert world.records[5].leader.forwarder == "c"
    assert world["c"].serving == {5}
    assert world["a"].serving == set()
    assert world["a"].abandoned == [], "nobody has to ask again"
    assert world.desired_sets == {}


def test_a_desired_leader_that_cannot_take_over_is_asked_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The source went to and fro for ever, and each time its clients were interrupted."""
    world = a_world()
    reason = "c could not take it over when asked, and is asked again 30 s after that"
    with monkeypatch.context() as broken:
        broken.setattr(world["c"].forwarder.takeovers, "begin", lambda record: None)
        world.put_desired_set(DesiredSetRecord(5, leader="c"))
        world.wait(25)
        handed = [name for name in "abc" for event in world[name].events if event == "source_handed_over"]
        assert handed == ["a"]
        assert world.desired_sets[5].reason == reason
        assert world["a"].serving | world["b"].serving == {5}
    world.wait(2)
    assert world.desired_sets[5].reason == reason
    world.wait(10)
    assert world.desired_sets == {}
    assert world["c"].serving == {5}


def test_a_desired_leader_is_tried_at_once_when_it_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    with monkeypatch.context() as broken:
        broken.setattr(world["c"].forwarder.takeovers, "begin", lambda record: None)
        world.put_desired_set(DesiredSetRecord(5, leader="c"))
        world.wait(5)
    world.put_desired_set(world.desired_sets[5], drops=True)
    world.wait(0.1)
    world.put_desired_set(DesiredSetRecord(5, leader="c"))
    world.wait(2)
    assert world["c"].serving == {5}


def test_who_has_no_lease_is_not_asked_to_be_the_leader() -> None:
    world = a_world()
    living = {"a": 1, "b": 1, "c": 1, "d": 1}
    without = {name: incarnation for name, incarnation in living.items() if name != "c"}
    world["a"].forwarder.members_are(without, living)
    world.put_desired_set(DesiredSetRecord(5, leader="c"))
    world.wait(3)
    assert world.desired_sets[5].reason == "c has no lease in the metadata store now"
    assert world["a"].serving == {5}
    world["a"].forwarder.members_are(living, without)
    world.wait(2)
    assert world["c"].serving == {5}


def test_a_leader_that_is_to_leave_hands_over_and_is_taken_out() -> None:
    world = a_world()
    world["a"].publish(5, b"1;")
    world.put_desired_set(DesiredSetRecord(5, tuple("bcd")))
    world.wait(4)
    assert world.records[5].members == ("b", "c", "d")
    leader = world.records[5].leader.forwarder
    assert leader in "bcd"
    assert world[leader].serving == {5}
    assert payloads(world, leader) == b"1;"
    assert world.desired_sets == {}


def test_a_desired_set_that_waits_says_why() -> None:
    world = a_world()
    world.kill("d")
    world.put_desired_set(DesiredSetRecord(5, tuple("acd")))
    world.wait(3)
    assert world.desired_sets[5].reason == "d does not live"
    assert world.records[5].members == ("a", "b", "c")
    world.start("d")
    world.wait(3)
    assert world.desired_sets == {}
    assert world.records[5].members == ("a", "c", "d")


def test_a_desired_set_that_is_taken_back_leaves_the_source_as_it_is() -> None:
    world = a_world()
    world.disconnect("a", "d")
    world.put_desired_set(DesiredSetRecord(5, tuple("abcd")))
    world.wait(2)
    world.put_desired_set(world.desired_sets[5], drops=True)
    world.connect("d")
    world.wait(2)
    assert world.records[5].members == ("a", "b", "c")
    [replica_set] = world["a"].forwarder.led_sources.replica_sets.values()
    assert replica_set.key == (("a", "b", "c"), ())


def test_the_next_leader_goes_on_with_the_desired_set() -> None:
    world = a_world()
    world["a"].publish(5, b"1;")
    world.disconnect("a", "d")
    world.move()
    world.put_desired_set(DesiredSetRecord(5, tuple("bcd")))
    world.wait(2)
    assert world.records[5].members == ("a", "b", "c")
    world.kill("a")
    world.wait(5)
    assert world.records[5].members == ("b", "c", "d")
    assert world.desired_sets == {}
    assert payloads(world, "d") == b"1;"


def test_without_the_store_nothing_stops() -> None:
    """The store is asked before queues stand still."""
    world = a_world()
    world.put_desired_set(DesiredSetRecord(5, leader="b"))
    world.store_answers = False
    world.wait(3)
    assert world["a"].serving == {5}
    world.store_answers = True
    world.wait(3)
    assert world["b"].serving == {5}


def test_a_leader_that_handed_over_takes_it_again_when_the_store_fails_just_then() -> None:
    world = a_world()
    stops = world["a"].stops

    def stops_and_fails(source: int) -> None:
        stops(source)
        world.store_answers = False

    world["a"].stops = stops_and_fails  # type: ignore[method-assign]
    world.put_desired_set(DesiredSetRecord(5, leader="b"))
    world.wait(1)
    assert world["a"].serving == set()
    assert world["a"].forwarder.is_moving(5), "its clients wait: this node may lead it again"
    world["a"].stops = stops  # type: ignore[method-assign]
    world.store_answers = True
    world.wait(4)
    assert not world["a"].forwarder.is_moving(5)
    assert world["b"].serving == {5}, "it was tried again"
    assert world.desired_sets == {}


def test_a_swap_of_which_nobody_heard_is_found_to_have_happened() -> None:
    world = a_world()
    world.store_loses_answers = True
    world.put_desired_set(DesiredSetRecord(5, tuple("abcd")))
    world.wait(3)
    assert world.records[5].members == ("a", "b", "c", "d")
    [replica_set] = world["a"].forwarder.led_sources.replica_sets.values()
    assert replica_set.key == (("a", "b", "c", "d"), ())
    assert world.desired_sets == {}


def test_nobody_is_taken_out_without_a_majority_of_the_others() -> None:
    world = a_world("abc", "abc")
    world.kill("b")
    world.put_desired_set(DesiredSetRecord(5, tuple("ab")))
    world.wait(3)
    assert world.records[5].members == ("a", "b", "c")
    assert world.desired_sets[5].reason == "without c only 1 of 2 copies would have everything"


@pytest.mark.parametrize(
    ("desired_set", "reason"),
    [
        (DesiredSetRecord(5, tuple("ac")), "without b only 1 of 2 copies would have everything"),
        (DesiredSetRecord(5, leader="c"), "c does not have everything by now"),
    ],
)
def test_who_has_answered_once_and_does_not_any_more_is_not_counted_on(
    monkeypatch: pytest.MonkeyPatch, desired_set: DesiredSetRecord, reason: str
) -> None:
    """Its disk stands still; the connection does not break."""
    world = a_world("abc", "abc")
    with monkeypatch.context() as stuck:
        stuck.setattr(world["c"], "commit", lambda: False)
        world["a"].publish(5, b"1;")
        world.wait(1.5 * LEASE_S)
        world.put_desired_set(desired_set)
        world.wait(3)
        assert world.desired_sets[5].reason == reason
        assert "source_handed_over" not in world["a"].events
        assert world.records[5].members == ("a", "b", "c")
    world.wait(3)
    assert world.desired_sets == {}


def test_who_is_a_frame_behind_is_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load each peer but the fastest one is, whenever one looks."""
    world = a_world("abc", "abc")
    monkeypatch.setattr(world["c"], "commit", lambda: False)
    index = world["a"].publish(5, b"1;")
    world.move()
    [replica_set] = world["a"].forwarder.led_sources.replica_sets.values()
    assert replica_set.leader.passed == index > replica_set.leader.peers["c"].number
    assert replica_set.has_all("c", 5, world.now_s)
    world.now_s += 1.1 * LEASE_S
    assert not replica_set.has_all("c", 5, world.now_s)


def test_learners_that_stand_still_hold_up_other_changes_for_some_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_changes, "SLOT_S", 5.0)
    world = World("abcd")
    for source in range(1, set_changes.CHANGES_MAX + 2):
        world.new_source(source, "a", "abc")
    monkeypatch.setattr(world["d"], "commit", lambda: False)
    for source in range(1, set_changes.CHANGES_MAX + 1):
        world.put_desired_set(DesiredSetRecord(source, tuple("abcd")))
    world.wait(1)
    last = set_changes.CHANGES_MAX + 1
    world.put_desired_set(DesiredSetRecord(last, leader="b"))
    world.wait(3)
    assert world.desired_sets[last].reason == "waits for other changes"
    world.wait(4)
    assert list(world.desired_sets) == list(range(1, last))
    assert {desired_set.reason for desired_set in world.desired_sets.values()} == {"d is being caught up"}
    assert world["b"].serving == {last}


def test_learners_that_stand_still_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_changes, "SLOT_S", 1.0)
    world = World("abcd")
    sources = range(1, set_changes.SLOW_MAX + 4)
    for source in sources:
        world.new_source(source, "a", "abc")
    leaders = world["a"].forwarder.led_sources.sources
    with monkeypatch.context() as stuck:
        stuck.setattr(world["d"], "commit", lambda: False)
        for source in sources:
            world.put_desired_set(DesiredSetRecord(source, tuple("abcd")))
        world.wait(8)
        assert sum(bool(own.replica_set.learners) for own in leaders.values()) == set_changes.SLOW_MAX
    world.wait(8)
    assert {own.record.members for own in leaders.values()} == {("a", "b", "c", "d")}


# A majority is gone for good


def test_survivors_go_on_and_say_after_what() -> None:
    world = a_world("abc", "abc")
    world["a"].publish(5, b"1;")
    world.move()
    for name in "ab":
        world.kill(name)
    world.wait(3)
    assert world["c"].serving == set(), "one of three"
    assert world.swap(forced(world.records[5], ["c"])) is not None
    world.wait(2)
    assert world["c"].serving == {5}
    assert world["c"].events.count("majority_given_up") == 1
    assert payloads(world, "c") == b"1;"


def test_who_comes_back_with_the_old_set_confirms_nothing_and_brings_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leftovers, "DROP_S", 2.0)
    monkeypatch.setattr(set_changes, "CONTRADICTED_S", 6.0)
    world = a_world("abc", "abc")
    world.disconnect("a", "c")
    world.disconnect("b", "c")
    for payload in (b"only a and b;", b"and that they know that;"):
        world["a"].publish(5, payload)
        world.move()
    for name in "ab":
        world.kill(name)
    assert world.swap(forced(world.records[5], ["c"])) is not None
    world.wait(2)
    assert world["c"].serving == {5}
    world["c"].publish(5, b"c;")
    world.move()
    for name in "ab":
        world.start(name)
    world.put_desired_set(DesiredSetRecord(5, tuple("abc")))
    world.wait(1)
    assert [name for name in "abc" if world[name].serving] == ["c"]
    world.wait(60)
    assert world.records[5].members == ("a", "b", "c")
    world["c"].publish(5, b"all;")
    world.move()
    assert {payloads(world, name) for name in "abc"} == {b"c;all;"}


# Copies that are none any more


def test_a_member_that_was_taken_out_drops_its_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "DROP_S", 2.0)
    world = a_world("abcd", "abcd")
    world["a"].publish(5, b"1;")
    world.move()
    world.put_desired_set(DesiredSetRecord(5, tuple("abc")))
    world.wait(1)
    assert world.records[5].members == ("a", "b", "c")
    assert payloads(world, "d") == b"1;"
    world.wait(4)
    assert world["d"].entries[5] == []
    assert world["d"].events.count("copy_dropped") == 1
    world.kill("d")
    world.start("d")
    world.put_desired_set(DesiredSetRecord(5, tuple("abcd")))
    world.wait(3)
    assert payloads(world, "d") == b"1;"


def test_nothing_is_dropped_while_the_store_does_not_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "DROP_S", 2.0)
    world = a_world("abcd", "abcd")
    world.put_desired_set(DesiredSetRecord(5, tuple("abc")))
    world.wait(1)
    world.store_answers = False
    world.wait(10)
    assert world["d"].entries[5] != []


@pytest.mark.parametrize("hears", [True, False])
def test_a_copy_that_counts_again_before_the_store_answers_is_kept(
    monkeypatch: pytest.MonkeyPatch, hears: bool
) -> None:
    """The answer to the question whether it may be dropped comes after the leader has made it a member again, and has
    lost the connection. `hears`: the watch tells of that first."""
    monkeypatch.setattr(leftovers, "DROP_S", 2.0)
    world = a_world("abcd", "abcd")
    world["a"].publish(5, b"1;")
    world.move()
    world.put_desired_set(DesiredSetRecord(5, tuple("abc")))
    held: list[Callable[[], None]] = []

    def swaps(record: SourceRecord, answered: Callable[[SourceRecord | None], None]) -> None:
        found = world.swap(record)
        held.append(lambda: answered(found))

    world["d"].swap = swaps  # type: ignore[method-assign]
    while not held:
        world.wait(0.1)
    if not hears:
        monkeypatch.setattr(world["d"].forwarder, "note_record", lambda record: None)
    world.put_desired_set(DesiredSetRecord(5, tuple("abcd")))
    world.wait(2)
    assert world.records[5].members == ("a", "b", "c", "d")
    world.disconnect("a", "d")
    held[0]()
    assert payloads(world, "d") == b"1;"
    world.move()
    assert payloads(world, "d") == b"1;"
    assert "copy_dropped" not in world["d"].events


def test_a_copy_is_kept_when_the_store_has_gone_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is of an older epoch than was voted for."""
    monkeypatch.setattr(leftovers, "DROP_S", 2.0)
    world = a_world("abcd", "abc")
    old = world.records[5]
    world.put_desired_set(DesiredSetRecord(5, tuple("bcd"), "d"))
    world.wait(5)
    assert world["d"].serving == {5}
    for name in "abc":
        world.kill(name)
    world["d"].forwarder.note_record(replace(old, revision=1000))
    world.records[5] = replace(old, revision=1000)
    world.wait(10)
    assert world["d"].serving == set()
    assert world["d"].entries[5] != []


def test_what_is_known_to_be_committed_counts_above_what_was_given_up() -> None:
    record = SourceRecord(5, Vote(4, "c", 1), ("c",), (7,), given_up=3)
    assert record.trusted((4, 9)) == (4, 9)
    assert record.trusted((3, 9)) == START
    assert replace(record, given_up=0).trusted((3, 9)) == (3, 9)
