"""Commits of `run` on the loop's own thread, on a node with replicas: which ones, and that others have their turns.

Not verified: those of the pump (`test_commit_now.py`).
"""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from amqpd.journal import writer as writer_module
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.errors import DiskFull
from amqpd.journal.transaction import BRIEF_RECORDS, JournalTransaction
from amqpd.journal.writer import LEFT_BYTES_MAX, JournalWriter
from amqpd.peers.entry import START, Vote, new_entry
from amqpd.replication.replica import Appended, StateInstall, VoteCast, Write
from tests.journal.memory_disk import MemoryDisk

pytestmark = pytest.mark.trio

ENTRY = Appended(new_entry(5, (3, 1), START, b"payload"))


class Disk(MemoryDisk):
    """Writes down on which thread it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.recover()
        self.prompt = True
        self.here: list[bool] = []
        self.full = False
        self.released = 0

    def commit(self, transaction: JournalTransaction, *, housekeeping: bool = True) -> None:
        here = threading.current_thread() is threading.main_thread()
        assert here is not housekeeping
        self.here.append(here)
        if self.full:
            raise DiskFull("no space")

    def release_reserve(self) -> None:
        self.released += 1
        self.full = False


class Journal:
    def __init__(self) -> None:
        self.buffer, self.disk = JournalBuffer(), Disk()
        self.alone = True
        self.told: list[int] = []
        self.full: list[bool] = []
        self.writer = JournalWriter(
            self.buffer, self.disk, self.told.append, self.full.append, alone=lambda: self.alone
        )

    async def commit(self, *writes: Write) -> None:
        index = self.buffer.write(writes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            with trio.fail_after(60):
                await self.writer.flush()
            nursery.cancel_scope.cancel()
        assert (self.told, self.buffer.stored_index) == ([index], index)


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    """Commits take no time, however slow this machine is."""
    monkeypatch.setattr(writer_module, "perf_counter", lambda: 0.0)
    return Journal()


async def test_what_a_leader_has_sent_is_committed_without_a_turn_of_another_thread(journal: Journal) -> None:
    await journal.commit(ENTRY, ENTRY)
    assert journal.disk.here == [True]


@pytest.mark.parametrize("why", ["others", "large", "many", "state", "a vote", "housekeeping", "a thread"])
async def test_what_may_take_longer_is_the_threads(journal: Journal, why: str) -> None:
    writes: list[Write] = [ENTRY]
    if why == "others":
        journal.alone = False
    elif why == "large":
        journal.buffer.gathered_bytes = LEFT_BYTES_MAX + 1
    elif why == "many":
        writes *= BRIEF_RECORDS + 1
    elif why == "state":
        writes.append(StateInstall(5))
    elif why == "a vote":
        writes.append(VoteCast(5, Vote(4, "b", 1)))
    elif why == "housekeeping":
        journal.disk.prompt = False
    if why != "a thread":
        await journal.commit(*writes)
        assert journal.disk.here == [False]
        return
    # Another one uses the disk's connection.
    await journal.writer.threads.acquire_on_behalf_of(journal)
    journal.buffer.write(writes)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.writer.run)
        await trio.testing.wait_all_tasks_blocked()
        assert journal.disk.here == []
        journal.writer.threads.release_on_behalf_of(journal)
        with trio.fail_after(60):
            await journal.writer.flush()
        nursery.cancel_scope.cancel()
    assert journal.disk.here == [False]


async def test_a_full_disk_is_dealt_with_as_ever(journal: Journal) -> None:
    journal.disk.full = True
    await journal.commit(ENTRY)
    # Here, and then by the thread: refused, and carried out when the reserve was given up.
    assert journal.disk.here == [True, False, False]
    assert journal.disk.released == 1
    assert journal.full == [True, False]


async def test_others_have_their_turns_between_two(journal: Journal) -> None:
    """However fast more comes than is committed."""
    buffer, turns = journal.buffer, 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    def more(index: int) -> None:
        journal.told.append(index)
        if index < 50:
            buffer.write([ENTRY])

    journal.writer._on_durable = more
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        buffer.write([ENTRY])
        nursery.start_soon(journal.writer.run)
        with trio.fail_after(60):
            await journal.writer.flush()
        nursery.cancel_scope.cancel()
    assert journal.disk.here == [True] * 50
    assert turns >= 50
