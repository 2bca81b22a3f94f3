"""Sources, epochs, what is committed, and undo: what every disk does, one rule a test. Random incarnations are in
`test_sources_properties.py`, what only SQLite's tables show in `test_sources.py`, leaders and replicas beside each
other in `test_replicas.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amqpd.journal.disk import ReplicaState
from amqpd.journal.records import RecoveredQueue, SeqRange, SourceEntry
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import Vote, new_entry
from amqpd.replication.replica import Appended, Undone, VoteCast, Write
from tests.journal.disks import (
    Drive,
    DrivenDisk,
    appended,
    deadlines,
    idle,
    row,
    rows_on_disk,
    store,
    tell,
    transaction,
    undo,
    write,
)
from tests.journal.payloads import entry_of


@pytest.fixture
def disk(drive: Drive) -> Iterator[DrivenDisk]:
    """The queues of source 1 are 20 and 21."""
    opened = drive.open()
    opened.recover()
    yield opened
    opened.close()


def retiring(queue_id: int, first: int, last: int) -> dict[str, list[SeqRange]]:
    """A whole row is settled."""
    return {"settled": [SeqRange(queue_id, first, last)], "retired": [SeqRange(queue_id, first, last)]}


def reopened(drive: Drive, disk: DrivenDisk) -> tuple[DrivenDisk, dict[int, RecoveredQueue]]:
    disk.close()
    again = drive.open()
    assert set(again.recover().queues) <= {10, 11}, "of other sources a start knows no queue"
    return again, again.recovered_of({0, 1}).queues


def test_a_settled_row_stays_until_its_settle_is_committed(disk):
    store(disk, 1, 1, 1, row(20, 0, 9))
    store(disk, 1, 1, 2, **retiring(20, 0, 9))
    idle(disk)
    assert rows_on_disk(disk) == [(20, 0)]
    tell(disk, 1, 1, 1)
    idle(disk)
    assert rows_on_disk(disk) == [(20, 0)]
    tell(disk, 1, 1, 2)
    idle(disk)
    assert rows_on_disk(disk) == []


def test_recovery_keeps_what_is_settled_and_not_committed(drive):
    disk = drive.open()
    disk.recover()
    store(disk, 1, 1, 1, row(20, 0, 9), row(20, 10, 19))
    tell(disk, 1, 1, 1)
    store(disk, 1, 1, 2, **retiring(20, 0, 9))
    disk, queues = reopened(drive, disk)
    idle(disk)
    assert [each.first_seq for each in queues[20].rows] == [10]
    assert rows_on_disk(disk) == [(20, 0), (20, 10)]
    assert [each.first_seq for each in undo(disk, 1, 1, 1)[20].rows] == [0, 10]
    store(disk, 1, 2, 1, **retiring(20, 0, 9))
    disk, _ = reopened(drive, disk)
    tell(disk, 1, 2, 1)
    idle(disk)
    assert rows_on_disk(disk) == [(20, 10)]
    disk.close()


def test_a_dropped_queue_keeps_its_rows_and_its_mark_until_that_is_committed(disk):
    store(disk, 1, 1, 1, row(20, 0, 9), delivered={20: 4}, counts=[(20, 3, 2)])
    before = undo(disk, 1, 1, 1)
    store(disk, 1, 1, 2, dropped=[20])
    idle(disk)
    assert disk.read(20, 0, 9, 1) == []
    assert rows_on_disk(disk) == [(20, 0)]
    assert undo(disk, 1, 1, 1) == before
    assert (before[20].delivered, before[20].counts) == (4, {3: 2})
    store(disk, 1, 1, 3, dropped=[20])
    tell(disk, 1, 1, 3)
    idle(disk)
    assert rows_on_disk(disk) == []


def test_the_order_is_by_epoch_first(disk):
    """A younger leader's journal may have smaller numbers."""
    store(disk, 1, 1, 100, row(20, 0, 0))
    store(disk, 1, 2, 3, row(20, 1, 1))
    with pytest.raises(ValueError, match="does not follow"):
        store(disk, 1, 1, 101, row(20, 2, 2))
    with pytest.raises(ValueError, match="does not follow"):
        store(disk, 1, 2, 3, row(20, 2, 2))
    store(disk, 1, 2, 4, row(20, 2, 2), settled=[SeqRange(20, 0, 0)])
    queues = undo(disk, 1, 2, 3)
    assert [each.first_seq for each in queues[20].rows] == [0, 1]
    queues = undo(disk, 1, 1, 100)
    assert [each.first_seq for each in queues[20].rows] == [0]
    assert disk.head(1).position == (1, 100)


