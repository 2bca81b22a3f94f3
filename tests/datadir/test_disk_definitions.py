"""`datadir/disks/opening.py`: which metadata.db the directories of a start get.

What is verified: one that is damaged is replaced by a whole one; one of the same revision that has other contents is
not taken for the same; when all are damaged the start says so.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from amqpd.datadir.disk_record import read_record
from amqpd.datadir.disks.definitions import open_definitions
from amqpd.datadir.disks.opening import open_disks
from amqpd.errors import StartupError
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.transaction import Transaction
from amqpd.topology.metadata.sqlite.batch import Call
from amqpd.topology.metadata.sqlite.sqlite_file import SqliteFile
from amqpd.topology.metadata.store import PutKey
from amqpd.topology.metadata.store import Transaction as Change


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in "abc"]


def run(paths: list[Path], *puts: str, left: tuple[int, ...] = (), accept_loss: bool = False) -> list[str]:
    """One incarnation of the node. `left`: disks that are left behind before anything is put. All keys, in the
    end."""
    disks = open_disks(paths, accept_loss=accept_loss)
    file = None
    try:
        disks.disk.recover()
        file = open_definitions(disks, accept_loss=accept_loss)
        for number in left:
            disks.group.leave(number, "it failed")
        for each in puts:
            put(file, each)
        return [each.key for each in file.range("").entries]
    finally:
        if file is not None:
            file.close()
        disks.disk.close()
        disks.close()


def put(file: SqliteFile, key: str) -> None:
    file.commit([Call([Change((), (PutKey(key, "v"),))])])


def keys(directory: Path) -> list[str]:
    file = SqliteFile(directory / "metadata.db", 100)
    found = [each.key for each in file.range("").entries]
    file.close()
    return found


def rot(directory: Path) -> None:
    """An entry's value is not what was written."""
    with closing(sqlite3.connect(directory / "metadata.db")) as connection:
        connection.execute("UPDATE entries SET value = 'rotten'")
        connection.commit()


@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_one_is_replaced(paths: list[Path], number: int) -> None:
    run(paths, "one")
    rot(paths[number])
    assert run(paths, "two") == ["one", "two"]
    assert [keys(each) for each in paths] == [["one", "two"]] * 3


def test_all_are_damaged(paths: list[Path]) -> None:
    run(paths, "one")
    for each in paths:
        rot(each)
    with pytest.raises(StartupError, match=r"no data directory has all definitions \(.*/a/metadata.db is damaged"):
        run(paths)


def test_what_was_lost_before_there_were_several_is_not_forgotten(paths: list[Path]) -> None:
    """The only directory has less than it promised: copies of it promise nothing."""
    paths[0].mkdir()
    journal = SqliteDisk(paths[0])
    journal.recover()
    journal.commit(Transaction(journal.index + 1))
    journal.close()
    old = paths[0] / "metadata.db"
    file = SqliteFile(old, 100)
    kept = old.read_bytes(), old.with_name("metadata.db-wal").read_bytes()
    put(file, "lost")
    file.close()
    old.write_bytes(kept[0])
    old.with_name("metadata.db-wal").write_bytes(kept[1])
    with pytest.raises(StartupError, match=r"no data directory has all definitions"):
        run(paths)
    disks = open_disks(paths, accept_loss=True)
    try:
        assert disks.definitions_lost
    finally:
        disks.disk.forsake()
        disks.close()


def test_what_is_older_is_taken_only_when_that_is_accepted(paths: list[Path]) -> None:
    run(paths, "one")
    run(paths, "two", left=(0,))
    for each in paths[1:]:
        (each / "metadata.db").unlink()
    with pytest.raises(StartupError, match=r"b/metadata.db and .*c/metadata.db are missing"):
        run(paths)
    assert run(paths, accept_loss=True) == ["one"]


def test_the_same_revision_is_not_the_same(paths: list[Path]) -> None:
    """The first disk was left behind, and got another definition: of a commit that had no majority."""
    run(paths, "one")
    run(paths, "kept", left=(0,))
    record = read_record(paths[1])
    assert record is not None
    assert [each.inside for each in record.list.disks] == [False, True, True]
    alone = SqliteFile(paths[0] / "metadata.db", 100)
    put(alone, "lost")
    alone.close()
    assert run(paths) == ["kept", "one"]
    assert [keys(each) for each in paths] == [["kept", "one"]] * 3
