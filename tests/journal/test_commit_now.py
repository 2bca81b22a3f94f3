"""A commit on the caller's thread: when it is carried out, and when it is the writer's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from amqpd.journal import writer as writer_module
from amqpd.journal.buffer import SMALL_BYTES, JournalBuffer
from amqpd.journal.commit_timing import ACKS_S, CREDIT_MAX, PAUSE_S_MIN, SUCCESS, TRY_EACH, SettlingOdds
from amqpd.journal.errors import DiskFailure, DiskFull
from amqpd.journal.records import SourceEntry
from amqpd.journal.transaction import JournalTransaction
from amqpd.journal.writer import LEFT_BYTES_MAX, JournalWriter
from amqpd.peers.entry import START, new_entry
from amqpd.queues.backlog import Backlog
from amqpd.replication.replica import Appended, Write
from tests.journal.disks import appended
from tests.journal.memory_disk import MemoryDisk
from tests.journal.test_led_sources import EPOCH, SOURCE, leader
from tests.journal.test_numbers import run

pytestmark = pytest.mark.trio


class Disk(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.recover()
        self.prompt = True
        self.plain: list[int] = []
        self.hook: Callable[[], None] = lambda: None

    def commit(self, transaction: JournalTransaction, *, housekeeping: bool = True) -> None:
        self.hook()
        if housekeeping:
            self.plain.append(transaction.index)
        super().commit(transaction)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.s = 0.0
        monkeypatch.setattr(writer_module, "perf_counter", lambda: self.s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def disk() -> Disk:
    return Disk()


class Told(list[int]):
    """The numbers of commits that were told."""

    def __init__(self) -> None:
        super().__init__()
        self._more = trio.Event()

    def append(self, index: int) -> None:
        super().append(index)
        self._more.set()
        self._more = trio.Event()

    async def wait_for(self, index: int) -> None:
        with trio.fail_after(60):
            while index not in self:
                await self._more.wait()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def buffer() -> JournalBuffer:
    return JournalBuffer()


@pytest.fixture
def writer(buffer: JournalBuffer, disk: Disk, told: Told, clock: Clock) -> JournalWriter:
    return JournalWriter(buffer, disk, told.append, lambda full: None)


async def test_it_is_on_the_disk_and_told_when_it_returns(
    writer: JournalWriter, buffer: JournalBuffer, disk: Disk, told: Told
) -> None:
    buffer.delivered(1, 1)
    assert writer.commit_now()
    assert (disk.index, told, disk.plain) == (1, [1], [])
    assert (buffer.stored_index, buffer.committed_index) == (1, 1)
    assert not buffer.pending


@pytest.mark.parametrize("why", ["large", "housekeeping is due", "a queue is deleted"])
async def test_what_takes_longer_is_the_writers(
    writer: JournalWriter, buffer: JournalBuffer, disk: Disk, told: Told, why: str
) -> None:
    buffer.delivered(1, 1)
    if why == "large":
        buffer.gathered_bytes = SMALL_BYTES + 1
    elif why == "a queue is deleted":
        buffer.drop(1)
    else:
        disk.prompt = False
    assert not writer.commit_now()
    assert not told
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(60):
            await writer.flush()
        nursery.cancel_scope.cancel()
    assert (told, disk.plain) == ([1], [1])


@pytest.mark.parametrize(("took_s", "times"), [(0.021, 1), (0.008, 4), (0.001, None)])
async def test_after_slow_ones_the_next_ones_are_the_writers_for_a_while(
    writer: JournalWriter, buffer: JournalBuffer, disk: Disk, clock: Clock, took_s: float, times: int | None
) -> None:
    def slow() -> None:
        clock.s += took_s

    disk.hook = slow
    for _ in range(times or 100):
        buffer.delivered(1, 1)
        assert writer.commit_now()
    if times is None:
        return
    disk.hook = lambda: None
    buffer.delivered(1, 1)
    assert not writer.commit_now()
    clock.s += PAUSE_S_MIN / 2
    assert not writer.commit_now()
    clock.s += PAUSE_S_MIN / 2 + 0.001
    assert writer.commit_now()


@pytest.mark.parametrize("housekeeping", [False, True])
async def test_none_while_the_writer_has_one(
    writer: JournalWriter,
    buffer: JournalBuffer,
    told: Told,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    housekeeping: bool,
) -> None:
    """Also before its thread has begun: the transactions would come to the disk in the wrong order."""
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_IDLE_S", 0.001 if housekeeping else 60)
    buffer.retire(1, 0, 0)
    assert writer.commit_now()
    clock.s += 1000
    tries: list[bool] = []

    class Watch(trio.abc.Instrument):
        def after_task_step(self, task: object) -> None:
            if told == [1] and buffer.index == 3 and len(tries) < 100:
                buffer.delivered(1, 1)
                tries.append(writer.commit_now())

    trio.lowlevel.add_instrument(Watch())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await trio.testing.wait_all_tasks_blocked()
        if not housekeeping:
            buffer.delivered(1, 1)
            writer.want_commit()
        await told.wait_for(3)
        nursery.cancel_scope.cancel()
    assert tries
    assert not any(tries)
    assert told == [1, 2, 3]


async def test_what_a_full_disk_refuses_is_tried_again_by_the_writer(
    writer: JournalWriter, buffer: JournalBuffer, disk: Disk, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "FULL_RETRY_S", 0)
    left = [3]

    def full() -> None:
        if left[0]:
            left[0] -= 1
            raise DiskFull("no space left")

    disk.hook = full
    buffer.delivered(1, 1)
    assert not writer.commit_now()
    buffer.delivered(1, 1)
    assert not writer.commit_now(), "the refused one comes first"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        with trio.fail_after(60):
            await writer.flush()
        nursery.cancel_scope.cancel()
    assert told == [1, 2]


async def test_a_failure_of_the_disk_is_raised_and_nothing_is_told(
    writer: JournalWriter, buffer: JournalBuffer, disk: Disk, told: Told
) -> None:
    def fails() -> None:
        raise DiskFailure("fsync")

    disk.hook = fails
    buffer.delivered(1, 1)
    with pytest.raises(DiskFailure):
        writer.commit_now()
    assert not told
    assert buffer.stored_index == 0


class Publishers:
    """They wait for each commit: something of theirs has come by the time that one is told, `at_most` times."""

    def __init__(self, buffer: JournalBuffer, told: Told, at_most: int) -> None:
        self._buffer = buffer
        self._told = told
        self._left = at_most

    def durable(self, index: int) -> None:
        if self._left:
            self._left -= 1
            self._buffer.delivered(1, 1)
        self._told.append(index)


@pytest.mark.parametrize("taken", [True, False])
async def test_after_one_of_its_own_the_writer_leaves_the_next_one_to_a_caller_that_has_time(
    buffer: JournalBuffer, disk: Disk, told: Told, clock: Clock, taken: bool
) -> None:
    """It went on as long as there was a next one, and each of them takes twice as long as the caller's."""
    asked: list[int] = []

    def left_to_caller() -> bool:
        asked.append(disk.index)
        return taken

    publishers = Publishers(buffer, told, 3)
    writer = JournalWriter(buffer, disk, publishers.durable, lambda full: None, left_to_caller=left_to_caller)
    disk.prompt = False
    disk.hook = lambda: setattr(disk, "prompt", disk.index >= 1)
    buffer.delivered(1, 1)
    assert not writer.commit_now()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await told.wait_for(2 if taken else 4)
        await trio.testing.wait_all_tasks_blocked()
        if taken:
            assert (told, asked) == ([1, 2], [2]), "the first one was followed by one that lasts"
            assert writer.commit_now()
            assert writer.commit_now()
        nursery.cancel_scope.cancel()
    assert told == [1, 2, 3, 4]
    assert disk.plain == ([1, 2] if taken else [1, 2, 3, 4])


