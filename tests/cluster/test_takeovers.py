"""Take-overs, where the own disk is slow or hangs, and by a process that is about to end.

What is verified: what an attempt waits for, and who has the source when it is given up. Not verified here: attempts
of which all goes well (`test_forwarder.py`), the steps of one (`tests/replication/test_take_over.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amqpd.cluster import takeovers
from amqpd.cluster.succession import successors
from amqpd.peers.entry import LogEntry, Position
from amqpd.replication.take_over import Phase

from .forwarders import LEASE_S, World
from .test_forwarder import logs, told


def slow_to_read(world: World, name: str) -> list[Callable[[], None]]:
    """Reads of what a take-over has won, which the disk has not done yet."""
    machine = world[name]
    reads: list[Callable[[], None]] = []
    read_own = machine.read_own
    machine.read_own = lambda source, answered: reads.append(lambda: read_own(source, answered))  # type: ignore[method-assign]
    return reads


def test_a_leader_whose_disk_takes_long_to_read_what_it_has_won_takes_over() -> None:
    world = World()
    world.new_source(5, "a")
    reads = {name: slow_to_read(world, name) for name in "bc"}
    world.kill("a")
    world.wait(4 * takeovers.ATTEMPT_S)
    [(name, [read])] = [(name, each) for name, each in reads.items() if each]
    assert not told(world, name, "take_over_lost")
    read()
    world.move()
    assert world[name].serving == {5}


@pytest.mark.parametrize("as_state", [False, True], ids=["entries", "state"])
def test_messages_that_come_while_what_was_fetched_is_written_do_not_end_the_wait_for_the_own_disk(
    as_state: bool,
) -> None:
    """Of a state several parts are in one transaction, too: the first one that is stored is not the only one."""
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "b")
    world["a"].publish(5, b"b lacks this")
    world.move()
    if as_state:
        world.wait(0.5)  # c knows that it is committed
    reads, machine = slow_to_read(world, "b"), world["b"]
    world["c"].forwarder.takeovers.begin = lambda record: None  # type: ignore[method-assign]
    commit, under_way, slow = machine.commit, machine.forwarder.takeovers._attempts, True

    def commits() -> bool:
        won = 5 in under_way and under_way[5].take_over.phase is Phase.WON
        return not (slow and won) and commit()

    machine.commit = commits  # type: ignore[method-assign]
    world.kill("a")
    world.wait(4)
    assert under_way[5].take_over.phase is Phase.WON
    assert not reads, "nothing is read before all is written"
    slow = False
    world.wait(4 * takeovers.ATTEMPT_S)
    assert not told(world, "b", "take_over_lost")
    [read] = reads
    read()
    world.move()
    assert machine.serving == {5}
    assert logs(world, 5)[1][:2] == [b"reserves", b"b lacks this"]


def test_who_fetches_much_is_not_taken_over_from() -> None:
    """Two that lack much, and ask a third one for it alone, took it from each other for ever."""
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "b")
    world["a"].publish(5, b"b lacks this")
    world.move()
    world["a"].publish(5, b"and this")
    world.move()
    answers: list[Callable[[], None]] = []

    def read_log(source: int, after: Position, answered: Callable[[list[LogEntry]], None]) -> None:
        found = [each for each in world["c"].entries[source] if each.position > after]
        answers.append(lambda: answered(found[:1]))

    world["c"].read_log = read_log  # type: ignore[method-assign]
    world["c"].forwarder._succession.failed(5, 1.0)  # b is the first one that tries
    world.kill("a")
    while 5 not in world["b"].serving:
        world.wait(1.5 * LEASE_S)
        assert world.records[5].leader.forwarder != "c"
        while answers:
            answers.pop(0)()
    assert not told(world, "b", "take_over_lost")


def test_who_waits_for_what_a_member_does_not_send_begins_again() -> None:
    """Though that member, and others, say that they have heard of the attempt."""
    world = World()
    world.new_source(5, "a")
    world.disconnect("a", "b")
    world["a"].publish(5, b"b lacks this")
    world.move()
    world["c"].read_log = lambda *asked: None  # type: ignore[method-assign]
    world["c"].forwarder.takeovers.begin = lambda record: None  # type: ignore[method-assign]
    world.kill("a")
    world.wait(3 * takeovers.ATTEMPT_S)
    [lost, *_] = told(world, "b", "take_over_lost")
    assert lost["reason"] == "too little has come in time while it is fetching"


def test_a_disk_that_hangs_does_not_keep_a_source_for_ever() -> None:
    world = World()
    world.new_source(5, "a")
    reads = {name: slow_to_read(world, name) for name in "bc"}
    world.kill("a")
    world.wait(takeovers.OWN_DISK_S + 1)
    assert all(reads.values()), "each of them has tried"
    [lost] = [fields for name in "bc" for fields in told(world, name, "take_over_lost")]
    assert lost["reason"] == "the own disk takes too long"


def hanging_successor(world: World, others: str) -> str:
    """The leader of source 5 is lost, and the disk of the one that gets into its record hangs. Its name."""
    name = successors(5, others)[0]
    world[name].commit = lambda: False  # type: ignore[method-assign]
    world.wait(2)  # nobody puts a vote off because it has just started
    world.kill(world.records[5].leader.forwarder)
    world.wait(0.5)
    assert world.records[5].leader.forwarder == name
    return name


def leaders_of(world: World, source: int) -> list[str]:
    return [name for name, machine in world.machines.items() if machine.up and source in machine.serving]


def test_who_has_swapped_and_whose_disk_hangs_is_not_waited_for() -> None:
    """It said again and again that it was there, before its vote was on its disk."""
    world = World("abcde")
    world.new_source(5, "a")
    world["a"].publish(5, b"one")
    world.move()
    name = hanging_successor(world, "bcde")
    world.wait(10)
    [leader] = leaders_of(world, 5)
    assert leader != name
    assert world[leader].entries[5][1].payload == b"one"


def test_a_source_that_is_too_much_for_the_own_disk_is_handed_to_the_others() -> None:
    """The others hear of it for other reasons, and it began again itself, every minute."""
    world = World("abcde")
    world.new_source(5, "a")
    name = hanging_successor(world, "bcde")
    others = [each for each in "bcde" if each != name]
    for each in others:
        for other in others:
            world[each].forwarder._heard_s[other] = 1e9
        world[each].forwarder._heard_s[name] = 1e9
    world.wait(takeovers.OWN_DISK_S - 5)
    assert leaders_of(world, 5) == []
    world.wait(10)
    [leader] = leaders_of(world, 5)
    assert leader != name
    [lost] = told(world, name, "take_over_lost")
    assert lost["reason"] == "the own disk takes too long"
    assert world[name].forwarder.counters.take_overs_begun == 1


@pytest.mark.parametrize("refused", ["unreached", "unknown", "another revision"])
def test_a_source_is_given_back_until_the_record_says_so(refused: str) -> None:
    """It was tried once, and stayed with the one whose disk hangs."""
    world = World("abcde")
    world.new_source(5, "a")
    name = hanging_successor(world, "bcde")
    for each in "bcde":
        world[each].forwarder._heard_s |= dict.fromkeys("bcde", 1e9)
    world.wait(takeovers.OWN_DISK_S - 5)
    if refused == "unreached":
        world.store_answers = False
    elif refused == "unknown":
        world.store_loses_answers = True
    else:
        # As a former member does, to be sure of it.
        assert world.swap(world.records[5]) is not None
        world.deliver()
    world.wait(10)
    assert told(world, name, "take_over_lost")
    world.store_answers, world.store_loses_answers = True, False
    world.wait(5)
    [leader] = leaders_of(world, 5)
    assert leader != name
    assert world[name].forwarder.counters.take_overs_begun == 1


def test_a_disk_that_reads_for_others_is_not_given_up() -> None:
    """What it had won waited in line for longer than a disk may take for one."""
    world = World("a")
    reads = slow_to_read(world, "a")
    for source in (5, 6, 7):
        world.new_source(source, "a")
    assert len(reads) == 3
    for read in reads:
        world.wait(takeovers.OWN_DISK_S - 1)
        read()
        world.move()
    assert world["a"].serving == {5, 6, 7}
    assert not told(world, "a", "take_over_lost")


def test_a_disk_that_hangs_is_too_slow_for_every_source() -> None:
    """That is the node's: each source waited for it by itself, for a minute."""
    world = World("abcde")
    world.new_source(5, "a")
    name = hanging_successor(world, "bcde")
    for each in "bcde":
        world[each].forwarder._heard_s |= dict.fromkeys("bcde", 1e9)
    world.wait(takeovers.OWN_DISK_S + 5)
    assert told(world, name, "take_over_lost")
    world.new_source(6, name, "bcde")
    world.wait(10)
    assert world[name].forwarder.counters.take_overs_begun == 1


