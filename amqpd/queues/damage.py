"""Damage in a queue: where the queue stops, and what may leave it all the same.

What comes in: backlogs with damaged rows (`Segment.damage`). What goes out: what is damaged, as ids; whether the next
message is; messages back in line, or gone without their bodies; lines of the log.
Rules: 1. Nobody gets a damaged message, and nobody gets what stands behind it: a queue whose next message is damaged
is *blocked*. 2. What needs no body goes on: publishes, acknowledgements, purge, expiry and the length limit without a
dead letter exchange. 3. A damaged message that would have to be dead-lettered is back in line, where it blocks. 4.
Damage is told once, and once that it is gone. 5. A client that wants the next message of a blocked queue is refused
with 406, and only that one: a passive declare, an acknowledgement and a deletion go on. If it tries again and again,
that is no read of the disk, and one line of the log a minute.
Not here: how damage is found (`paging.py`), what an operator is shown (`amqpd/node/quarantine.py`) and does about it
(`amqpd/management/damage/damaged_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.audit.kinds import DROPPED
from amqpd.queues.backlog import Backlog
from amqpd.queues.host import Host
from amqpd.queues.levels import Levels
from amqpd.queues.messages import Messages
from amqpd.queues.segment import Segment
from amqpd.queues.settings import QueueSettings
from amqpd.queues.store import SEQ_BITS
from amqpd.vocabulary.records import QueueRecord

FENCED_TOLD_MS = 60_000
"""The log says again after this time that a client was refused because of the damage."""
# Damaged rows of one queue that the log names one by one.
TOLD_MAX = 20
REMEDY = (
    "amqpd message quarantine sets it aside in a file, amqpd message delete deletes it; with --delayed where it is "
    "delayed messages"
)


class QueueDamage(NamedTuple):
    """The damage of one queue. `first` and `last` are ids of messages, of the first damaged row in the line; the
    numbers are those of all that is damaged."""

    first: int
    last: int
    reason: str
    messages: int
    rows: int
    blocked: bool
    """the queue has come to it"""


class QueueFenced(AMQPPreconditionFailed):
    """A client is refused because the next message of the queue is damaged. `told`: the log says so already."""

    def __init__(self, record: QueueRecord, ids: tuple[int, int], told: bool) -> None:
        """`ids`: first and last of what is damaged. AMQP gives a reply text 255 bytes."""
        super().__init__(
            f"messages {ids[0]}..{ids[1]} of queue '{record.name}' in vhost '{record.vhost}' are damaged on the "
            "broker's disk; ask its operator: amqpd message quarantine, or delete"
        )
        self.ids, self.told = ids, told


class DamagedSegment(NamedTuple):
    """A segment whose row is damaged: the ids of its messages, why, and how many of them are not settled."""

    first: int
    last: int
    reason: str
    messages: int
    level: Messages
    segment: Segment

    @property
    def left(self) -> tuple[int, int]:
        """First and last id of what is not settled in it."""
        ranges = self.segment.live_ranges()
        return self.first + ranges[0][0], self.first + ranges[-1][1] - 1


def queue_damage(messages: Messages | Levels) -> QueueDamage | None:
    """What is said of all its damage."""
    found = damaged_segments(messages)
    if not found:
        return None
    first, last = found[0].left
    count, blocked = sum([each.messages for each in found]), blocked_at(messages) is not None
    return QueueDamage(first, last, found[0].reason, count, len(found), blocked)


def damaged_segments(messages: Messages | Levels) -> list[DamagedSegment]:
    """What is known to be damaged, in the order of the line."""
    return [
        _damaged_segment(level, offset, segment)
        for level, offset in _levels(messages)
        for _, segment in sorted(level.store.damaged.items())
    ]


def _damaged_segment(level: Messages, offset: int, segment: Segment) -> DamagedSegment:
    return DamagedSegment(segment.first + offset, segment.last + offset, segment.damage, segment.left, level, segment)


def _levels(messages: Messages | Levels) -> Iterator[tuple[Messages, int]]:
    """Highest priority first; what is added to a number to make the id."""
    for level in sorted(messages.levels(), key=lambda level: -level.queue_id):
        yield level, (level.queue_id - messages.queue_id) << SEQ_BITS


def blocked_at(messages: Messages | Levels) -> DamagedSegment | None:
    """The row of the next message, if it is damaged."""
    for level, offset in _levels(messages):
        if level.backlog.ready:
            stretch = next_damaged(level.backlog)
            if stretch is None:
                return None
            return _damaged_segment(level, offset, level.store.segments[level.store.index_of(stretch[0])])
    return None


def next_damaged(backlog: Backlog) -> tuple[int, int] | None:
    """The ready messages that stand next, if they are damaged: inside one segment."""
    store = backlog.store
    if not store.damaged:
        return None
    if backlog.returned:
        first, last = backlog.returned.first
        return (first, last) if store.segments[store.index_of(first)].damage else None
    seq = store.cursor
    while (index := store.index_of(seq)) < len(store.segments):
        segment = store.segments[index]
        for low, high in segment.live_in(max(seq, segment.first), segment.last):
            for part in backlog.not_leaving(low, high):
                return part if segment.damage else None
        seq = segment.last + 1
    return None


def drop_over_limits(messages: Messages | Levels, settings: QueueSettings) -> int:
    """Of the ready messages that stand next and are damaged, those over the length limit leave, unless they would
    have to be dead-lettered. How many those were."""
    backlog = next((level.backlog for level, _ in _levels(messages) if level.backlog.ready), None)
    stretch = None if backlog is None or settings.dead_letter_exchange is not None else next_damaged(backlog)
    if backlog is None or stretch is None:
        return 0
    first, last = stretch
    segment = backlog.store.segments[backlog.store.index_of(first)]
    levels = list(messages.levels())
    over = 0 if settings.max_length is None else sum(each.backlog.ready for each in levels) - settings.max_length
    if over <= 0:
        nbytes = sum(each.backlog.ready_bytes for each in levels) - (settings.max_length_bytes or 0)
        over = -(-nbytes * segment.left // max(segment.body_bytes, 1))
    return backlog.leave(first, min(last, first + max(over, 1) - 1), DROPPED)


def whole_again(damage: DamagedSegment) -> None:
    """Its row can be read after all: as if it never had been damaged. The queue is to be looked at then."""
    damage.segment.damage = ""
    store = damage.level.store
    del store.damaged[damage.segment.first]
    if damage.segment.deadlines is not None:
        store.agenda.add(damage.segment, 0)


def new_damage(messages: Messages | Levels) -> Iterator[DamagedSegment | str]:
    """Damage that nobody was told of yet; a text, when it is in the copies that the timetable keeps, which the queue
    can do without."""
    for level, offset in _levels(messages):
        store, timetable = level.store, level.store.agenda.timetable
        if store.untold:
            untold = list(islice(reversed(store.damaged.values()), store.untold))
            store.untold = 0
            for segment in reversed(untold):
                yield _damaged_segment(level, offset, segment)
        if timetable.damaged:
            reason, timetable.damaged = timetable.damaged, ""
            yield reason


def log_damage(host: Host, record: QueueRecord, messages: Messages | Levels, told: int) -> int:
    """Log damage that nobody was told of yet, up to a bound. `told`: how much of this queue is by now; the
    same, after that."""
    for each in new_damage(messages):
        if isinstance(each, str):
            host.log("copies_damaged", queue=record.name, vhost=record.vhost, reason=each)
        elif told <= TOLD_MAX:
            _log_segment(host, record, each, last=told == TOLD_MAX)
            told += 1
    return told


def _log_segment(host: Host, record: QueueRecord, damage: DamagedSegment, last: bool) -> None:
    """A line of the log. `last`: the queue has more, which is not told."""
    host.log(
        "queue_fenced",
        queue=record.name,
        vhost=record.vhost,
        first=damage.first,
        last=damage.last,
        reason=damage.reason,
        remedy="more is damaged: amqpd queue show says how much, for delayed messages amqpd status"
        if last
        else REMEDY,
    )
