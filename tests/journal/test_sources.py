"""Sources, reigns, what is committed, and undo: one rule a test. Random lives are in `test_sources_properties.py`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqpd.backup.progress import Progress
from amqpd.checking.check import check
from amqpd.checking.repair import repair
from amqpd.journal.records import JournalDamaged, Range, RecoveredQueue, SourceEntry, Transaction
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.scrubbing import Scan
from amqpd.storage.page_cache import PageCache
from tests.journal.disks import SqliteDrive, row, transaction


@pytest.fixture
def drive(tmp_path: Path) -> SqliteDrive:
    return SqliteDrive(tmp_path / "data")


@pytest.fixture
def disk(drive: SqliteDrive) -> Iterator[SqliteDisk]:
    """With source 1 replicated, whose queues are 20 and 21."""
    opened = drive.open()
    opened.recover()
    opened.set_replicated(1, True)
    yield opened
    opened.close()


def store(disk: SqliteDisk, epoch: int, idx: int, *rows, **more) -> None:
    """One entry of source 1."""
    disk.commit(Transaction(disk.index + 1, entries=[SourceEntry(1, epoch, idx, list(rows), **more)]))


def idle(disk: SqliteDisk) -> None:
    while disk.vacuum_step():
        pass


def rows_on_disk(disk: SqliteDisk) -> list[tuple[int, int]]:
    return disk._writer.execute("SELECT queue_id, first_seq FROM batch ORDER BY 1, 2").fetchall()


def count(disk: SqliteDisk, table: str) -> int:
    (found,) = disk._writer.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found)


def reopened(drive: SqliteDrive, disk: SqliteDisk) -> tuple[SqliteDisk, dict[int, RecoveredQueue]]:
    disk.close()
    again = drive.open()
    return again, again.recover().queues


def test_a_settled_row_stays_until_its_settle_is_committed(disk):
    store(disk, 1, 1, row(20, 0, 9))
    store(disk, 1, 2, settled=[Range(20, 0, 9)])
    store(disk, 1, 3, deletes=[Range(20, 0, 9)])
    idle(disk)
    assert rows_on_disk(disk) == [(20, 0)]
    disk.committed(1, 1, 1)
    idle(disk)
    assert rows_on_disk(disk) == [(20, 0)]
    disk.committed(1, 1, 2)
    idle(disk)
    assert (rows_on_disk(disk), count(disk, "settled")) == ([], 0)


def test_recovery_keeps_what_is_settled_and_not_committed(drive):
    disk = drive.open()
    disk.recover()
    disk.set_replicated(1, True)
    store(disk, 1, 1, row(20, 0, 9), row(20, 10, 19))
    disk.committed(1, 1, 1)
    store(disk, 1, 2, settled=[Range(20, 0, 9)])
    disk, queues = reopened(drive, disk)
    idle(disk)
    assert [each.first_seq for each in queues[20].rows] == [10]
    assert rows_on_disk(disk) == [(20, 0), (20, 10)]
    assert [each.first_seq for each in disk.undo(1, 1, 1).queues[20].rows] == [0, 10]
    store(disk, 2, 1, settled=[Range(20, 0, 9)])
    disk, _ = reopened(drive, disk)
    disk.committed(1, 2, 1)
    idle(disk)
    assert rows_on_disk(disk) == [(20, 10)]
    disk.close()


def test_a_dropped_queue_keeps_its_rows_and_its_mark_until_that_is_committed(disk):
    store(disk, 1, 1, row(20, 0, 9), delivered={20: 4}, counts=[(20, 3, 2)])
    before = disk.undo(1, 1, 1).queues
    store(disk, 1, 2, dropped=[20])
    idle(disk)
    assert disk.read(20, 0, 9, 1) == []
    assert rows_on_disk(disk) == [(20, 0)]
    assert disk.undo(1, 1, 1).queues == before
    assert (before[20].delivered, before[20].counts) == (4, {3: 2})
    store(disk, 1, 3, dropped=[20])
    disk.committed(1, 1, 3)
    idle(disk)
    assert (rows_on_disk(disk), count(disk, "discard"), count(disk, "returned")) == ([], 0, 0)


def test_the_order_is_by_reign_first(disk):
    """A younger home's journal may have smaller numbers."""
    store(disk, 1, 100, row(20, 0, 0))
    store(disk, 2, 3, row(20, 1, 1))
    with pytest.raises(ValueError, match="does not follow"):
        store(disk, 1, 101, row(20, 2, 2))
    with pytest.raises(ValueError, match="does not follow"):
        store(disk, 2, 3, row(20, 2, 2))
    store(disk, 2, 4, row(20, 2, 2), settled=[Range(20, 0, 0)])
    queues = disk.undo(1, 2, 3).queues
    assert [each.first_seq for each in queues[20].rows] == [0, 1]
    queues = disk.undo(1, 1, 100).queues
    assert [each.first_seq for each in queues[20].rows] == [0]
    assert disk.head(1).position == (1, 100)


