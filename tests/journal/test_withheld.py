"""What goes on from one source to another is settled when it is safe there.

What is verified: what the buffer hands to the disk, transaction by transaction. Not verified here: what a dead letter
is (`tests/publishing`), replicas.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest

from amqpd.audit.kinds import ACKED, DEAD_REJECTED
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.lane import JournalLane
from amqpd.journal.led_sources import LedSource
from amqpd.journal.numbers import NUMBERS_STEP, Numbers
from amqpd.journal.records import SeqRange, SourceEntry
from amqpd.journal.transaction import JournalTransaction
from amqpd.journal.withheld import MergedRanges, RangeMap, Withheld
from amqpd.queues.backlog import Backlog
from tests.journal.test_numbers import run


class Journal:
    """With queues 10 (local), 20 and 21 (of source 1) and 30 (of source 2)."""

    def __init__(self) -> None:
        self.buffer = buffer = JournalBuffer()
        for source in (1, 2):
            lane = JournalLane(buffer.force, buffer.index, buffer.stored_index)
            buffer.lead(source, 7, Numbers(0, NUMBERS_STEP), lane)
        for queue_id, source in ((20, 1), (21, 1), (30, 2)):
            buffer.assign(queue_id, source)
        self.queues = {queue_id: Backlog(queue_id, buffer, True) for queue_id in (10, 20, 21, 30)}

    def publish(self, queue_id: int) -> None:
        self.queues[queue_id].publish(run(), True, 0)

    def goes(self, queue_id: int, to: int) -> None:
        """The queue's message becomes one of another queue."""
        self.publish(to)
        self.queues[queue_id].settle(0, 0, DEAD_REJECTED, 1)

    def take(self) -> dict[int, SourceEntry]:
        """What the sources have of it; 0 is the local one."""
        transaction = self.buffer.take()
        self.buffer.stored(transaction.index)
        self.buffer.committed(transaction.index)
        local = SourceEntry(0, 0, transaction.index, transaction.rows, transaction.settled)
        return {0: local, **{entry.source: entry for entry in transaction.entries}}

    def report(self, source: int) -> None:
        self.buffer.led_sources[source].lane.reported = self.buffer.stored_index


def settled(taken: dict[int, SourceEntry], source: int) -> list[SeqRange]:
    return taken[source].settled if source in taken else []


@pytest.fixture
def journal() -> Journal:
    return Journal()


def test_a_dead_letter_to_another_source_settles_when_that_has_committed_it(journal: Journal) -> None:
    journal.publish(20)
    journal.take()
    journal.goes(20, to=30)
    taken = journal.take()
    assert [row.queue_id for row in taken[2].rows] == [30]
    assert settled(taken, 1) == []
    journal.report(1)
    assert not journal.buffer.deletable
    journal.buffer.force()
    assert settled(journal.take(), 1) == []
    journal.report(2)
    assert journal.buffer.deletable
    taken = journal.take()
    assert taken[1].settled == taken[1].retired == [SeqRange(20, 0, 0)]
    assert not journal.buffer.deletable


def test_inside_a_source_it_settles_at_once(journal: Journal) -> None:
    journal.publish(20)
    journal.take()
    journal.goes(20, to=21)
    assert settled(journal.take(), 1) == [SeqRange(20, 0, 0)]


def test_what_came_in_the_same_transaction_is_written_first(journal: Journal) -> None:
    journal.publish(20)
    journal.goes(20, to=30)
    taken = journal.take()
    assert [row.queue_id for row in taken[1].rows] == [20]
    assert settled(taken, 1) == []
    journal.report(2)
    assert settled(journal.take(), 1) == [SeqRange(20, 0, 0)]


def test_a_local_message_that_goes_to_a_source_waits_for_it(journal: Journal) -> None:
    journal.publish(10)
    journal.take()
    journal.goes(10, to=20)
    assert settled(journal.take(), 0) == []
    journal.report(1)
    assert settled(journal.take(), 0) == [SeqRange(10, 0, 0)]


def test_a_message_that_goes_to_a_local_queue_waits_for_this_disk(journal: Journal) -> None:
    journal.publish(20)
    journal.take()
    journal.goes(20, to=10)
    assert settled(journal.take(), 1) == []
    assert settled(journal.take(), 1) == [SeqRange(20, 0, 0)]


def test_of_a_queue_that_is_deleted_nothing_comes_later(journal: Journal) -> None:
    journal.publish(20)
    journal.take()
    journal.goes(20, to=30)
    journal.take()
    journal.buffer.drop(20)
    journal.report(2)
    assert settled(journal.take(), 1) == []


