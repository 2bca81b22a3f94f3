"""`datadir/disks`: a disk that neither answers nor fails.

What is verified: with one of three that hangs, in a commit, in housekeeping, in a read or when the list is written,
commits, reads and lists go on, and it is left behind as slow; with two commits are refused with a reason, and go on
when they answer, without a repair; the end does not wait; nothing piles up. And: while no disk has everything (most
failed before the others were as far), reads wait instead of ending the node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from amqpd.datadir.disk_record import write_record
from amqpd.datadir.disks import roster as roster_module
from amqpd.datadir.disks.opening import OpenDisks, open_disks
from amqpd.datadir.disks.standing import DiskState
from amqpd.journal.errors import DiskFailure, DisksLost
from amqpd.journal.records import JournalDamaged, Row
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.transaction import JournalTransaction
from amqpd.journal.writer import BacklogReader
from amqpd.peers.entry import Position

from ..harness.hanging import Hang, shorten

HANG_S = 0.5
LONG_S = 30.0
ROW = Row(7, 1, 1, b"body", True, 4, 0)


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, HANG_S=HANG_S, ROWS_S=0.1, CLOSE_S=0.5, HOUSEKEEPING_IDLE_S=0.05)


@pytest.fixture
def hang() -> Iterator[Hang]:
    made = Hang()
    yield made
    made.let_go()


@pytest.fixture
def disks(bounds: None, tmp_path: Path, hang: Hang) -> Iterator[OpenDisks]:
    found = open_disks([tmp_path / name for name in "abc"], accept_loss=False)
    found.disk.recover()
    yield found
    hang.let_go()
    found.disk.close()
    found.close()


def commit(disks: OpenDisks, *rows: Row) -> None:
    disks.disk.commit(JournalTransaction(disks.disk.index + 1, rows=list(rows)))


def of(disks: OpenDisks, number: int) -> SqliteDisk:
    disk = disks.group.members[number].disk
    assert disk is not None
    return disk


def break_in(disks: OpenDisks, number: int, method: str, hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    """This call of the disk waits."""
    disk = of(disks, number)
    monkeypatch.setattr(disk, method, hang(getattr(disk, method)))


def wait_until(disks: OpenDisks, true: Callable[[], bool]) -> None:
    """As the watch does, it is looked again and again."""
    end_s = time.monotonic() + LONG_S
    with disks.group.changed:
        while not true():
            assert time.monotonic() < end_s
            disks.group.changed.wait(0.05)
            disks.group.look()


def wait_left(disks: OpenDisks, number: int) -> None:
    wait_until(disks, lambda: disks.group.state(number) is DiskState.BEHIND)
    assert "did not answer" in disks.group.members[number].reason


def wait_stored(disks: OpenDisks) -> None:
    """By all that count."""
    standings = disks.group.standings
    wait_until(disks, lambda: all(each.stored == standings.handed for each in standings.disks if each.counts))


@pytest.mark.parametrize("method", ["commit", "vacuum_step"])
def test_one_hangs_and_is_left_behind(
    disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    break_in(disks, 1, method, hang, monkeypatch)
    commit(disks)
    hang.wait_called()
    commit(disks)
    wait_left(disks, 1)
    commit(disks)
    assert disks.group.counting() == [0, 2]
    assert not disks.group.answering(1), "it would be repaired while its thread may still write"
    hang.let_go()
    worker = disks.group.members[1].worker
    assert worker is not None
    assert worker.ended(LONG_S)


def test_two_hang_and_answer_again(disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (0, 1):
        break_in(disks, number, "commit", hang, monkeypatch)
    transaction = JournalTransaction(disks.disk.index + 1)
    for _ in range(3):
        with pytest.raises(DisksLost, match=r"1 of 3 .* 2 are needed \(.*/a: it did not answer for .*/b: it did not"):
            disks.disk.commit(transaction)
    assert not disks.disk.restore_reserve(), "publishers would go on"
    assert disks.group.state(0) is disks.group.state(1) is DiskState.SLOW
    hang.let_go()
    wait_until(disks, lambda: disks.group.standings.able == 3)
    disks.disk.commit(transaction)
    assert disks.disk.restore_reserve()
    assert disks.group.standings.handed == disks.group.standings.stored
    assert [each.reason for each in disks.group.members] == ["", "", ""]


def test_names_that_wait_are_written_once(disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are tried again each second, and what waits for a disk is bounded."""
    for number in (0, 1):
        break_in(disks, number, "set_names", hang, monkeypatch)
    handed = disks.group.standings.handed
    for _ in range(5):
        with pytest.raises(DisksLost):
            disks.disk.set_names(metadata="m")
    assert disks.group.standings.handed == handed + 1
    hang.let_go()
    wait_until(disks, lambda: disks.group.standings.able == 3)
    disks.disk.set_names(metadata="m")
    assert disks.disk.names["metadata"] == "m"


