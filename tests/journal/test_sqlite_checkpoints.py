"""When the log is copied into the database, and by whom: a commit that somebody waits for does it only if that does
not last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amqpd.journal.sqlite import checkpoints
from amqpd.journal.sqlite.disk import SqliteDisk
from tests.journal.disks import row, transaction
from tests.journal.test_sqlite_space import crashed

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
    assert commit_rows(disk, queues, 200, COMMITS_MAX) == COMMITS_MAX // 338
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


def test_of_larger_transactions_all_pages_count(disk: SqliteDisk) -> None:
    while disk.prompt and disk.index < COMMITS_MAX:
        at = disk.index + 1
        disk.commit(transaction(at, row(1, at, at), row(2, at, at)), housekeeping=False)
    assert disk.checkpoints.is_due()
    assert not disk.prompt


def test_after_it_was_copied_the_next_one_is_judged_by_what_came_since(disk: SqliteDisk) -> None:
    commit_rows(disk, 500, 200, COMMITS_MAX)
    disk.commit(transaction(disk.index + 1, row(1, 5_000, 5_000)))
    assert commit_rows(disk, 1, 200, 400) == 1


def test_the_log_that_a_killed_process_left_is_much_to_copy(disk: SqliteDisk, tmp_path: Path) -> None:
    commit_rows(disk, 1, 20_000, 100)
    image = crashed(tmp_path / "data", tmp_path / "image")
    image.recover()
    assert commit_rows(image, 1, 200, COMMITS_MAX) == 0
    assert not image.prompt
    image.commit(transaction(image.index + 1, row(1, 5_000, 5_000)))
    assert image.prompt
    image.close()


@contextmanager
def somebody_reads(disk: SqliteDisk) -> Iterator[None]:
    """The log as it is now."""
    disk._reader.execute("BEGIN")
    disk._reader.execute("SELECT count(*) FROM batch").fetchone()
    yield
    disk._reader.execute("COMMIT")


def test_what_a_reader_kept_in_the_log_is_much_to_copy(disk: SqliteDisk) -> None:
    commit_rows(disk, 1, 20_000, 1)
    with somebody_reads(disk):
        commit_rows(disk, 1, 20_000, COMMITS_MAX)
        disk.commit(transaction(disk.index + 1, row(1, 5_000, 5_000)))
    assert disk.checkpoints._wal_bytes > checkpoints.LIGHT_BYTES
    assert commit_rows(disk, 1, 200, COMMITS_MAX) == 0
    assert not disk.prompt


class Reading:
    """What a reader holds; how often somebody waited for it."""

    waited = 0

    def __enter__(self) -> None:
        self.waited += 1

    def __exit__(self, *_: object) -> None: ...


def test_a_commit_that_is_waited_for_never_waits_for_a_reader(
    disk: SqliteDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a reader is in the log at each checkpoint, the log is never begun again and becomes long, though little
    is left to copy each time; and the checkpoint of a long one waits for readers to finish."""
    reading = Reading()
    monkeypatch.setattr(disk.checkpoints, "_reading", reading)
    for _ in range(4):
        while disk.checkpoints._wal_bytes < 0.98 * disk.checkpoints._at:
            commit_rows(disk, 1, 200, 1)
        with somebody_reads(disk):
            while disk.prompt and not commit_rows(disk, 1, 200, 1):
                pass
    assert not reading.waited
    assert not disk.prompt
    disk.commit(transaction(disk.index + 1, row(1, disk.index + 1, disk.index + 1)))
    assert disk.prompt
