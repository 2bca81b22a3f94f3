"""The task that commits: what it does while the disk is full, and what it keeps of tries that failed."""

from __future__ import annotations

import gc
from weakref import WeakSet

import pytest
import trio
import trio.testing

from amqpd.cluster.own_disk import OwnDisk
from amqpd.journal import writer as writer_module
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.errors import DiskFull
from amqpd.journal.transaction import JournalTransaction
from amqpd.journal.writer import HOUSEKEEPING_IDLE_S, JournalWriter
from amqpd.peers.entry import Position
from tests.journal.disks import MemoryDrive, row, store
from tests.journal.memory_disk import MemoryDisk

pytestmark = pytest.mark.trio

TRIES = 20


class Joined:
    """What a try makes of the rows, as large as they are."""


class FullDisk(MemoryDisk):
    def __init__(self, tried: trio.Event) -> None:
        super().__init__()
        self.made: WeakSet[Joined] = WeakSet()
        self.count = 0
        self.alive_max = 0
        self._tried = tried

    def commit(self, transaction: JournalTransaction, *, housekeeping: bool = True) -> None:
        self.alive_max = max(self.alive_max, len(self.made))
        self.count += 1
        if self.count == TRIES:
            trio.from_thread.run_sync(self._tried.set)
        try:
            self._write(Joined())
        except OSError as error:
            raise DiskFull("no space left") from error

    def _write(self, joined: Joined) -> None:
        self.made.add(joined)
        raise OSError("the database is full")


async def test_tries_that_a_full_disk_refused_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kept its rows, in cycles of exceptions and frames that nobody collected: 23 MB a second."""
    monkeypatch.setattr(writer_module, "FULL_RETRY_S", 0)
    tried = trio.Event()
    buffer, disk = JournalBuffer(), FullDisk(tried)
    writer = JournalWriter(buffer, disk, lambda index: None, lambda full: None)
    buffer.drop(1)
    gc.collect()
    gc.disable()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            writer.want_commit()
            with trio.fail_after(60):
                await tried.wait()
            nursery.cancel_scope.cancel()
    finally:
        gc.enable()
    assert disk.alive_max <= 1


async def test_publishers_wait_from_the_start_until_what_was_given_up_is_held_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told: list[bool] = []
    over = trio.Event()

    def on_full(full: bool) -> None:
        told.append(full)
        if not full:
            over.set()

    disk = MemoryDisk()
    disk.full = True
    disk.release_reserve()
    writer = JournalWriter(JournalBuffer(), disk, lambda index: None, on_full, full=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await trio.sleep(10 * HOUSEKEEPING_IDLE_S)
        assert told == [True]
        disk.full = False
        await over.wait()
        assert told == [True, False]
        nursery.cancel_scope.cancel()


async def test_the_reserve_is_given_up_also_when_the_disk_was_full_at_the_start() -> None:
    """Opening the metadata found it full, and took its own reserve."""
    disk = MemoryDisk()
    disk.recover()
    disk.full = True
    buffer, durable = JournalBuffer(), trio.Event()
    writer = JournalWriter(buffer, disk, lambda index: durable.set(), lambda full: None, full=True)
    buffer.drop(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        writer.want_commit()
        with trio.fail_after(60):
            await durable.wait()
        nursery.cancel_scope.cancel()
    assert not disk.reserve_held


@pytest.mark.parametrize("replicates", [False, True])
async def test_the_file_shrinks_once_after_a_long_rest(monkeypatch: pytest.MonkeyPatch, replicates: bool) -> None:
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_IDLE_S", 0.001)
    monkeypatch.setattr(writer_module, "RESTING_S", 0.001)
    disk, buffer, asked, shrunk = MemoryDisk(), JournalBuffer(), [], trio.Event()
    buffer.replicates = replicates
    disk.recover()
    token = trio.lowlevel.current_trio_token()

    def step(rests: bool = False) -> bool:
        asked.append(rests)
        if rests:
            token.run_sync_soon(shrunk.set)
        return False

    monkeypatch.setattr(disk, "vacuum_step", step)
    writer = JournalWriter(buffer, disk, lambda index: None, lambda full: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        with trio.fail_after(60):
            await shrunk.wait()
            if not replicates:  # else it looks again and again whether it was told something
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert asked == [False, True]
            shrunk = trio.Event()
            buffer.drop(1)
            writer.want_commit()
            await shrunk.wait()
        nursery.cancel_scope.cancel()


async def test_what_is_known_to_be_committed_is_told_to_a_disk_that_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a node that was started again, has all entries of a source, and is sent nothing after that."""
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_IDLE_S", 0.1)
    drive, stepped, told = MemoryDrive(), trio.Event(), trio.Event()
    before = drive.open()
    before.recover()
    store(before, 1, 1, 1, row(1, 1, 1))
    disk = drive.open()
    buffer = JournalBuffer(disk.recover().index)
    token = trio.lowlevel.current_trio_token()

    def step(rests: bool = False) -> bool:
        token.run_sync_soon(stepped.set)
        return False

    monkeypatch.setattr(disk, "vacuum_step", step)
    writer = JournalWriter(buffer, disk, lambda index: told.set(), lambda full: None)
    OwnDisk(disk, buffer, writer)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        with trio.fail_after(60):
            await stepped.wait()
            await trio.testing.wait_all_tasks_blocked(0.01)
            buffer.note_committed(1, (1, 1))
            await told.wait()
        nursery.cancel_scope.cancel()
    assert disk.head(1).committed == (1, 1)


async def test_a_disk_that_stays_full_gets_its_log_copied_at_each_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that was copied is begun again, and what is settled finds its place there."""
    monkeypatch.setattr(writer_module, "FULL_RETRY_S", 0)
    tried = trio.Event()
    buffer, disk = JournalBuffer(), FullDisk(tried)
    released: list[int] = []
    disk.release_reserve = lambda: released.append(disk.count)  # type: ignore[method-assign]
    writer = JournalWriter(buffer, disk, lambda index: None, lambda full: None)
    buffer.drop(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        writer.want_commit()
        with trio.fail_after(60):
            await tried.wait()
        nursery.cancel_scope.cancel()
    assert released[: TRIES - 1] == list(range(1, TRIES))


async def test_a_transaction_that_has_nothing_is_told_and_not_given_to_the_disk() -> None:
    given: list[tuple[int, dict[int, Position]]] = []

    class Disk(MemoryDisk):
        def commit(self, transaction: JournalTransaction, *, housekeeping: bool = True) -> None:
            given.append((transaction.index, transaction.committed))

    disk, buffer, told = Disk(), JournalBuffer(), list[int]()
    writer = JournalWriter(buffer, disk, told.append, lambda full: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        for forced in (True, True, False):
            if forced:
                buffer.force()
                buffer.note_committed(5, (3, 1))
            else:
                buffer.delivered(1, 1)
            with trio.fail_after(60):
                await writer.flush()
        nursery.cancel_scope.cancel()
    assert (told, buffer.stored_index) == ([1, 2, 3], 3)
    assert given == [(3, {5: (3, 1)})]
