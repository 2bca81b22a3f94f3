"""What the journal's table `queue` says, in memory: a record's checksum is made of all of it.

What comes in: marks of queues as a transaction raises them. What goes out: whole records.
Rules: 1. `next_seq` only ever rises; a negative `delivered` leaves that as it was. 2. Nothing changes here before it
is on the disk (`put`). 3. What this disk does by itself leaves a record the transaction that it is of: an undo takes
that back, and not what was deleted since.
Not here: what the marks are for (`records.Transaction`).
"""

from __future__ import annotations

from collections.abc import Iterable

Mark = tuple[int, int, int, int, int]
"""next_seq, delivered, and the transaction that it is of: source, epoch, idx"""
NONE: Mark = (0, -1, 0, 0, 0)


class QueueMarks:
    """The marks of all queues, as they are on the disk."""

    def __init__(self, marks: dict[int, Mark]) -> None:
        """As they are on the disk."""
        self._marks = marks

    def copied(self) -> QueueMarks:
        """The same, of another disk."""
        return QueueMarks(dict(self._marks))

    def of(self, queue_id: int) -> Mark | None:
        return self._marks.get(queue_id)

    def raised(
        self,
        marks: Iterable[tuple[int, int, int]],
        source: int,
        epoch: int,
        idx: int,
    ) -> dict[int, Mark]:
        """The marks after these (queue_id, next_seq, delivered) of a transaction, one for each queue."""
        now: dict[int, Mark] = {}
        for queue_id, next_seq, delivered in marks:
            before = now.get(queue_id) or self._marks.get(queue_id, NONE)
            now[queue_id] = (
                max(before[0], next_seq),
                before[1] if delivered < 0 else delivered,
                source,
                epoch,
                idx,
            )
        return now

    def kept(self, now: dict[int, Mark], source: int, ends: Iterable[tuple[int, int]]) -> None:
        """Rows of the source up to these (queue_id, last_seq) leave the disk: rule 3. `now`, what a transaction
        raises already, is added to."""
        for queue_id, last in ends:
            before = now.get(queue_id) or self._marks.get(queue_id) or (0, -1, source, 0, 0)
            now[queue_id] = (max(before[0], last + 1), before[1], before[2], before[3], before[4])

    def put(self, marks: dict[int, Mark], dropped: Iterable[int]) -> None:
        """These are on the disk, and those of dropped queues are not there any more."""
        self._marks.update(marks)
        for queue_id in dropped:
            self._marks.pop(queue_id, None)
