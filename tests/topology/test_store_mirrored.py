"""The embedded store's file on several disks (`topology/metadata/sqlite/mirrored_file.py`).

What is verified: each commit is on all of them; when one fails, also the one that is worked with, the others go on,
and a majority knows of it before the next commit; without a majority nothing is committed; what another process wrote
is on all; a disk that is added has everything. One that hangs is left as one that fails is, and not touched before it
answers.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amqpd.datadir.disks.copying import copy_definitions
from amqpd.storage.mark import Mark
from amqpd.topology.metadata.sqlite import mirrored_file
from amqpd.topology.metadata.sqlite.batch import Call
from amqpd.topology.metadata.sqlite.glance import glance
from amqpd.topology.metadata.sqlite.mirrored_file import MirroredFile
from amqpd.topology.metadata.sqlite.sqlite_file import SqliteFile
from amqpd.topology.metadata.store import (
    MetadataStoreError,
    PutKey,
    StoreDamaged,
    StoreFull,
    StoreLacksDisks,
    Transaction,
)

from ..harness.hanging import Hang, shorten

LONG_S = 30.0
FREE_BYTES = 1 << 40


class Disks:
    """A stand-in for the node's disks."""

    def __init__(self, count: int) -> None:
        self.gone: dict[int, str] = {}
        self.told: list[set[int]] = []
        self.majority = count // 2 + 1
        self.ending = False
        self.damaged: dict[int, bool] = {}

    def takes(self, number: int) -> bool:
        return number not in self.gone

    def counts(self, number: int) -> bool:
        return number not in self.gone

    @property
    def lost(self) -> str:
        return "too few are left" if len(self.damaged) >= self.majority else ""

    def leave(self, number: int, reason: str, *, damaged: bool = True) -> None:
        self.gone.setdefault(number, reason)
        self.damaged.setdefault(number, damaged)

    def left(self) -> None:
        self.told.append(set(self.gone))

    def copy(self, source: Path, directory: Path) -> None:
        copy_definitions(source, directory)


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    found = [tmp_path / name for name in "abc"]
    for each in found:
        each.mkdir()
    return found


def opened(disks: Disks, directories: list[Path]) -> MirroredFile:
    return MirroredFile(disks, {at: each / "metadata.db" for at, each in enumerate(directories)})


def put(file: SqliteFile, key: str, value: str = "v") -> None:
    file.commit([Call([Transaction((), (PutKey(key, value),))])])


def keys(directory: Path) -> list[str]:
    file = SqliteFile(directory / "metadata.db", 100)
    found = [each.key for each in file.range("").entries]
    file.close()
    return found


def break_writing(file: MirroredFile, number: int) -> None:
    """What is written to this disk fails."""
    if file.number == number:
        file._fan_out.driver.execute("PRAGMA query_only = ON")
    else:
        (other,) = [each for each in file._others if each.number == number]
        other.driver.execute("PRAGMA query_only = ON")


def test_each_commit_is_on_all(directories: list[Path]) -> None:
    file = opened(Disks(3), directories)
    put(file, "one")
    put(file, "two")
    file.set_journal("j" * 32, 7)
    file.close()
    found = [glance(each / "metadata.db") for each in directories]
    assert found[0] is not None
    assert found[0].journal == ("j" * 32, 7)
    assert found.count(found[0]) == 3
    assert [keys(each) for each in directories] == [["one", "two"]] * 3


@pytest.mark.parametrize("number", [0, 1])
def test_one_fails_and_the_others_go_on(directories: list[Path], number: int) -> None:
    disks = Disks(3)
    file = opened(disks, directories)
    put(file, "one")
    break_writing(file, number)
    put(file, "two")
    assert set(disks.gone) == {number}
    assert disks.told == [{number}], "a majority was not told before the commit was answered"
    put(file, "three")
    assert disks.told == [{number}]
    assert [each.key for each in file.range("").entries] == ["one", "three", "two"]
    file.close()
    for at, each in enumerate(directories):
        assert keys(each) == (["one"] if at == number else ["one", "three", "two"])


def test_without_a_majority_nothing_is_committed(directories: list[Path]) -> None:
    disks = Disks(3)
    file = opened(disks, directories)
    put(file, "one")
    disks.leave(0, "it failed")
    disks.leave(2, "it failed")
    with pytest.raises(StoreLacksDisks, match="too few are left"):
        put(file, "two")
    with pytest.raises(StoreLacksDisks):
        file.require_disks()
    assert [each.key for each in file.range("").entries] == ["one"]
    file.close()
    assert [keys(each) for each in directories] == [["one"]] * 3