def test_what_was_written_over_comes_back_at_each_step(disk):
    store(disk, 1, 1, row(20, 0, 9), counts=[(20, 3, 1)], delivered={20: 1})
    store(disk, 1, 2, counts=[(20, 3, 2), (20, 4, 1)], delivered={20: 2})
    store(disk, 2, 1, counts=[(20, 3, 3)], delivered={20: 3})
    seen = [disk.undo(1, 2, 1).queues[20]]
    seen += [disk.undo(1, *position).queues[20] for position in ((1, 2), (1, 1))]
    assert [each.counts for each in seen] == [{3: 3, 4: 1}, {3: 2, 4: 1}, {3: 1}]
    assert [each.delivered for each in seen] == [3, 2, 1]
    assert disk.undo(1, 0, 0).queues == {}
    assert count(disk, "former") == 0


def test_the_older_settle_counts(disk):
    store(disk, 1, 1, row(20, 0, 9))
    store(disk, 1, 2, settled=[Range(20, 2, 3)])
    store(disk, 1, 3, settled=[Range(20, 2, 3)])
    assert disk.undo(1, 1, 2).queues[20].rows[0].settled == [(2, 3)]
    assert disk.undo(1, 1, 1).queues[20].rows[0].settled == []


def test_an_undo_is_of_one_source(disk):
    disk.set_replicated(2, True)
    both = [SourceEntry(1, 1, 1, [row(20, 0, 0)]), SourceEntry(2, 5, 7, [row(30, 0, 0)])]
    disk.commit(Transaction(1, [row(10, 0, 0)], entries=both))
    assert set(disk.undo(1, 0, 0).queues) == {10, 30}
    assert disk.head(2).position == (5, 7)


def test_what_is_committed_is_not_undone(disk):
    store(disk, 1, 1, row(20, 0, 0))
    store(disk, 1, 2, row(20, 1, 1))
    disk.committed(1, 1, 1)
    for position in ((0, 0), (1, 3)):
        with pytest.raises(ValueError, match="no undo to"):
            disk.undo(1, *position)
    with pytest.raises(ValueError, match="no undo to"):
        disk.undo(0, 0, 0)
    assert len(disk.undo(1, 1, 1).queues[20].rows) == 1


def test_what_is_not_stored_is_not_committed(disk):
    store(disk, 1, 1, row(20, 0, 0))
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
    store(disk, 1, 1, row(20, 0, 0))
    store(disk, 1, 2, settled=[Range(20, 0, 0)])
    store(disk, 1, 3, deletes=[Range(20, 0, 0)])
    disk.set_replicated(1, False)
    idle(disk)
    assert rows_on_disk(disk) == []


def test_each_start_is_a_new_reign_of_the_local_source(drive):
    for epoch in (1, 2, 3):
        disk = drive.open()
        disk.recover()
        assert disk.head(0).epoch == epoch
        disk.close()
    disk = drive.open()
    disk.recover()
    disk.commit(transaction(1, row(10, 0, 0)))
    assert disk._writer.execute("SELECT source, epoch, idx FROM batch").fetchall() == [(0, 4, 1)]
    disk.close()


