"""Messages of a quorum queue that come back say how often they were delivered.

What comes in: a backlog, the delivery counts of those of its messages that have come back. What goes out: pieces of
it, with `x-delivery-count` in the headers.
Not here: counting, and what becomes of a message that came back too often (`mortality.py`).

Source: https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling.
"""

from __future__ import annotations

from amqpd.message.rewriting import with_headers
from amqpd.queues.backlog import Backlog
from amqpd.queues.consumer import Piece


def take_counted(backlog: Backlog, counts: dict[int, int], counted_below: int, limit: int) -> Piece | None:
    """As `Backlog.take`. What came back before the last restart has smaller numbers than `counted_below`."""
    returned = backlog.returned
    if not returned:
        if backlog.store.cursor >= counted_below:
            return backlog.take(limit)
        # What came back before a restart stands in its place again.
        return _with_count(backlog.take(1), counts)
    first = returned.first[0]
    count = counts.get(first, 0)
    alike, most = 1, backlog.next_returned(limit)
    while alike < most and counts.get(first + alike, 0) == count:
        alike += 1
    return _with_count(backlog.take(alike), counts)


def without(counts: dict[int, int], first: int, last: int) -> dict[int, int]:
    """The counts, which may be changed for it, without those of first..last."""
    if last - first >= len(counts):
        return {seq: count for seq, count in counts.items() if not first <= seq <= last}
    for seq in range(first, last + 1):
        counts.pop(seq, None)
    return counts


def _with_count(piece: Piece | None, counts: dict[int, int]) -> Piece | None:
    """All messages of the piece have come back equally often."""
    count = 0 if piece is None else counts.get(piece[3], 0)
    if piece is None or not count:
        return piece
    run, low, high, seq, redelivered = piece
    counted = with_headers(run.part(low, high), {"x-delivery-count": count})
    return counted, 0, high - low, seq, redelivered
