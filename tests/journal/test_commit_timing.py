"""Until when a commit is put off, by a clock that the tests set."""

from __future__ import annotations

import math

import pytest

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.commit_timing import GATHER_S, CommitTiming

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
