"""What a forwarder reads of its own disk.

What is verified: what of it is done in the thread that reads. Not verified here: what is on a disk (`tests/journal`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import trio

from amqpd.cluster.own_disk import OwnDisk
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow


class Disk:
    def recovered_of(self, sources: Collection[int]) -> Recovered:
        return Recovered(0, {256: RecoveredQueue([RecoveredRow(0, 9, 20, epoch=3)], 10, 0)})


def test_what_stands_in_a_source_is_counted_where_its_rows_are_read() -> None:
    """Where it begins, all others wait for that."""
    own = OwnDisk(cast(Any, Disk()), JournalBuffer(), cast(Any, None))
    recovered = trio.run(own.queues_of, 5)
    recovered.queues.clear()
    assert recovered.standing() == ({256: 10}, 10, {256: [(3, 0)]})