def test_what_was_written_over_comes_back_at_each_step(disk):
    store(disk, 1, 1, 1, row(20, 0, 9), counts=[(20, 3, 1)], delivered={20: 1})
    store(disk, 1, 1, 2, counts=[(20, 3, 2), (20, 4, 1)], delivered={20: 2})
    store(disk, 1, 2, 1, counts=[(20, 3, 3)], delivered={20: 3})
    seen = [undo(disk, 1, 2, 1)[20]]
    seen += [undo(disk, 1, *position)[20] for position in ((1, 2), (1, 1))]
    assert [each.counts for each in seen] == [{3: 3, 4: 1}, {3: 2, 4: 1}, {3: 1}]
    assert [each.delivered for each in seen] == [3, 2, 1]
    assert undo(disk, 1, 0, 0) == {}


def test_what_an_older_epoch_wrote_comes_back_though_its_numbers_are_larger(disk):
    store(disk, 1, 1, 100, row(20, 0, 9), counts=[(20, 3, 1)], delivered={20: 1})
    store(disk, 1, 2, 3)
    store(disk, 1, 2, 5, counts=[(20, 3, 2)], delivered={20: 2}, settled=[SeqRange(20, 5, 5)])
    queue = undo(disk, 1, 2, 3)[20]
    assert (queue.counts, queue.delivered, queue.rows[0].settled) == ({3: 1}, 1, [])


def test_what_a_younger_epoch_wrote_over_itself_goes_though_its_numbers_are_smaller(disk):
    store(disk, 1, 1, 100, row(20, 0, 9))
    store(disk, 1, 2, 1, counts=[(20, 3, 1)], delivered={20: 1})
    store(disk, 1, 2, 2, counts=[(20, 3, 2)], delivered={20: 2})
    queue = undo(disk, 1, 1, 100)[20]
    assert (queue.counts, queue.delivered) == ({}, 0)


def test_where_an_undo_went_back_to_is_known_after_a_restart(drive):
    disk = drive.open()
    disk.recover()
    store(disk, 1, 1, 1, row(20, 0, 9), row(21, 0, 9), delivered={21: 4})
    write(disk, appended(disk, SourceEntry(1, 1, 2, [row(20, 10, 19)], reserved=700)))
    undo(disk, 1, 1, 1)
    for _ in range(2):
        head = disk.head(1)
        assert (head.position, head.reserved) == ((1, 1), 700)
        disk, queues = reopened(drive, disk)
        assert (queues[20].next_seq, queues[21].next_seq) == (700, 700)
    disk.close()


def test_the_older_settle_counts(disk):
    store(disk, 1, 1, 1, row(20, 0, 9))
    store(disk, 1, 1, 2, settled=[SeqRange(20, 2, 3)])
    store(disk, 1, 1, 3, settled=[SeqRange(20, 2, 3)])
    assert undo(disk, 1, 1, 2)[20].rows[0].settled == [(2, 3)]
    assert undo(disk, 1, 1, 1)[20].rows[0].settled == []


def test_an_undo_is_of_one_source(disk):
    first = appended(disk, SourceEntry(1, 1, 1, [row(20, 0, 0)]))
    second = appended(disk, SourceEntry(2, 5, 7, [row(30, 0, 0)]))
    disk.commit(JournalTransaction(1, [row(10, 0, 0)], writes=[first, second]))
    undo(disk, 1, 0, 0)
    assert set(disk.recovered_of({0, 1, 2}).queues) == {10, 30}
    assert disk.head(2).position == (5, 7)


