"""`datadir/disks/roster.py`: the list of a node's disks is on a majority, or it is said that it is not.

What is verified: a list that too few took is written again, and `RosterUnwritten` is raised each time; what was
erased is not waited for, while what was moved may come back; what the list says is asked when its turn has come; a
kill between any two records of a first list leaves a majority.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from amqpd.datadir.disk_record import RECORD, DiskList, Listed, Record, read_record, write_record
from amqpd.datadir.disks import roster as roster_module
from amqpd.datadir.disks.election import SeenDirectory, choose
from amqpd.datadir.disks.roster import DiskRoster, RosterUnwritten


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = [tmp_path / name for name in "abcde"]
    for each in found:
        each.mkdir()
    return found


def list_of(paths: list[Path]) -> DiskList:
    return DiskList("n", (1, 0), tuple(Listed(f"g{at}", str(each), True) for at, each in enumerate(paths)))


def begun(paths: list[Path]) -> DiskRoster:
    first = list_of(paths)
    roster = DiskRoster(paths, 1, first)
    roster.begin(first, range(len(paths)), first)
    return roster


def inside(directory: Path) -> list[bool]:
    record = read_record(directory)
    assert record is not None
    return [each.inside for each in record.list.disks]


def test_a_list_that_too_few_took_is_not_in_effect(paths: list[Path]) -> None:
    paths = paths[:3]
    roster = begun(paths)
    for away in paths[1:]:
        shutil.rmtree(away)
    for _ in range(2):
        with pytest.raises(RosterUnwritten):
            roster.changes(lambda: [0, 1])
    with pytest.raises(RosterUnwritten):
        roster.changes(lambda: [0, 1, 2])
    paths[1].mkdir()
    roster.changes(lambda: [0, 1])
    assert inside(paths[0]) == inside(paths[1]) == [True, True, False]


def test_what_was_in_effect_before_is_written_again(paths: list[Path]) -> None:
    """The first disk has a newer list, which too few took: that one counts at a start."""
    paths = paths[:3]
    roster = begun(paths)
    kept = [each.rename(each.with_name(f"{each.name}.away")) for each in paths[1:]]
    with pytest.raises(RosterUnwritten):
        roster.changes(lambda: [0])
    for each, path in zip(kept, paths[1:], strict=True):
        each.rename(path)
    roster.changes(lambda: [0, 1, 2])
    assert [inside(each) for each in paths] == [[True] * 3] * 3


def move(directory: Path) -> Path:
    return directory.rename(directory.with_name(f"{directory.name}.moved"))


def test_two_of_three_were_erased_and_one_of_them_is_new(paths: list[Path]) -> None:
    """What they had is nowhere any more: no two of the list before can be met again."""
    paths = paths[:3]
    roster = begun(paths)
    for each in paths[:2]:
        shutil.rmtree(each)
        each.mkdir()
    assert not roster.in_the_way([2])
    roster.mark_new(0, "new")
    roster.changes(lambda: [0, 2], {0: "new"})
    assert inside(paths[0]) == inside(paths[2]) == [True, False, True]
    roster.mark_new(1, "newer")
    roster.changes(lambda: [0, 1, 2], {1: "newer"})
    seen = [SeenDirectory(str(each), read_record(each), True) for each in paths]
    assert choose(seen, accept_loss=False).members == [0, 1, 2]


@pytest.mark.parametrize("erased", [0, 1, 2])
def test_what_was_moved_may_come_back(paths: list[Path], erased: int) -> None:
    """Without the one that is left, two would be a majority; of three that are lost of five, all three are needed."""
    paths = paths[: 3 if erased < 2 else 5]
    roster = begun(paths)
    left = [2] if erased < 2 else [3, 4]
    lost = [at for at in range(len(paths)) if at not in left]
    for at in lost:
        move(paths[at]) if at >= erased else shutil.rmtree(paths[at])
        paths[at].mkdir()
    in_the_way = roster.in_the_way(left)
    if erased:
        assert not in_the_way
        roster.mark_new(0, "new")
        roster.changes(lambda: [0, *left], {0: "new"})
        return
    assert list(in_the_way) == paths[:2]
    roster.mark_new(0, "new")
    with pytest.raises(RosterUnwritten, match="could not be written to 2 of them"):
        roster.changes(lambda: [0, *left], {0: "new"})


def test_a_record_that_was_erased_and_written_again_may_come_back(paths: list[Path]) -> None:
    """Only the file was removed: what else is in the directory still counts with a new one."""
    paths = paths[:3]
    roster = begun(paths)
    (paths[0] / RECORD).unlink()
    roster.changes(lambda: [0, 1])
    for each in paths[:2]:
        move(each)
    assert list(roster.in_the_way([2])) == paths[:2]


def test_the_list_is_of_the_moment_when_its_turn_comes(paths: list[Path]) -> None:
    paths = paths[:3]
    roster = begun(paths)
    counting = [0, 1, 2]
    asked, go_on = threading.Event(), threading.Event()

    def slowly() -> list[int]:
        asked.set()
        assert go_on.wait(30)
        return list(counting)

    slow = threading.Thread(target=roster.changes, args=(slowly,))
    fast = threading.Thread(target=roster.changes, args=(lambda: list(counting),))
    slow.start()
    assert asked.wait(30)
    fast.start()
    counting.remove(2)
    go_on.set()
    slow.join(30)
    fast.join(30)
    assert inside(paths[0]) == [True, True, False]


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("count", [3, 5])
def test_a_kill_between_two_records_of_a_first_list(
    paths: list[Path], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One directory becomes several: what is there can be started at each moment."""
    paths = paths[:count]
    needed = count // 2 + 1
    before = DiskList("n", (0, 0), (Listed("g0", str(paths[0]), True),))
    first = list_of(paths)
    for kill_at in range(2 * needed):
        write_record(paths[0], Record("g0", True, 1, before))
        for at in range(1, needed):
            write_record(paths[at], Record(f"g{at}", False, 1, before))
        left = kill_at

        def write(directory: Path, record: Record) -> Record:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            return write_record(directory, record)

        monkeypatch.setattr(roster_module, "write_record", write)
        try:
            DiskRoster(paths, 1, before).begin(first, range(needed), before)
        except Killed:
            ended = False
        else:
            ended = True
        seen = [SeenDirectory(str(each), read_record(each), at < needed) for at, each in enumerate(paths)]
        chosen = choose(seen, accept_loss=False)
        assert 0 in chosen.members, f"killed at {kill_at}"
        assert ended == (kill_at >= 2 * needed - 1)
