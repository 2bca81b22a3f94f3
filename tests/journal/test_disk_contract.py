"""What every disk does: SQLite's, and the memory disk that stands in for it in the tests of other packages."""

from __future__ import annotations

import threading

import pytest

from amqpd.journal.disk import READ_ROWS_MAX
from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow, SeqRange
from tests.journal.disks import Drive, row, transaction


def reopened(drive: Drive, disk) -> Recovered:
    disk.close()
    again = drive.open()
    recovered = again.recover()
    again.close()
    return recovered


@pytest.fixture
def disk(drive: Drive):
    disk = drive.open()
    assert disk.recover() == Recovered(0, {})
    yield disk
    disk.close()


def test_rows_come_back_in_order_with_index_and_size(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9), row(2, 0, 0, nbytes=5000)))
    disk.commit(transaction(2, row(1, 10, 10, nbytes=0)))
    assert reopened(drive, disk) == Recovered(
        2,
        {
            1: RecoveredQueue([RecoveredRow(0, 9, 20), RecoveredRow(10, 10, 0)], 11, 0),
            2: RecoveredQueue([RecoveredRow(0, 0, 5000)], 1, 0),
        },
    )


def test_an_empty_transaction_counts(drive, disk):
    disk.commit(transaction(1))
    assert reopened(drive, disk) == Recovered(1, {})


@pytest.mark.parametrize("index", [0, 2, -1])
def test_a_transaction_that_is_not_the_next_one_is_refused(disk, index):
    with pytest.raises(ValueError, match="follow"):
        disk.commit(transaction(index))
    disk.commit(transaction(1))
    with pytest.raises(ValueError, match="follow"):
        disk.commit(transaction(1))


def test_settled_parts_are_merged_and_cut_at_the_edges_of_rows(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9), row(1, 10, 19), row(1, 20, 29)))
    disk.commit(transaction(2, SeqRange(1, 3, 4), SeqRange(1, 7, 7)))
    disk.commit(transaction(3, SeqRange(1, 5, 5), SeqRange(1, 8, 12), SeqRange(1, 3, 3)))
    rows = reopened(drive, disk).queues[1].rows
    assert [each.settled for each in rows] == [[(3, 5), (7, 9)], [(10, 12)], []]


def test_a_row_and_what_is_settled_of_it_may_come_together(drive, disk):
    disk.commit(transaction(1, SeqRange(1, 0, 1), row(1, 0, 9)))
    assert reopened(drive, disk).queues[1].rows == [RecoveredRow(0, 9, 20, [(0, 1)])]


def test_rows_that_are_wholly_settled_are_left_out_and_their_numbers_stay_used(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9), row(1, 10, 19), row(2, 0, 4)))
    disk.commit(transaction(2, SeqRange(1, 0, 4), SeqRange(1, 5, 9), SeqRange(2, 0, 4)))
    expected = Recovered(2, {1: RecoveredQueue([RecoveredRow(10, 19, 20)], 20, 0), 2: RecoveredQueue([], 5, 0)})
    assert reopened(drive, disk) == expected
    assert reopened(drive, disk) == expected


def test_deleted_rows_take_their_settled_records_along_and_leave_next_seq(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9), row(1, 10, 19)))
    disk.commit(transaction(2, SeqRange(1, 0, 4), SeqRange(1, 5, 19)))
    disk.commit(transaction(3, deletes=[SeqRange(1, 0, 9), SeqRange(1, 10, 19)]))
    assert disk.read(1, 0, 100, 1000) == []
    assert reopened(drive, disk) == Recovered(3, {1: RecoveredQueue([], 20, 0)})


def test_only_rows_wholly_inside_a_deleted_range_go(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9), row(1, 10, 19), row(1, 20, 29), row(2, 0, 9)))
    disk.commit(transaction(2, deletes=[SeqRange(1, 5, 24)]))
    assert [each.first_seq for each in reopened(drive, disk).queues[1].rows] == [0, 20]


def test_a_purge_of_more_rows_than_one_commit_deletes(drive, disk):
    rows = [row(1, 10 * n, 10 * n + 9) for n in range(3000)]
    disk.commit(transaction(1, *rows, row(1, 30_000, 30_000), row(2, 0, 0)))
    disk.commit(transaction(2, SeqRange(1, 0, 29_999)))
    disk.commit(transaction(3, deletes=[SeqRange(1, 0, 29_999)]))
    assert disk.read(1, 0, 40_000, 1 << 20) == [row(1, 30_000, 30_000)]
    disk.commit(transaction(4, row(1, 30_001, 30_001)))
    expected = Recovered(
        4,
        {
            1: RecoveredQueue([RecoveredRow(30_000, 30_000, 20), RecoveredRow(30_001, 30_001, 20)], 30_002, 0),
            2: RecoveredQueue([RecoveredRow(0, 0, 20)], 1, 0),
        },
    )
    assert reopened(drive, disk) == expected


def test_a_dropped_queue_is_gone_with_all_that_was_known_of_it(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9), row(2, 0, 9), SeqRange(1, 0, 3), delivered={1: 5, 2: 6}))
    disk.commit(transaction(2, row(1, 10, 19), dropped=[1]))
    assert disk.read(1, 0, 100, 1000) == []
    assert reopened(drive, disk) == Recovered(2, {2: RecoveredQueue([RecoveredRow(0, 9, 20)], 10, 6)})


