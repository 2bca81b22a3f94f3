"""Sequence numbers are given inside a reservation that is committed, and it is extended before it is used up."""

from __future__ import annotations

from pamqp import commands

from amqpd.journal.buffer import FULL_BYTES, JournalBuffer
from amqpd.journal.lane import JournalLane
from amqpd.journal.numbers import NUMBERS_STEP, Numbers
from amqpd.journal.records import SeqRange
from amqpd.kernel import Run
from amqpd.kernel.rows import parse_row
from amqpd.queues.backlog import Backlog
from tests.clients.wire import publish_bytes


def run() -> Run:
    (found,) = parse_row(publish_bytes(1, "", "q", b"body", commands.Basic.Properties()))
    return found


def test_more_is_asked_for_when_half_is_left():
    numbers = Numbers(0, NUMBERS_STEP)
    numbers.used(NUMBERS_STEP // 2)
    assert (numbers.begins, numbers.short, numbers.take(1)) == (0, False, 0)
    numbers.used(NUMBERS_STEP // 2 + 1)
    reserved = numbers.take(2)
    assert reserved >= 2 * NUMBERS_STEP
    assert numbers.take(3) == 0
    assert numbers.reserved == NUMBERS_STEP
    numbers.committed(1)
    assert numbers.reserved == NUMBERS_STEP
    numbers.committed(3)
    assert numbers.reserved == reserved
    numbers.used(reserved - NUMBERS_STEP // 2)
    assert not numbers.wanted


def test_publishers_wait_when_nearly_all_are_used_and_more_is_not_committed():
    numbers = Numbers(0, NUMBERS_STEP)
    numbers.used(NUMBERS_STEP * 3 // 4 + 1)
    assert numbers.short
    numbers.committed(7)
    assert numbers.short
    numbers.take(8)
    numbers.committed(8)
    assert not numbers.short


def test_a_queue_that_goes_on_where_the_reservation_ends_asks_for_more_though_the_same_one_is_renewed():
    """A node became the leader, and the set of its source changed at once: all publishers of the node waited, until
    something was consumed. The queue is read when the reservation is on the disk, and goes on behind it."""
    numbers = Numbers(40, 40)
    numbers.take(4)
    numbers.committed(4)
    numbers.renew()
    numbers.used(numbers.reserved)
    assert (numbers.short, numbers.wanted) == (True, True)
    assert numbers.take(5) == 40 + 2 * NUMBERS_STEP
    numbers.committed(5)
    assert (numbers.short, numbers.wanted) == (False, False)


def test_what_is_used_while_a_reservation_is_on_its_way_is_asked_for_when_it_is_committed():
    """Publishers wait by then, so nobody uses another number."""
    numbers = Numbers(40, 40)
    numbers.take(4)
    numbers.used(40 + NUMBERS_STEP)
    assert (numbers.short, numbers.wanted) == (True, False)
    numbers.committed(4)
    assert (numbers.short, numbers.wanted) == (True, True)
    numbers.take(5)
    numbers.committed(5)
    assert (numbers.short, numbers.wanted) == (False, False)


def test_an_epoch_for_which_nothing_could_be_reserved_asks_at_once():
    buffer = JournalBuffer(3)
    numbers = Numbers(40, 40)
    buffer.lead(5, 7, numbers, JournalLane(buffer.force, buffer.index, buffer.stored_index))
    assert (buffer.full, buffer.full_because, buffer.pending) == (True, "numbers", True)
    [entry] = buffer.take().entries
    assert (entry.source, entry.epoch, entry.idx, entry.reserved) == (5, 7, 4, 40 + NUMBERS_STEP)
    buffer.stored(4)
    buffer.committed(4)
    assert buffer.full
    buffer.source_committed(5, 4)
    assert (buffer.full, buffer.full_because, buffer.pending) == (False, None, False)


def test_a_full_buffer_says_what_publishers_wait_for_first():
    buffer = JournalBuffer(3)
    buffer.lead(5, 7, Numbers(40, 40), JournalLane(buffer.force, buffer.index, buffer.stored_index))
    buffer.overfull = True
    assert (buffer.full, buffer.full_because) == (True, "majorities")
    buffer.gathered_bytes = FULL_BYTES + 1
    assert (buffer.full, buffer.full_because) == (True, "disk")
    buffer.gathered_bytes, buffer.overfull = FULL_BYTES, False
    assert (buffer.full, buffer.full_because) == (True, "numbers")


def test_a_queue_of_a_replicated_source_begins_where_the_epoch_does_and_asks_for_more():
    buffer = JournalBuffer(3)
    numbers = Numbers(100, 100 + NUMBERS_STEP)
    buffer.lead(5, 7, numbers, JournalLane(buffer.force, buffer.index, buffer.stored_index))
    buffer.assign(1, 5)
    backlog = Backlog(1, buffer, True)
    assert (backlog.store.next_seq, backlog.store.cursor) == (100, 100)
    backlog.store.next_seq = 100 + NUMBERS_STEP // 2
    backlog.publish(run(), True, 0)
    assert not numbers.wanted
    buffer.take()
    backlog.publish(run(), True, 0)
    assert numbers.wanted
    [entry] = buffer.take().entries
    assert entry.reserved > 100 + NUMBERS_STEP
    assert [each.first_seq for each in entry.rows] == [101 + NUMBERS_STEP // 2]


def test_what_passes_through_a_replicated_source_uses_numbers_too():
    buffer = JournalBuffer(3)
    numbers = Numbers(0, NUMBERS_STEP)
    buffer.lead(5, 7, numbers, JournalLane(buffer.force, buffer.index, buffer.stored_index))
    buffer.assign(1, 5)
    backlog = Backlog(1, buffer, True)
    backlog.store.next_seq = backlog.store.cursor = NUMBERS_STEP // 2
    backlog.fresh.append(run())
    backlog.ready = 1
    backlog.passed_on(1)
    assert numbers.wanted


def test_the_local_source_reserves_nothing():
    buffer = JournalBuffer(3)
    backlog = Backlog(1, buffer, True)
    assert (backlog.store.next_seq, buffer.numbers_of(1), buffer.full) == (0, None, False)


def test_what_is_of_another_source_becomes_an_entry_of_it():
    buffer = JournalBuffer()
    buffer.lead(5, 7, Numbers(1000, 1000), JournalLane(buffer.force, buffer.index, buffer.stored_index))
    buffer.assign(2, 5)
    local, other = Backlog(1, buffer, True), Backlog(2, buffer, True)
    for backlog in (local, other):
        backlog.publish(run(), True, 0)
        buffer.delivered(backlog.queue_id, 1)
        buffer.retire(backlog.queue_id, 0, 3)
    buffer.count(2, 1000, 2)
    buffer.drop(3)
    transaction = buffer.take()
    [entry] = transaction.entries
    assert (entry.source, entry.epoch, entry.idx) == (5, 7, 1)
    assert [(each.queue_id, each.first_seq) for each in entry.rows] == [(2, 1000)]
    assert [(each.queue_id, each.first_seq) for each in transaction.rows] == [(1, 0)]
    assert (entry.settled, transaction.settled) == ([SeqRange(2, 0, 3)], [SeqRange(1, 0, 3)])
    assert (entry.delivered, transaction.delivered) == ({2: 1}, {1: 1})
    assert (entry.counts, transaction.counts, transaction.dropped) == ([(2, 1000, 2)], [], [3])
    assert entry.reserved == 1000 + NUMBERS_STEP
    buffer.stored(1)
    buffer.committed(1)
    later = buffer.take()
    assert entry.retired == [SeqRange(2, 0, 3)], "at once: each disk lets it go when it knows that this is committed"
    assert (later.deletes, later.entries) == ([SeqRange(1, 0, 3)], [])
