"""What a forwarder reads of its own disk.

What is verified: what of it is done in the thread that reads. Not verified here: what is on a disk (`tests/journal`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

import pytest
import trio
import trio.testing

from amqpd.cluster.own_disk import OwnDisk
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow
from amqpd.replication.receiver import State


class Disk:
    def recovered_of(self, sources: Collection[int]) -> Recovered:
        return Recovered(0, {256: RecoveredQueue([RecoveredRow(0, 9, 20, epoch=3)], 10, 0)})


def test_what_stands_in_a_source_is_counted_where_its_rows_are_read() -> None:
    """Where it begins, all others wait for that."""
    own = OwnDisk(cast(Any, Disk()), JournalBuffer(), cast(Any, None))
    recovered = trio.run(own.queues_of, 5)
    recovered.queues.clear()
    assert recovered.standing() == ({256: 10}, 10, {256: [(3, 0)]})


async def _sent_in(own: OwnDisk, sent: list[bytes], room: trio.Event) -> None:
    def sends(state: State) -> bool:
        sent.append(state.part)
        return True

    state = State(5, 1, (3, 9), b"", first=True, last=False, after=(0, 0))
    await own.send_state(state, sends, room.wait)


@pytest.mark.trio
async def test_no_more_of_a_state_is_read_than_the_link_takes(autojump_clock: trio.testing.MockClock) -> None:
    class Parts(Disk):
        def state_parts(self, source: int, after: object, base: object) -> Iterator[bytes]:
            return iter([b"one", b"two", b"three"])

    own, sent, room = OwnDisk(cast(Any, Parts()), JournalBuffer(), cast(Any, None)), list[bytes](), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_sent_in, own, sent, room)
        await trio.sleep(60)
        assert sent == [b"one"]
        room.set()
    assert sent == [b"one", b"two", b"three"]
