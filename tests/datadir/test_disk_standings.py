"""`datadir/disks/standing.py`: what a majority of a node's disks has.

What is verified, for random runs: `stored` never goes back, and is on a majority at the moment when it is said; each
disk stores without holes; what waits is bounded; a repaired disk has what the one that it was copied from has.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from amqpd.datadir.disks.standing import (
    QUEUE_BYTES_MAX,
    QUEUE_STEPS_MAX,
    DiskState,
    Standings,
    majority_of,
)

DISKS = 5


class Runs(RuleBasedStateMachine):
    """The model: of each disk the steps that are on its platter."""

    def __init__(self) -> None:
        super().__init__()
        self.standings = Standings(DISKS, range(DISKS))
        self.platters: list[list[int]] = [[] for _ in range(DISKS)]
        self.said = 0
        self.copied: set[int] = set()
        """those under repair, whose platter is a copy by now"""

    def numbers(self, *states: DiskState) -> list[int]:
        return [at for at, disk in enumerate(self.standings.disks) if disk.state in states]

    @rule(nbytes=st.integers(1, QUEUE_BYTES_MAX // 2))
    def hand(self, nbytes: int) -> None:
        for number in self.standings.hand(nbytes):
            self.standings.leave(number)

    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        able = [
            at
            for at in self.numbers(DiskState.IN, DiskState.FULL, DiskState.SLOW, DiskState.REPAIR)
            if self.standings.disks[at].waiting and (at not in self.numbers(DiskState.REPAIR) or at in self.copied)
        ]
        if able:
            number = data.draw(st.sampled_from(able))
            step = self.standings.disks[number].waiting[0][0]
            self.platters[number].append(step)
            self.standings.has_stored(number, step)

    @rule(data=st.data())
    def is_full(self, data: st.DataObject) -> None:
        if found := self.numbers(DiskState.IN, DiskState.SLOW):
            self.standings.mark_full(data.draw(st.sampled_from(found)))

    @rule(data=st.data())
    def is_slow(self, data: st.DataObject) -> None:
        if found := self.numbers(DiskState.IN, DiskState.FULL):
            self.standings.mark_slow(data.draw(st.sampled_from(found)))

    @rule(data=st.data())
    def answers(self, data: st.DataObject) -> None:
        if found := self.numbers(DiskState.SLOW):
            assert self.standings.answers(data.draw(st.sampled_from(found)))

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        if found := self.numbers(DiskState.IN, DiskState.FULL, DiskState.SLOW, DiskState.REPAIR):
            number = data.draw(st.sampled_from(found))
            self.standings.leave(number)
            self.copied.discard(number)

    @precondition(lambda self: self.standings.reading() and self.numbers(DiskState.BEHIND))
    @rule(data=st.data())
    def repair(self, data: st.DataObject) -> None:
        number, like = data.draw(st.sampled_from(self.numbers(DiskState.BEHIND))), self.standings.reading()[0]
        self.standings.repair(number, like)
        self.platters[number] = list(self.platters[like])
        self.copied.add(number)

    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        ready = [
            at for at in self.numbers(DiskState.REPAIR) if self.standings.disks[at].stored >= self.standings.stored
        ]
        if ready:
            number = data.draw(st.sampled_from(ready))
            self.standings.join(number)
            self.copied.discard(number)

    @invariant()
    def stored_is_on_a_majority(self) -> None:
        stored = self.standings.stored
        assert stored >= self.said
        if stored > self.said:
            counting = [
                at
                for at in self.numbers(DiskState.IN, DiskState.FULL, DiskState.SLOW)
                if len(self.platters[at]) >= stored
            ]
            assert len(counting) >= majority_of(DISKS)
        self.said = stored

    @invariant()
    def disks_have_no_holes(self) -> None:
        for at, disk in enumerate(self.standings.disks):
            if disk.state is not DiskState.BEHIND:
                assert self.platters[at] == list(range(1, disk.stored + 1))
                assert [step for step, _ in disk.waiting] == list(range(disk.stored + 1, self.standings.handed + 1))

    @invariant()
    def what_waits_is_bounded(self) -> None:
        for disk in self.standings.disks:
            assert disk.waiting_bytes == sum(nbytes for _, nbytes in disk.waiting)
            assert disk.waiting_bytes <= QUEUE_BYTES_MAX or len(disk.waiting) == 1

    @invariant()
    def what_is_read_has_everything(self) -> None:
        for at in self.standings.reading():
            assert len(self.platters[at]) >= self.standings.stored


TestRuns = Runs.TestCase


def test_a_step_may_be_stored_only_while_a_majority_has_space() -> None:
    standings = Standings(3, range(3))
    standings.hand(1)
    standings.has_stored(0, 1)
    standings.mark_full(1)
    assert standings.may_store(1)
    standings.mark_full(2)
    assert not standings.may_store(1)
    standings.has_stored(1, 1)
    assert standings.stored == 1
    assert standings.may_store(1)


def test_a_step_is_not_hoped_from_disks_that_do_not_answer() -> None:
    standings = Standings(3, range(3))
    standings.hand(1)
    standings.mark_slow(0)
    assert standings.may_store(1)
    standings.mark_slow(1)
    assert not standings.may_store(1)
    assert standings.counting == 3
    assert standings.answering == standings.able == 1
    standings.has_stored(2, 1)
    standings.has_stored(1, 1)
    assert standings.stored == 1, "what a slow one has counts"
    assert standings.answers(1)
    assert not standings.answers(1)
    assert standings.able == 2


def test_an_even_number_of_disks_needs_more_than_half() -> None:
    standings = Standings(2, range(2))
    standings.hand(1)
    assert not standings.has_stored(0, 1)
    assert standings.has_stored(1, 1)


def test_a_disk_is_over_the_bound_by_steps_too() -> None:
    standings = Standings(1, [0])
    over = [standings.hand(0) for _ in range(QUEUE_STEPS_MAX + 1)]
    assert not any(over[:-1])
    assert over[-1] == [0]


def test_a_disk_does_not_skip_a_step() -> None:
    standings = Standings(3, range(3))
    standings.hand(1)
    standings.hand(1)
    with pytest.raises(ValueError):
        standings.has_stored(0, 2)


def test_nothing_is_heard_of_a_disk_that_was_left() -> None:
    standings = Standings(3, range(3))
    standings.hand(1)
    assert standings.leave(0)
    assert not standings.leave(0)
    assert not standings.has_stored(0, 1)
    assert standings.counting == 2
