"""`datadir/disks`: several directories of one node, opened and repaired in this process.

What is verified: what is refused, at a start and by a repair, because it would erase what is nowhere else.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from amqpd.datadir.disk_record import RECORD, read_record, write_record
from amqpd.datadir.disks.opening import OpenDisks, open_disks
from amqpd.datadir.disks.repair import NotRepaired, Repair
from amqpd.errors import StartupError
from amqpd.journal.transaction import Transaction

Open = Callable[[], OpenDisks]


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in "abc"]


@pytest.fixture
def opened(paths: list[Path]) -> Iterator[Open]:
    made: list[OpenDisks] = []

    def make() -> OpenDisks:
        made.append(open_disks(paths, accept_loss=False))
        made[-1].disk.recover()
        return made[-1]

    yield make
    for each in made:
        close(each)


def close(disks: OpenDisks) -> None:
    disks.disk.close()
    disks.close()


def commit(disks: OpenDisks) -> None:
    disks.disk.commit(Transaction(disks.disk.index + 1))


def test_a_directory_that_was_used_alone_meanwhile_is_not_overruled(paths: list[Path], opened: Open) -> None:
    """Three, then one (with --accept-loss), then the three again: the two others' list is the older one."""
    disks = opened()
    commit(disks)
    close(disks)
    (paths[0] / RECORD).unlink()
    journal = (paths[0] / "journal.db").read_bytes()
    with pytest.raises(StartupError, match=r"/a has a journal of its own.*empty it, or name it alone"):
        opened()
    assert (paths[0] / "journal.db").read_bytes() == journal
    shutil.rmtree(paths[0])
    commit(opened())


@pytest.mark.parametrize("what", ["no record", "another node"])
def test_a_repair_erases_nothing_that_is_not_of_this_node(paths: list[Path], opened: Open, what: str) -> None:
    disks = opened()
    commit(disks)
    disks.group.leave(0, "it failed", damaged=True)
    if what == "no record":
        (paths[0] / RECORD).unlink()
    else:
        record = read_record(paths[0])
        assert record is not None
        write_record(paths[0], replace(record, list=replace(record.list, node="m")))
    before = (paths[0] / "journal.db").stat()
    with pytest.raises(NotRepaired, match=r"a journal of its own|belongs to another node"):
        Repair(disks, 0).copy()
    assert (paths[0] / "journal.db").stat().st_ino == before.st_ino
