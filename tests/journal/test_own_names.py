"""A journal says whose it is before it is opened, whatever it lacks, and no byte is changed for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.own_names import own_names
from amqpd.storage.files import wal_path
from tests.journal.disks import SqliteDrive, row, transaction

FRAME = 24 + 8192


@pytest.fixture
def killed(tmp_path: Path) -> dict[str, bytes]:
    """The files that a kill leaves, with a name that the log alone has."""
    disk = SqliteDrive(tmp_path / "data").open()
    disk.recover()
    disk.note(node_name="a@vm")
    for index in range(1, 6):
        disk.commit(transaction(index, row(1, index, index)))
    image = {each.name: each.read_bytes() for each in (tmp_path / "data").iterdir() if each.is_file()}
    image["identity"] = disk.names["identity"].encode()
    disk.close()
    return image


def names_of(directory: Path, image: dict[str, bytes]) -> dict[str, str]:
    directory.mkdir()
    given = {name: data for name, data in image.items() if name != "identity"}
    for name, data in given.items():
        (directory / name).write_bytes(data)
    names = own_names(directory / JOURNAL)
    assert {each.name: each.read_bytes() for each in directory.iterdir()} == given
    return names


def test_its_names_are_those_of_its_log(killed: dict[str, bytes], tmp_path: Path) -> None:
    names = names_of(tmp_path / "image", killed)
    assert (names["identity"], names["node_name"]) == (killed["identity"].decode(), "a@vm")


def test_what_the_log_lacks_does_not_matter(killed: dict[str, bytes], tmp_path: Path) -> None:
    log = killed[wal_path(Path(JOURNAL)).name]
    whole = {"empty": b"", "garbage": b"x" * len(log), "torn": log[: 32 + FRAME + 100]}
    for name, data in whole.items():
        names = names_of(tmp_path / name, {**killed, wal_path(Path(JOURNAL)).name: data})
        assert names["identity"] == killed["identity"].decode(), name
    names_of(tmp_path / "none", {name: data for name, data in killed.items() if not name.endswith("-wal")})


def test_of_what_is_no_journal_nothing_is_said(killed: dict[str, bytes], tmp_path: Path) -> None:
    assert names_of(tmp_path / "empty", {JOURNAL: b""}) == {}
    assert names_of(tmp_path / "text", {JOURNAL: b"x" * 10_000}) == {}
    half = killed[JOURNAL][:200]
    assert names_of(tmp_path / "half", {JOURNAL: half}) == {}
    assert own_names(tmp_path / JOURNAL) == {}
