"""The record of the local source is not written with each transaction of one row: what is above it is found by the
rows, and missed when it is gone."""

from __future__ import annotations

import resource
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from amqpd.backup.job import journal_facts
from amqpd.backup.progress import Progress
from amqpd.checking.check import check
from amqpd.checking.repair import repair
from amqpd.journal.errors import DiskFailure, DiskFull
from amqpd.journal.records import JournalDamaged, SeqRange
from amqpd.journal.sqlite import disk as disk_module
from amqpd.journal.sqlite import recovery, statements
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.schema import PAGE_BYTES
from amqpd.journal.sqlite.sources import BEHIND_MAX
from amqpd.journal.transaction import JournalTransaction
from amqpd.storage.files import log_bytes
from tests.journal.disks import SqliteDrive, idle, row, store, undo

RECORD = "SELECT epoch, idx, rows, rows_check FROM source WHERE source = 0"
LOST = "is not all there"
AS_0004 = (
    *(f"DROP TABLE {table}" for table in ("tail", "seal", "staged", "operation_mark", "former_operation_mark")),
    "UPDATE alembic_version SET version_num = '0004'",
)


def commit_rows(disk: SqliteDisk, count: int) -> None:
    for _ in range(count):
        index = disk.index + 1
        disk.commit(JournalTransaction(index, [row(1, index, index)]))


def record(disk: SqliteDisk) -> tuple[int, ...]:
    found: tuple[int, ...] = disk._reader.execute(RECORD).fetchone()
    return found


def killed(disk: SqliteDisk, copy: Path) -> SqliteDrive:
    """The files as a process leaves them that is killed now."""
    shutil.copytree(disk.path.parent, copy)
    return SqliteDrive(copy)


def damage(directory: Path) -> list[str]:
    return [each.line for each in check(directory).report.findings if each.severity == "damage"]


def execute(drive: SqliteDrive, *statements: str) -> None:
    connection = sqlite3.connect(drive.directory / JOURNAL)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def stopped(directory: Path, count: int) -> SqliteDrive:
    """`count` rows, and a stop in order."""
    drive = SqliteDrive(directory)
    disk = drive.open()
    disk.recover()
    commit_rows(disk, count)
    disk.close()
    return drive


def recovered(drive: SqliteDrive) -> tuple[int, int]:
    """The index, and how many rows there are."""
    disk = drive.open()
    found = disk.recover()
    disk.close()
    return found.index, sum(len(queue.rows) for queue in found.queues.values())


def test_it_is_written_once_in_so_many_and_with_every_other_transaction(disk: SqliteDisk) -> None:
    records = set()
    for _ in range(2 * BEHIND_MAX):
        commit_rows(disk, 1)
        assert 0 <= disk.index - record(disk)[1] < BEHIND_MAX
        records.add(record(disk))
    assert len(records) == 3, "after the start, and twice"
    commit_rows(disk, 5)
    count = disk.index
    disk.commit(JournalTransaction(count + 1, [], [SeqRange(1, 1, 1)]))
    assert record(disk) == (disk.head(0).epoch, count + 1, count, -count)
    commit_rows(disk, 3)
    disk.commit(JournalTransaction(disk.index + 1, [], deletes=[SeqRange(1, 1, 1)]))
    assert record(disk)[1:] == (disk.index, count + 2, -count - 2)


@pytest.mark.parametrize("count", [0, 1, 2, BEHIND_MAX - 1, BEHIND_MAX, BEHIND_MAX + 1, 3 * BEHIND_MAX - 1])
def test_whatever_is_above_it_when_the_process_is_killed_is_recovered(count: int, tmp_path: Path) -> None:
    disk = SqliteDrive(tmp_path / "first").open()
    disk.recover()
    for incarnation in range(3):
        commit_rows(disk, count)
        drive = killed(disk, tmp_path / str(incarnation))
        disk.close()
        disk = drive.open()
        recovered = disk.recover()
        assert recovered.index == disk.index == count * (incarnation + 1)
        found = recovered.queues[1].rows if count else []
        assert [each.first_seq for each in found] == list(range(1, recovered.index + 1))
        # The start has written it, with its epoch.
        assert record(disk) == (incarnation + 2, recovered.index, recovered.index, -recovered.index)
    disk.close()
    assert not damage(tmp_path / "2")


@pytest.mark.parametrize("gone", [1, 2, 4])
def test_a_row_that_vanished_is_missed(gone: int, tmp_path: Path) -> None:
    drive = stopped(tmp_path / "data", 5)
    execute(drive, f"DELETE FROM batch WHERE first_seq = {gone}")
    with pytest.raises(JournalDamaged, match=LOST):
        drive.open()
    assert any(LOST in line for line in damage(drive.directory))