def test_a_disk_that_hung_and_goes_on_is_tried_again() -> None:
    world = World("a")
    commit = world["a"].commit
    world["a"].commit = lambda: False  # type: ignore[method-assign]
    world.new_source(5, "a")
    world.wait(3 * takeovers.OWN_DISK_S)
    assert world["a"].forwarder.counters.take_overs_begun == 1, "not before the disk has stored something"
    world["a"].commit = commit  # type: ignore[method-assign]
    world.move()
    world.wait(1)
    assert world["a"].serving == {5}


@pytest.mark.parametrize("swapped", [False, True])
def test_who_is_about_to_end_becomes_no_leader_by_an_answer_that_comes_late(swapped: bool) -> None:
    world = World()
    swaps: list[Callable[[], None]] = []
    machine = world["a"]
    swap = machine.swap
    if swapped:
        reads = slow_to_read(world, "a")
    else:
        machine.swap = lambda record, answered: swaps.append(lambda: swap(record, answered))  # type: ignore[method-assign]
    world.new_source(5, "a")
    assert 5 in machine.forwarder.takeovers
    machine.forwarder.leave()
    machine.swap = swap  # type: ignore[method-assign]
    for go_on in reads if swapped else swaps:
        go_on()
    world.move()
    assert not machine.serving
    assert 5 not in machine.forwarder.led_sources.sources
    assert world.records[5].leader.forwarder == "", "the others need not wait until this one is silent"
    machine.forwarder.take_over(world.records[5])
    world.move()
    assert 5 not in machine.forwarder.takeovers
    assert not machine.serving
    machine.up = False
    world.tell_members()
    world.wait(2)
    assert len(leaders_of(world, 5)) == 1
