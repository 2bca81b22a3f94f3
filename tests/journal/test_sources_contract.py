"""Sources, epochs, what is committed, and undo: what every disk does, one rule a test. Random lives are in
`test_sources_properties.py`, what only SQLite's tables show in `test_sources.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amqpd.journal.records import Range, RecoveredQueue, SourceEntry
from amqpd.journal.transaction import Transaction
from tests.journal.disks import Drive, DrivenDisk, idle, row, rows_on_disk, store, transaction


@pytest.fixture
def disk(drive: Drive) -> Iterator[DrivenDisk]:
    """With source 1 replicated, whose queues are 20 and 21."""
    opened = drive.open()
    opened.recover()
    opened.set_replicated(1, True)
    yield opened
    opened.close()


def reopened(drive: Drive, disk: DrivenDisk) -> tuple[DrivenDisk, dict[int, RecoveredQueue]]:
    disk.close()
    again = drive.open()
    return again, again.recover().queues


def test_a_settled_row_stays_until_its_settle_is_committed(disk):
    store(disk, 1, 1, 1, row(20, 0, 9))
    store(disk, 1, 1, 2, settled=[Range(20, 0, 9)])
    store(disk, 1, 1, 3, deletes=[Range(20, 0, 9)])
    idle(disk)
    assert rows_on_disk(disk) == [(20, 0)]
    disk.committed(1, 1, 1)
    idle(disk)
    assert rows_on_disk(disk) == [(20, 0)]
    disk.committed(1, 1, 2)
    idle(disk)
    assert rows_on_disk(disk) == []


def test_recovery_keeps_what_is_settled_and_not_committed(drive):
    disk = drive.open()
    disk.recover()
    disk.set_replicated(1, True)
    store(disk, 1, 1, 1, row(20, 0, 9), row(20, 10, 19))
    disk.committed(1, 1, 1)
    store(disk, 1, 1, 2, settled=[Range(20, 0, 9)])
    disk, queues = reopened(drive, disk)
    idle(disk)
    assert [each.first_seq for each in queues[20].rows] == [10]
    assert rows_on_disk(disk) == [(20, 0), (20, 10)]
    assert [each.first_seq for each in disk.undo(1, 1, 1).queues[20].rows] == [0, 10]
    store(disk, 1, 2, 1, settled=[Range(20, 0, 9)])
    disk, _ = reopened(drive, disk)
    disk.committed(1, 2, 1)
    idle(disk)
    assert rows_on_disk(disk) == [(20, 10)]
    disk.close()


def test_a_dropped_queue_keeps_its_rows_and_its_mark_until_that_is_committed(disk):
    store(disk, 1, 1, 1, row(20, 0, 9), delivered={20: 4}, counts=[(20, 3, 2)])
    before = disk.undo(1, 1, 1).queues
    store(disk, 1, 1, 2, dropped=[20])
    idle(disk)
    assert disk.read(20, 0, 9, 1) == []
    assert rows_on_disk(disk) == [(20, 0)]
    assert disk.undo(1, 1, 1).queues == before
    assert (before[20].delivered, before[20].counts) == (4, {3: 2})
    store(disk, 1, 1, 3, dropped=[20])
    disk.committed(1, 1, 3)
    idle(disk)
    assert rows_on_disk(disk) == []


def test_the_order_is_by_epoch_first(disk):
    """A younger home's journal may have smaller numbers."""
    store(disk, 1, 1, 100, row(20, 0, 0))
    store(disk, 1, 2, 3, row(20, 1, 1))
    with pytest.raises(ValueError, match="does not follow"):
        store(disk, 1, 1, 101, row(20, 2, 2))
    with pytest.raises(ValueError, match="does not follow"):
        store(disk, 1, 2, 3, row(20, 2, 2))
    store(disk, 1, 2, 4, row(20, 2, 2), settled=[Range(20, 0, 0)])
    queues = disk.undo(1, 2, 3).queues
    assert [each.first_seq for each in queues[20].rows] == [0, 1]
    queues = disk.undo(1, 1, 100).queues
    assert [each.first_seq for each in queues[20].rows] == [0]
    assert disk.head(1).position == (1, 100)