def test_the_last_one_is_missed_because_of_the_mark(tmp_path: Path) -> None:
    drive = stopped(tmp_path / "data", 5)
    execute(drive, "DELETE FROM batch WHERE first_seq = 5")
    with pytest.raises(JournalDamaged, match="ends at transaction 4, and 5 was confirmed"):
        drive.open()


def test_a_record_that_is_too_old_is_damage(tmp_path: Path) -> None:
    """The system may lose the write of a page."""
    drive = SqliteDrive(tmp_path / "data")
    disk = drive.open()
    disk.recover()
    old = disk._reader.execute("SELECT * FROM source").fetchone()
    commit_rows(disk, BEHIND_MAX + 2)
    disk.close()
    values = ", ".join(map(str, old))
    execute(drive, f"REPLACE INTO source VALUES ({values})")
    with pytest.raises(JournalDamaged, match=LOST):
        drive.open()


def test_rows_that_do_not_say_a_number_are_damage(tmp_path: Path) -> None:
    drive = stopped(tmp_path / "data", 3)
    execute(drive, "UPDATE batch SET idx = 'x' WHERE first_seq = 3")
    with pytest.raises(JournalDamaged, match=LOST):
        drive.open()
    assert any(LOST in line for line in damage(drive.directory))


def test_an_epoch_that_found_no_space_is_written_with_its_first_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = SqliteDrive(tmp_path / "data")
    disk = drive.open()
    disk.recover()
    commit_rows(disk, 3)
    drive = killed(disk, tmp_path / "killed")
    disk.close()
    disk = drive.open()
    with monkeypatch.context() as patched:
        patched.setattr(statements, "PUT_HEAD", "INSERT INTO nowhere VALUES (1)")
        patched.setattr(disk_module, "meaning", lambda error, path: DiskFull("no space"))
        disk.recover()
    assert record(disk)[0] == 1
    commit_rows(disk, 2)
    assert record(disk) == (2, 4, 4, -4)
    again = killed(disk, tmp_path / "again")
    disk.close()
    disk = again.open()
    assert disk.recover().index == 5
    disk.close()


def test_an_epoch_whose_write_fails_ends_the_start(tmp_path: Path) -> None:
    """The error comes with the call, not when the cursor goes, where the driver drops it: what is above the record
    would be counted as written."""
    disk = SqliteDrive(tmp_path / "data").open()
    disk.recover()
    commit_rows(disk, 40)
    drive = killed(disk, tmp_path / "killed")
    disk.close()
    disk = drive.open()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # The log cannot grow.
        resource.setrlimit(resource.RLIMIT_FSIZE, (log_bytes(disk.path), hard))
        with pytest.raises(DiskFailure, match="failed: disk I/O error"):
            disk.recover()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    disk.close()
    assert recovered(drive) == (40, 40)