def test_what_is_on_too_few_disks_in_the_end_is_no_answer(directories: list[Path]) -> None:
    disks = Disks(3)
    file = opened(disks, directories)
    break_writing(file, 1)
    break_writing(file, 2)
    with pytest.raises(MetadataStoreError, match="is on 1 data directories, and 2 are needed"):
        put(file, "one")


def test_what_another_process_wrote_is_copied(directories: list[Path]) -> None:
    file = opened(Disks(3), directories)
    put(file, "one")
    other = SqliteFile(directories[0] / "metadata.db", 100)
    put(other, "two")
    other.close()
    file.refresh()
    put(file, "three")
    file.close()
    assert [keys(each) for each in directories] == [["one", "three", "two"]] * 3


def test_another_process_wrote_just_before_a_commit(directories: list[Path]) -> None:
    file = opened(Disks(3), directories)
    other = SqliteFile(directories[0] / "metadata.db", 100)
    put(other, "one")
    other.close()
    put(file, "two")
    file.close()
    assert [keys(each) for each in directories] == [["one", "two"]] * 3


@pytest.mark.parametrize("failing", [[1], [1, 2]])
def test_what_another_process_wrote_cannot_be_copied(
    directories: list[Path], monkeypatch: pytest.MonkeyPatch, failing: list[int]
) -> None:
    """Just before a commit, which the others get with the copy."""
    disks = Disks(3)
    file = opened(disks, directories)
    other = SqliteFile(directories[0] / "metadata.db", 100)
    put(other, "one")
    other.close()

    def copy(source: Path, directory: Path) -> None:
        if directory in [directories[number] for number in failing]:
            raise OSError("it is read-only")
        copy_definitions(source, directory)

    monkeypatch.setattr(disks, "copy", copy)
    if len(failing) == 2:
        with pytest.raises(MetadataStoreError, match="is on 1 data directories, and 2 are needed"):
            put(file, "two")
    else:
        put(file, "two")
        assert disks.told == [{1}], "a majority was not told before the commit was answered"
        file.close()
        assert [keys(each) for each in (directories[0], directories[2])] == [["one", "two"]] * 2


def test_a_disk_is_added_and_the_first_one_is_worked_with_again(directories: list[Path]) -> None:
    disks = Disks(3)
    file = opened(disks, directories)
    put(file, "one")
    disks.leave(0, "it failed")
    put(file, "two")
    assert file.number == 1
    shutil.rmtree(directories[0])
    directories[0].mkdir()
    assert file.add(0, directories[0]) is not None or 0 in disks.gone
    del disks.gone[0]
    assert file.add(0, directories[0]) is None
    file.prefer_first()
    assert file.number == 0
    put(file, "three")
    file.close()
    assert [keys(each) for each in directories] == [["one", "three", "two"]] * 3


@pytest.mark.parametrize("number", [0, 1])
def test_a_disk_is_repaired_before_it_was_missed(directories: list[Path], number: int) -> None:
    """It was left behind, and is under repair, before anything was committed."""
    disks = Disks(3)
    file = opened(disks, directories)
    put(file, "one")
    shutil.rmtree(directories[number])
    directories[number].mkdir()
    assert file.add(number, directories[number]) is None
    assert sorted([file.number, *(each.number for each in file._others)]) == [0, 1, 2]
    assert len(file._counting()) == 3
    file.prefer_first()
    put(file, "two")
    assert disks.told, "the list may say that it missed nothing"
    assert not disks.gone
    file.close()
    assert [keys(each) for each in directories] == [["one", "two"]] * 3


def test_the_only_file_is_not_made_a_copy_of_itself(directories: list[Path]) -> None:
    file = opened(Disks(1), directories[:1])
    put(file, "one")
    assert file.add(0, directories[0]) is not None
    assert [each.key for each in file.range("").entries] == ["one"]
    file.close()
    assert keys(directories[0]) == ["one"]


def rot(directory: Path) -> None:
    """An entry's value is not what was written."""
    with closing(sqlite3.connect(directory / "metadata.db")) as connection:
        connection.execute("UPDATE entries SET value = 'rotten'")
        connection.commit()


