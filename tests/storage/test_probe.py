"""A disk that cannot be read is not called damage, whatever SQLite makes of it."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest
import trio

from amqpd.datadir import opening
from amqpd.datadir.disk_reason import disk_reason
from amqpd.errors import StartupError
from amqpd.journal.errors import DiskFailure
from amqpd.journal.records import JournalDamaged
from amqpd.storage import probe
from amqpd.storage.probe import could_not_read, disk_error, disk_error_of
from amqpd.topology.metadata.sqlite.database import explained
from amqpd.topology.metadata.store import MetadataStoreError, StoreDamaged

SENTENCE = "the disk of {} failed: Input/output error; see what the system's log says of it"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("journal.db", "metadata.db"):
        (tmp_path / name).write_bytes(bytes(3 * probe.PIECE_BYTES // 2))
    return tmp_path


def fail(monkeypatch: pytest.MonkeyPatch, file: Path, code: int = errno.EIO) -> None:
    """The file cannot be read beyond its first piece."""
    read = os.pread

    def pread(descriptor: int, count: int, at: int) -> bytes:
        if at and os.path.samestat(os.fstat(descriptor), file.stat()):
            raise OSError(code, os.strerror(code))
        return read(descriptor, count, at)

    monkeypatch.setattr(os, "pread", pread)


def test_what_can_be_read_says_nothing(data: Path) -> None:
    assert disk_error(data) is None
    assert disk_error(data / "elsewhere") is None


@pytest.mark.parametrize("name", ["journal.db", "metadata.db"])
def test_what_cannot_be_read_is_named(data: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, data / name)
    assert disk_error(data) == SENTENCE.format(data / name)


def test_the_log_is_read_too(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wal = data / "journal.db-wal"
    wal.write_bytes(bytes(3 * probe.PIECE_BYTES // 2))
    fail(monkeypatch, wal)
    assert disk_error_of(data / "journal.db") == SENTENCE.format(wal)


def test_a_file_that_is_missing_or_not_ours_is_for_others_to_tell(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, data / "journal.db", errno.EACCES)
    assert disk_error(data) is None


@pytest.mark.parametrize("error", [JournalDamaged("looks damaged"), StoreDamaged("looks damaged")])
def test_what_looks_damaged_is_looked_at_once_more(
    data: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def opens() -> None:
        raise error

    for sentence in ("looks damaged", SENTENCE.format(data / "journal.db")):
        with pytest.raises(StartupError) as caught:
            trio.run(lambda: opening.opened(opens(), data))
        assert caught.value.sentence == sentence
        assert disk_reason(ExceptionGroup("", [error]), data) == sentence
        fail(monkeypatch, data / "journal.db")


def test_another_failure_is_said_as_it_is(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, data / "journal.db")
    assert disk_reason(ExceptionGroup("", [DiskFailure("fsync failed")]), data) == "fsync failed"


@pytest.mark.parametrize(
    ("said", "unreadable"),
    [
        ("ok", False),
        ("*** in database main ***\nPage 8: unable to get the page. error code=8458", True),
        ("*** in database main ***\nPage 8: unable to get the page. error code=11", False),
        ("Tree 4 page 7: btreeInitPage() returns error code 11", False),
    ],
)
def test_sqlite_s_check_says_which_page_it_could_not_read(said: str, unreadable: bool) -> None:
    assert could_not_read(said) == unreadable


def refuse(path: Path, code: str, text: str) -> None:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = code
    with explained(path):
        raise error


@pytest.mark.parametrize(
    ("code", "text", "kind", "sentence"),
    [
        ("SQLITE_IOERR_READ", "disk I/O error", MetadataStoreError, "the disk of x failed: disk I/O error"),
        ("SQLITE_CORRUPT", "malformed", StoreDamaged, "x is damaged"),
        ("SQLITE_ERROR", "no such table: entries", StoreDamaged, "x is damaged or is not amqpd's metadata"),
        ("SQLITE_ERROR", "SQL logic error", MetadataStoreError, "x cannot be read or written"),
        ("SQLITE_SCHEMA", "database schema has changed", MetadataStoreError, "x cannot be read or written"),
    ],
)
def test_only_damage_is_called_damage(code: str, text: str, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(MetadataStoreError) as caught:
        refuse(Path("x"), code, text)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(sentence)
