"""A full disk: the transaction is refused as a whole and may come again; the reserve lets settles through."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqpd.journal.errors import DiskFull
from amqpd.journal.records import Recovered, SeqRange
from amqpd.journal.sqlite import checkpoints
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.schema import PAGE_BYTES
from tests.journal.disks import row, transaction

MEGABYTE = 1 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", mounted], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs root and tmpfs: {error}")
    yield mounted
    subprocess.run(["umount", "--lazy", mounted], check=True)


def free(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def use_up(directory: Path, leave: int = 0) -> Path:
    """Somebody else fills the disk."""
    ballast = directory / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free(directory) - leave)
    return ballast


def commit_until_full(disk: SqliteDisk, index: int) -> int:
    """Commits rows of half a megabyte; the index of the one that was refused."""
    for index in range(index, index + 100):  # noqa: B020 - counted on
        try:
            disk.commit(transaction(index, row(1, index, index, nbytes=500_000)))
        except DiskFull:
            return index
    raise AssertionError("the disk is larger than it should be")


def image_of(directory: Path, to: Path) -> tuple[Recovered, list[int]]:
    """What a crash just now would leave: recovered, and the first numbers of queue 1's rows that can be read."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(directory, to, ignore=shutil.ignore_patterns("reserve"))
    disk = SqliteDisk(to, reserve_bytes=4096)
    recovered = disk.recover()
    rows = [each.first_seq for each in disk.read(1, 0, 1 << 30, 1 << 30)]
    disk.close()
    return recovered, rows


