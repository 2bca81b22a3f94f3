"""A journal with one record of each kind, and ways to damage it."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from amqpd.journal.records import SeqRange
from amqpd.journal.sqlite.database import JOURNAL
from tests.journal.disks import SqliteDrive, deadlines, row, transaction

EXPIRING = deadlines(*((1_700_000_000_000 + seq, seq, seq) for seq in range(10, 20)))
TIMED = row(1, 10, 19, nbytes=50_000, body_bytes=40_000, published_ms=1_700_000_000_000, deadlines=EXPIRING)


def execute(directory: Path, *statements: str) -> None:
    connection = sqlite3.connect(directory / JOURNAL)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def contents(directory: Path) -> dict[str, bytes]:
    """Of every file but the lock, which has the number of the process that holds it."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "amqpd.lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queue 1 has rows 0..9, 10..19 with deadlines, 20..29; 3..4 are settled, 15 came back; queue 9 is being
    dropped."""
    directory = tmp_path_factory.mktemp("journal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("amqpd.journal.sqlite.disk.RECOVERY_STEPS_MAX", 0)
        disk = SqliteDrive(directory).open()
        disk.recover()
        disk.commit(transaction(1, row(1, 0, 9), TIMED, row(1, 20, 29), counts=[(1, 15, 3)]))
        disk.commit(transaction(2, row(9, 0, 0), SeqRange(1, 3, 4), delivered={1: 5}))
        disk.commit(transaction(3, dropped=[9]))
        disk._discards.pending.clear()  # so that it stays
        disk.close()
    return directory


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))