def test_a_row_is_not_settled_as_a_whole_before_a_dead_letter_of_it(journal: Journal) -> None:
    journal.publish(20)
    journal.publish(20)
    journal.take()
    journal.goes(20, to=30)
    journal.take()
    journal.queues[20].settle(1, 1, ACKED)
    journal.buffer.force()
    assert settled(journal.take(), 1) == []
    journal.report(2)
    taken = journal.take()
    assert taken[1].settled == [SeqRange(20, 0, 0), SeqRange(20, 0, 1)]
    assert taken[1].retired == [SeqRange(20, 0, 1)]


def test_a_dead_letter_to_a_source_that_goes_elsewhere_is_not_settled(journal: Journal) -> None:
    journal.publish(20)
    journal.publish(20)
    journal.take()
    journal.goes(20, to=30)
    journal.take()
    lane = journal.buffer.led_sources[2].lane
    journal.buffer.leave(2)
    # It has other sources, and goes on.
    lane.reported = journal.buffer.stored_index
    journal.buffer.force()
    assert settled(journal.take(), 1) == []
    journal.queues[20].settle(1, 1, ACKED)
    journal.buffer.force()
    assert settled(journal.take(), 1) == []


def test_a_dead_letter_that_was_not_taken_when_its_source_goes_to_another_node_is_not_settled(
    journal: Journal,
) -> None:
    journal.publish(10)
    journal.take()
    journal.goes(10, to=30)
    lane = journal.buffer.led_sources[2].lane
    journal.buffer.leave(2)
    lane.reported = journal.buffer.index
    assert settled(journal.take(), 0) == []


def test_what_came_and_went_before_its_source_goes_to_another_node_is_written(journal: Journal) -> None:
    journal.publish(10)
    journal.goes(10, to=30)
    journal.buffer.leave(2)
    transaction = journal.buffer.take()
    assert [row.queue_id for row in transaction.rows] == [10]
    assert transaction.settled == []


def test_what_did_not_all_arrive_is_not_settled(journal: Journal) -> None:
    """A dead letter to many queues takes several ticks, and one of their leaders goes elsewhere in between."""
    journal.publish(20)
    journal.take()
    journal.goes(20, to=21)
    journal.buffer.stray()
    assert settled(journal.take(), 1) == []
    journal.buffer.force()
    assert settled(journal.take(), 1) == []


def test_what_waits_for_one_source_does_not_wait_for_another(journal: Journal) -> None:
    """Source 2 has no majority, source 1 does."""
    for queue_id in (10, 20):
        journal.publish(queue_id)
    journal.take()
    journal.goes(20, to=30)
    journal.take()
    journal.goes(10, to=21)
    journal.take()
    journal.report(1)
    assert journal.buffer.deletable
    taken = journal.take()
    assert (settled(taken, 0), settled(taken, 1)) == ([SeqRange(10, 0, 0)], [])
    journal.report(2)
    assert settled(journal.take(), 1) == [SeqRange(20, 0, 0)]


@pytest.mark.parametrize("first", [1, 2])
def test_a_row_waits_for_all_of_its_dead_letters(journal: Journal, first: int) -> None:
    """Its messages went to two sources, in two transactions; either may commit first."""
    for _ in range(2):
        journal.publish(10)
    journal.take()
    for seq, to in ((0, 20), (1, 30)):
        journal.publish(to)
        journal.queues[10].settle(seq, seq, DEAD_REJECTED, 1)
        journal.take()
    journal.report(first)
    journal.buffer.force()
    assert SeqRange(10, 0, 1) not in settled(journal.take(), 0)
    journal.report(3 - first)
    journal.buffer.force()
    assert settled(journal.take(), 0)[-1] == SeqRange(10, 0, 1)