def test_publishes_are_refused_settles_go_on_and_space_lets_it_continue(small, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES", 2 * MEGABYTE)
    disk = SqliteDisk(small / "data", reserve_bytes=8 * MEGABYTE)
    disk.recover()
    index = commit_until_full(disk, 1)
    stored = index - 1
    assert stored > 10
    # Refused as a whole, each time, and nothing of it is found after a crash.
    refused = transaction(index, row(1, index, index, nbytes=500_000), SeqRange(1, 1, 1), delivered={1: 5})
    disk.note(metadata_revision="7")
    for _ in range(3):
        with pytest.raises(DiskFull, match="no space left on the disk of"):
            disk.commit(refused)
    recovered, rows = image_of(small / "data", tmp_path / "image")
    assert (recovered.index, rows) == (stored, list(range(1, index)))
    assert recovered.queues[1].delivered == 0
    assert "metadata_revision" not in disk.names
    assert [each.first_seq for each in disk.read(1, 0, 1 << 30, 1 << 30)] == rows, "reads go on"
    # The reserve is given up: what was refused goes in now, and settles and deletions after it.
    disk.release_reserve()
    assert not (small / "data" / "reserve").exists()
    disk.commit(refused)
    assert disk.names["metadata_revision"] == "7", "a note waits with the transaction that takes it along"
    assert disk.restore_reserve() is False
    for seq in range(1, index + 1):
        disk.commit(transaction(index + seq, SeqRange(1, seq, seq), deletes=[SeqRange(1, seq - 1, seq - 1)]))
    recovered, rows = image_of(small / "data", tmp_path / "image")
    assert (recovered.index, recovered.queues[1].next_seq, rows) == (2 * index, index + 1, [])
    # The file shrinks, the reserve is taken back, and the journal takes as much again.
    monkeypatch.setattr(checkpoints, "FREE_BYTES_KEPT", 0)
    while disk.vacuum_step():
        pass
    assert disk.restore_reserve() is True
    for seq in range(1, 10):
        disk.commit(transaction(2 * index + seq, row(2, seq, seq, nbytes=500_000)))
    disk.close()


def test_a_full_disk_at_a_checkpoint_does_not_undo_what_was_committed(small, tmp_path, monkeypatch):
    """The WAL's file has space, the database's cannot grow: the commit holds, the WAL waits."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES", MEGABYTE)
    disk = SqliteDisk(small / "data", reserve_bytes=MEGABYTE)
    disk.recover()
    disk.checkpoints._at = 100 * MEGABYTE
    for index in range(1, 9):  # a WAL of 4 MB ...
        disk.commit(transaction(index, row(1, index, index, nbytes=500_000)))
    disk.checkpoints._at = 0
    disk.commit(transaction(9))  # ... copied, so that the next commits begin at its start
    wal = small / "data" / f"{JOURNAL}-wal"
    space = wal.stat().st_size
    assert space > 4_000_000
    ballast = use_up(small)
    size = (small / "data" / JOURNAL).stat().st_size
    for index in range(10, 16):
        disk.commit(transaction(index, row(1, index, index, nbytes=500_000)))
    assert wal.stat().st_size == space
    assert (small / "data" / JOURNAL).stat().st_size == size
    assert disk.checkpoints._wal_bytes > 2 * MEGABYTE, "a checkpoint was due, and failed"
    recovered, rows = image_of(small / "data", tmp_path / "image")
    assert (recovered.index, rows) == (15, [*range(1, 9), *range(10, 16)])
    # Then the WAL is full as well, and a commit is refused.
    index = commit_until_full(disk, 16)
    ballast.unlink()
    disk.commit(transaction(index, row(1, index, index, nbytes=500_000)))
    disk._checkpoint()
    assert disk.checkpoints._wal_bytes == 0
    disk.close()
    recovered, rows = image_of(small / "data", tmp_path / "image")
    assert (recovered.index, rows[-1]) == (index, index)


def test_housekeeping_on_a_full_disk_is_refused_and_comes_again(small, monkeypatch):
    disk = SqliteDisk(small / "data", reserve_bytes=MEGABYTE)
    disk.recover()
    for index in range(1, 21):
        disk.commit(transaction(index, row(1, index, index, nbytes=300_000)))
    disk.commit(transaction(21, dropped=[1]))
    disk._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ballast = use_up(small)
    with pytest.raises(DiskFull):
        disk.vacuum_step()
    ballast.unlink()
    while disk.vacuum_step():
        pass
    assert disk.recover().queues == {}
    disk.close()


def test_a_journal_recovers_on_a_full_disk(small):
    """Dead rows cannot be deleted then; they are left out all the same, and go when there is space."""
    disk = SqliteDisk(small / "data", reserve_bytes=4 * MEGABYTE)
    disk.recover()
    disk.commit(transaction(1, *(row(1, n, n, nbytes=300_000, persistent=n % 2 == 0) for n in range(10))))
    disk.commit(transaction(2, SeqRange(1, 0, 0)))
    disk.close()
    ballast = use_up(small)
    disk = SqliteDisk(small / "data", reserve_bytes=4 * MEGABYTE)
    recovered = disk.recover()
    assert [each.first_seq for each in recovered.queues[1].rows] == [2, 4, 6, 8]
    with pytest.raises(DiskFull):
        disk.commit(transaction(3, row(1, 10, 10, nbytes=300_000)))
    disk.release_reserve()
    for index, seq in enumerate((2, 4, 6), 3):
        disk.commit(transaction(index, SeqRange(1, seq, seq)))
    disk.close()
    ballast.unlink()
    disk = SqliteDisk(small / "data", reserve_bytes=4 * MEGABYTE)
    assert [each.first_seq for each in disk.recover().queues[1].rows] == [8]
    while disk.vacuum_step():
        pass
    assert disk._writer.execute("SELECT first_seq FROM batch").fetchall() == [(8,)]
    disk.close()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """What a process leaves that is killed: by how many transactions are above the record."""
    folder = tmp_path_factory.mktemp("images")
    disk, made = SqliteDisk(folder / "made", reserve_bytes=MEGABYTE), {}
    disk.recover()
    for index in range(1, 41):
        disk.commit(transaction(index, row(1, index, index, nbytes=500)))
        if index in (1, 40):
            made[index] = folder / str(index)
            shutil.copytree(folder / "made", made[index])
    disk.close()
    return made


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("left", [0, PAGE_BYTES, 3 * PAGE_BYTES])
@pytest.mark.parametrize("behind", [1, 40])
def test_what_is_above_the_record_is_counted_once_when_the_start_finds_no_space(
    small: Path, tmp_path: Path, images: dict[int, Path], behind: int, left: int, orderly: bool
) -> None:
    """Killed with some transactions above the record, started on a disk with few bytes left or none, acknowledged
    what fits, stopped or killed, started with space: each start finds every row."""
    shutil.copytree(images[behind], small / "data")
    ballast = use_up(small, leave=left)
    disk = SqliteDisk(small / "data", reserve_bytes=MEGABYTE)
    assert disk.recover().index == behind
    disk.release_reserve()
    disk.commit(transaction(behind + 1, SeqRange(1, 1, 1)))
    if orderly:
        disk.close()
    shutil.copytree(small / "data", tmp_path / "then")
    disk.close()
    ballast.unlink()
    disk = SqliteDisk(tmp_path / "then", reserve_bytes=MEGABYTE)
    recovered = disk.recover()
    assert recovered.index == behind + 1
    assert [each.first_seq for queue in recovered.queues.values() for each in queue.rows] == list(
        range(2, behind + 1)
    )
    disk.close()


def test_the_reserve_is_real_space_and_is_not_taken_when_that_would_fill_the_disk(small):
    before = free(small)
    disk = SqliteDisk(small, reserve_bytes=5 * MEGABYTE)
    disk.recover()
    assert before - free(small) >= 5 * MEGABYTE
    disk.release_reserve()
    ballast = use_up(small, leave=9 * MEGABYTE)
    assert disk.restore_reserve() is False
    assert not (small / "reserve").exists()
    ballast.unlink()
    assert disk.restore_reserve() is True
    assert disk.restore_reserve() is True
    disk.close()


def test_a_journal_cannot_be_created_on_a_full_disk(small):
    use_up(small, leave=8192)
    with pytest.raises(DiskFull):
        SqliteDisk(small / "data")
    assert not (small / "data" / JOURNAL).exists()
