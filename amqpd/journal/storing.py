"""How a segment becomes a row of a transaction.

What comes in: a segment of a queue, of which something is to be written. What goes out: its row, and what of it is
settled already.
Rules: 1. Runs are joined by what writes the row, in a thread of its own.
Not here: which segments (`buffer.py`), rows on the disk (`sqlite/`).
"""

from __future__ import annotations

from amqpd.journal.pending_row import PendingRow
from amqpd.journal.records import Row, SeqRange
from amqpd.journal.transaction import JournalTransaction
from amqpd.replication.replica import Appended, StatePart, Write


def store(transaction: JournalTransaction, queue_id: int, segment: PendingRow) -> int:
    """How many ranges of it are settled."""
    segment.stored = True
    transaction.rows.append(_row(queue_id, segment))
    if segment.whole:
        return 0
    settled = [SeqRange(queue_id, *part) for part in segment.settled_ranges()]
    transaction.settled += settled
    return len(settled)


def store_settled(
    transaction: JournalTransaction, queue_id: int, segment: PendingRow, retired: list[SeqRange]
) -> None:
    """All of it is settled, and the row is written all the same: what became of its messages is not safe yet."""
    segment.stored = True
    transaction.rows.append(_row(queue_id, segment))
    retired.append(SeqRange(queue_id, segment.first, segment.last))


def bytes_of(write: Write) -> int:
    """Of messages that a leader has sent."""
    if isinstance(write, Appended):
        return len(write.entry.payload)
    return len(write.part) if isinstance(write, StatePart) else 0


def _row(queue_id: int, segment: PendingRow) -> Row:
    assert segment.runs is not None
    return Row(
        queue_id,
        segment.first,
        segment.last,
        b"",
        segment.persistent,
        0,
        segment.published_ms,
        segment.packed_deadlines(),
        segment.runs,
    )
