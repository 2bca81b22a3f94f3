"""Fixtures of the journal's tests: a drive of each kind, and a disk that is open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqpd.journal.sqlite.disk import SqliteDisk
from tests.journal.disks import Drive, MemoryDrive, SqliteDrive


@pytest.fixture(params=["sqlite", "memory"])
def drive(request: pytest.FixtureRequest, tmp_path: Path) -> Drive:
    return SqliteDrive(tmp_path / "data") if request.param == "sqlite" else MemoryDrive()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SqliteDisk]:
    """A new, empty, recovered SQLite disk."""
    disk = SqliteDrive(tmp_path / "data").open()
    disk.recover()
    yield disk
    disk.close()
