"""What is held while no broker runs, and what gives way to what."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amqpd.datadir import reserves
from amqpd.datadir.reserves import (
    METADATA_RESERVE,
    METADATA_RESERVE_BYTES,
    METADATA_RESERVE_BYTES_MIN,
    hold_all,
    hold_for_metadata,
    index_is_safe,
    release_for_metadata,
)

MIB = 1 << 20


class SmallDisk:
    """`posix_fallocate` and `statvfs` of a disk with so much space left; half a mebibyte of what it says is not to be
    had, as on a file system that needs some for itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        self.free = free
        self.own = MIB // 2
        monkeypatch.setattr(os, "posix_fallocate", self.allocate)
        monkeypatch.setattr(reserves, "_free_bytes", lambda _: self.free)

    def allocate(self, descriptor: int, _: int, nbytes: int) -> None:
        wanted = nbytes - os.fstat(descriptor).st_size
        if wanted > self.free - self.own:
            raise OSError(28, "No space left on device")
        os.ftruncate(descriptor, nbytes)
        self.free -= wanted


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_everything_is_held_where_there_is_space(tmp_path: Path) -> None:
    for _ in range(2):
        hold_all(tmp_path, 3 * MIB)
        assert (size(tmp_path / METADATA_RESERVE), size(tmp_path / "reserve")) == (METADATA_RESERVE_BYTES, 3 * MIB)
    assert release_for_metadata(tmp_path)
    assert not release_for_metadata(tmp_path)


def test_as_much_is_held_as_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SmallDisk(monkeypatch, 8 * MIB)
    hold_all(tmp_path, 32 * MIB)
    assert size(tmp_path / METADATA_RESERVE) >= METADATA_RESERVE_BYTES_MIN
    assert 7 * MIB <= size(tmp_path / "reserve") < 8 * MIB
    assert disk.free < MIB


def test_what_lets_nothing_through_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SmallDisk(monkeypatch, MIB // 2 + METADATA_RESERVE_BYTES_MIN + 100_000)
    hold_all(tmp_path, 32 * MIB)
    assert not (tmp_path / "reserve").exists()


def test_the_journal_s_reserve_gives_a_little_for_that_of_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next start would give up all of it."""
    disk = SmallDisk(monkeypatch, 0)
    disk.own = 0
    (tmp_path / "reserve").write_bytes(bytes(3 * MIB))
    truncate = os.truncate

    def freed(path: Path, nbytes: int) -> None:
        disk.free += size(path) - nbytes
        truncate(path, nbytes)

    monkeypatch.setattr(os, "truncate", freed)
    hold_all(tmp_path, 3 * MIB)
    assert size(tmp_path / METADATA_RESERVE) == METADATA_RESERVE_BYTES_MIN
    assert size(tmp_path / "reserve") == 3 * MIB - METADATA_RESERVE_BYTES_MIN


@pytest.mark.parametrize(("free", "held"), [(40 << 10, 36 << 10), (100 << 10, 64 << 10), (20 << 10, 0)])
def test_of_metadata_s_reserve_what_there_is_is_held_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, held: int
) -> None:
    """The index, which closing gave back, is enough for a start."""
    disk = SmallDisk(monkeypatch, free)
    disk.own = 0
    for _ in range(2):
        assert not hold_for_metadata(tmp_path)
        assert size(tmp_path / METADATA_RESERVE) == held
    disk.free += MIB
    assert hold_for_metadata(tmp_path)
    assert size(tmp_path / METADATA_RESERVE) == METADATA_RESERVE_BYTES


@pytest.mark.parametrize(
    ("block", "free", "safe"), [(4096, 0, True), (1024, 0, False), (1024, 35, False), (1024, 36, True)]
)
def test_small_blocks_need_space_before_the_index_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, free: int, safe: bool
) -> None:
    """Or the process ends with SIGBUS."""
    real = os.statvfs(tmp_path)
    given = os.statvfs_result((block, block, 1000, free, free, *tuple(real)[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: given)
    assert index_is_safe(tmp_path) == safe


def test_a_directory_that_is_gone_is_left_alone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    hold_all(gone)
    assert not hold_for_metadata(gone)
    assert not gone.exists()
