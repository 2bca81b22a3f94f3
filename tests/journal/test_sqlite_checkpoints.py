"""When the log is copied into the database, and by whom: a commit that somebody waits for does it only if that does
not last."""

from __future__ import annotations

import pytest

from amqpd.journal.sqlite import checkpoints
from amqpd.journal.sqlite.disk import SqliteDisk
from tests.journal.disks import row, transaction

COMMITS_MAX = 1_000


def commit_rows(disk: SqliteDisk, queues: int, nbytes: int, commits: int) -> int:
    """One by one, as the pump does, while it may. How many times the log was copied."""
    copied = 0
    for index in range(disk.index + 1, disk.index + 1 + commits):
        if not disk.prompt:
            break
        before = disk.checkpoints._wal_bytes
        disk.commit(transaction(index, row(index % queues, index, index, nbytes=nbytes)), housekeeping=False)
        copied += disk.checkpoints._wal_bytes < before
    return copied


@pytest.mark.parametrize("queues", [1, 4])
def test_small_rows_are_copied_by_the_commits_themselves(disk: SqliteDisk, queues: int) -> None:
    assert commit_rows(disk, queues, 200, COMMITS_MAX) == COMMITS_MAX // 255
    assert disk.prompt
    assert disk.index == COMMITS_MAX


@pytest.mark.parametrize(("queues", "nbytes"), [(1, 20_000), (500, 200)])
def test_where_much_is_to_be_copied_the_commit_leaves_it_to_others(
    disk: SqliteDisk, queues: int, nbytes: int
) -> None:
    assert commit_rows(disk, queues, nbytes, COMMITS_MAX) == 0
    assert not disk.prompt
    assert disk.index < COMMITS_MAX
    disk.commit(transaction(disk.index + 1, row(1, 5_000, 5_000)))
    assert disk.prompt
    assert disk.checkpoints._wal_bytes == 0


def test_after_it_was_copied_the_next_one_is_judged_by_what_came_since(disk: SqliteDisk) -> None:
    commit_rows(disk, 500, 200, COMMITS_MAX)
    disk.commit(transaction(disk.index + 1, row(1, 5_000, 5_000)))
    assert commit_rows(disk, 1, 200, 300) == 1


def test_what_a_reader_keeps_in_the_log_is_much_to_copy(disk: SqliteDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that somebody waits for must not wait for a reader, as a checkpoint of a large log does."""
    monkeypatch.setattr(checkpoints, "WAL_BYTES_MAX", 1 << 40)
    commit_rows(disk, 1, 20_000, 1)
    with disk._rows.turn:
        disk._reader.execute("BEGIN")
        disk._reader.execute("SELECT count(*) FROM batch").fetchone()
        commit_rows(disk, 1, 20_000, COMMITS_MAX)
        disk.commit(transaction(disk.index + 1, row(1, 5_000, 5_000)))
        disk._reader.execute("COMMIT")
    assert disk.checkpoints._wal_bytes > 0
    assert commit_rows(disk, 1, 200, COMMITS_MAX) == 0
    assert not disk.prompt
