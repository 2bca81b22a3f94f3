"""Damage in a queue: where the queue stops, and what may leave it all the same.

What comes in: backlogs with damaged rows (`Segment.damage`). What goes out: what is damaged, as ids; whether the next
message is; messages back in line, or gone without their bodies; lines of the log.
Rules: 1. Nobody gets a damaged message, and nobody gets what stands behind it: a queue whose next message is damaged
is *blocked*. 2. What needs no body goes on: publishes, acknowledgements, purge, expiry and the length limit without a
dead letter exchange. 3. A damaged message that would have to be dead-lettered is back in line, where it blocks. 4.
Damage is told once, and once that it is gone.
Not here: how damage is found (`segments.py`), what clients are told (`amqpd/node/fence.py`), what an operator does
about it (`amqpd/management/damaged_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from amqpd.audit.kinds import DROPPED
from amqpd.queues.consumer import cancelling
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.segments import SEQ_BITS

if TYPE_CHECKING:
    from amqpd.queues.backlog import Backlog
    from amqpd.queues.queue import Queue
    from amqpd.queues.segment import Segment

# Damaged rows of one queue that the log names one by one.
TOLD_MAX = 20
REMEDY = "amqpd message quarantine sets it aside in a file, amqpd message delete deletes it"


class Damage(NamedTuple):
    """A damaged row: the ids of its messages, why, and how many of them are not settled."""

    first: int
    last: int
    reason: str
    messages: int
    lane: Backlog
    segment: Segment


def damage_of(queue: Queue) -> list[Damage]:
    """What is known to be damaged, in the order of the line."""
    return [
        _damage(lane, offset, segment)
        for lane, offset in _lanes(queue)
        for _, segment in sorted(lane.damaged.items())
    ]


def _damage(lane: Backlog, offset: int, segment: Segment) -> Damage:
    return Damage(segment.first + offset, segment.last + offset, segment.damage, segment.left, lane, segment)


def _lanes(queue: Queue) -> Iterator[tuple[Backlog, int]]:
    """Highest priority first; what is added to a number to make the id."""
    for lane in sorted(queue.backlog.lanes(), key=lambda lane: -lane.queue_id):
        yield lane, (lane.queue_id - queue.record.id) << SEQ_BITS


def blocked(queue: Queue) -> bool:
    """The next message is damaged."""
    return queue.damage and blocked_at(queue) is not None


def blocked_at(queue: Queue) -> Damage | None:
    """The row of the next message, if it is damaged."""
    for lane, offset in _lanes(queue):
        if lane.ready:
            stretch = next_damaged(lane)
            return None if stretch is None else _damage(lane, offset, lane.segments[lane.index_of(stretch[0])])
    return None


def next_damaged(lane: Backlog) -> tuple[int, int] | None:
    """The ready messages that stand next, if they are damaged: inside one segment."""
    if not lane.damaged:
        return None
    if lane.returned:
        first, last = lane.returned.first
        return (first, last) if lane.segments[lane.index_of(first)].damage else None
    seq = lane.cursor
    while (index := lane.index_of(seq)) < len(lane.segments):
        segment = lane.segments[index]
        for low, high in segment.live_in(max(seq, segment.first), segment.last):
            for part in lane.not_doomed(low, high):
                return part if segment.damage else None
        seq = segment.last + 1
    return None


def drop_over_limits(queue: Queue) -> int:
    """Of the ready messages that stand next and are damaged, those over the length limit leave, unless they would
    have to be dead-lettered. How many those were."""
    backlog, settings = queue.backlog, queue.settings
    lane = next((lane for lane, _ in _lanes(queue) if lane.ready), None)
    stretch = None if lane is None or settings.dead_letter_exchange is not None else next_damaged(lane)
    if lane is None or stretch is None:
        return 0
    first, last = stretch
    segment = lane.segments[lane.index_of(first)]
    over = 0 if settings.max_length is None else backlog.ready - settings.max_length
    if over <= 0:
        nbytes = backlog.ready_bytes - (settings.max_length_bytes or 0)
        over = -(-nbytes * segment.left // max(segment.body_bytes, 1))
    count = lane.leave(first, min(last, first + max(over, 1) - 1), DROPPED)
    queue.facts.dropped += count
    queue.mortality.prune(queue)
    return count


def put_back(lane: Backlog, segment: Segment, first: int, last: int, expired: bool) -> int:
    """The messages first..last of the damaged segment, which are unacked and were to be dead-lettered, are in line
    again, each at its place. How many they are. `expired`: should a dead letter exchange no longer ask for their
    bodies, they expire."""
    lane.settle_doomed(first, last)
    count = 0
    if expired and segment.deadlines is None:
        segment.deadlines = Deadlines()
    for low, high in segment.live_in(first, last):
        count += high - low + 1
        if expired and segment.deadlines is not None:
            segment.deadlines.keep(low, high)
            segment.deadlines.come_back(max(low, lane.cursor), high)
        if low < lane.cursor:
            lane.requeue(low, min(high, lane.cursor - 1))
            low = lane.cursor
        if low <= high:
            nbytes = segment.bytes_in(low, high)
            lane.ready += high - low + 1
            lane.unacked -= high - low + 1
            lane.ready_bytes += nbytes
            lane.unacked_bytes -= nbytes
            if segment.estimated:
                segment.taken_bytes -= nbytes
    return count


def whole_again(queue: Queue, damage: Damage) -> None:
    """Its row can be read after all: as if it never had been damaged."""
    damage.segment.damage = ""
    del damage.lane.damaged[damage.segment.first]
    if damage.segment.deadlines is not None:
        damage.lane.schedule_at(damage.segment, 0)
    look(queue)


def look(queue: Queue) -> None:
    """After damage may have been found, or have gone, and when consumers have taken what they can: tell it once; the
    consumers of a queue that is blocked are cancelled."""
    host, record = queue.host, queue.record
    for lane, offset in _lanes(queue):
        if lane.untold:
            news = list(islice(reversed(lane.damaged.values()), lane.untold))
            lane.untold = 0
            _tell(queue, [_damage(lane, offset, segment) for segment in reversed(news)])
        if lane.timetable.damaged:
            host.log("copies_damaged", queue=record.name, vhost=record.vhost, reason=lane.timetable.damaged)
            lane.timetable.damaged = ""
    damaged = bool(queue.backlog.damaged)
    if queue.damage and not damaged:
        queue.used()
        queue.damage_told = 0
        host.log("queue_fence_cleared", queue=record.name, vhost=record.vhost)
    queue.damage = damaged
    if queue.consumers.count and blocked(queue):
        queue.used()
        queue.backlog.mark_delivered(False)
        host.later(cancelling(queue.consumers.clear()))


def _tell(queue: Queue, found: list[Damage]) -> None:
    for each in found:
        if queue.damage_told > TOLD_MAX:
            return
        last = queue.damage_told == TOLD_MAX
        queue.damage_told += 1
        queue.host.log(
            "queue_fenced",
            queue=queue.record.name,
            vhost=queue.record.vhost,
            first=each.first,
            last=each.last,
            reason=each.reason,
            remedy="more is damaged: amqpd queue show says how much" if last else REMEDY,
        )