def test_what_is_damaged_in_the_first_one_is_no_reason_to_stop(directories: list[Path]) -> None:
    file = opened(Disks(3), directories)
    put(file, "one")
    file.close()
    rot(directories[0])
    disks = Disks(3)
    file = opened(disks, directories)
    assert set(disks.gone) == {0}
    put(file, "two")
    assert disks.told == [{0}], "a majority was not told before the commit was answered"
    file.close()
    assert [keys(each) for each in directories[1:]] == [["one", "two"]] * 2


def test_all_are_damaged(directories: list[Path]) -> None:
    file = opened(Disks(3), directories)
    put(file, "one")
    file.close()
    for each in directories:
        rot(each)
    with pytest.raises(StoreDamaged, match="/a/"):
        opened(Disks(3), directories)


# A disk that hangs


class HangingDriver:
    """What it is asked to execute waits."""

    def __init__(self, driver: sqlite3.Connection, hang: Hang, word: str) -> None:
        self._driver = driver
        self._hang = hang
        self._word = word

    @property
    def in_transaction(self) -> bool:
        return self._driver.in_transaction

    def execute(self, sql: str, given: Any = ()) -> sqlite3.Cursor:
        execute = self._hang(self._driver.execute) if sql.startswith(self._word) else self._driver.execute
        found: sqlite3.Cursor = execute(sql, given)
        return found

    def executemany(self, sql: str, given: Any) -> sqlite3.Cursor:
        return self._driver.executemany(sql, given)


class DiskHang(Hang):
    """The bound is short only while a disk hangs: a slow machine is not a disk that hangs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._monkeypatch = monkeypatch
        shorten(monkeypatch, HANG_S=LONG_S, CLOSE_S=0.3)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not self._go.is_set():
            shorten(self._monkeypatch, HANG_S=0.3)
        return super().__call__(function)

    def let_go(self) -> None:
        shorten(self._monkeypatch, HANG_S=LONG_S)
        super().let_go()


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[DiskHang]:
    made = DiskHang(monkeypatch)
    yield made
    made.let_go()


def hang_in(file: MirroredFile, number: int, hang: Hang, word: str) -> None:
    """Statements that begin with this word wait on this disk."""
    if file.number == number:
        file._fan_out.driver = HangingDriver(file._fan_out.driver, hang, word)  # type: ignore[assignment]
    else:
        (other,) = [each for each in file._others if each.number == number]
        other.driver = HangingDriver(other.driver, hang, word)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("number", "word"), [(0, "BEGIN"), (0, "COMMIT"), (0, "SELECT"), (1, "BEGIN"), (1, "COMMIT")]
)
def test_one_hangs_and_the_others_go_on(directories: list[Path], hang: Hang, number: int, word: str) -> None:
    disks = Disks(3)
    file = opened(disks, directories)
    put(file, "one")
    hang_in(file, number, hang, word)
    put(file, "two")
    assert set(disks.gone) == {number}
    assert "did not answer" in disks.gone[number]
    assert not disks.damaged[number], "all of it would be copied again"
    assert disks.told == [{number}], "a majority was not told before the commit was answered"
    put(file, "three")
    assert [each.key for each in file.range("").entries] == ["one", "three", "two"]
    assert file.add(number, directories[number]) == f"{directories[number] / 'metadata.db'} still hangs"
    hang.let_go()
    assert file._hanging[number].ended(LONG_S)
    del disks.gone[number]
    assert file.add(number, directories[number]) is None
    file.prefer_first()
    put(file, "four")
    file.close()
    assert [keys(each) for each in directories] == [["four", "one", "three", "two"]] * 3


def test_two_hang_and_are_waited_for(directories: list[Path], hang: Hang) -> None:
    """What the first one has committed is the node's end if the others do not get it."""
    disks = Disks(3)
    file = opened(disks, directories)
    for number in (1, 2):
        hang_in(file, number, hang, "BEGIN")
    putting = threading.Thread(target=put, args=(file, "one"))
    putting.start()
    hang.wait_called()
    hang.wait_called()
    putting.join(1)
    assert putting.is_alive()
    assert not disks.gone
    hang.let_go()
    putting.join(LONG_S)
    assert not disks.gone
    file.close()
    assert [keys(each) for each in directories] == [["one"]] * 3