async def test_it_goes_on_by_itself_where_clients_send_many_at_a_time(
    buffer: JournalBuffer, disk: Disk, told: Told, clock: Clock
) -> None:
    """They are read while the thread commits."""

    def durable(index: int) -> None:
        if index < 3:
            buffer.delivered(1, 1)
            buffer.gathered_bytes = LEFT_BYTES_MAX + 1
        told.append(index)

    def left_to_caller() -> bool:
        asked.append(disk.index)
        return True

    asked: list[int] = []
    writer = JournalWriter(buffer, disk, durable, lambda full: None, left_to_caller=left_to_caller)
    buffer.delivered(1, 1)
    writer.want_commit()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await told.wait_for(3)
        nursery.cancel_scope.cancel()
    assert (disk.plain, asked) == ([1, 2, 3], [])


@pytest.mark.parametrize("wants", ["flush", "want_commit", "time"])
async def test_what_was_left_to_a_caller_who_does_not_come_is_committed_all_the_same(
    buffer: JournalBuffer, disk: Disk, told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch, wants: str
) -> None:
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_IDLE_S", 0.001 if wants == "time" else 60)
    publishers = Publishers(buffer, told, 1)
    writer = JournalWriter(buffer, disk, publishers.durable, lambda full: None, left_to_caller=lambda: True)
    buffer.delivered(1, 1)
    writer.want_commit()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await told.wait_for(1)
        clock.s += 1000
        if wants == "flush":
            with trio.fail_after(60):
                await writer.flush()
        elif wants == "want_commit":
            await trio.testing.wait_all_tasks_blocked()
            writer.want_commit()
        await told.wait_for(2)
        nursery.cancel_scope.cancel()
    assert not buffer.pending


