"""The pump commits between two steps of the writer's task: neither is the other's turn lost."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from amqpd.journal import writer as writer_module
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.writer import HOUSEKEEPING_IDLE_S, JournalWriter
from tests.journal.test_commit_now import Clock, Disk, Told

pytestmark = pytest.mark.trio


def alone() -> bool:
    """As `Broker._alone`: it does not count who is later in the round that trio has begun."""
    return not trio.lowlevel.current_statistics().tasks_runnable


async def test_a_flush_ends_when_the_pump_has_committed_what_it_waits_for() -> None:
    buffer, told = JournalBuffer(), Told()
    writer = JournalWriter(buffer, Disk(), told.append, lambda full: None)
    by_pump: list[int] = []
    flushing = False

    async def pump() -> None:
        """As when it is behind: it has something to do in each round."""
        while True:
            await trio.lowlevel.checkpoint()
            if flushing and buffer.pending and alone() and writer.commit_now():
                by_pump.append(buffer.stored_index)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        nursery.start_soon(pump)
        with trio.fail_after(60):
            # Which of the two tasks is first in a round is chance.
            while len(by_pump) < 20:
                buffer.delivered(1, 1)
                flushing = True
                await writer.flush()
                flushing = False
        nursery.cancel_scope.cancel()


async def test_what_is_settled_leaves_the_disk_also_when_housekeeping_ended_just_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_IDLE_S", 0.001)
    clock, buffer, told = Clock(monkeypatch), JournalBuffer(), Told()
    clock.s = 1000.0
    writer = JournalWriter(buffer, Disk(), told.append, lambda full: None)
    step = writer._step

    async def then_the_pump_has_its_turn() -> bool:
        left = await step()
        if not told:
            buffer.retire(1, 0, 0)
            assert writer.commit_now()
            clock.s += 1000
        return left

    monkeypatch.setattr(writer, "_step", then_the_pump_has_its_turn)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await told.wait_for(2)
        nursery.cancel_scope.cancel()
    assert not buffer.deletable


async def test_a_flush_ends_when_housekeeping_becomes_due_in_the_round_in_which_the_pump_commits(
    mock_clock: trio.testing.MockClock,
) -> None:
    # Which of the tasks is first in a round is chance.
    for _ in range(50):
        buffer, told, flushed = JournalBuffer(), Told(), trio.Event()
        writer = JournalWriter(buffer, Disk(), told.append, lambda full: None)
        due = trio.current_time() + HOUSEKEEPING_IDLE_S
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            nursery.start_soon(commit_at, due, buffer, writer)
            nursery.start_soon(flush_at, due, buffer, writer, flushed)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(HOUSEKEEPING_IDLE_S)
            await trio.testing.wait_all_tasks_blocked()
            while writer.threads.borrowed_tokens:
                await trio.testing.wait_all_tasks_blocked()
            assert flushed.is_set()
            nursery.cancel_scope.cancel()
        assert told == [1]


async def commit_at(due: float, buffer: JournalBuffer, writer: JournalWriter) -> None:
    await trio.sleep_until(due)
    if buffer.pending:
        writer.commit_now()


async def flush_at(due: float, buffer: JournalBuffer, writer: JournalWriter, flushed: trio.Event) -> None:
    await trio.sleep_until(due)
    buffer.delivered(1, 1)
    await writer.flush()
    flushed.set()


async def test_a_flush_waits_for_the_commit_of_what_was_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_IDLE_S", 0.001)
    clock, disk, buffer, told = Clock(monkeypatch), Disk(), JournalBuffer(), Told()
    clock.s = 1000.0
    writer = JournalWriter(buffer, disk, told.append, lambda full: None)
    begun, may_end = trio.Event(), threading.Event()
    buffer.retire(1, 0, 0)
    assert writer.commit_now()
    clock.s += 1000

    def commit() -> None:
        trio.from_thread.run_sync(begun.set)
        assert may_end.wait(60)

    disk.hook = commit
    flushed = trio.Event()

    async def flush() -> None:
        await writer.flush()
        flushed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await begun.wait()
        nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        before = flushed.is_set()
        may_end.set()
        with trio.fail_after(60):
            await flushed.wait()
        nursery.cancel_scope.cancel()
    assert not before
    assert told == [1, 2]