def test_what_is_committed_is_not_undone(disk):
    store(disk, 1, 1, 1, row(20, 0, 0))
    store(disk, 1, 1, 2, row(20, 1, 1))
    tell(disk, 1, 1, 1)
    for position in ((0, 0), (1, 3)):
        with pytest.raises(ValueError, match="no undo to"):
            undo(disk, 1, *position)
    with pytest.raises(ValueError, match="no undo to"):
        undo(disk, 0, 0, 0)
    assert len(undo(disk, 1, 1, 1)[20].rows) == 1


def test_what_is_not_stored_is_not_committed(disk):
    store(disk, 1, 1, 1, row(20, 0, 0))
    with pytest.raises(ValueError, match="not stored here"):
        tell(disk, 1, 1, 2)
    with pytest.raises(ValueError, match="not stored here"):
        tell(disk, 7, 1, 1)


def test_the_local_source_is_never_replicated(disk):
    entry = SourceEntry(0, 9, 9)
    for refused in (
        JournalTransaction(1, writes=[appended(disk, entry)]),
        JournalTransaction(1, writes=[Undone(0, (0, 0))]),
        JournalTransaction(1, committed={0: (1, 0)}),
        JournalTransaction(1, entries=[entry]),
    ):
        with pytest.raises(ValueError, match=r"follow|no undo|not stored|become writes"):
            disk.commit(refused)


def test_of_a_transaction_that_is_refused_nothing_is_written(disk):
    store(disk, 1, 1, 1, row(20, 0, 0), delivered={20: 1})
    before = disk.recovered_of({1}), disk.replicas()
    second, other = SourceEntry(1, 1, 2, [row(20, 1, 1)], delivered={20: 2}), SourceEntry(1, 1, 9)
    writes: list[Write] = [appended(disk, second), VoteCast(1, Vote(3, "b", 1)), appended(disk, other, (1, 7))]
    with pytest.raises(ValueError, match="follows"):
        write(disk, *writes)
    assert (disk.recovered_of({1}), disk.replicas()) == before
    store(disk, 1, 1, 2, row(20, 1, 1))


def test_an_entry_is_of_the_position_that_its_payload_says(disk):
    entry = appended(disk, SourceEntry(1, 1, 1)).entry
    with pytest.raises(ValueError, match="payload"):
        write(disk, Appended(new_entry(1, (1, 2), (0, 0), entry.payload)))
    with pytest.raises(ValueError, match="payload"):
        write(disk, Appended(new_entry(1, (1, 1), (0, 0), entry.payload + b"more")))
    with pytest.raises(ValueError, match="payload"):
        write(disk, Appended(new_entry(1, (1, 1), (0, 0), b"short")))


def test_writes_are_carried_out_in_order(disk):
    """Each sees what the one before it did, also of records that are written over."""
    store(disk, 1, 1, 1, row(20, 0, 9), counts=[(20, 3, 1)], delivered={20: 1})
    first = SourceEntry(1, 1, 2, [row(20, 10, 19)], counts=[(20, 3, 2)], delivered={20: 2}, dropped=[21])
    second = SourceEntry(1, 1, 3, [row(20, 20, 29)], counts=[(20, 3, 3)], delivered={20: 3})
    instead = SourceEntry(1, 2, 1, [row(20, 10, 14)], delivered={20: 7})
    write(
        disk,
        appended(disk, first),
        appended(disk, second, (1, 2)),
        Undone(1, (1, 1)),
        VoteCast(1, Vote(2, "b", 4)),
        appended(disk, instead, (1, 1)),
        committed={1: (1, 1)},
    )
    queue = disk.recovered_of({1}).queues[20]
    assert [(each.first_seq, each.last_seq) for each in queue.rows] == [(0, 9), (10, 14)]
    assert (queue.counts, queue.delivered) == ({3: 1}, 7)
    (state,) = disk.replicas()
    assert (state.vote, state.base, [link.position for link in state.tail]) == (Vote(2, "b", 4), (1, 1), [(2, 1)])


def test_a_source_is_known_by_its_vote_alone(drive):
    disk = drive.open()
    disk.recover()
    write(disk, VoteCast(7, Vote(1, "a", 1)), VoteCast(7, Vote(2, "b", 1)))
    disk, queues = reopened(drive, disk)
    assert disk.replicas() == [ReplicaState(7, Vote(2, "b", 1), (0, 0), [], 0)]
    assert queues == {}
    disk.close()


