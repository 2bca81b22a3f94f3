"""A journal of the first format is opened: everything is still there, and what it did not know is found out."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from zlib import crc32

import pytest

from amqpd.journal.errors import DiskFull
from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow, Row
from amqpd.journal.sqlite import schema
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from tests.journal.disks import SqliteDrive, row, transaction

# What the first format's migration and `statement_parameters.checksum` did, as they were.
FIRST_FORMAT = """
PRAGMA page_size = 8192;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA application_id = 1634562410;
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
INSERT INTO alembic_version VALUES ('0001');
CREATE TABLE batch (
    batch_id INTEGER NOT NULL, queue_id INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
    nbytes INTEGER NOT NULL, persistent INTEGER NOT NULL, source INTEGER NOT NULL, epoch INTEGER NOT NULL,
    idx INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (batch_id)
);
CREATE INDEX batch_index ON batch (queue_id, last_seq, first_seq, nbytes, persistent, idx);
CREATE TABLE settled (
    queue_id INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, source INTEGER NOT NULL,
    epoch INTEGER NOT NULL, idx INTEGER NOT NULL, PRIMARY KEY (queue_id, first_seq, last_seq)
) WITHOUT ROWID;
CREATE TABLE discard (
    discard_id INTEGER NOT NULL, queue_id INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
    source INTEGER NOT NULL, epoch INTEGER NOT NULL, idx INTEGER NOT NULL, PRIMARY KEY (discard_id)
);
CREATE INDEX discard_index ON discard (queue_id, first_seq, last_seq, idx);
CREATE TABLE queue (
    queue_id INTEGER NOT NULL, next_seq INTEGER NOT NULL, delivered INTEGER NOT NULL, PRIMARY KEY (queue_id)
);
CREATE TABLE source (source INTEGER NOT NULL, epoch INTEGER NOT NULL, idx INTEGER NOT NULL, PRIMARY KEY (source));
INSERT INTO source VALUES (0, 1, 7);
INSERT INTO settled VALUES (1, 10, 12, 0, 1, 6);
INSERT INTO discard VALUES (1, 3, 0, 9223372036854775807, 0, 1, 7);
INSERT INTO queue VALUES (1, 5, 15);
PRAGMA journal_mode = WAL;
"""
ABOUT = Struct("<qqq?")
FRAME = Struct(">BHI")


def frames(*bodies: bytes) -> bytes:
    """Publishes of these bodies, as far as framing goes; a body of more than 4 bytes takes several frames."""
    parts = []
    for body in bodies:
        parts += [(1, b"method"), (2, b"header\x03")]
        parts += [(3, body[at : at + 4]) for at in range(0, len(body), 4)]
    return b"".join(FRAME.pack(kind, 1, len(payload)) + payload + b"\xce" for kind, payload in parts)


def write(directory: Path, *rows: Row, crc_off_by: int = 0) -> None:
    """A data directory as the first format left it; `rows` are in it beside what FIRST_FORMAT says."""
    directory.mkdir()
    connection = sqlite3.connect(directory / JOURNAL)
    connection.executescript(FIRST_FORMAT)
    for each in rows:
        crc = crc32(each.data, crc32(ABOUT.pack(each.queue_id, each.first_seq, each.last_seq, each.persistent)))
        connection.execute(
            "INSERT INTO batch VALUES (NULL, ?, ?, ?, ?, ?, 0, 1, 5, ?, ?)",
            (*(each.queue_id, each.first_seq, each.last_seq, len(each.data), each.persistent),
             *(crc + crc_off_by, each.data)),
        )  # fmt: skip
    connection.commit()
    connection.close()


ROWS = (
    Row(1, 10, 14, frames(b"", b"123", b"12345678", b"1", b"12")),
    Row(1, 15, 15, frames(b"")),
    Row(2, 0, 0, frames(b"paged out"), persistent=False),
    Row(2, 1, 2, frames(b"\x03" * 70_000, b"ab")),
    Row(3, 0, 0, frames(b"of a queue that was dropped")),
)
SIZES = (14, 0, 9, 70_002, 27)


def expected(published_ms: int = 0) -> Recovered:
    return Recovered(
        7,
        {
            1: RecoveredQueue(
                [
                    RecoveredRow(10, 14, len(ROWS[0].data), [(10, 12)], 14, published_ms),
                    RecoveredRow(15, 15, len(ROWS[1].data), [], 0, published_ms),
                ],
                16,
                15,
            ),
            2: RecoveredQueue([RecoveredRow(1, 2, len(ROWS[3].data), [], 70_002, published_ms)], 3, 0),
        },
    )


def test_what_the_first_format_held_is_all_there_with_the_size_of_its_bodies(tmp_path):
    write(tmp_path / "data", *ROWS)
    drive = SqliteDrive(tmp_path / "data")
    disk = drive.open()
    for each, size in zip(ROWS, SIZES, strict=True):
        each.body_bytes = size
    assert disk.read(2, 0, 0, 1 << 20) == [ROWS[2]]
    assert disk.recover() == expected()
    assert disk.read(1, 0, 99, 1 << 20) == list(ROWS[:2])
    assert disk.read(2, 1, 99, 1 << 20) == [ROWS[3]]
    disk.commit(transaction(8, row(1, 16, 16, body_bytes=5, published_ms=6), counts=[(1, 13, 1)]))
    disk.close()
    disk = drive.open()
    recovered = disk.recover()
    assert (recovered.index, recovered.queues[1].counts) == (8, {13: 1})
    assert recovered.queues[1].rows[:2] == expected().queues[1].rows
    assert recovered.queues[1].rows[2:] == [RecoveredRow(16, 16, 20, [], 5, 6)]
    disk.close()


def test_a_migrated_journal_has_the_tables_of_a_new_one(tmp_path):
    write(tmp_path / "data", *ROWS)
    tables = []
    for name in ("data", "new"):
        SqliteDrive(tmp_path / name).open().close()
        connection = sqlite3.connect(tmp_path / name / JOURNAL)
        found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
        # By hand and by Alembic the spaces differ.
        tables.append({each[:3] for each in found})
        columns = {table: connection.execute(f"PRAGMA table_info({table})").fetchall() for table in ("batch",)}
        tables.append(columns)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT * FROM alembic_version").fetchall() == [(schema.REVISIONS[-1],)]
        connection.close()
    assert tables[:2] == tables[2:]


def test_a_row_that_was_damaged_before_is_still_told_when_it_is_read(tmp_path):
    write(tmp_path / "data", *ROWS, crc_off_by=1)
    disk = SqliteDrive(tmp_path / "data").open()
    recovered = disk.recover()
    assert [each.body_bytes for each in recovered.queues[1].rows] == [0, 0]
    for queue_id in (1, 2):
        assert all("are damaged" in each.damage for each in disk.read(queue_id, 0, 99, 1 << 20))
    disk.close()


@pytest.mark.parametrize(
    "cut", [lambda data: data[:-1], lambda data: data + b"\x01", lambda data: b"no frames at all"]
)
def test_bytes_that_are_no_frames_are_left_as_they_are(tmp_path, cut: Callable[[bytes], bytes]):
    odd = Row(1, 0, 0, cut(frames(b"abcdefg")))
    write(tmp_path / "data", odd)
    disk = SqliteDrive(tmp_path / "data").open()
    assert disk.recover().queues[1].rows[0].body_bytes == 0
    assert disk.read(1, 0, 0, 1 << 20) == [odd]
    disk.close()


def test_an_old_journal_that_has_no_space_to_be_migrated_is_left_as_it_was(tmp_path):
    """The sentence is that of a full disk; with space it goes on."""
    write(tmp_path / "old", Row(1, 10, 14, frames(b"x" * 400_000)))
    small = tmp_path / "small"
    small.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs root and tmpfs: {error}")
    try:
        shutil.copytree(tmp_path / "old", small / "data")
        found = os.statvfs(small)
        ballast = small / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - 100_000)
        before = (small / "data" / JOURNAL).read_bytes()
        with pytest.raises(DiskFull, match="no space left on the disk of"):
            SqliteDisk(small / "data", reserve_bytes=4096)
        assert (small / "data" / JOURNAL).read_bytes() == before
        ballast.unlink()
        disk = SqliteDisk(small / "data", reserve_bytes=4096)
        assert disk.recover().queues[1].rows[0].body_bytes == 400_000
        disk.close()
    finally:
        subprocess.run(["umount", small], check=True)