def test_a_row_of_which_a_dead_letter_is_lost_is_never_settled_as_a_whole(journal: Journal) -> None:
    for _ in range(2):
        journal.publish(10)
    journal.take()
    for seq, to in ((0, 20), (1, 30)):
        journal.publish(to)
        journal.queues[10].settle(seq, seq, DEAD_REJECTED, 1)
        journal.take()
    journal.buffer.leave(2)
    journal.report(1)
    journal.buffer.force()
    assert settled(journal.take(), 0) == [SeqRange(10, 0, 0)]
    assert not journal.buffer.deletable


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_retired_row_costs_does_not_grow_with_what_waits(lost: bool) -> None:
    """Counted in calls and lines, not in time."""

    def cost(waiting: int) -> int:
        withheld, lane, leader = Withheld(), JournalLane(lambda: None, 0, 0), JournalLane(lambda: None, 0, 0)
        leaders = {2: LedSource(7, Numbers(0, NUMBERS_STEP), leader)}
        for number in range(waiting):
            transaction = JournalTransaction(number + 1)
            # Each in a queue of four, with gaps in between.
            transaction.settled = [SeqRange(20 + number % 4, 10 * number, 10 * number)]
            withheld.withhold(transaction, [], {20 + number % 4}, {2}, leaders, lane)
        if lost:
            withheld.leave(2)
        steps = 0

        def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
            nonlocal steps
            steps += 1
            return trace

        rows = [SeqRange(20 + number % 4, 10 * number + 5, 10 * number + 6) for number in range(50)]
        rows += [SeqRange(20 + number % 4, 10 * number, 10 * number + 1) for number in range(50)]
        transaction = JournalTransaction(waiting + 1)
        transaction.settled = list(rows)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            left = withheld.withhold(transaction, rows, (), (), leaders, lane)
        finally:
            sys.settrace(before)
        assert left == transaction.settled == rows[:50]
        return steps

    assert cost(10_000) <= cost(100) + 100


def test_ranges_that_touch_are_one() -> None:
    merged = MergedRanges()
    for first in (8, 0, 4, 2, 6, 20):
        merged.add(first, first + 1)
    assert len(merged) == 2
    assert [at for at in (0, 9, 10, 19, 20, 21, 22) if merged.meets(at, at)] == [0, 9, 20, 21]
    merged.add(5, 30)
    assert len(merged) == 1
    assert merged.meets(15, 15)


def test_places_find_what_meets_a_range() -> None:
    places = RangeMap[str]()
    for first, last, name in ((10, 19, "b"), (0, 4, "a"), (30, 30, "c")):
        places.add(first, last, name)
    assert places.within(4, 10) == ["a", "b"]
    assert places.within(15, 15) == ["b"]
    assert places.within(5, 9) == places.within(20, 29) == places.within(31, 40) == []
    places.remove(10)
    assert places.within(0, 40) == ["a", "c"]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_settled_before_all_that_it_needs_is_committed(seed: int) -> None:
    """Rows of five messages, each of which goes to one of two sources or is acknowledged, in any order; the sources
    commit in any order too. In the end all of it is settled, and each row once."""
    random = Random(seed)
    withheld, lanes = Withheld(), {source: JournalLane(lambda: None, 0, 0) for source in (0, 2, 3)}
    leaders = {source: LedSource(7, Numbers(0, NUMBERS_STEP), lanes[source]) for source in (2, 3)}
    left = {(queue_id, 5 * row): set(range(5)) for queue_id in (20, 21) for row in range(20)}
    needs: dict[tuple[int, int], list[tuple[int, int]]] = {row: [] for row in left}
    seen: list[SeqRange] = []
    index = 0
    done = False
    while not done:
        index += 1
        done = not left
        if done:
            lanes[2].reported = lanes[3].reported = index
        transaction, retired, going = JournalTransaction(index), list[SeqRange](), set[int]()
        entered = set(random.sample((2, 3), random.randint(0, 2)))
        for queue_id, first in random.sample(sorted(left), min(4, len(left))):
            seq = random.choice(sorted(left[queue_id, first]))
            left[queue_id, first].discard(seq)
            going |= {queue_id} if entered else set()
            needs[queue_id, first] += [(source, index) for source in entered]
            if left[queue_id, first]:
                transaction.settled.append(SeqRange(queue_id, first + seq, first + seq))
            else:
                del left[queue_id, first]
                retired.append(SeqRange(queue_id, first, first + 4))
        transaction.settled += retired
        retired = withheld.withhold(transaction, retired, going, entered, leaders, lanes[0])
        withheld.release(transaction, retired)
        for row in retired:
            assert all(lanes[source].reported >= at for source, at in needs[row.queue_id, row.first_seq])
            assert row in transaction.settled
        assert len([each for each in transaction.settled if each.last_seq > each.first_seq]) == len(retired)
        seen += transaction.settled
        if not done:
            lane = lanes[random.choice((2, 3))]
            lane.reported = random.randint(lane.reported, index)
    assert len(seen) == len(set(seen)) == 40 * 5, "four messages of each row, and the row"