def test_an_epoch_that_is_not_there_when_it_is_read_back_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever SQLite said of it."""
    disk = SqliteDrive(tmp_path / "data").open()
    disk.recover()
    commit_rows(disk, 40)
    drive = killed(disk, tmp_path / "killed")
    disk.close()
    disk = drive.open()
    with monkeypatch.context() as patched:
        patched.setattr(statements, "PUT_HEAD", "UPDATE source SET rows = 0 WHERE source = 7")
        with pytest.raises(DiskFailure, match="the record of transaction 40 was written, and is not there; start"):
            disk.recover()
    with pytest.raises(DiskFailure):
        commit_rows(disk, 1)
    disk.close()
    assert recovered(drive) == (40, 40)


def test_an_undo_of_another_source_leaves_what_is_above_it(tmp_path: Path) -> None:
    disk = SqliteDrive(tmp_path / "data").open()
    disk.recover()
    store(disk, 1, 1, 1, row(20, 0, 9))
    commit_rows(disk, 3)
    assert record(disk)[1] < disk.index
    index = disk.index
    store(disk, 1, 1, 2, row(20, 10, 19))
    commit_rows(disk, 2)
    undo(disk, 1, 1, 1)
    commit_rows(disk, 3)
    drive = killed(disk, tmp_path / "killed")
    disk.close()
    disk = drive.open()
    recovered = disk.recover()
    assert recovered.index == index + 7
    assert len(recovered.queues[1].rows) == 8
    disk.close()


def test_housekeeping_writes_it(disk: SqliteDisk) -> None:
    commit_rows(disk, 3)
    disk.commit(JournalTransaction(4, [], [], [SeqRange(1, 1, 3)]))
    commit_rows(disk, 2)
    index = disk.index
    disk.commit(JournalTransaction(index + 1, dropped=[1]))
    idle(disk)
    assert record(disk)[1:] == (index + 1, 0, 0)


def test_other_sources_write_it(disk: SqliteDisk) -> None:
    commit_rows(disk, 3)
    store(disk, 1, 1, 1, row(20, 0, 0))
    assert record(disk)[1:] == (4, 4, -4)


def test_a_repair_says_that_a_row_is_lost(tmp_path: Path) -> None:
    drive = stopped(tmp_path / "data", 8)
    execute(drive, "DELETE FROM batch WHERE first_seq = 4")
    [consequence] = repair(drive.directory, Progress()).consequences
    assert consequence.text.startswith("1 rows of messages are not there any more")
    assert recovered(drive) == (8, 7)


@pytest.mark.parametrize("idx", [4 | 1 << 40, 4 | 1 << 62, (1 << 63) - 1])
def test_a_damaged_row_does_not_say_which_transaction_was_the_last_one(idx: int, tmp_path: Path) -> None:
    drive = stopped(tmp_path / "data", 8)
    execute(drive, f"UPDATE batch SET idx = {idx} WHERE first_seq = 4")
    repair(drive.directory, Progress())
    assert recovered(drive) == (8, 8)


@pytest.mark.parametrize("marked", [True, False])
def test_a_row_that_is_only_in_the_table_is_missed_and_repaired(marked: bool, tmp_path: Path) -> None:
    """The write of the index's page was lost."""
    drive = SqliteDrive(tmp_path / "data")
    disk = drive.open()
    disk.recover()
    commit_rows(disk, 8)
    disk._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (root,) = disk._reader.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'batch_index'").fetchone()
    page = slice((root - 1) * PAGE_BYTES, root * PAGE_BYTES)
    before = disk.path.read_bytes()[page]
    commit_rows(disk, 1)
    disk.close()
    content = bytearray(disk.path.read_bytes())
    content[page] = before
    disk.path.write_bytes(content)
    if not marked:
        (tmp_path / "data" / "journal.mark").unlink()
    with pytest.raises(JournalDamaged, match=LOST):
        drive.open()
    assert not repair(drive.directory, Progress()).in_the_way
    assert recovered(drive) == (9, 9)


def test_the_local_source_has_no_undo(disk: SqliteDisk) -> None:
    commit_rows(disk, 5)
    with pytest.raises(ValueError, match="no undo to"):
        undo(disk, 0, *disk.head(0).position)


def as_0004(drive: SqliteDrive) -> None:
    """That format has no tables more of replicated sources; its record is never behind."""
    disk = drive.open()
    disk.recover()
    disk.close()
    execute(drive, *AS_0004)


def test_a_journal_of_the_format_before_is_not_damaged(tmp_path: Path) -> None:
    drive = stopped(tmp_path / "data", 5)
    as_0004(drive)
    assert damage(drive.directory) == []
    assert recovered(drive) == (5, 5)


def test_a_loss_is_told_before_the_format_changes(tmp_path: Path) -> None:
    drive = stopped(tmp_path / "data", 5)
    old = (drive.directory / JOURNAL).read_bytes()
    disk = drive.open()
    disk.recover()
    commit_rows(disk, 5)
    disk.close()
    (drive.directory / JOURNAL).write_bytes(old)
    execute(drive, *AS_0004)
    before = (drive.directory / JOURNAL).read_bytes()
    with pytest.raises(JournalDamaged, match="ends at transaction 5, and 10 was confirmed"):
        drive.open()
    assert (drive.directory / JOURNAL).read_bytes() == before


@pytest.mark.parametrize("idx", ["'x'", "x'00'"])
def test_a_copy_of_a_damaged_record_is_no_error_of_its_own(idx: str, tmp_path: Path) -> None:
    drive = stopped(tmp_path / "data", 3)
    execute(drive, f"UPDATE source SET idx = {idx}")
    with closing(sqlite3.connect(drive.directory / JOURNAL)) as connection:
        assert journal_facts(connection)["index"] in ("x", b"\0")


def test_a_start_tells_how_much_of_the_index_it_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drive = stopped(tmp_path / "data", 7)
    monkeypatch.setattr(recovery, "TOLD_ROWS", 3)
    disk, told = drive.open(), list[tuple[int, int]]()
    disk.examine(lambda rows, read: told.append((rows, read)))
    disk.close()
    assert told == [(7, 3), (7, 6)]