def test_an_id_that_is_used_again_after_a_drop_starts_afresh(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9), SeqRange(1, 0, 0), delivered={1: 5}))
    disk.commit(transaction(2, dropped=[1]))
    disk.commit(transaction(3, row(1, 0, 4)))
    while disk.vacuum_step():
        pass
    assert disk.read(1, 0, 9, 1000) == [row(1, 0, 4)]
    assert reopened(drive, disk) == Recovered(3, {1: RecoveredQueue([RecoveredRow(0, 4, 20)], 5, 0)})


def test_what_is_settled_under_an_id_that_is_used_again_stays_settled(drive, disk):
    """Also when the same range had been settled in the queue that was dropped, and its records wait to leave."""
    disk.commit(transaction(1, row(1, 0, 9), SeqRange(1, 2, 4)))
    disk.commit(transaction(2, dropped=[1]))
    disk.commit(transaction(3, row(1, 0, 9), SeqRange(1, 2, 4)))
    assert reopened(drive, disk) == Recovered(3, {1: RecoveredQueue([RecoveredRow(0, 9, 20, [(2, 4)])], 10, 0)})


def test_transient_rows_do_not_outlive_the_process_but_their_numbers_do(drive, disk):
    disk.commit(transaction(1, row(1, 0, 9, persistent=False), row(1, 10, 19), row(1, 20, 29, persistent=False)))
    assert disk.read(1, 0, 9, 1000) == [row(1, 0, 9, persistent=False)]
    expected = Recovered(1, {1: RecoveredQueue([RecoveredRow(10, 19, 20)], 30, 0)})
    assert reopened(drive, disk) == expected
    assert reopened(drive, disk) == expected


def test_the_last_delivered_mark_counts_and_holds_next_seq_up(drive, disk):
    disk.commit(transaction(1, row(3, 0, 9), delivered={1: 7, 2: 3, 3: 8}))
    disk.commit(transaction(2, SeqRange(3, 0, 9), delivered={1: 5}))
    disk.commit(transaction(3, deletes=[SeqRange(3, 0, 9)]))
    assert reopened(drive, disk) == Recovered(
        3, {1: RecoveredQueue([], 5, 5), 2: RecoveredQueue([], 3, 3), 3: RecoveredQueue([], 10, 8)}
    )


def test_read_gives_the_rows_that_overlap(disk):
    disk.commit(transaction(1, *(row(1, 10 * n, 10 * n + 9, persistent=n != 3) for n in range(5)), row(2, 0, 90)))
    assert disk.read(1, 15, 35, 1000) == [row(1, 10, 19), row(1, 20, 29), row(1, 30, 39, persistent=False)]
    assert disk.read(1, 19, 19, 1000) == [row(1, 10, 19)]
    assert disk.read(1, 50, 60, 1000) == []
    assert disk.read(3, 0, 60, 1000) == []


@pytest.mark.parametrize(("bytes_max", "rows"), [(0, 1), (19, 1), (20, 1), (39, 1), (40, 2), (59, 2), (1000, 5)])
def test_read_stops_before_bytes_max_but_gives_one_row(disk, bytes_max, rows):
    disk.commit(transaction(1, *(row(1, 10 * n, 10 * n + 9) for n in range(5))))
    assert disk.read(1, 0, 100, bytes_max) == [row(1, 10 * n, 10 * n + 9) for n in range(rows)]


def test_read_gives_a_bounded_number_of_rows(disk):
    """Messages that stand alone are rows of a few bytes."""
    disk.commit(transaction(1, *(row(1, n, n) for n in range(READ_ROWS_MAX + 5))))
    found = disk.read(1, 0, 1 << 30, 1 << 30)
    assert [each.first_seq for each in found] == list(range(READ_ROWS_MAX))


def test_rows_with_gaps_between_them(drive, disk):
    """Messages that were settled before their write began are never written."""
    disk.commit(transaction(1, row(1, 5, 9), row(1, 20, 29)))
    assert disk.read(1, 10, 19, 1000) == []
    assert disk.read(1, 0, 25, 1000) == [row(1, 5, 9), row(1, 20, 29)]
    assert reopened(drive, disk).queues[1].next_seq == 30


def test_bodies_come_back_as_they_were(disk):
    bodies = [b"", b"\x00", bytes(range(256)) * 1000, b"\xff" * 70_000]
    rows = [row(1, n, n) for n in range(len(bodies))]
    for each, body in zip(rows, bodies, strict=True):
        each.data = body
    disk.commit(transaction(1, *rows))
    assert [each.data for each in disk.read(1, 0, 9, 1 << 20)] == bodies


def test_reads_run_while_commits_run(disk):
    """One thread reads back what the other has committed; neither sees half of anything."""
    disk.commit(transaction(1, row(1, 0, 9)))
    failures: list[BaseException] = []
    done = threading.Event()

    def commit() -> None:
        try:
            for index in range(2, 120):
                first = (index - 1) * 10
                disk.commit(transaction(index, row(1, first, first + 4, nbytes=9000), row(1, first + 5, first + 9)))
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=commit)
    thread.start()
    seen = 0
    while not done.is_set() or not seen:
        rows = disk.read(1, 0, 10_000, 1 << 30)
        assert len(rows) % 2 == 1
        assert len(rows) >= seen
        seen = len(rows)
    thread.join()
    assert failures == []
    assert len(disk.read(1, 0, 10_000, 1 << 30)) == 237