def test_a_queue_goes_on_above_what_was_reserved(drive):
    disk = drive.open()
    disk.recover()
    disk.set_replicated(1, True)
    disk.commit(
        Transaction(1, [row(10, 0, 0)], reserved=500, entries=[SourceEntry(1, 1, 1, [row(20, 0, 0)], reserved=700)])
    )
    # An undo takes back the entry, and not that numbers may have been given.
    disk.undo(1, 0, 0)
    store(disk, 2, 1, row(20, 700, 700))
    disk.close()
    recovered = drive.open().recover()
    assert (recovered.reserved, recovered.queues[10].next_seq, recovered.queues[20].next_seq) == (500, 500, 701)


def test_without_peers_nothing_is_kept_of_what_is_written_over(drive):
    disk = drive.open()
    disk.recover()
    disk.commit(transaction(1, row(10, 0, 9), counts=[(10, 1, 1)], delivered={10: 1}))
    disk.commit(transaction(2, counts=[(10, 1, 2)], delivered={10: 2}))
    disk.commit(transaction(3, dropped=[10]))
    assert count(disk, "former") == 0
    disk.close()


@pytest.fixture
def tail(drive: SqliteDrive) -> Path:
    """A directory with a tail that replaced something."""
    disk = drive.open()
    disk.recover()
    disk.set_replicated(1, True)
    store(disk, 1, 1, row(20, 0, 9), counts=[(20, 3, 1)], delivered={20: 1})
    store(disk, 1, 2, counts=[(20, 3, 2)], delivered={20: 2}, settled=[Range(20, 0, 1)])
    disk.close()
    return drive.directory


def found_by_check(directory: Path) -> list[str]:
    return [each.line for each in check(directory, Progress()).report.findings if each.file == JOURNAL]


def found_by_scrub(directory: Path) -> list[str]:
    scan = Scan(directory / JOURNAL, PageCache(directory / JOURNAL))
    scan.begin()
    steps = [scan.step()]
    while not steps[-1].done:
        steps.append(scan.step())
    scan.close()
    return [each.reason for step in steps for each in step.found]


def damage(directory: Path, change: str) -> None:
    connection = sqlite3.connect(directory / JOURNAL)
    connection.execute(change)
    connection.commit()
    connection.close()


def test_a_tail_that_is_whole_is_no_damage(tail):
    assert found_by_check(tail) == found_by_scrub(tail) == []


def test_a_damaged_former_version_is_found_by_all_who_look(tail):
    damage(tail, "UPDATE former SET was_idx = 9")
    assert any("former version of a record of queue number 20" in line for line in found_by_check(tail))
    assert any("of 'former' does not fit its checksum" in line for line in found_by_scrub(tail))
    with pytest.raises(JournalDamaged, match="former version of a record of queue 20"):
        SqliteDisk(tail).examine()
    done = repair(tail, Progress())
    assert {each.severity for each in done.consequences} == {"may come back"}
    assert found_by_check(tail) == []


@pytest.mark.parametrize("lost", ["DELETE FROM source", "UPDATE source SET idx = 77 WHERE source = 1"])
def test_of_a_source_whose_record_is_lost_nothing_counts_as_committed(tail, lost):
    damage(tail, lost)
    assert found_by_check(tail) != []
    repair(tail, Progress())
    assert found_by_check(tail) == []
    disk = SqliteDrive(tail).open()
    disk.recover()
    head = disk.head(1)
    assert (head.position, head.replicated, head.committed) == ((1, 2), True, (0, 0))
    assert head.reserved > 10
    disk.close()


def test_a_repair_leaves_every_source_what_it_has(tail):
    damage(tail, "UPDATE alembic_version SET version_num = '0001'")
    repair(tail, Progress())
    disk = SqliteDrive(tail).open()
    disk.recover()
    queue = disk.undo(1, 1, 1).queues[20]
    assert (queue.counts, queue.delivered, queue.rows[0].settled) == ({3: 1}, 1, [])
    disk.close()
