"""What stands where in a queue: its messages as stretches, without taking any of them.

What comes in: a queue, positions, ids. What goes out: `Stretch`es of messages that are ready, in the order in which
they would be delivered, or unacked; the runs of a stretch.
Rules: 1. The id of a message is its sequence number, stable as long as the message is in the queue; with priorities
the level is in the upper bits. 2. A position is that among the ready ones, and 1 is delivered next. 3. The queue may
change between two stretches: what has gone by then is left out, and what has come is not looked for. 4. Nothing is
read and nothing is kept in the queue for it.
Not here: bodies on disk (`amqpd/management/messages/operations.py` reads them), what messages say (`contents.py`),
taking messages out (`amqpd/management/messages/repair.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from amqpd.journal.records import Row
from amqpd.kernel import Run
from amqpd.kernel.rows import parse_row
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.dispatchable import Paged
from amqpd.queues.messages import Messages
from amqpd.queues.paging import unlike
from amqpd.queues.segment import Segment
from amqpd.queues.store import SEQ_BITS

READY, UNACKED = "ready", "unacked"
ID_MAX = (1 << 63) - 1

Ids = Sequence[tuple[int, int]]
"""first and last id of each stretch that is meant, ascending and disjoint"""
EVERY: Ids = ((0, ID_MAX),)


class Stretch(NamedTuple):
    """Messages first..last, sequence numbers of `level`, inside one segment when they were found. `position` is that
    of the first one, None when they are not ready."""

    level: Messages
    first: int
    last: int
    state: str
    position: int | None


def ready(queue: Paged, start: int = 1, ids: Ids = EVERY) -> Iterator[Stretch]:
    """What is ready, from the position `start` on, and of that what `ids` mean; as it would be delivered."""
    position = 1
    for level in _levels(queue):
        wanted, end = _inside(queue, level, ids), level.store.next_seq - 1
        for stretch in list(level.backlog.returned):
            for first, last in level.backlog.returned.within(*stretch):
                yield from _chosen(level, first, last, position, start, wanted)
                position += last - first + 1
        seq = 0
        while True:
            seq = max(seq, level.store.cursor)
            index = level.store.index_of(seq)
            if seq > end or index == len(level.store.segments):
                break
            segment = level.store.segments[index]
            # All that is left of it is ready: it can be passed over as a whole.
            all_ready = seq <= segment.first and segment.last <= end and not level.backlog.leaving
            unwanted = position + segment.left <= start or not _cut(segment.first, segment.last, wanted)
            if all_ready and unwanted:
                position += segment.left
                seq = segment.last + 1
                continue
            found = _next_live(segment, seq, end)
            if found is None:
                seq = segment.last + 1
                continue
            for first, last in available(level, *found):
                yield from _chosen(level, first, last, position, start, wanted)
                position += last - first + 1
            seq = found[1] + 1


def unacked(queue: Paged, ids: Ids = EVERY) -> Iterator[Stretch]:
    """What was delivered and is not settled, by id; then what has expired and waits to be dead-lettered. Of the
    highest priority first."""
    for level in _levels(queue):
        wanted, seq = _inside(queue, level, ids), 0
        while (index := level.store.index_of(seq)) < len(level.store.segments):
            segment = level.store.segments[index]
            found = _next_live(segment, seq, level.store.cursor - 1)
            if found is None:
                seq = segment.last + 1
                if seq >= level.store.cursor:
                    break
                continue
            for part in _cut(*found, wanted):
                for first, last in _without(*part, level.backlog.returned.within(*part)):
                    yield Stretch(level, first, last, UNACKED, None)
            seq = found[1] + 1
        for leaving in list(level.backlog.leaving):
            for first, last in _cut(*leaving, wanted):
                yield Stretch(level, first, last, UNACKED, None)


def still(stretch: Stretch, first: int, last: int) -> list[tuple[int, int]]:
    """What of first..last, which is a part of the stretch, is there and in that state at this moment."""
    level, found = stretch.level, []
    while first <= last:
        index = level.store.index_of(first)
        if index == len(level.store.segments) or (segment := level.store.segments[index]).first > last:
            break
        for part in segment.live_in(max(first, segment.first), min(last, segment.last)):
            in_line = available(level, *part)
            found += in_line if stretch.state == READY else _without(*part, in_line)
        first = segment.last + 1
    return found


def available(level: Messages, first: int, last: int) -> list[tuple[int, int]]:
    """Which of the unsettled messages first..last of one segment somebody could get, in order."""
    parts = level.backlog.ready_in(first, last)
    return [each for part in parts for each in level.backlog.not_leaving(*part)] if level.backlog.leaving else parts


def id_of(queue_id: int, level: Messages, seq: int) -> int:
    """`queue_id`: that of the queue which the level is of."""
    return _offset(queue_id, level) + seq


def body_segment(row: Row) -> Segment:
    """The row, read for a look only: a segment that belongs to no queue. One that is damaged is without bodies."""
    segment = Segment.on_disk(row.first_seq, row.last_seq, row.body_bytes, row.published_ms)
    if row.damage:
        segment.damage = row.damage
        return segment
    try:
        segment.load(parse_row(row.data))
        if row.deadlines:
            segment.deadlines = Deadlines.unpack(row.deadlines)
    except ValueError as error:
        segment.evict()
        segment.damage = unlike(error)
    return segment


def runs_in(bodies: Segment, first: int, last: int) -> Iterator[tuple[Run, int, int, int]]:
    """The messages first..last, none of them settled when `bodies` is a queue's own: (run, from, to, the sequence
    number of the first)."""
    while first <= last:
        run, start, stop = bodies.alike(first - bodies.first, last - bodies.first + 1)
        yield run, start, stop, first
        first += stop - start


def _levels(queue: Paged) -> list[Messages]:
    """Highest priority first."""
    return sorted(queue.levels(), key=attrgetter("queue_id"), reverse=True)


def _offset(queue_id: int, level: Messages) -> int:
    return (level.queue_id - queue_id) << SEQ_BITS


def _inside(queue: Paged, level: Messages, ids: Ids) -> Ids:
    """The ids that are the level's, as its sequence numbers."""
    offset = _offset(queue.record.id, level)
    return [(low - offset, high - offset) for low, high in _cut(offset, offset + (1 << SEQ_BITS) - 1, ids)]


def _cut(first: int, last: int, stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What of the stretches lies in first..last."""
    return [(max(first, low), min(last, high)) for low, high in stretches if low <= last and high >= first]


def _without(first: int, last: int, holes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """first..last without the holes, which are ascending and lie in it."""
    found = []
    for low, high in holes:
        if first < low:
            found.append((first, low - 1))
        first = high + 1
    if first <= last:
        found.append((first, last))
    return found


def _next_live(segment: Segment, seq: int, end: int) -> tuple[int, int] | None:
    """The first stretch of the segment that is not settled, from `seq` on and not beyond `end`."""
    low, high = segment.next_live(max(seq - segment.first, 0), segment.size)
    first, last = segment.first + low, min(segment.first + high - 1, end)
    return (first, last) if first <= last else None


def _chosen(level: Messages, first: int, last: int, position: int, start: int, wanted: Ids) -> Iterator[Stretch]:
    if position < start:
        first += start - position
        position = start
    for low, high in _cut(first, last, wanted) if first <= last else ():
        yield Stretch(level, low, high, READY, position + low - first)