def test_entries_come_back_as_they_were_made(drive):
    disk = drive.open()
    disk.recover()
    timed = deadlines((99, 0, 3), (100, 8, 9))
    entries = [
        SourceEntry(1, 1, 1, [row(20, 0, 9, nbytes=9000, deadlines=timed, published_ms=7), row(21, 0, 0, nbytes=0)]),
        SourceEntry(1, 1, 3, [], [SeqRange(20, 0, 9)], [SeqRange(20, 0, 9)], {20: 1}, [(20, 3, 1)], reserved=50),
        SourceEntry(1, 1, 4),
        SourceEntry(1, 2, 1, [row(20, 10, 10)], dropped=[21]),
    ]
    for entry in entries:
        write(disk, appended(disk, entry))
    disk, _ = reopened(drive, disk)
    found = disk.log_entries(1, (0, 0), 1 << 20)
    assert [entry_of(each.payload) for each in found] == entries
    assert all(each.sound for each in found)
    assert [each.before for each in found] == [(0, 0), (1, 1), (1, 3), (1, 4)]
    assert [each.position for each in disk.log_entries(1, (1, 1), 1)] == [(1, 3)]
    assert disk.log_entries(1, (2, 1), 1 << 20) == []
    tell(disk, 1, 1, 3)
    assert disk.log_entries(1, (0, 0), 1 << 20) == found[2:]
    disk.close()


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
    entry = appended(disk, SourceEntry(1, 1, 1, [row(20, 0, 0)], reserved=700))
    disk.commit(JournalTransaction(1, [row(10, 0, 0)], writes=[entry]))
    # An undo takes back the entry, and not that numbers may have been given.
    undo(disk, 1, 0, 0)
    store(disk, 1, 2, 1, row(20, 700, 700))
    disk, queues = reopened(drive, disk)
    # The local source reserves nothing: its queues go on behind what they have.
    assert (queues[10].next_seq, queues[20].next_seq) == (1, 701)
    assert disk.replicas()[0].reserved == 700


def test_what_is_settled_after_an_undo_leaves_by_itself(disk):
    """Nobody hands it in again: its queue is made from what the undo found."""
    store(disk, 1, 1, 1, row(20, 0, 9), row(20, 10, 19))
    store(disk, 1, 1, 2, **retiring(20, 0, 9))
    store(disk, 1, 1, 3, **retiring(20, 10, 19))
    assert [each.first_seq for each in undo(disk, 1, 1, 2)[20].rows] == [10]
    idle(disk)
    assert rows_on_disk(disk) == [(20, 0), (20, 10)]
    tell(disk, 1, 1, 2)
    idle(disk)
    assert rows_on_disk(disk) == [(20, 10)]


def test_an_undo_takes_nothing_from_what_other_sources_hold(disk):
    store(disk, 1, 1, 1, row(20, 0, 9))
    store(disk, 2, 1, 1, row(30, 0, 9))
    store(disk, 2, 1, 2, **retiring(30, 0, 9))
    undo(disk, 1, 0, 0)
    idle(disk)
    assert rows_on_disk(disk) == [(30, 0)]
    tell(disk, 2, 1, 2)
    idle(disk)
    assert rows_on_disk(disk) == []


def test_numbers_whose_rows_left_are_not_given_again_after_an_undo(disk):
    store(disk, 1, 1, 1, row(20, 0, 9))
    store(disk, 1, 1, 2, **retiring(20, 0, 9))
    store(disk, 1, 1, 3)
    tell(disk, 1, 1, 2)
    idle(disk)
    assert rows_on_disk(disk) == []
    assert undo(disk, 1, 1, 2)[20].next_seq == 10


def test_a_local_queue_goes_on_behind_what_it_has_and_a_new_one_begins_at_0(drive):
    disk = drive.open()
    disk.recover()
    disk.commit(transaction(1, row(10, 0, 4)))
    _, queues = reopened(drive, disk)
    assert {queue_id: queue.next_seq for queue_id, queue in queues.items()} == {10: 5}
