"""Space on the disk: large deletions in pieces, free pages used again and given back, a WAL that stays small."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow, SeqRange
from amqpd.journal.sqlite import checkpoints, discards, queries, statement_parameters
from amqpd.journal.sqlite import disk as sqlite
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from tests.journal.disks import SqliteDrive, deadlines, row, transaction


@pytest.fixture(autouse=True)
def log_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or idle steps would also give it its length (`test_sqlite_log_length.py`)."""
    monkeypatch.setattr(checkpoints, "LOG_BYTES", 0)


def stored(disk: SqliteDisk, table: str = "batch") -> int:
    """Rows of a table that take up space."""
    (count,) = disk._writer.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(count)


def crashed(directory: Path, image: Path) -> SqliteDisk:
    """A disk opened on what a crash just now would leave, not recovered yet."""
    shutil.rmtree(image, ignore_errors=True)
    shutil.copytree(directory, image)
    return SqliteDrive(image).open()


def fill(disk: SqliteDisk, index: int, rows: int, *, queue_id: int = 1, nbytes: int = 20, first: int = 0) -> None:
    disk.commit(
        transaction(index, *(row(queue_id, first + 2 * n, first + 2 * n + 1, nbytes=nbytes) for n in range(rows)))
    )


def test_a_dropped_queue_leaves_piece_by_piece_and_no_crash_brings_it_back(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(discards, "PIECE_ROWS_MAX", 100)
    fill(disk, 1, 450)
    disk.commit(transaction(2, row(2, 0, 0), *(SeqRange(1, 2 * n, 2 * n) for n in range(400))))
    disk.commit(transaction(3, dropped=[1]))
    left = [stored(disk)]
    assert left == [451], "the commit that drops only writes it down"
    while disk.vacuum_step():
        left.append(stored(disk))
        image = crashed(tmp_path / "data", tmp_path / "image")
        assert image.recover() == Recovered(3, {2: RecoveredQueue([RecoveredRow(0, 0, 20)], 1, 0)})
        image.close()
    assert left == [451, 351, 251, 151, 51, 1]
    assert (stored(disk, "settled"), stored(disk, "discard")) == (0, 0)


def test_the_pieces_of_a_discard_are_bounded_by_bytes_too(disk, monkeypatch):
    monkeypatch.setattr(discards, "PIECE_BYTES_MAX", 100_000)
    fill(disk, 1, 10, nbytes=45_000)
    fill(disk, 2, 1, nbytes=300_000, first=20)
    disk.commit(transaction(3, dropped=[1]))
    left = []
    while disk.vacuum_step():
        left.append(stored(disk))
    assert left == [9, 7, 5, 3, 1, 0]


def test_many_settled_records_of_a_dropped_queue_leave_in_pieces_too(disk, monkeypatch):
    monkeypatch.setattr(discards, "PIECE_SETTLED_MAX", 10)
    fill(disk, 1, 50)
    disk.commit(transaction(2, *(SeqRange(1, 2 * n, 2 * n) for n in range(50))))
    disk.commit(transaction(3, dropped=[1]))
    left = []
    while disk.vacuum_step():
        left.append(stored(disk, "settled"))
    assert left == [39, 28, 17, 6, 0]


def test_deadlines_and_counts_of_a_dropped_queue_leave_in_pieces_and_no_crash_brings_them_back(
    disk, tmp_path, monkeypatch
):
    monkeypatch.setattr(discards, "PIECE_ROWS_MAX", 20)
    monkeypatch.setattr(discards, "PIECE_SETTLED_MAX", 10)
    rows = [row(1, 2 * n, 2 * n + 1, deadlines=deadlines((1, 2 * n, 2 * n))) for n in range(50)]
    disk.commit(transaction(1, *rows, row(2, 0, 0, deadlines=deadlines((1, 0, 0))), counts=[(2, 0, 5)]))
    disk.commit(transaction(2, counts=[(1, seq, 1) for seq in range(100)]))
    disk.commit(transaction(3, dropped=[1]))
    left = []
    while disk.vacuum_step():
        left.append((stored(disk, "deadline"), stored(disk, "returned")))
        image = crashed(tmp_path / "data", tmp_path / "image")
        assert image.recover().queues == {
            2: RecoveredQueue([RecoveredRow(0, 0, 20, [], 0, 0, deadlines((1, 0, 0)))], 1, 0, {0: 5})
        }
        assert image._counted == ({1, 2} if left[-1][1] > 1 else {2}), (
            "what an earlier run began is ended by this one"
        )
        while image.vacuum_step():
            pass
        assert (stored(image, "deadline"), stored(image, "returned"), stored(image, "discard")) == (1, 1, 0)
        image.close()
    assert [count for count, _ in left] == [31, 11, *[1] * 10]
    assert [count for _, count in left] == [101, 101, 90, 79, 68, 57, 46, 35, 24, 13, 2, 1]


def test_deadlines_and_counts_leave_with_settled_rows(disk):
    rows = [row(1, n, n, deadlines=deadlines((1, n, n))) for n in range(10)]
    disk.commit(transaction(1, *rows, counts=[(1, n, 1) for n in range(10)]))
    disk.commit(transaction(2, SeqRange(1, 0, 8)))
    disk.commit(transaction(3, deletes=[SeqRange(1, n, n) for n in range(9)]))
    assert (stored(disk), stored(disk, "deadline"), stored(disk, "returned")) == (1, 1, 1)


def test_counts_without_a_row_leave_with_the_next_recovery(disk, tmp_path):
    disk.commit(transaction(1, row(1, 0, 4), counts=[(1, 2, 1), (1, 7, 1), (2, 0, 1)]))
    image = crashed(tmp_path / "data", tmp_path / "image")
    assert image.recover().queues == {1: RecoveredQueue([RecoveredRow(0, 4, 20)], 5, 0, {2: 1})}
    assert stored(image, "returned") == 1
    image.close()


@pytest.mark.parametrize("rare", [False, True])
def test_the_tables_of_deadlines_and_counts_are_looked_at_only_when_there_are_any(disk, rare):
    fill(disk, 1, 3)
    commits: list[str] = []
    disk._writer.set_trace_callback(commits.append)
    if rare:
        disk.commit(transaction(2, row(2, 0, 0, deadlines=deadlines((1, 0, 0))), counts=[(3, 0, 1)]))
    else:
        disk.commit(transaction(2, row(2, 0, 0), SeqRange(1, 0, 1), deletes=[SeqRange(1, 2, 3)]))
    disk._writer.set_trace_callback(None)
    assert ("commit_view_with_rare" in " ".join(commits)) is rare


def test_commits_take_pieces_along_when_there_is_never_an_idle_moment(disk, monkeypatch):
    monkeypatch.setattr(discards, "PIECE_ROWS_MAX", 100)
    fill(disk, 1, 450)
    disk.commit(transaction(2, dropped=[1]))
    for index in range(3, 9):
        disk.commit(transaction(index, row(2, index, index)))
    assert stored(disk) == 6
    assert stored(disk, "discard") == 0


def test_discards_leave_faster_than_the_busiest_writer_begins_them(disk, monkeypatch):
    monkeypatch.setattr(statement_parameters, "INLINE_RANGES_MAX", 0)
    monkeypatch.setattr(statement_parameters, "INLINE_RANGES_PER_ROW", 0)
    monkeypatch.setattr(discards, "PIECE_DISCARDS_MAX", 1)
    monkeypatch.setattr(discards, "PIECE_ROWS_MAX", 1)
    monkeypatch.setattr(discards, "PIECE_BYTES_MAX", 1)
    for index in range(1, 30):
        first = index * 100
        gone = [SeqRange(1, first - 100 + 4 * n, first - 100 + 4 * n) for n in range(20 * (index > 1))]
        rows = [row(1, first + 4 * n, first + 4 * n, nbytes=1000) for n in range(20)]
        disk.commit(transaction(index, *rows, deletes=gone))
        assert stored(disk) <= 60
        assert stored(disk, "discard") <= 40


def test_thousands_of_small_dropped_queues(disk):
    disk.commit(transaction(1, *(row(queue_id, 0, 0) for queue_id in range(1000))))
    disk.commit(transaction(2, dropped=list(range(1, 1000))))
    steps = 0
    while disk.vacuum_step():
        steps += 1
    assert stored(disk) == 1
    assert steps <= 1000 // discards.PIECE_DISCARDS_MAX + 1


def test_dead_rows_are_deleted_by_recovery_within_bounds_and_by_idle_steps(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(discards, "PIECE_ROWS_MAX", 10)
    monkeypatch.setattr(sqlite, "RECOVERY_STEPS_MAX", 3)
    fill(disk, 1, 100)
    disk.commit(transaction(2, SeqRange(1, 0, 197)))
    image = crashed(tmp_path / "data", tmp_path / "image")
    for left in (70, 40, 10):
        assert image.recover().queues[1].rows == [RecoveredRow(198, 199, 20)]
        assert stored(image) == left
        image.close()
        image = SqliteDrive(tmp_path / "image").open()
    image.recover()
    while image.vacuum_step():
        pass
    assert (stored(image), stored(image, "settled"), stored(image, "discard")) == (1, 0, 0)
    image.close()


def test_settled_records_whose_rows_went_one_by_one_leave_with_the_next_recovery(disk, tmp_path):
    fill(disk, 1, 4)
    disk.commit(transaction(2, SeqRange(1, 0, 7)))
    disk.commit(transaction(3, deletes=[SeqRange(1, 0, 3)]))
    disk.commit(transaction(4, deletes=[SeqRange(1, 4, 7)]))
    assert (stored(disk), stored(disk, "settled")) == (0, 1)
    image = crashed(tmp_path / "data", tmp_path / "image")
    assert image.recover() == Recovered(4, {1: RecoveredQueue([], 8, 0)})
    assert stored(image, "settled") == 0
    image.close()


def test_pages_of_deleted_rows_are_used_again(disk):
    """Ten times as much goes through as ever lies there."""
    pages = []
    for index in range(1, 40, 2):
        first = index * 100
        fill(disk, index, 40, nbytes=20_000, first=first)
        disk.commit(transaction(index + 1, deletes=[SeqRange(1, first, first + 79)]))
        pages.append(disk._writer.execute("PRAGMA page_count").fetchone()[0])
    assert pages[-1] == pages[1]


def test_the_file_shrinks_in_steps_after_a_backlog(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "FREE_BYTES_KEPT", 1 << 20)
    for index in range(1, 6):
        fill(disk, index, 40, nbytes=100_000, first=index * 100)
    fill(disk, 6, 1, nbytes=100_000, first=1000)  # at the end of the file: it has to move
    disk.commit(transaction(7, deletes=[SeqRange(1, 0, 999)]))
    size = (tmp_path / "data" / JOURNAL).stat().st_size
    assert size > 12 << 20
    steps = 0
    while disk.vacuum_step():
        steps += 1
    assert steps >= 8
    assert (tmp_path / "data" / JOURNAL).stat().st_size < 3 << 20
    assert disk.read(1, 0, 2000, 1 << 20) == [row(1, 1000, 1001, nbytes=100_000)]


def test_after_a_long_rest_little_is_kept_for_the_next_backlog(disk, tmp_path, monkeypatch):
    """Of a disk with nothing on it 105 MB were in use for ever, 64 of them for this."""
    monkeypatch.setattr(checkpoints, "FREE_BYTES_KEPT", 8 << 20)
    monkeypatch.setattr(checkpoints, "RESTING_BYTES_KEPT", 1 << 20)
    for index in range(1, 6):
        fill(disk, index, 40, nbytes=100_000, first=index * 100)
    disk.commit(transaction(6, deletes=[SeqRange(1, 0, 999)]))
    while disk.vacuum_step():
        pass
    assert (tmp_path / "data" / JOURNAL).stat().st_size > 8 << 20
    steps = 1
    while disk.vacuum_step(rests=True):
        steps += 1
    assert steps >= 4
    assert (tmp_path / "data" / JOURNAL).stat().st_size < 2 << 20


def test_the_wal_stays_small_under_a_reader_that_never_rests(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES", 1 << 20)
    monkeypatch.setattr(checkpoints, "WAL_BYTES_MAX", 2 << 20)
    disk.checkpoints._at = 1 << 20
    fill(disk, 1, 20, nbytes=20_000)
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            assert len(disk.read(1, 0, 1000, 1 << 20)) >= 20

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for index in range(2, 120):
            fill(disk, index, 20, nbytes=10_000, queue_id=2, first=index * 100)
    finally:
        done.set()
        thread.join()
    written = (tmp_path / "data" / JOURNAL).stat().st_size
    wal = (tmp_path / "data" / f"{JOURNAL}-wal").stat().st_size
    assert written > 20 << 20
    assert wal < 4 << 20


def test_a_transaction_too_large_for_one_statement_is_still_one_transaction(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(statement_parameters, "STATEMENT_BYTES_MAX", 50_000)
    rows = [row(1, n, n, nbytes=20_000) for n in range(7)]
    for each in rows[::2]:
        each.deadlines = deadlines((1, each.first_seq, each.first_seq))
    disk.commit(transaction(1, *rows, SeqRange(1, 3, 3), counts=[(1, 0, 1), (1, 6, 2)]))
    assert disk.read(1, 0, 9, 1 << 20) == rows
    image = crashed(tmp_path / "data", tmp_path / "image")
    recovered = image.recover()
    assert recovered.index == 1
    assert len(recovered.queues[1].rows) == 6
    assert [each.deadlines for each in recovered.queues[1].rows] == [rows[n].deadlines for n in (0, 1, 2, 4, 5, 6)]
    assert recovered.queues[1].counts == {0: 1, 6: 2}
    image.close()
    # Cut in the middle: nothing of it is there.
    wal = tmp_path / "image" / f"{JOURNAL}-wal"
    shutil.rmtree(tmp_path / "image")
    shutil.copytree(tmp_path / "data", tmp_path / "image")
    wal.write_bytes(wal.read_bytes()[:-1])
    # As after a power cut, which took the mark's last number too.
    (tmp_path / "image" / "journal.mark").unlink()
    image = SqliteDrive(tmp_path / "image").open()
    assert image.recover() == Recovered(0, {})
    image.close()


@pytest.mark.parametrize("name", ["ROWS", "FIND", "ROWS_TO_DISCARD"])
def test_bodies_are_not_touched_to_find_rows(disk, name):
    given = dict.fromkeys(("queue_id", "first_seq", "last_seq", "epoch", "idx", "count_max"), 1)
    plan = disk._writer.execute(f"EXPLAIN QUERY PLAN {getattr(queries, name)}", given).fetchall()
    assert "USING COVERING INDEX batch_index" in plan[0][3]