def test_the_last_one_is_waited_for(directories: list[Path], hang: Hang) -> None:
    disks = Disks(1)
    file = opened(disks, directories[:1])
    hang_in(file, 0, hang, "BEGIN")
    putting = threading.Thread(target=put, args=(file, "one"))
    putting.start()
    hang.wait_called()
    putting.join(1)
    assert putting.is_alive()
    hang.let_go()
    putting.join(LONG_S)
    assert not disks.gone
    file.close()
    assert keys(directories[0]) == ["one"]


def test_a_mark_that_is_late_is_nobodys(directories: list[Path], hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk hangs when its mark is made, before COMMIT, and answers when another one is the first."""
    made: list[Mark] = []
    make = Mark.__init__

    def making(mark: Mark, path: Path, *given: Any) -> None:
        (hang(make) if path.parent == directories[0] else make)(mark, path, *given)
        made.append(mark)

    disks = Disks(3)
    file = opened(disks, directories)
    assert file._mark is not None
    file._mark.close()
    file._mark = None  # as when there was no space for it
    monkeypatch.setattr(Mark, "__init__", making)
    put(file, "one")
    assert set(disks.gone) == {0}
    hang.let_go()
    assert file._hanging[0].ended(LONG_S)
    (late,) = [mark for mark in made if mark.path.parent == directories[0]]
    assert late._descriptor == -1, "it stays open"
    assert file._mark is not None
    assert file._mark.path.parent == directories[1]
    put(file, "two")
    file.close()
    assert [keys(each) for each in directories[1:]] == [["one", "two"]] * 2


def test_the_first_one_is_waited_for_while_the_others_are_no_majority(directories: list[Path], hang: Hang) -> None:
    disks = Disks(3)
    file = opened(disks, directories)
    disks.leave(2, "it failed")
    hang_in(file, 0, hang, "BEGIN")
    putting = threading.Thread(target=put, args=(file, "one"))
    putting.start()
    hang.wait_called()
    putting.join(1)
    assert putting.is_alive()
    assert set(disks.gone) == {2}
    hang.let_go()
    putting.join(LONG_S)
    assert set(disks.gone) == {2}
    file.close()
    assert [keys(each) for each in directories] == [["one"], ["one"], []]


@pytest.mark.parametrize(("word", "unsure"), [("BEGIN", False), ("COMMIT", True)])
def test_what_may_be_committed_on_a_disk_that_hangs_has_not_had_no_effect(
    directories: list[Path], hang: Hang, monkeypatch: pytest.MonkeyPatch, word: str, unsure: bool
) -> None:
    """The others have no space: it is not committed there."""
    disks = Disks(3)
    file = opened(disks, directories)
    put(file, "one")
    monkeypatch.setattr(mirrored_file, "free_bytes", lambda _: 0 if disks.gone else FREE_BYTES)
    hang_in(file, 0, hang, word)
    with pytest.raises(MetadataStoreError) as raised:
        put(file, "two")
    assert set(disks.gone) == {0}
    assert isinstance(raised.value, StoreFull) is not unsure
    hang.let_go()
    assert file._hanging[0].ended(LONG_S)
    file.close()
    assert keys(directories[0]) == (["one", "two"] if unsure else ["one"])


@pytest.mark.parametrize("seen", [True, False])
def test_a_disk_that_hangs_when_it_is_repaired_is_not_copied_to(
    directories: list[Path], hang: Hang, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    """`seen`: before its file is to be closed."""
    file = opened(Disks(3), directories)
    put(file, "one")
    (other,) = [each for each in file._others if each.number == 1]
    other.calls.put(hang(lambda: None))
    hang.wait_called()
    if not seen:
        monkeypatch.setattr(other.calls, "busy_s", lambda: 0.0)
    assert file.add(1, directories[1]) == f"{directories[1] / 'metadata.db'} still hangs"
    hang.let_go()
    assert other.calls.ended(LONG_S)
    assert other.opened.connection.closed, "it is never closed"
    assert file.add(1, directories[1]) is None
    put(file, "two")
    file.close()
    assert [keys(each) for each in directories] == [["one", "two"]] * 3


@pytest.mark.parametrize("number", [0, 1])
def test_the_end_does_not_wait_for_a_disk_that_hangs(directories: list[Path], hang: Hang, number: int) -> None:
    file = opened(Disks(3), directories)
    put(file, "one")
    calls = file._files()[number][1]
    calls.put(hang(lambda: None))
    file.close()
    assert not calls.ended(0)
    hang.let_go()
    assert calls.ended(LONG_S)
