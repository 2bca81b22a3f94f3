"""A journal that has less than it promised is refused, untouched; the operator may accept that."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.storage.mark import read_mark
from tests.journal.disks import RESERVE_BYTES, SqliteDrive, row, transaction

WAL = f"{JOURNAL}-wal"
FRAME = 8192 + 24


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def write(directory: Path, first: int, last: int) -> SqliteDisk:
    """Transactions first..last, one row each; the disk is open."""
    disk = SqliteDrive(directory).open()
    disk.recover()
    for index in range(first, last + 1):
        disk.commit(transaction(index, row(1, index, index)))
    return disk


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """What SIGKILL leaves after ten transactions, all in the log; `older` beside it was copied after five."""
    disk = write(tmp_path / "data", 1, 5)
    shutil.copytree(tmp_path / "data", tmp_path / "older")
    disk.close()
    disk = write(tmp_path / "data", 6, 10)
    shutil.copytree(tmp_path / "data", tmp_path / "image")
    disk.close()
    return tmp_path / "image"


def refused(directory: Path, sentence: str) -> None:
    before = contents(directory)
    with pytest.raises(JournalDamaged, match=sentence):
        SqliteDrive(directory).open()
    assert contents(directory) == before


def recovered(directory: Path) -> None:
    disk = SqliteDrive(directory).open()
    try:
        disk.recover()
    finally:
        disk.close()


def accepted(directory: Path) -> tuple[list[str], int]:
    """What is said, and the index that is left."""
    disk = SqliteDisk(directory, reserve_bytes=RESERVE_BYTES, accept_loss=True)
    try:
        return disk.accepted, disk.recover().index
    finally:
        disk.close()


def test_what_a_kill_leaves_is_all_there(killed):
    assert read_mark(killed / "journal.mark").number == 10
    disk = SqliteDrive(killed).open()
    assert (disk.recover().index, disk.accepted) == (10, [])
    disk.close()


def test_an_older_mark_is_what_a_power_cut_leaves(killed):
    shutil.copy(killed.parent / "older" / "journal.mark", killed)
    disk = SqliteDrive(killed).open()
    assert (disk.recover().index, disk.accepted) == (10, [])
    disk.close()
    assert read_mark(killed / "journal.mark").number == 10


def test_damage_in_the_middle_of_the_log_is_no_torn_end(killed):
    content = bytearray((killed / WAL).read_bytes())
    content[32 + FRAME + 5000] ^= 1
    (killed / WAL).write_bytes(content)
    refused(killed, r"transaction [56], and 10 was confirmed: the log journal.db-wal is damaged: frame 2 is damaged")
    os.unlink(killed / "journal.mark")
    refused(killed, r"journal.db-wal: frame 2 is damaged, and \d+ frames of later transactions follow it; what")
    said, index = accepted(killed)
    assert index < 10
    assert "is lost" in said[0]
    assert said[1].endswith("journal.db-wal.damaged")
    assert (killed / f"{WAL}.damaged").read_bytes() == bytes(content)


def test_the_last_transaction_is_missed_by_the_mark_alone(killed):
    content = bytearray((killed / WAL).read_bytes())
    content[-5000] ^= 1
    (killed / WAL).write_bytes(content)
    refused(killed, "ends at transaction 9, and 10 was confirmed: the end of journal.db-wal is damaged")
    os.unlink(killed / "journal.mark")
    disk = SqliteDrive(killed).open()
    assert (disk.recover().index, disk.accepted) == (9, [])
    disk.close()


def test_an_older_copy_is_refused(killed):
    for name in (JOURNAL, WAL):
        shutil.copy(killed.parent / "older" / name, killed)
    refused(killed, "ends at transaction 5, and 10 was confirmed: it is an older copy, or its log was removed or cut")
    said, index = accepted(killed)
    assert index == 5
    assert "10 was confirmed" in said[0]
    # Said and accepted once: that is what there is now.
    disk = SqliteDrive(killed).open()
    assert (disk.recover().index, disk.accepted) == (5, [])
    disk.close()


def test_an_older_database_under_a_newer_log_is_refused(tmp_path):
    """SQLite would lay the log's pages over the older file."""
    disk = write(tmp_path / "data", 1, 50)
    disk._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    older = (tmp_path / "data" / JOURNAL).read_bytes()
    for index in range(51, 400):
        disk.commit(transaction(index, row(1, index, index, nbytes=2000)))
    disk.checkpoints.run()
    disk.commit(transaction(400, row(1, 400, 400)))
    shutil.copytree(tmp_path / "data", tmp_path / "image")
    disk.close()
    (tmp_path / "image" / JOURNAL).write_bytes(older)
    before = contents(tmp_path / "image")
    with pytest.raises(JournalDamaged, match=r"damaged"):
        recovered(tmp_path / "image")
    assert contents(tmp_path / "image") == before


def test_another_brokers_journal_is_refused(killed, tmp_path):
    write(tmp_path / "other", 1, 20).close()
    shutil.copy(tmp_path / "other" / JOURNAL, killed)
    os.unlink(killed / WAL)
    refused(killed, "is not the journal that journal.mark beside it belongs to: one was replaced")
    said, index = accepted(killed)
    assert index == 20
    assert "was replaced" in said[0]


def test_a_missing_journal_is_said(killed):
    for name in (JOURNAL, WAL):
        os.unlink(killed / name)
    refused(killed, "is missing, and journal.mark beside it says that messages were confirmed")
    said, index = accepted(killed)
    assert index == 0
    assert "is missing" in said[0]


def test_a_damaged_mark_promises_nothing(killed):
    (killed / "journal.mark").write_bytes(b"\xff" * 4096)
    disk = SqliteDrive(killed).open()
    assert disk.recover().index == 10
    assert "journal.mark is damaged: what was promised" in disk.accepted[0]
    disk.commit(transaction(11, row(1, 11, 11)))
    assert read_mark(killed / "journal.mark").number == 11
    disk.close()


def test_names_are_kept_and_have_a_checksum(tmp_path):
    disk = write(tmp_path / "data", 1, 1)
    identity = disk.names["identity"]
    disk.set_names(metadata="00ff", metadata_revision="7")
    disk.set_names(metadata_revision="8")
    disk.close()
    disk = SqliteDrive(tmp_path / "data").open()
    assert disk.names == {"identity": identity, "metadata": "00ff", "metadata_revision": "8"}
    disk.close()
