"""`datadir/disks`: several directories of one node, opened and repaired in this process.

What is verified: what is refused, at a start and by a repair, because it would erase what is nowhere else; a repair
ends although more comes meanwhile than may wait for the disk; what a disk that hung does for a repair that has ended
begins nothing.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amqpd.datadir.disk_record import RECORD, read_record, write_record
from amqpd.datadir.disks import repair as repair_module
from amqpd.datadir.disks.copying import copy_journal, open_moment
from amqpd.datadir.disks.opening import OpenDisks, open_disks
from amqpd.datadir.disks.repair import NotRepaired, Repair
from amqpd.datadir.disks.standing import DiskState
from amqpd.errors import StartupError
from amqpd.journal.records import Row
from amqpd.journal.sqlite.likeness import Likeness
from amqpd.journal.transaction import JournalTransaction

from ..harness.hanging import Hang

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
    disks.disk.commit(JournalTransaction(disks.disk.index + 1))


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


@pytest.mark.parametrize("number", [0, 2])
def test_losses_are_accepted_with_one_of_three_the_first_time(paths: list[Path], opened: Open, number: int) -> None:
    disks = opened()
    commit_rows(disks, 3)
    close(disks)
    for at, each in enumerate(paths):
        if at != number:
            shutil.rmtree(each)
    with pytest.raises(StartupError, match="1 of the 3 data directories"):
        opened()
    disks = open_disks(paths, accept_loss=True)
    assert [row.first_seq for row in disks.disk.recover().queues[7].rows] == [1, 2, 3]
    assert disks.disk.accepted == ["1 of 3 data directories have the node's data: what only the others had is gone"]
    commit(disks)
    close(disks)
    disks = opened()
    assert len(disks.group.counting()) >= 2


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


ROW_BYTES = 30_000


def commit_rows(disks: OpenDisks, count: int) -> None:
    for _ in range(count):
        index = disks.disk.index + 1
        row = Row(7, index, index, bytes(ROW_BYTES), True, ROW_BYTES, 0)
        disks.disk.commit(JournalTransaction(index, rows=[row]))


class Load:
    """While a round is copied, this number of rows comes."""

    def __init__(self, disks: OpenDisks, rounds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.rounds = rounds
        self._disks = disks
        self._copy = copy_journal
        monkeypatch.setattr(repair_module, "copy_journal", self.copy)

    def copy(self, source: sqlite3.Connection, directory: Path, **named: Any) -> Likeness:
        if self.rounds:
            commit_rows(self._disks, self.rounds.pop(0))
        return self._copy(source, directory, **named)


@pytest.mark.parametrize("damaged", [True, False])
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param([20, 5, 1], id="less each time"),
        pytest.param([1, 0, 20, 5, 1], id="much beside the last round"),
    ],
)
def test_a_repair_ends_while_messages_come(
    opened: Open, monkeypatch: pytest.MonkeyPatch, rounds: list[int], damaged: bool
) -> None:
    monkeypatch.setattr("amqpd.datadir.disks.standing.QUEUE_BYTES_MAX", 10 * ROW_BYTES)
    monkeypatch.setattr(repair_module, "ROUND_BYTES", 2 * ROW_BYTES)
    disks = opened()
    commit_rows(disks, 10)
    disks.group.leave(1, "it failed", damaged=damaged)
    commit_rows(disks, 30)
    load = Load(disks, list(rounds), monkeypatch)
    repair = Repair(disks, 1)
    repair.copy()
    assert not load.rounds
    with disks.group.changed:
        assert disks.group.changed.wait_for(lambda: disks.group.has_caught_up(repair._number), 30)
    repair.join()
    commit_rows(disks, 1)
    last = disks.disk.index
    standings = disks.group.standings
    with disks.group.changed:
        assert disks.group.changed.wait_for(lambda: standings.disks[1].stored == standings.handed, 30)
    for number in (0, 2):
        disks.group.leave(number, "it failed")
    found: list[int] = []
    while not found or found[-1] < last:
        found += [row.first_seq for row in disks.disk.read(7, (found or [0])[-1] + 1, last, 1 << 20)]
    assert len(found) == 10 + 30 + sum(rounds) + 1, "rows are missing"


def test_a_disk_that_is_too_slow_is_not_repaired_for_ever(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_module, "ROUND_BYTES", 2 * ROW_BYTES)
    disks = opened()
    commit_rows(disks, 5)
    disks.group.leave(1, "it failed", damaged=True)
    Load(disks, [4] * 100, monkeypatch)
    with pytest.raises(NotRepaired, match="more slowly than messages come"):
        Repair(disks, 1).copy()


@pytest.mark.parametrize("again", [False, True])
def test_a_disk_that_hung_begins_no_repair_that_has_ended(
    opened: Open, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """`again`: the next repair has begun when it answers."""
    disks = opened()
    commit(disks)
    disks.group.leave(1, "it failed")
    hang = Hang()
    monkeypatch.setattr(repair_module, "MOMENT_S", 0.3)
    monkeypatch.setattr(repair_module, "open_moment", hang(open_moment))
    with pytest.raises(NotRepaired, match="did not answer"):
        Repair(disks, 1).copy()
    monkeypatch.setattr(repair_module, "MOMENT_S", 30.0)
    monkeypatch.setattr(repair_module, "open_moment", open_moment)
    repair = Repair(disks, 1)
    if again:
        with disks.group.changed:
            disks.group.begin_repair(1, 2)
    hang.let_go()
    disks.group.run_on(0, lambda _: None, 30)
    assert disks.group.state(1) is (DiskState.REPAIR if again else DiskState.BEHIND)
    if again:
        with pytest.raises(NotRepaired, match="is not left behind"):
            repair.copy()
        assert disks.group.bug is None
        return
    repair.copy()
    with disks.group.changed:
        assert disks.group.changed.wait_for(lambda: disks.group.has_caught_up(repair._number), 30)
    repair.join()
