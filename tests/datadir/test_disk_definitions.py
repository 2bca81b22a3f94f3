"""The definitions on several disks (`datadir/disks/mirrored_file.py`, and what a start does with them).

What is verified: each change is on all disks in the order of the journal, which says how far they are; when one
fails, hangs, or comes to another outcome, the others go on and it is left behind; without a majority nothing is
committed; a change that too few have keeps its place before the next one; nothing is done twice. A repaired disk has
everything, keys with a lease too. At a start a damaged file is replaced by a whole one; one of the same revision that
has other contents is not taken for the same; when all are damaged the start says so; what is older is taken only when
that is accepted.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

from amqpd.datadir.disk_record import read_record
from amqpd.datadir.disks import opening as opening_module
from amqpd.datadir.disks.copying import copy_definitions
from amqpd.datadir.disks.mirrored_file import MirroredFile, open_definitions
from amqpd.datadir.disks.one_disk import OneDisk
from amqpd.datadir.disks.opening import OpenDisks, open_disks, pair_on_disks
from amqpd.datadir.disks.repair import Repair
from amqpd.datadir.disks.standing import DiskState
from amqpd.datadir.pairing import METADATA_REVISION
from amqpd.errors import StartupError
from amqpd.journal.errors import DiskFull
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.transaction import JournalTransaction
from amqpd.topology.metadata.sqlite.batch import CommitRequest
from amqpd.topology.metadata.sqlite.glance import glance
from amqpd.topology.metadata.sqlite.sqlite_file import SqliteFile
from amqpd.topology.metadata.sqlite.store import SqliteStore, StoreFile
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    CompareFailed,
    DeleteKey,
    OutcomeUnknown,
    PutKey,
    StoreFull,
    StoreLacksDisks,
)
from amqpd.topology.metadata.store import MetadataTransaction as Change

from ..harness.hanging import Hang, shorten

LONG_S = 60.0


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in "abc"]


class Node:
    """One incarnation of it."""

    def __init__(self, paths: list[Path], *, accept_loss: bool = False) -> None:
        self.disks: OpenDisks = open_disks(paths, accept_loss=accept_loss)
        self.group = self.disks.group
        self._closed = False
        try:
            self.disks.disk.recover()
            self.file: MirroredFile = open_definitions(self.group)
        except BaseException:
            self.close()
            raise

    def wait(self, true: Callable[[], bool]) -> None:
        with self.group.changed:
            assert self.group.changed.wait_for(true, LONG_S)

    def wait_stored(self) -> None:
        """By each disk that counts."""
        standings = self.group.standings
        self.wait(lambda: all(each.stored == standings.handed for each in standings.disks if each.counts))

    def disk(self, number: int) -> OneDisk:
        found = self.group.members[number].disk
        assert found is not None
        return found

    def repair(self, number: int) -> None:
        repair = Repair(self.disks, number)
        repair.copy()
        self.wait(lambda: self.group.has_caught_up(number))
        repair.join()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.disks.disk.close()
            self.disks.close()


@pytest.fixture
def node(paths: list[Path]) -> Iterator[Node]:
    made = Node(paths)
    yield made
    made.close()


def put(file: StoreFile, key: str, value: str = "v") -> None:
    file.commit([CommitRequest([Change((), (PutKey(key, value),))])])


def keys_in(file: StoreFile) -> list[str]:
    return [each.key for each in file.range("").entries]


def keys(directory: Path) -> list[str]:
    file = SqliteFile(directory / "metadata.db")
    found = keys_in(file)
    file.close()
    return found


def run(paths: list[Path], *puts: str, left: tuple[int, ...] = (), accept_loss: bool = False) -> list[str]:
    """One incarnation of the node. `left`: disks that are left behind before anything is put. All keys, in the
    end."""
    node = Node(paths, accept_loss=accept_loss)
    try:
        for number in left:
            node.group.leave(number, "it failed")
        for each in puts:
            put(node.file, each)
        return keys_in(node.file)
    finally:
        node.close()


def rot(directory: Path) -> None:
    """An entry's value is not what was written."""
    with closing(sqlite3.connect(directory / "metadata.db")) as connection:
        connection.execute("UPDATE entries SET value = 'rotten'")
        connection.commit()


