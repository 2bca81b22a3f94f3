"""What the journal's table `queue` says, in memory: a record's checksum is made of all of it.

What comes in: marks of queues as a transaction raises them. What goes out: whole records.
Rules: 1. `next_seq` only ever rises; a negative `delivered` leaves that as it was. 2. Nothing changes here before it
is on the disk (`put`).
Not here: what the marks are for (`records.Transaction`).
"""

from __future__ import annotations

from collections.abc import Iterable

from amqpd.journal.sqlite import checksums

Record = tuple[int, int, int, int]
"""queue_id, next_seq, delivered, crc"""


class QueueMarks:
    def __init__(self, marks: dict[int, tuple[int, int]]) -> None:
        """`marks`: queue_id -> (next_seq, delivered), as they are on the disk."""
        self._marks = marks

    def raised(self, marks: Iterable[tuple[int, int, int]]) -> list[Record]:
        """The records after these (queue_id, next_seq, delivered), one for each queue."""
        now: dict[int, tuple[int, int]] = {}
        for queue_id, next_seq, delivered in marks:
            before = now.get(queue_id) or self._marks.get(queue_id, (0, -1))
            now[queue_id] = max(before[0], next_seq), before[1] if delivered < 0 else delivered
        return [(queue_id, *mark, checksums.of_mark(queue_id, *mark)) for queue_id, mark in now.items()]

    def put(self, records: Iterable[Record], dropped: Iterable[int]) -> None:
        """These are on the disk, and those of dropped queues are not there any more."""
        for queue_id, next_seq, delivered, _ in records:
            self._marks[queue_id] = next_seq, delivered
        for queue_id in dropped:
            self._marks.pop(queue_id, None)
