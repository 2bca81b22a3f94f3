"""Until when a commit is put off, by a clock that the tests set."""

from __future__ import annotations

import math

import pytest

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.commit_timing import ACKS_S, GATHER_S, SETTLES_S, CommitTiming, LeaderTiming
from amqpd.peers.entry import START, new_entry
from amqpd.queues.backlog import Backlog
from amqpd.replication.replica import Appended
from tests.journal.test_led_sources import leader
from tests.journal.test_numbers import run

SETTLE_S = 0.001


class Clock:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def journal() -> JournalBuffer:
    return JournalBuffer(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timing(journal: JournalBuffer, clock: Clock) -> CommitTiming:
    return CommitTiming(journal, SETTLE_S, clock)


def impatient(timing: CommitTiming) -> None:
    timing._odds._credit = 0


def test_nobody_waits_for_acknowledgements(timing: CommitTiming, journal: JournalBuffer) -> None:
    assert timing.wait_until() == math.inf
    journal.retire(1, 0, 0)
    assert timing.wait_until() == math.inf


def test_a_consumer_has_one_moment_for_each_transaction(
    timing: CommitTiming, journal: JournalBuffer, clock: Clock
) -> None:
    journal.force()
    assert timing.wait_until() == 100.0 + SETTLE_S
    clock.s += SETTLE_S / 2
    assert timing.wait_until() == 100.0 + SETTLE_S
    journal.take()
    journal.force()
    assert timing.wait_until() == clock.s + SETTLE_S


def test_without_a_moment_it_begins_at_once(journal: JournalBuffer, clock: Clock) -> None:
    journal.force()
    assert CommitTiming(journal, 0.0, clock).wait_until() <= clock.s


def test_what_may_not_be_committed_yet_uses_up_no_moment(
    timing: CommitTiming, journal: JournalBuffer, clock: Clock
) -> None:
    journal.hold()
    journal.force()
    assert timing.wait_until() == math.inf
    clock.s += 1
    timing.nothing_came()
    journal.release()
    assert timing.wait_until() == clock.s + SETTLE_S


def test_others_are_waited_for_if_many_came_with_the_last_ones(
    timing: CommitTiming, journal: JournalBuffer, clock: Clock
) -> None:
    impatient(timing)
    journal.force()
    journal.came_before, journal.came = 50, 1
    assert timing.wait_until() == clock.s + GATHER_S
    clock.s += GATHER_S / 2
    assert timing.wait_until() == 100.0 + GATHER_S
    journal.came = 25
    assert timing.wait_until() <= clock.s


# Of a node that leads a replicated source


@pytest.fixture
def led() -> tuple[JournalBuffer, LeaderTiming, Backlog]:
    buffer = JournalBuffer()
    backlog = leader(buffer)
    buffer.take()  # the first entry, which reserves numbers
    return buffer, LeaderTiming(buffer), backlog


def test_for_acknowledgements_no_frame_is_cut_at_once(led: tuple[JournalBuffer, LeaderTiming, Backlog]) -> None:
    buffer, timing, _ = led
    buffer.delivered(20, 1)
    assert timing.wait_until(5.0) == timing.wait_until(5.001) == 5.0 + ACKS_S
    buffer.force()
    assert timing.wait_until(5.001) == 0.0


def test_a_frame_is_put_off_until_all_of_it_is_settled(
    led: tuple[JournalBuffer, LeaderTiming, Backlog],
) -> None:
    buffer, timing, backlog = led
    backlog.publish(run(), True, 0)
    assert timing.wait_until(5.0) == timing.wait_until(5.0005) == 5.0 + SETTLES_S
    buffer.unwritten.settled(20)
    assert timing.wait_until(5.0005) == 0.0


def test_it_is_not_put_off_where_consumers_settle_later(led: tuple[JournalBuffer, LeaderTiming, Backlog]) -> None:
    buffer, timing, backlog = led
    waits = []
    for _ in range(200):
        backlog.publish(run(), True, 0)
        waits.append(timing.wait_until(5.0))
        timing.cut()
        buffer.take()
    assert waits[:32] == [5.0 + SETTLES_S] * 32
    assert waits[32:].count(0.0) == 200 - 32 - 2  # it is tried now and then


def test_what_another_leader_has_sent_waits_for_no_consumer(led: tuple[JournalBuffer, LeaderTiming, Backlog]) -> None:
    buffer, timing, backlog = led
    backlog.publish(run(), True, 0)
    buffer.write([Appended(new_entry(7, (3, 1), START, b"payload"))])
    assert timing.wait_until(5.0) == 0.0


def test_a_node_that_leads_nothing_puts_nothing_off(journal: JournalBuffer) -> None:
    journal.retire(1, 0, 0)
    assert LeaderTiming(journal).wait_until(5.0) == 0.0