def test_what_was_written_over_comes_back_at_each_step(disk):
    store(disk, 1, 1, 1, row(20, 0, 9), counts=[(20, 3, 1)], delivered={20: 1})
    store(disk, 1, 1, 2, counts=[(20, 3, 2), (20, 4, 1)], delivered={20: 2})
    store(disk, 1, 2, 1, counts=[(20, 3, 3)], delivered={20: 3})
    seen = [disk.undo(1, 2, 1).queues[20]]
    seen += [disk.undo(1, *position).queues[20] for position in ((1, 2), (1, 1))]
    assert [each.counts for each in seen] == [{3: 3, 4: 1}, {3: 2, 4: 1}, {3: 1}]
    assert [each.delivered for each in seen] == [3, 2, 1]
    assert disk.undo(1, 0, 0).queues == {}


def test_what_an_older_epoch_wrote_comes_back_though_its_numbers_are_larger(disk):
    store(disk, 1, 1, 100, row(20, 0, 9), counts=[(20, 3, 1)], delivered={20: 1})
    store(disk, 1, 2, 3)
    store(disk, 1, 2, 5, counts=[(20, 3, 2)], delivered={20: 2}, settled=[Range(20, 5, 5)])
    queue = disk.undo(1, 2, 3).queues[20]
    assert (queue.counts, queue.delivered, queue.rows[0].settled) == ({3: 1}, 1, [])


def test_what_a_younger_epoch_wrote_over_itself_goes_though_its_numbers_are_smaller(disk):
    store(disk, 1, 1, 100, row(20, 0, 9))
    store(disk, 1, 2, 1, counts=[(20, 3, 1)], delivered={20: 1})
    store(disk, 1, 2, 2, counts=[(20, 3, 2)], delivered={20: 2})
    queue = disk.undo(1, 1, 100).queues[20]
    assert (queue.counts, queue.delivered) == ({}, 0)


def test_where_an_undo_went_back_to_is_known_after_a_restart(drive):
    disk = drive.open()
    disk.recover()
    disk.set_replicated(1, True)
    store(disk, 1, 1, 1, row(20, 0, 9), row(21, 0, 9), delivered={21: 4})
    disk.commit(Transaction(2, entries=[SourceEntry(1, 1, 2, [row(20, 10, 19)], reserved=700)]))
    disk.undo(1, 1, 1)
    for _ in range(2):
        head = disk.head(1)
        assert (head.position, head.reserved) == ((1, 1), 700)
        disk, queues = reopened(drive, disk)
        assert (queues[20].next_seq, queues[21].next_seq) == (700, 700)
    disk.close()


def test_the_older_settle_counts(disk):
    store(disk, 1, 1, 1, row(20, 0, 9))
    store(disk, 1, 1, 2, settled=[Range(20, 2, 3)])
    store(disk, 1, 1, 3, settled=[Range(20, 2, 3)])
    assert disk.undo(1, 1, 2).queues[20].rows[0].settled == [(2, 3)]
    assert disk.undo(1, 1, 1).queues[20].rows[0].settled == []


def test_an_undo_is_of_one_source(disk):
    disk.set_replicated(2, True)
    both = [SourceEntry(1, 1, 1, [row(20, 0, 0)]), SourceEntry(2, 5, 7, [row(30, 0, 0)])]
    disk.commit(Transaction(1, [row(10, 0, 0)], entries=both))
    assert set(disk.undo(1, 0, 0).queues) == {10, 30}
    assert disk.head(2).position == (5, 7)


def test_what_is_committed_is_not_undone(disk):
    store(disk, 1, 1, 1, row(20, 0, 0))
    store(disk, 1, 1, 2, row(20, 1, 1))
    disk.committed(1, 1, 1)
    for position in ((0, 0), (1, 3)):
        with pytest.raises(ValueError, match="no undo to"):
            disk.undo(1, *position)
    with pytest.raises(ValueError, match="no undo to"):
        disk.undo(0, 0, 0)
    assert len(disk.undo(1, 1, 1).queues[20].rows) == 1


def test_what_is_not_stored_is_not_committed(disk):
    store(disk, 1, 1, 1, row(20, 0, 0))
    with pytest.raises(ValueError, match="not stored here"):
        disk.committed(1, 1, 2)
    with pytest.raises(ValueError, match="not stored here"):
        disk.committed(7, 1, 1)


