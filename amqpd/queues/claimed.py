"""What clients of other nodes hold of a backlog, and what of it another leader may have delivered before.

What comes in: ranges of sequence numbers that an edge claims, or gives back; ranges of what was delivered. What goes
out: which of them were ready; the same ranges for the next leader.
Rules: 1. What is claimed was delivered by another leader, so it may stand behind the cursor. Then the cursor passes
it, and what is ready in front of it counts as returned, though nobody may have had it (`Backlog.undelivered`).
2. Nothing is read. What is on disk only is cut into its rows where it is claimed, or passed: what is settled is told
to the journal by rows, and a segment that is several of them is ready as a whole. 3. A step costs what the segments,
rows and stretches in the range do, and those that the cursor passes, whatever numbers somebody claims.
Not here: who claims what (`amqpd.remote`), which message is next (`backlog.py`).
"""

from __future__ import annotations

from amqpd.queues.backlog import Backlog
from amqpd.queues.delivered_ranges import DeliveredRanges
from amqpd.queues.stretches import Stretches


def hold(backlog: Backlog, first: int, last: int) -> list[tuple[int, int]]:
    """Those of the messages first..last that are ready are taken from now on, as if they had been delivered: (first,
    last) of what there was."""
    store = backlog.store
    if backlog.fresh:
        backlog.take_in()
    last = min(last, store.next_seq - 1)
    if first > last:
        return []
    live = store.live_in(max(first, store.cursor), last)
    if live:
        _pass(backlog, live[-1][1])
    found: list[tuple[int, int]] = []
    for part in backlog.returned.within(first, last):
        backlog.returned.cut(*part)
        _forget_undelivered(backlog, *part)
        _take(backlog, *part)
        if found and found[-1][1] + 1 == part[0]:
            found[-1] = found[-1][0], part[1]
        else:
            found.append(part)
    return found


def _pass(backlog: Backlog, last: int) -> None:
    """The cursor passes the messages up to this one: what of them is ready has come back, as it were."""
    store = backlog.store
    store.cut_rows(store.cursor, last)
    segments, index = store.segments, store.index_of(store.cursor)
    while index < len(segments) and (segment := segments[index]).first <= last:
        for part in segment.live_in(max(segment.first, store.cursor), min(segment.last, last)):
            for low, high in backlog.not_leaving(*part):
                backlog.returned.add(low, high)
                _note_undelivered(backlog, low, high)
        index += 1
    backlog.settle_leaving(store.cursor, last)
    store.cursor = last + 1
    # The last segment may still grow, so the cursor stays in it.
    store.at = max(0, min(store.index_of(store.cursor), len(segments) - 1))


def _take(backlog: Backlog, first: int, last: int) -> None:
    """The ready messages first..last, none of which is settled, count as unacked."""
    store = backlog.store
    for low, high in store.live_in(first, last):
        segment = store.segments[store.index_of(low)]
        count, nbytes = high - low + 1, segment.bytes_in(low, high)
        backlog.ready -= count
        backlog.unacked += count
        backlog.ready_bytes -= nbytes
        backlog.unacked_bytes += nbytes
        if segment.estimated:
            segment.taken_bytes += nbytes


def _note_undelivered(backlog: Backlog, first: int, last: int) -> None:
    """Those of first..last, at or behind the cursor, that nobody had."""
    while first <= last:
        again, end = first < backlog.redelivered_below, last + 1
        if again:
            end = backlog.redelivered_below
            if backlog.delivered is not None:
                again, end = backlog.delivered.at(first)
        end = min(end, last + 1)
        if not again:
            if backlog.undelivered is None:
                backlog.undelivered = Stretches()
            backlog.undelivered.add(first, end - 1)
        first = end


def _forget_undelivered(backlog: Backlog, first: int, last: int) -> None:
    if backlog.undelivered is not None:
        for part in backlog.undelivered.within(first, last):
            backlog.undelivered.cut(*part)


# What may have been delivered before


def mark_redelivered(backlog: Backlog, first: int, last: int) -> None:
    """The messages first..last may have been delivered before."""
    if backlog.fresh:
        backlog.take_in()
    cursor = backlog.store.cursor
    last = min(last, backlog.store.next_seq - 1)
    _forget_undelivered(backlog, first, last)
    first = max(first, cursor)
    if first > last:
        return
    if backlog.delivered is None:
        if first <= max(backlog.redelivered_below, cursor):
            backlog.redelivered_below = max(backlog.redelivered_below, last + 1)
            return
        backlog.delivered = DeliveredRanges()
        if backlog.redelivered_below > cursor:
            backlog.delivered.add(cursor, backlog.redelivered_below - 1)
    backlog.delivered.add(first, last, cursor)
    backlog.redelivered_below = backlog.delivered.end


def forget_redelivered(backlog: Backlog) -> None:
    """Nothing at or behind the cursor was delivered before, as far as is known."""
    backlog.redelivered_below, backlog.delivered = 0, None


def redelivered(backlog: Backlog) -> list[tuple[int, int]]:
    """(first, last) of what was delivered before, or may have been; what is settled may be among it."""
    cursor, at = backlog.store.cursor, 0
    found: list[tuple[int, int]] = []
    for first, last in backlog.undelivered or ():
        if at < first:
            found.append((at, first - 1))
        at = last + 1
    if at < cursor:
        found.append((at, cursor - 1))
    if backlog.delivered is not None:
        found += backlog.delivered.within(cursor, backlog.redelivered_below - 1)
    elif cursor < backlog.redelivered_below:
        found.append((cursor, backlog.redelivered_below - 1))
    return found


def is_redelivered(backlog: Backlog, seq: int) -> bool:
    """Who gets the message, which is ready, may get it again."""
    if seq < backlog.store.cursor:
        return backlog.undelivered is None or not backlog.undelivered.within(seq, seq)
    return seq < backlog.redelivered_below and (backlog.delivered is None or backlog.delivered.at(seq)[0])
