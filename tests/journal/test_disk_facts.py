"""What every disk keeps beside the bodies: their size, their age, deadlines, and how often messages came back."""

from __future__ import annotations

import pytest

from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow, SeqRange
from tests.journal.disks import Drive, deadlines, row, transaction

NOW_MS = 1_700_000_000_000


def reopened(drive: Drive, disk) -> Recovered:
    disk.close()
    again = drive.open()
    recovered = again.recover()
    again.close()
    return recovered


@pytest.fixture
def disk(drive: Drive):
    disk = drive.open()
    disk.recover()
    yield disk
    disk.close()


def test_size_age_and_deadlines_come_back_with_recovery_and_with_reading(drive, disk):
    some = deadlines((NOW_MS + 5, 3, 9), (NOW_MS + 60_000, 0, 2))
    rows = [
        row(1, 0, 9, body_bytes=7, published_ms=NOW_MS, deadlines=some),
        row(1, 10, 10, nbytes=0),
        row(1, 11, 12, body_bytes=1 << 40, published_ms=NOW_MS + 1),
        row(2, 0, 0, persistent=False, deadlines=deadlines((NOW_MS, 0, 0))),
        row(2, 1, 1, deadlines=deadlines((0, 1, 1))),
    ]
    disk.commit(transaction(1, *rows, SeqRange(1, 0, 1)))
    assert disk.read(1, 0, 99, 1 << 20) == rows[:3]
    assert disk.read(2, 0, 99, 1 << 20) == rows[3:]
    assert reopened(drive, disk) == Recovered(
        1,
        {
            1: RecoveredQueue(
                [
                    RecoveredRow(0, 9, 20, [(0, 1)], 7, NOW_MS, some),
                    RecoveredRow(10, 10, 0),
                    RecoveredRow(11, 12, 20, [], 1 << 40, NOW_MS + 1),
                ],
                13,
                0,
            ),
            2: RecoveredQueue([RecoveredRow(1, 1, 20, [], 0, 0, deadlines((0, 1, 1)))], 2, 0),
        },
    )


def test_many_deadlines_of_many_rows(drive, disk):
    rows = [
        row(queue_id, 100 * n, 100 * n + 99, deadlines=deadlines(*((NOW_MS + at, at, at) for at in range(100))))
        for queue_id in (1, 2)
        for n in range(300)
    ]
    disk.commit(transaction(1, *rows))
    disk.commit(transaction(2, SeqRange(1, 0, 9_999), deletes=[SeqRange(1, 0, 9_999)]))
    recovered = reopened(drive, disk)
    assert [each.deadlines for each in recovered.queues[1].rows] == [each.deadlines for each in rows[100:300]]
    assert [each.deadlines for each in recovered.queues[2].rows] == [each.deadlines for each in rows[300:]]


def test_counts_come_back_and_the_last_one_written_counts(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9), row(2, 0, 9), counts=[(1, 3, 1), (1, 4, 1), (1, 3, 2), (2, 0, 9)]))
    disk.commit(transaction(2, counts=[(1, 4, 7), (1, 9, 1), (2, 0, 8)]))
    recovered = reopened(drive, disk)
    assert recovered.queues[1].counts == {3: 2, 4: 7, 9: 1}
    assert recovered.queues[2].counts == {0: 8}


def test_counts_of_settled_messages_are_left_out(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9), row(1, 10, 19), counts=[(1, seq, 1) for seq in (0, 3, 4, 7, 12)]))
    disk.commit(transaction(2, SeqRange(1, 3, 4), SeqRange(1, 10, 19), SeqRange(1, 7, 7)))
    assert reopened(drive, disk).queues[1].counts == {0: 1}
    assert drive.open().recover().queues[1].counts == {0: 1}


def test_counts_leave_with_their_rows(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9), row(1, 10, 19), counts=[(1, 5, 1), (1, 15, 2)]))
    disk.commit(transaction(2, SeqRange(1, 0, 9)))
    disk.commit(transaction(3, deletes=[SeqRange(1, 0, 9)]))
    assert reopened(drive, disk).queues[1].counts == {15: 2}


def test_counts_of_transient_messages_leave_with_them(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9, persistent=False), row(1, 10, 19), counts=[(1, 5, 1), (1, 15, 2)]))
    assert reopened(drive, disk).queues[1].counts == {15: 2}


def test_a_dropped_queue_takes_counts_and_deadlines_along(drive, disk):
    """Also when the id were used again: nothing old shows up in the new queue."""
    some = deadlines((NOW_MS, 0, 9))
    disk.commit(transaction(1, row(1, 0, 9, deadlines=some), row(2, 0, 9, deadlines=some), counts=[(1, 5, 1)]))
    disk.commit(transaction(2, dropped=[1], counts=[(1, 6, 1), (2, 5, 1)]))
    disk.commit(transaction(3, row(1, 0, 9), counts=[(1, 7, 3)]))
    while disk.vacuum_step():
        pass
    assert disk.read(1, 0, 9, 1000) == [row(1, 0, 9)]
    assert reopened(drive, disk) == Recovered(
        3,
        {
            1: RecoveredQueue([RecoveredRow(0, 9, 20)], 10, 0, {7: 3}),
            2: RecoveredQueue([RecoveredRow(0, 9, 20, [], 0, 0, some)], 10, 0, {5: 1}),
        },
    )


def test_a_purge_of_more_than_one_commit_deletes_takes_them_along_too(drive, disk):
    rows = [row(1, 10 * n, 10 * n + 9, deadlines=deadlines((NOW_MS, 10 * n, 10 * n))) for n in range(3000)]
    counts = [(1, seq, seq + 1) for seq in range(0, 30_010, 5)]
    disk.commit(transaction(1, *rows, row(1, 30_000, 30_009), counts=counts))
    disk.commit(transaction(2, SeqRange(1, 0, 29_999)))
    disk.commit(transaction(3, deletes=[SeqRange(1, 10 * n, 10 * n + 9) for n in range(3000)]))
    disk.commit(transaction(4, counts=[(1, 30_009, 1)]))
    while disk.vacuum_step():
        pass
    assert reopened(drive, disk).queues == {
        1: RecoveredQueue([RecoveredRow(30_000, 30_009, 20)], 30_010, 0, {30_000: 30_001, 30_005: 30_006, 30_009: 1})
    }