def test_the_local_source_is_never_replicated(disk):
    with pytest.raises(ValueError, match="cannot be replicated"):
        disk.set_replicated(0, True)
    with pytest.raises(ValueError, match="does not follow"):
        disk.commit(Transaction(1, entries=[SourceEntry(0, 9, 9)]))


def test_a_source_that_is_not_replicated_any_more_commits_what_it_stores(disk):
    store(disk, 1, 1, 1, row(20, 0, 0))
    store(disk, 1, 1, 2, settled=[Range(20, 0, 0)])
    store(disk, 1, 1, 3, deletes=[Range(20, 0, 0)])
    disk.set_replicated(1, False)
    idle(disk)
    assert rows_on_disk(disk) == []


def test_each_start_is_a_new_epoch_of_the_local_source(drive):
    for epoch in (1, 2, 3):
        disk = drive.open()
        disk.recover()
        assert disk.head(0).epoch == epoch
        disk.close()
    disk = drive.open()
    disk.recover()
    disk.commit(transaction(1, row(10, 0, 0)))
    assert disk.head(0).position == (4, 1)
    disk.close()


def test_a_queue_goes_on_above_what_was_reserved(drive):
    disk = drive.open()
    disk.recover()
    disk.set_replicated(1, True)
    disk.commit(Transaction(1, [row(10, 0, 0)], entries=[SourceEntry(1, 1, 1, [row(20, 0, 0)], reserved=700)]))
    # An undo takes back the entry, and not that numbers may have been given.
    disk.undo(1, 0, 0)
    store(disk, 1, 2, 1, row(20, 700, 700))
    disk.close()
    recovered = drive.open().recover()
    # The local source reserves nothing: its queues go on behind what they have.
    assert (recovered.queues[10].next_seq, recovered.queues[20].next_seq) == (1, 701)


def test_what_is_settled_after_an_undo_leaves_by_itself(disk):
    """Nobody hands it in again: its queue is made from what the undo found."""
    store(disk, 1, 1, 1, row(20, 0, 9), row(20, 10, 19))
    store(disk, 1, 1, 2, settled=[Range(20, 0, 9)])
    store(disk, 1, 1, 3, settled=[Range(20, 10, 19)])
    store(disk, 1, 1, 4, deletes=[Range(20, 0, 9)])
    disk.committed(1, 1, 2)
    idle(disk)
    assert rows_on_disk(disk) == [(20, 0), (20, 10)]
    queues = disk.undo(1, 1, 2).queues
    assert [each.first_seq for each in queues[20].rows] == [10]
    idle(disk)
    assert rows_on_disk(disk) == [(20, 10)]


def test_an_undo_takes_nothing_from_what_other_sources_hold(disk):
    disk.set_replicated(2, True)
    store(disk, 2, 1, 1, row(30, 0, 9))
    store(disk, 2, 1, 2, settled=[Range(30, 0, 9)])
    store(disk, 2, 1, 3)
    store(disk, 2, 1, 4, deletes=[Range(30, 0, 9)])
    disk.committed(2, 1, 2)
    disk.undo(1, 0, 0)
    idle(disk)
    disk.committed(2, 1, 3)
    idle(disk)
    assert rows_on_disk(disk) == []


def test_numbers_whose_rows_left_are_not_given_again_after_an_undo(disk):
    store(disk, 1, 1, 1, row(20, 0, 9))
    store(disk, 1, 1, 2, settled=[Range(20, 0, 9)])
    store(disk, 1, 1, 3, deletes=[Range(20, 0, 9)])
    disk.committed(1, 1, 2)
    idle(disk)
    assert rows_on_disk(disk) == []
    assert disk.undo(1, 1, 2).queues[20].next_seq == 10


def test_a_local_queue_goes_on_behind_what_it_has_and_a_new_one_begins_at_0(drive):
    disk = drive.open()
    disk.recover()
    disk.commit(transaction(1, row(10, 0, 4)))
    _, queues = reopened(drive, disk)
    assert {queue_id: queue.next_seq for queue_id, queue in queues.items()} == {10: 5}
