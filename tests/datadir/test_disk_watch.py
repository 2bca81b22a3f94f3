"""`datadir/disks/watch.py`: what a repair raises concerns that repair.

What is verified: whatever it raises, the disk is not repaired, the watch goes on, disks are asked as before, and it
is tried again; what ends the node does; only the end of the node, by whatever, is the end of what is asked of disks.
While the list is written, which a disk that hangs makes slow, disks are looked at. Two of three that are lost are
repaired when they were erased, and said once when they were moved.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio

from amqpd.datadir.disk_record import read_record
from amqpd.datadir.disks import repair as repair_module
from amqpd.datadir.disks import watch as watch_module
from amqpd.datadir.disks.copying import copy_journal
from amqpd.datadir.disks.opening import OpenDisks, open_disks
from amqpd.datadir.disks.standing import DiskState
from amqpd.datadir.disks.watch import DisksWatch
from amqpd.journal.errors import JournalInUse, NewerJournalFormat
from amqpd.journal.transaction import JournalTransaction
from amqpd.topology.metadata.store import MetadataStoreError
from tests.harness.slow import slow

from ..harness.hanging import Hang, shorten

LONG_S = 30.0


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[OpenDisks]:
    shorten(monkeypatch, LOOK_S=0.02, CLOSE_S=0.0, AGAIN_S_MIN=0.05)
    found = open_disks([tmp_path / name for name in "abc"], accept_loss=False)
    found.disk.recover()
    yield found
    monkeypatch.undo()
    found.disk.close()
    found.close()


def watch(disks: OpenDisks, until: Callable[[DisksWatch], bool]) -> DisksWatch:
    """Run it, with the second disk left behind, until this is true."""
    made = DisksWatch(disks)
    made.begin()
    disks.group.leave(1, "it failed", damaged=True)

    async def run() -> None:
        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(made.run)
                while not until(made):  # noqa: ASYNC110 - threads make it true
                    await trio.sleep(0.01)
                assert not disks.group.ending, "nobody waits for disks any more"
                nursery.cancel_scope.cancel()

    trio.run(run, strict_exception_groups=True)
    return made


@pytest.mark.parametrize(
    "raised",
    [JournalInUse("in use"), slow(NewerJournalFormat("newer", "9")), slow(MemoryError()), slow(TypeError("None"))],
)
def test_whatever_a_repair_raises_the_node_goes_on(
    disks: OpenDisks, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    tries: list[int] = []

    def copy(*given: object, **named: object) -> object:
        tries.append(0)
        if len(tries) < 3:
            raise raised
        return copy_journal(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(repair_module, "copy_journal", copy)
    watch(disks, lambda _: disks.group.state(1) is DiskState.IN)
    assert len(tries) == 3
    assert disks.group.ending, "its end is the node's end"


def test_why_it_is_not_repaired_is_told(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(*_: object, **__: object) -> None:
        raise JournalInUse("another process has it open")

    monkeypatch.setattr(repair_module, "copy_journal", copy)
    found = watch(disks, lambda made: "not repaired" in made.directory_texts()[1])
    assert found.directory_texts()[1].endswith("not repaired: another process has it open)")


def test_a_directory_that_is_left_behind_has_a_row_until_it_is_repaired(
    disks: OpenDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def copy(*given: object, **named: object) -> object:
        if not seen:
            raise JournalInUse("another process has it open")
        return copy_journal(*given, **named)  # type: ignore[arg-type]

    def until(made: DisksWatch) -> bool:
        seen.extend(row for row in made.rows() if row["unrepaired"])
        return disks.group.state(1) is DiskState.IN

    monkeypatch.setattr(repair_module, "copy_journal", copy)
    found = watch(disks, until)
    assert seen[0] == {
        "path": str(disks.paths[1]),
        "state": "behind",
        "reason": "it failed",
        "unrepaired": "another process has it open",
        "counting": 2,
        "listed": 3,
    }
    assert found.rows() == []


def test_a_directory_that_is_named_no_more_has_a_row_and_one_that_was_moved_has_none(tmp_path: Path) -> None:
    def left_out(*names: str) -> list[tuple[str, str]]:
        found = open_disks([tmp_path / name for name in names], accept_loss=False)
        found.disk.recover()
        rows = [(row["path"], row["state"]) for row in DisksWatch(found).rows() if row["state"] == "left out"]
        found.disk.close()
        found.close()
        return rows

    assert left_out("a", "b", "c") == []
    (tmp_path / "b").rename(tmp_path / "moved")
    assert left_out("a", "moved", "c") == []
    with structlog.testing.capture_logs() as said:
        assert left_out("a", "c", "new") == [(str(tmp_path / "moved"), "left out")]
    assert [each["data_dir"] for each in said if "not named any more" in each["event"]] == [str(tmp_path / "moved")]


def test_what_ends_the_node_does(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    async def end(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise MetadataStoreError("the definitions failed")

    monkeypatch.setattr(watch_module.DisksWatch, "_end", end)
    with pytest.RaisesGroup(pytest.RaisesGroup(MetadataStoreError)):
        watch(disks, lambda _: False)
    assert disks.group.ending


def lose(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch, lose_one: Callable[[Path], object]) -> list[Any]:
    """Two of three directories, while it is watched; what the log said."""
    monkeypatch.setattr("amqpd.datadir.disks.watch.AGAIN_S_MAX", 0.05)
    failed: list[int] = []
    not_repaired = DisksWatch._not_repaired

    def count(made: DisksWatch, number: int, reason: str) -> None:
        failed.append(number)
        not_repaired(made, number, reason)

    monkeypatch.setattr(DisksWatch, "_not_repaired", count)
    made = DisksWatch(disks)
    made.begin()
    disks.disk.commit(JournalTransaction(disks.disk.index + 1))

    def until() -> bool:
        return min(failed.count(0), failed.count(1)) > 5 or all(
            disks.group.state(at) is DiskState.IN for at in range(3)
        )

    async def run() -> None:
        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(made.run)
                for each in disks.paths[:2]:
                    lose_one(each)
                while disks.group.state(0) is DiskState.IN or disks.group.state(1) is DiskState.IN:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                while not until():  # noqa: ASYNC110 - threads make it true
                    await trio.sleep(0.01)
                if not failed:
                    disks.disk.commit(JournalTransaction(disks.disk.index + 1))
                nursery.cancel_scope.cancel()

    with structlog.testing.capture_logs() as said:
        trio.run(run)
    return said


def test_two_of_three_that_were_emptied_are_repaired(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    said = lose(disks, monkeypatch, shutil.rmtree)
    assert [disks.group.state(at) for at in range(3)] == [DiskState.IN] * 3
    assert [each["event"] for each in said].count("disk left behind") == 2
    records = [read_record(each) for each in disks.paths]
    assert all(each is not None and each.whole and each.list == records[0].list for each in records if records[0])


def test_two_of_three_that_were_moved_are_said_once_and_left_alone(
    disks: OpenDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be a majority if they came back without the third one, and would lack what came meanwhile."""
    said = lose(disks, monkeypatch, lambda path: path.rename(path.with_name(f"{path.name}.moved")))
    assert disks.group.counting() == [2]
    events = [each["event"] for each in said]
    assert events.count("disk left behind") == 2
    told = [(each["path"], each["reason"]) for each in said if each["event"] == "disk not repaired"]
    assert len(told) == len(set(told)), told
    # Where the first one was lost a moment before the other one, its reason changes.
    reasons = dict(told)
    assert len(reasons) == 2
    assert all(
        "a and " in each and "start the broker once with --accept-loss" in each for each in reasons.values()
    ), told


def test_disks_are_looked_at_while_the_list_is_written(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    hang, looks = Hang(), [0]
    look = disks.group.look

    def count() -> None:
        looks[0] += hang.count
        look()

    monkeypatch.setattr(disks.group, "look", count)
    monkeypatch.setattr(disks.roster, "changes", hang(disks.roster.changes))

    def until(_: DisksWatch) -> bool:
        if looks[0] < 3:
            return False
        hang.let_go()
        return disks.group.state(1) is DiskState.IN

    watch(disks, until)
    assert hang.count <= 2, "more than one writes it, beside the repair"
