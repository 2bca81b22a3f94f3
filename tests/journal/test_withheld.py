"""What goes on from one source to another is settled when it is safe there.

What is verified: what the buffer hands to the disk, transaction by transaction. Not verified here: what a dead letter
is (`tests/publishing`), replicas.
"""

from __future__ import annotations

import pytest

from amqpd.audit.kinds import ACKED, DEAD_REJECTED
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.lane import JournalLane
from amqpd.journal.numbers import NUMBERS_STEP, Numbers
from amqpd.journal.records import Range, SourceEntry
from amqpd.queues.backlog import Backlog
from tests.journal.test_numbers import run


class Journal:
    """With queues 10 (local), 20 and 21 (of source 1) and 30 (of source 2)."""

    def __init__(self) -> None:
        self.buffer = buffer = JournalBuffer()
        for source in (1, 2):
            lane = JournalLane(buffer.force, buffer.index, buffer.stored_index)
            buffer.home(source, 7, Numbers(0, NUMBERS_STEP), lane)
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
        self.buffer.homes[source].lane.reported = self.buffer.stored_index


def settled(taken: dict[int, SourceEntry], source: int) -> list[Range]:
    return taken[source].settled if source in taken else []


@pytest.fixture
def journal() -> Journal:
    return Journal()


def test_a_letter_to_another_source_settles_when_that_has_committed_it(journal: Journal) -> None:
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
    assert taken[1].settled == taken[1].retired == [Range(20, 0, 0)]
    assert not journal.buffer.deletable


def test_inside_a_source_it_settles_at_once(journal: Journal) -> None:
    journal.publish(20)
    journal.take()
    journal.goes(20, to=21)
    assert settled(journal.take(), 1) == [Range(20, 0, 0)]


def test_what_came_in_the_same_transaction_is_written_first(journal: Journal) -> None:
    journal.publish(20)
    journal.goes(20, to=30)
    taken = journal.take()
    assert [row.queue_id for row in taken[1].rows] == [20]
    assert settled(taken, 1) == []
    journal.report(2)
    assert settled(journal.take(), 1) == [Range(20, 0, 0)]


def test_a_local_message_that_goes_to_a_source_waits_for_it(journal: Journal) -> None:
    journal.publish(10)
    journal.take()
    journal.goes(10, to=20)
    assert settled(journal.take(), 0) == []
    journal.report(1)
    assert settled(journal.take(), 0) == [Range(10, 0, 0)]


def test_a_message_that_goes_to_a_local_queue_waits_for_this_disk(journal: Journal) -> None:
    journal.publish(20)
    journal.take()
    journal.goes(20, to=10)
    assert settled(journal.take(), 1) == []
    assert settled(journal.take(), 1) == [Range(20, 0, 0)]


def test_of_a_queue_that_is_deleted_nothing_comes_later(journal: Journal) -> None:
    journal.publish(20)
    journal.take()
    journal.goes(20, to=30)
    journal.take()
    journal.buffer.drop(20)
    journal.report(2)
    assert settled(journal.take(), 1) == []


def test_a_row_is_not_settled_as_a_whole_before_a_letter_of_it(journal: Journal) -> None:
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
    assert taken[1].settled == [Range(20, 0, 0), Range(20, 0, 1)]
    assert taken[1].retired == [Range(20, 0, 1)]


def test_a_letter_to_a_source_that_goes_elsewhere_is_not_settled(journal: Journal) -> None:
    journal.publish(20)
    journal.publish(20)
    journal.take()
    journal.goes(20, to=30)
    journal.take()
    lane = journal.buffer.homes[2].lane
    journal.buffer.leave(2)
    # It has other sources, and goes on.
    lane.reported = journal.buffer.stored_index
    journal.buffer.force()
    assert settled(journal.take(), 1) == []
    journal.queues[20].settle(1, 1, ACKED)
    journal.buffer.force()
    assert settled(journal.take(), 1) == []


def test_a_letter_that_was_not_taken_when_its_source_goes_elsewhere_is_not_settled(journal: Journal) -> None:
    journal.publish(10)
    journal.take()
    journal.goes(10, to=30)
    lane = journal.buffer.homes[2].lane
    journal.buffer.leave(2)
    lane.reported = journal.buffer.index
    assert settled(journal.take(), 0) == []


def test_what_came_and_went_before_its_source_goes_elsewhere_is_written(journal: Journal) -> None:
    journal.publish(10)
    journal.goes(10, to=30)
    journal.buffer.leave(2)
    transaction = journal.buffer.take()
    assert [row.queue_id for row in transaction.rows] == [10]
    assert transaction.settled == []


def test_what_did_not_all_arrive_is_not_settled(journal: Journal) -> None:
    """A letter to many queues takes several ticks, and one of their homes goes elsewhere in between."""
    journal.publish(20)
    journal.take()
    journal.goes(20, to=21)
    journal.buffer.stray()
    assert settled(journal.take(), 1) == []
    journal.buffer.force()
    assert settled(journal.take(), 1) == []