async def test_what_is_settled_leaves_the_disk_when_no_commit_follows(
    writer: JournalWriter,
    buffer: JournalBuffer,
    disk: Disk,
    told: Told,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when housekeeping had nothing to do before, and waits for commits."""
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_IDLE_S", 0.001)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        with trio.fail_after(60):
            while not writer._resting:
                await trio.lowlevel.checkpoint()
        buffer.retire(1, 0, 0)
        assert writer.commit_now()
        assert buffer.deletable
        clock.s += 1000
        await told.wait_for(2)
        nursery.cancel_scope.cancel()
    assert not buffer.deletable


async def test_what_is_committed_later_is_told_to_the_disk_when_no_commit_follows(
    writer: JournalWriter,
    buffer: JournalBuffer,
    disk: Disk,
    told: Told,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replica's word may come when housekeeping has nothing to do any more, and nobody wakes the writer for it."""
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_IDLE_S", 0.001)
    steps: list[bool] = []
    monkeypatch.setattr(disk, "vacuum_step", lambda: bool(steps.append(False)))
    buffer.replicates = True
    buffer.write([appended(disk, SourceEntry(1, 1, 1))])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await told.wait_for(1)
        clock.s += 1000
        with trio.fail_after(60):
            while not steps:
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
        buffer.note_committed(1, (1, 1))
        with trio.fail_after(10):
            await told.wait_for(2)
        nursery.cancel_scope.cancel()
    assert not buffer.deletable


async def test_patience_lasts_while_some_tries_succeed() -> None:
    patience = SettlingOdds()
    for _ in range(10 * CREDIT_MAX):
        for _ in range(SUCCESS):
            assert patience.tries_next()
            patience.tried(False)
        patience.tried(True)
    tries = 0
    for _ in range(CREDIT_MAX + 10 * TRY_EACH):
        if patience.tries_next():
            tries += 1
            patience.tried(False)
    assert tries == CREDIT_MAX + 10
    patience.tried(True)
    assert patience.tries_next()


# Of a node that leads replicated sources


def led(buffer: JournalBuffer, disk: Disk, told: Told) -> tuple[JournalWriter, Backlog, list[tuple[int, set[int]]]]:
    """The last: what was cut, its sources."""
    backlog, cuts = leader(buffer), list[tuple[int, set[int]]]()

    def cut(index: int, payloads: dict[int, bytes]) -> list[Write]:
        cuts.append((index, set(payloads)))
        return [Appended(new_entry(source, (EPOCH, index), START, data)) for source, data in payloads.items()]

    writer = JournalWriter(buffer, disk, told.append, lambda full: None, cut=cut, alone=lambda: True)
    return writer, backlog, cuts


async def test_what_a_leader_has_is_sent_and_committed_when_it_returns(
    buffer: JournalBuffer, disk: Disk, told: Told, clock: Clock
) -> None:
    writer, backlog, cuts = led(buffer, disk, told)
    backlog.publish(run(), True, 0)
    writer._timing._odds._credit = 0
    assert writer.commit_now()
    assert (cuts, told, disk.index, disk.plain) == ([(1, {SOURCE})], [1], 1, [])
    buffer.force()
    assert writer.commit_now()
    assert (cuts[1:], told, disk.index) == ([(2, set())], [1, 2], 1)


async def test_what_a_full_disk_refused_of_a_leader_is_not_sent_again(
    buffer: JournalBuffer, disk: Disk, told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "FULL_RETRY_S", 0)
    writer, backlog, cuts = led(buffer, disk, told)
    backlog.publish(run(), True, 0)
    writer._timing._odds._credit = 0
    disk.full = True
    assert not writer.commit_now()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await trio.testing.wait_all_tasks_blocked(0.01)
        disk.full = False
        await told.wait_for(1)
        nursery.cancel_scope.cancel()
    assert cuts == [(1, {SOURCE})]


async def test_what_is_put_off_is_cut_by_the_writer_in_time(
    buffer: JournalBuffer,
    disk: Disk,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    monkeypatch.setattr(writer_module, "perf_counter", trio.current_time)
    writer, _, cuts = led(buffer, disk, told)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        buffer.force()
        writer.want_commit()
        await told.wait_for(1)
        await trio.testing.wait_all_tasks_blocked()
        began_s = trio.current_time()
        buffer.delivered(20, 1)
        assert writer.commit_now()
        assert cuts == [(1, set())]
        await told.wait_for(2)
        assert trio.current_time() - began_s == pytest.approx(ACKS_S)
        nursery.cancel_scope.cancel()
