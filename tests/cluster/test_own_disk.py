"""What a forwarder reads of its own disk.

What is verified: what of it is done in the thread that reads; who is told when it cannot be read. Not verified here:
what is on a disk (`tests/journal`).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from amqpd.cluster import own_disk
from amqpd.cluster.own_disk import OwnDisk
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.errors import DisksLost
from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow
from amqpd.peers.entry import LogEntry, Position
from amqpd.peers.messages import SnapshotPart


class Disk:
    def recovered_of(self, sources: Collection[int]) -> Recovered:
        return Recovered(0, {256: RecoveredQueue([RecoveredRow(0, 9, 20, epoch=3)], 10, 0)})


def test_what_stands_in_a_source_is_counted_where_its_rows_are_read() -> None:
    """Where it begins, all others wait for that."""
    own = OwnDisk(cast(Any, Disk()), JournalBuffer(), cast(Any, None))
    recovered = trio.run(own.queues_of, 5)
    recovered.queues.clear()
    assert recovered.standing() == ({256: 10}, 10, {256: [(3, 0)]})


@pytest.mark.trio
async def test_no_more_of_a_state_is_read_than_the_link_takes() -> None:
    class Parts(Disk):
        def state_parts(self, source: int, after: object, base: object) -> Iterator[bytes]:
            return iter([b"one", b"two", b"three"])

    own = OwnDisk(cast(Any, Parts()), JournalBuffer(), cast(Any, None))
    sent: list[bytes] = []
    asked, capacity = trio.Event(), trio.Event()

    def sends(state: SnapshotPart) -> bool:
        sent.append(state.part)
        return True

    async def wait_for_capacity() -> None:
        asked.set()
        await capacity.wait()

    state = SnapshotPart(5, 1, (3, 9), b"", first=True, last=False, after=(0, 0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(own.send_state, state, sends, lambda: None, wait_for_capacity)
        await asked.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert sent == [b"one"]
        capacity.set()
    assert sent == [b"one", b"two", b"three"]


async def no_wait() -> None:
    """There is always capacity."""


class FailingDisk:
    """The disk that a state is read from fails after two parts."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def state_parts(self, source: int, after: Position, base: Position) -> Iterator[bytes]:
        yield b"one"
        yield b"two"
        raise self.failure


@pytest.mark.parametrize("failure", [ValueError("it failed"), DisksLost("none has everything yet")], ids=repr)
def test_a_state_that_cannot_be_read_to_its_end_is_neither_ended_nor_left_unsaid(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer waited for the rest of it for ever, or took for all of it what there was."""
    monkeypatch.setattr(own_disk, "STATE_AGAIN_S", 0.0)
    own = OwnDisk(cast(Any, FailingDisk(failure)), JournalBuffer(), cast(Any, None))
    sent: list[SnapshotPart] = []
    failed: list[bool] = []

    def sends(state: SnapshotPart) -> bool:
        sent.append(state)
        return True

    trio.run(
        own.send_state, SnapshotPart(5, 1, (1, 9), b"", True, False), sends, lambda: failed.append(True), no_wait
    )
    assert [(each.part, each.last) for each in sent] == [(b"one", False)]
    assert failed == [True]


@pytest.mark.trio
async def test_what_a_take_over_has_won_is_not_read_behind_queues() -> None:
    """It has a bound in time, and many sources that begin were read before."""
    begun, goes_on = threading.Event(), threading.Event()

    class SlowDisk(Disk):
        def recovered_of(self, sources: Collection[int]) -> Recovered:
            begun.set()
            assert goes_on.wait(60)
            return super().recovered_of(sources)

        def log_entries(self, source: int, after: Position, bytes_max: int) -> list[LogEntry]:
            return []

        def head(self, source: int) -> Any:
            return SimpleNamespace(reserved=9)

    own = OwnDisk(cast(Any, SlowDisk()), JournalBuffer(), cast(Any, None))
    async with trio.open_nursery() as nursery:
        for source in (5, 6):
            nursery.start_soon(own.queues_of, source)
        await trio.to_thread.run_sync(begun.wait)
        try:
            with trio.fail_after(30):
                assert (await own.own_log(7, (1, 2))).reserved == 9
        finally:
            goes_on.set()