def test_a_read_is_asked_of_another_disk(disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(disks, ROW)
    wait_stored(disks)
    break_in(disks, 0, "read", hang, monkeypatch)
    for _ in range(3):
        assert [row.data for row in disks.disk.read(7, 1, 1, 1000)] == [b"body"]
    assert hang.count == 1, "a disk that hangs was asked again"
    commit(disks)
    wait_left(disks, 0)
    assert [row.data for row in disks.disk.read(7, 1, 1, 1000)] == [b"body"]


def test_a_state_that_is_read_is_begun_elsewhere(
    disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parts(source: int, after: Position, base: Position) -> Iterator[bytes]:
        yield b"one"
        hang(lambda: None)()
        yield b"two"

    wait_stored(disks)
    monkeypatch.setattr(of(disks, 0), "state_parts", parts)
    found = disks.disk.state_parts(1, (0, 0), (0, 0))
    assert next(found) == b"one"
    with pytest.raises(ValueError, match="/a failed while it was read"):
        next(found)
    wait_left(disks, 0)


def test_a_long_question_is_no_reason_to_leave_a_disk(
    disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All need long for it."""
    commit(disks, ROW)
    wait_stored(disks)
    for number in range(3):
        break_in(disks, number, "read", hang, monkeypatch)
    found: list[list[Row]] = []
    asking = threading.Thread(target=lambda: found.append(disks.disk.read(7, 1, 1, 1000)))
    asking.start()
    for _ in range(3):
        hang.wait_called()
    end_s = time.monotonic() + 3 * HANG_S
    with disks.group.changed:
        while time.monotonic() < end_s:
            disks.group.changed.wait(0.05)
            disks.group.look()
    assert disks.group.counting() == [0, 1, 2]
    hang.let_go()
    asking.join(LONG_S)
    assert [row.data for row in found[0]] == [b"body"]


def test_the_end_does_not_wait(disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    break_in(disks, 1, "commit", hang, monkeypatch)
    commit(disks)
    hang.wait_called()
    began_s = time.monotonic()
    disks.disk.close()
    disks.close()
    assert time.monotonic() - began_s < LONG_S
    assert not disks.group.answering(1)
    assert disks.group.answering(0)


def test_who_waits_at_the_end_is_told(disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (0, 1):
        break_in(disks, number, "commit", hang, monkeypatch)
    shorten(monkeypatch, HANG_S=10 * LONG_S)
    disks.group.end_soon()
    with pytest.raises(DisksLost, match="the node ends"):
        commit(disks)


@pytest.mark.parametrize("number", [0, 2])
def test_the_list_is_written_without_a_disk_that_hangs(
    disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real = write_record

    def write(directory: Path, record: Any) -> Any:
        return (hang(real) if directory == disks.paths[number] else real)(directory, record)

    monkeypatch.setattr(roster_module, "write_record", write)
    disks.roster.changes(lambda: [0, 1, 2])  # nothing has changed
    version = disks.roster.version
    failed = 1 if number else 2
    disks.group.leave(failed, "it failed")
    kept = [at for at in range(3) if at != failed]
    with pytest.raises(roster_module.RosterUnwritten, match="timed out"):
        disks.roster.changes(lambda: kept)
    waited: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(disks.roster._writing[number], "call", waited.append)
        with pytest.raises(roster_module.RosterUnwritten):
            disks.roster.changes(lambda: kept)
    assert not waited, "it waited for it a second time"
    assert hang.count == 1, "it piles up"
    hang.let_go()
    wait_until(disks, lambda: not disks.roster.busy)
    disks.roster.changes(lambda: kept)
    assert disks.roster.version > version


# No disk has everything


@pytest.fixture
def nearly_lost(disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch) -> OpenDisks:
    """What the first two have stored the third one has not yet; these two fail."""
    commit(disks, ROW)
    wait_stored(disks)
    break_in(disks, 2, "commit", hang, monkeypatch)
    commit(disks)
    hang.wait_called()
    for number in (0, 1):
        disks.group.leave(number, "it failed")
    return disks


def test_most_fail_before_the_last_one_has_everything(nearly_lost: OpenDisks, hang: Hang) -> None:
    disks = nearly_lost
    names = disks.disk.names
    with pytest.raises(DisksLost, match=r"no data directory has the last transaction yet: 1 of 3 .*/a: it failed"):
        disks.disk.read(7, 1, 1, 1000)
    with pytest.raises(DisksLost):
        disks.disk.head(0)
    with pytest.raises(DisksLost):
        commit(disks)
    assert disks.disk.names == names
    hang.let_go()
    wait_until(disks, lambda: bool(disks.group.reading()))
    assert [row.data for row in disks.disk.read(7, 1, 1, 1000)] == [b"body"]


def test_a_consumer_waits_until_a_disk_has_everything(nearly_lost: OpenDisks, hang: Hang) -> None:
    found: list[list[Row]] = []

    async def read() -> None:
        reader = BacklogReader(nearly_lost.disk)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.run)
            answered = trio.Event()

            def answer(rows: list[Row]) -> None:
                found.append(rows)
                answered.set()

            reader.read(7, 1, 1, answer)
            with trio.move_on_after(0.6):
                await answered.wait()
            assert not found
            hang.let_go()
            with trio.fail_after(LONG_S):
                await answered.wait()
            nursery.cancel_scope.cancel()

    trio.run(read)
    assert [row.data for row in found[0]] == [b"body"]


def test_the_only_disk_with_everything_fails_in_a_read(
    disks: OpenDisks, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others count, and will have it: this is no reason to end."""
    commit(disks, ROW)
    wait_stored(disks)
    break_in(disks, 1, "commit", hang, monkeypatch)
    commit(disks)
    hang.wait_called()
    wait_until(disks, lambda: disks.group.standings.disks[2].stored == disks.group.standings.handed)
    disks.group.leave(2, "it failed")

    def fails(*_: object) -> list[Row]:
        raise DiskFailure("it cannot be read")

    monkeypatch.setattr(of(disks, 0), "read", fails)
    with pytest.raises(DisksLost):
        disks.disk.read(7, 1, 1, 1000)
    assert disks.group.members[0].reason == "it cannot be read"
    hang.let_go()
    wait_until(disks, lambda: bool(disks.group.reading()))
    assert [row.data for row in disks.disk.read(7, 1, 1, 1000)] == [b"body"]


def test_when_no_disk_counts_the_node_ends(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (0, 1):
        disks.group.leave(number, "it failed")

    def fails(*_: object) -> list[Row]:
        raise JournalDamaged("damaged")

    wait_stored(disks)
    monkeypatch.setattr(of(disks, 2), "read", fails)
    with pytest.raises(JournalDamaged):
        disks.disk.read(7, 1, 1, 1000)
    disks.group.leave(2, "so did it")
    with pytest.raises(DiskFailure, match="0 of 3"):
        disks.disk.read(7, 1, 1, 1000)
