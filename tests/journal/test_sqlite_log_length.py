"""The journal's log has its length before it is needed: when, by how much in a step, and what may be in the way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from amqpd.journal.sqlite import checkpoints
from amqpd.journal.sqlite.database import JOURNAL
from tests.journal.disks import SqliteDrive, row, transaction
from tests.journal.test_sqlite_space import crashed, fill


def log_of(directory: Path) -> Path:
    return directory / f"{JOURNAL}-wal"


def test_an_idle_moment_gives_the_log_its_length_and_commits_do_not_change_it(disk, tmp_path):
    disk.commit(transaction(1, row(1, 0, 0)))
    steps = 1
    while disk.vacuum_step():
        steps += 1
    assert steps > 30, "none of them lasts, so that one may be waited for"
    log = log_of(tmp_path / "data")
    assert log.stat().st_size == checkpoints.LOG_BYTES
    commits, rounds = 1, 0
    while rounds < 3:
        commits += 1
        disk.commit(transaction(commits, row(1, commits - 1, commits - 1)))
        rounds += disk.checkpoints._wal_bytes == 0
    assert log.stat().st_size == checkpoints.LOG_BYTES
    image = crashed(tmp_path / "data", tmp_path / "image")
    assert len(image.recover().queues[1].rows) == commits
    image.close()
    assert not log_of(tmp_path / "image").exists()


def test_a_log_of_zeros_alone_is_an_empty_one(tmp_path):
    disk = SqliteDrive(tmp_path / "data").open()
    disk.recover()
    disk.commit(transaction(1, row(1, 0, 0)))
    disk.close()
    log_of(tmp_path / "data").write_bytes(bytes(checkpoints.LOG_BYTES))
    disk = SqliteDrive(tmp_path / "data").open()
    assert len(disk.recover().queues[1].rows) == 1
    disk.close()


@pytest.mark.parametrize("bound", ["alarm", "reserve"])
def test_where_there_is_little_space_the_log_keeps_its_length(tmp_path, monkeypatch, bound):
    """What is too little, the first alarm says, and in any case the reserve must find its own."""
    space = os.statvfs(tmp_path)
    free = space.f_bavail * space.f_frsize
    if bound == "reserve":
        monkeypatch.setattr(checkpoints, "LOG_FREE_BYTES_MIN", free)
    disk = SqliteDrive(tmp_path / "data").open(free if bound == "alarm" else 0)
    disk.recover()
    disk.commit(transaction(1, row(1, 0, 0)))
    size = log_of(tmp_path / "data").stat().st_size
    assert not disk.vacuum_step()
    assert log_of(tmp_path / "data").stat().st_size == size
    disk.close()


def test_pages_that_are_given_back_do_not_put_it_off(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "FREE_BYTES_KEPT", 0)
    fill(disk, 1, 4, nbytes=300_000)
    disk.commit(transaction(2, dropped=[1]))
    while disk.vacuum_step():
        pass
    assert log_of(tmp_path / "data").stat().st_size == checkpoints.LOG_BYTES


def test_a_log_that_cannot_be_lengthened_is_as_before(disk, tmp_path, monkeypatch):
    disk.commit(transaction(1, row(1, 0, 0)))
    size = log_of(tmp_path / "data").stat().st_size

    def fails(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fails)
        assert not disk.vacuum_step()
    assert log_of(tmp_path / "data").stat().st_size == size
    disk.commit(transaction(2, row(1, 1, 1)))
    image = crashed(tmp_path / "data", tmp_path / "image")
    assert image.recover().index == 2
    image.close()


def test_a_log_of_somebody_else_that_has_the_name_by_now_is_left_as_it_is(disk, tmp_path):
    """A backup that is put in the place of the directory while the node runs, which has not been noticed yet."""
    disk.commit(transaction(1, row(1, 0, 0)))
    log = log_of(tmp_path / "data")
    data = log.read_bytes()
    log.rename(tmp_path / "away")
    log.write_bytes(data)
    while disk.vacuum_step():
        pass
    assert log.read_bytes() == data
