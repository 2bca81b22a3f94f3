"""Data directories of format 0003, the last one with a single source and a single epoch, made by the version before
(commit 767bb6c): everything comes back, and stays right when this version goes on with it."""

from __future__ import annotations

import sqlite3
import tarfile
from pathlib import Path

import pytest

from amqpd.backup.progress import Progress
from amqpd.checking.check import check
from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow, SeqRange
from amqpd.journal.sqlite import schema
from amqpd.journal.sqlite.database import JOURNAL
from tests.journal.disks import SqliteDrive, deadlines, row, transaction

IMAGES = Path(__file__).parent / "formats" / "0003.tar.xz"
"""`stopped` and `killed` (with its log): six transactions that wrote rows to queues 1 to 6, of which 4 was dropped
and 2 has left, and of which a discard of queue 5 was begun and not carried out."""
TIMED = deadlines((99, 10, 12))
EXPECTED = Recovered(
    6,
    {
        1: RecoveredQueue(
            [
                RecoveredRow(0, 9, 20, [(3, 4)], 5, 7),
                RecoveredRow(10, 19, 9000, [], 0, 0, TIMED),
                RecoveredRow(30, 30, 20, [], 0, 0),
            ],
            31,
            15,
            {12: 3},
        ),
        2: RecoveredQueue([], 5, 0),
        3: RecoveredQueue([], 1, 0),
        5: RecoveredQueue([RecoveredRow(5, 5, 20, [], 0, 0)], 6, 0),
        6: RecoveredQueue([RecoveredRow(0, 99, 20_000, [], 0, 0)], 100, 0),
    },
)


@pytest.fixture(params=["stopped", "killed"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(IMAGES) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / str(request.param)


def test_all_of_it_comes_back(old):
    disk = SqliteDrive(old).open()
    assert disk.recover() == EXPECTED
    assert disk.read(1, 10, 29, 1 << 20)[0] == row(1, 10, 19, nbytes=9000, deadlines=TIMED)
    assert disk.read(6, 0, 99, 1 << 20) == [row(6, 0, 99, nbytes=20_000)]
    # A new epoch; what was before it keeps its origin, and nothing of it was written again.
    assert disk.head(0).position == (2, 6)
    assert disk._writer.execute("SELECT DISTINCT source, epoch FROM batch").fetchall() == [(0, 1)]
    disk.close()


def test_what_comes_then_stands_beside_it(old):
    disk = SqliteDrive(old).open()
    disk.recover()
    again = transaction(
        7, row(1, 31, 31), SeqRange(1, 0, 9), SeqRange(1, 30, 30), counts=[(1, 12, 4)], delivered={1: 20}
    )
    disk.commit(again)
    disk.commit(transaction(8, deletes=[SeqRange(1, 0, 9), SeqRange(1, 30, 30)]))
    while disk.vacuum_step():
        pass
    disk.close()
    disk = SqliteDrive(old).open()
    recovered = disk.recover().queues[1]
    assert [each.first_seq for each in recovered.rows] == [10, 31]
    assert (recovered.counts, recovered.delivered) == ({12: 4}, 20)
    assert disk._writer.execute("SELECT count(*) FROM discard").fetchone() == (0,)
    disk.close()


def test_a_check_of_it_finds_nothing(old):
    SqliteDrive(old).open().close()
    found = check(old, Progress())
    assert [each.line for each in found.report.findings if each.file == JOURNAL] == []


def test_its_tables_are_those_of_a_new_one(old, tmp_path):
    SqliteDrive(tmp_path / "new").open().close()
    SqliteDrive(old).open().close()
    tables = []
    for directory in (old, tmp_path / "new"):
        connection = sqlite3.connect(directory / JOURNAL)
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema ORDER BY name")]
        columns = {
            table: connection.execute(f"PRAGMA table_info({table})").fetchall() for table in schema.metadata.tables
        }
        tables.append((names, columns))
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE queue SET delivered = 3 WHERE queue_id = 1", "what was delivered of queue 1 does not fit"),
        ("UPDATE source SET idx = 5", "the record of its last transaction is"),
        ("UPDATE settled SET last_seq = 5", "are settled does not fit"),
    ],
)
def test_what_was_damaged_before_is_told_after(old, change, reason):
    connection = sqlite3.connect(old / JOURNAL)
    connection.execute(change)
    connection.commit()
    connection.close()
    with pytest.raises(Exception, match=reason):
        SqliteDrive(old).open().recover()
