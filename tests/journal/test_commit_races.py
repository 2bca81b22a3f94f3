"""The pump commits between two steps of the writer's task: neither is the other's turn lost."""

from __future__ import annotations

import pytest
import trio

from amqpd.journal import writer as writer_module
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.writer import JournalWriter
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
                buffer.force()
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