def break_writing(node: Node, number: int) -> None:
    """What is written to the definitions of this disk fails."""
    node.disk(number).ask(lambda file: file._driver.execute("PRAGMA query_only = ON"))


def hang_on(node: Node, numbers: tuple[int, ...], hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definitions of these disks do not answer."""
    for number in numbers:
        disk = node.disk(number)
        monkeypatch.setattr(disk, "ask", hang(disk.ask))


def lose(node: Node, hang: Hang) -> None:
    """The second and the third disk, in the middle of a change."""
    for _ in range(2):
        hang.wait_called()
    for number in (1, 2):
        node.group.leave(number, "it failed")


@pytest.fixture
def hang() -> Iterator[Hang]:
    made = Hang()
    yield made
    made.let_go()


# Changes


def test_each_change_is_on_all_and_the_journal_says_so(node: Node, paths: list[Path]) -> None:
    put(node.file, "one")
    put(node.file, "two")
    node.file.set_journal("j" * 32, 7)
    node.disks.disk.note(**{METADATA_REVISION: "1"})  # of somebody who is late
    node.disks.disk.commit(JournalTransaction(node.disks.disk.index + 1))
    node.wait_stored()
    assert {node.disk(number).position for number in range(3)} == {(*node.disk(0).head(0).position, 2)}
    node.close()
    found = [glance(each / "metadata.db") for each in paths]
    assert found[0] is not None
    assert found[0].journal == ("j" * 32, 7)
    assert found.count(found[0]) == 3
    assert [keys(each) for each in paths] == [["one", "two"]] * 3


@pytest.mark.parametrize("number", [0, 1])
def test_one_fails_and_the_others_go_on(node: Node, paths: list[Path], number: int) -> None:
    put(node.file, "one")
    node.wait_stored()
    break_writing(node, number)
    put(node.file, "two")
    node.wait(lambda: node.group.state(number) is DiskState.BEHIND)
    assert node.group.members[number].damaged
    put(node.file, "three")
    assert keys_in(node.file) == ["one", "three", "two"]
    node.close()
    assert [keys(each) for at, each in enumerate(paths) if at != number] == [["one", "three", "two"]] * 2
    assert run(paths) == ["one", "three", "two"]


def test_without_a_majority_nothing_is_committed(node: Node, paths: list[Path]) -> None:
    put(node.file, "one")
    node.wait_stored()
    for number in (0, 2):
        node.group.leave(number, "it failed")
    with pytest.raises(StoreLacksDisks, match=r"1 of 3 .*a: it failed"):
        put(node.file, "two")
    with pytest.raises(StoreLacksDisks):
        node.file.require_disks()
    assert keys_in(node.file) == ["one"]
    node.close()
    assert [keys(each) for each in paths] == [["one"]] * 3


def test_without_space_on_a_majority_nothing_is_committed(node: Node) -> None:
    with node.group.changed:
        for number in (0, 1):
            node.group.standings.mark_full(number)
    with pytest.raises(StoreFull, match="1 data directories can take definitions, and 2 are needed"):
        put(node.file, "one")
    assert node.group.standings.handed == node.group.standings.stored


def test_a_change_that_too_few_have_comes_before_the_next_one(
    node: Node, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang_on(node, (1, 2), hang, monkeypatch)
    losing = threading.Thread(target=lose, args=(node, hang))
    losing.start()
    with pytest.raises(OutcomeUnknown, match="too few data directories have the last change"):
        put(node.file, "one")
    losing.join(LONG_S)
    assert not node.file.events, "it is told before a majority has it"
    with pytest.raises(StoreLacksDisks):
        put(node.file, "two")
    hang.let_go()
    node.repair(1)
    first = node.file.commit([CommitRequest([Change((Compare("one", 0),), (PutKey("one", "w"),))])])
    assert isinstance(first[0], CompareFailed)
    put(node.file, "two")
    assert [operation.key for event in node.file.events for operation in event.operations] == ["one", "two"]
    assert node.file.revision == node.file.events[-1].revision


def test_a_change_waits_for_disks_that_hang(
    node: Node, paths: list[Path], hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count, and answer some day."""
    hang_on(node, (1, 2), hang, monkeypatch)
    shorten(monkeypatch, HANG_S=0.3, LOOK_S=0.05)
    putting = threading.Thread(target=put, args=(node.file, "one"))
    putting.start()
    with node.group.changed:
        while node.group.standings.answering > 1:
            node.group.changed.wait(0.05)
            node.group.look()
    putting.join(0.5)
    assert putting.is_alive()
    shorten(monkeypatch, HANG_S=LONG_S)
    hang.let_go()
    putting.join(LONG_S)
    assert not putting.is_alive()
    node.close()
    assert [keys(each) for each in paths] == [["one"]] * 3


def test_a_change_is_not_made_twice(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no space to note it in the journal, for a moment."""
    full: list[OneDisk] = []

    def note(disk: OneDisk, **names: str) -> None:
        if disk not in full:
            full.append(disk)
            raise DiskFull("no space left")
        SqliteDisk.set_names(disk, **names)

    monkeypatch.setattr(OneDisk, "note_definitions", lambda disk: note(disk, x="y"))
    step = node.group.standings.handed + 1
    try:
        outcomes = node.file.commit([CommitRequest([Change((Compare("one", 0),), (PutKey("one", "v"),))])])
        assert isinstance(outcomes[0], Committed), "it was made again, and had been made"
    except OutcomeUnknown:  # two disks were full at one moment
        node.wait(lambda: node.group.standings.stored >= step)
    node.wait_stored()
    assert len(full) == 3
    assert node.file.get("one") is not None
    assert {node.disk(number).ask(lambda file: file.revision) for number in range(3)} == {node.file.refresh()}


def test_a_disk_that_comes_to_another_outcome_is_left_behind(node: Node, paths: list[Path]) -> None:
    """Its file has lost what it had, and does not know it."""
    put(node.file, "one")
    node.wait_stored()
    node.disk(1).ask(lambda file: file._leased.update({"two": SqliteFile.get(file, "one")}))  # type: ignore[dict-item]
    release = threading.Event()
    node.group.hand(lambda disk: release.wait(LONG_S) if disk is node.disk(1) else None, 0)
    result = node.file.commit([CommitRequest([Change((Compare("two", 0),), (PutKey("two", "v"),))])])
    release.set()
    assert isinstance(result[0], Committed)
    node.wait(lambda: node.group.state(1) is DiskState.BEHIND)
    assert "other definitions than the other directories" in node.group.members[1].unrepaired
    node.close()
    assert run(paths) == ["one", "two"]


def test_what_another_process_writes_is_damage(node: Node, paths: list[Path]) -> None:
    put(node.file, "one")
    node.wait_stored()
    other = SqliteFile(paths[0] / "metadata.db")
    put(other, "foreign")
    other.close()
    put(node.file, "two")
    node.wait(lambda: node.group.state(0) is DiskState.BEHIND)
    assert "was written by another process" in node.group.members[0].unrepaired
    node.repair(0)
    node.close()
    assert [keys(each) for each in paths] == [["one", "two"]] * 3


def test_one_hangs_and_the_others_go_on(
    node: Node, paths: list[Path], hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(node.file, "one")
    node.wait_stored()
    hang_on(node, (0,), hang, monkeypatch)
    put(node.file, "two")
    shorten(monkeypatch, HANG_S=0.3, ROWS_S=0.1)
    assert keys_in(node.file) == ["one", "two"]
    while node.group.state(0) is not DiskState.BEHIND:
        put(node.file, "three")
        node.group.look()
    assert not node.group.members[0].damaged, "all of it would be copied again"
    shorten(monkeypatch, HANG_S=LONG_S, ROWS_S=1.0)
    hang.let_go()
    node.repair(0)
    node.close()
    assert [keys(each) for each in paths] == [["one", "three", "two"]] * 3


def test_a_damaged_entry_is_read_elsewhere(node: Node, paths: list[Path]) -> None:
    put(node.file, "one")
    node.wait_stored()
    rot(paths[0])
    found = node.file.get("one")
    assert found is not None
    assert found.value == "v"
    assert node.group.counting() == [1, 2]


# Repairs


@pytest.mark.parametrize("damaged", [False, True])
def test_a_repaired_disk_has_keys_with_a_lease_too(node: Node, paths: list[Path], damaged: bool) -> None:
    put(node.file, "one")
    node.file.commit([CommitRequest([Change((), (PutKey("leased", "v", lease=5),))])])
    node.group.leave(0, "it failed", damaged=damaged)
    put(node.file, "two")
    node.repair(0)
    outcome = node.file.commit([CommitRequest([Change((Compare("leased", 0),), (PutKey("three", "v"),))])])
    assert isinstance(outcome[0], CompareFailed)
    put(node.file, "four")
    node.file.commit([CommitRequest([Change((), (DeleteKey("leased"),))])])
    node.wait_stored()
    assert node.group.counting() == [0, 1, 2]
    assert [node.disk(number).ask(SqliteFile.leased)[0] for number in range(3)] == [{}] * 3
    node.close()
    assert [keys(each) for each in paths] == [["four", "one", "two"]] * 3


# The store


def test_a_store_tells_a_late_change_and_goes_on(
    node: Node, paths: list[Path], hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late() -> None:
        store = SqliteStore(node.file, 0.01)
        hang_on(node, (1, 2), hang, monkeypatch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, lose, node, hang)
            with pytest.raises(OutcomeUnknown):
                await store.transact([], [PutKey("one", "v")])
        hang.let_go()
        await trio.to_thread.run_sync(node.repair, 1)
        with trio.fail_after(LONG_S):
            async for event in store.watch(0):
                assert event.operations == (PutKey("one", "v"),)
                break
        assert isinstance(await store.transact([], [PutKey("two", "v")]), Committed)
        await store.aclose()

    trio.run(late)
    node.close()
    assert [keys(each) for each in paths[:2]] == [["one", "two"]] * 2


# Starts


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


def test_one_is_damaged_and_another_is_away(paths: list[Path]) -> None:
    """The third one has all that its journal says."""
    run(paths, "one")
    rot(paths[0])
    paths[1].rename(paths[1].with_name("away"))
    assert run(paths, "two") == ["one", "two"]


def test_what_was_lost_before_there_were_several_is_not_forgotten(paths: list[Path]) -> None:
    """The only directory has less than it promised: copies of it promise nothing."""
    paths[0].mkdir()
    journal = SqliteDisk(paths[0])
    journal.recover()
    journal.commit(JournalTransaction(journal.index + 1))
    journal.close()
    old = paths[0] / "metadata.db"
    file = SqliteFile(old)
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

    async def open_pair(accept_loss: bool) -> bool:
        disks = open_disks(paths, accept_loss=accept_loss)
        try:
            pair = await pair_on_disks(disks, accept_loss=accept_loss)
            await pair.store.aclose()
            return pair.suspect
        finally:
            disks.disk.close()
            disks.close()

    with pytest.raises(StartupError, match=r"metadata.db is of revision 1, and .* knows that it had 2"):
        trio.run(open_pair, False)
    assert trio.run(open_pair, True), "what is missing would be taken for deleted"
    assert run(paths) == ["one"]


def test_the_same_revision_is_not_the_same(paths: list[Path]) -> None:
    """The first disk was left behind, and got another definition: somebody used it alone."""
    run(paths, "one")
    run(paths, "kept", left=(0,))
    alone = SqliteFile(paths[0] / "metadata.db")
    put(alone, "lost")
    alone.close()
    node = Node(paths)
    assert keys_in(node.file) == ["kept", "one"]
    assert node.group.counting() == [1, 2]
    node.repair(0)
    node.close()
    assert [keys(each) for each in paths] == [["kept", "one"]] * 3


def test_a_directory_that_cannot_take_definitions_is_not_emptied(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has all messages, and another one is away."""
    run(paths, "one")
    rot(paths[0])
    paths[2].rename(paths[2].with_name("away"))

    def full(moment: sqlite3.Connection, directory: Path) -> None:
        if directory == paths[0]:
            raise OSError("no space left")
        copy_definitions(moment, directory)

    monkeypatch.setattr(opening_module, "copy_definitions", full)
    before = read_record(paths[0]), (paths[0] / "journal.db").stat().st_ino
    with pytest.raises(StartupError, match="no space left"):
        run(paths[:2])
    after = read_record(paths[0])
    assert before[0] is not None
    assert after is not None
    assert (after.generation, after.whole) == (before[0].generation, True)
    assert (paths[0] / "journal.db").stat().st_ino == before[1]
    monkeypatch.undo()
    assert run(paths, "two") == ["one", "two"]
