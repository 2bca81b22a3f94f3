"""Messages whose queue is unknown: the journal has them, the metadata store does not have their queue.

What comes in: at the start, what the journal has of queue ids that no queue claims. What goes out: an orphan for each
of them, which an operator may adopt, export or delete; facts of it.
Rules: 1. What is parked stays as it is on disk: it is not dispatched, so nothing of it is delivered, expires or is
paged; no client can name it. 2. The levels of a priority queue have the numbers behind the queue's own: they are one
orphan, whose id is the lowest that the journal has. 3. What the audit log records of it has no name: the log has the
queue's from before.
Not here: which ids are unknown, and which deletions are recorded (`queue_registry.py`); what an operator does with an
orphan (`management/damage/orphan_operations.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from amqpd.audit.book import Book
from amqpd.audit.kinds import WITHDRAWN
from amqpd.faults import QUEUE
from amqpd.journal.records import RecoveredQueue, Row
from amqpd.kernel.rows import parse_row
from amqpd.node.ports import NodePort
from amqpd.queues.facts import Facts
from amqpd.queues.levels import Levels
from amqpd.queues.messages import Messages
from amqpd.queues.segment import Segment
from amqpd.queues.settings import PRIORITY_MAX
from amqpd.queues.states import QueueState
from amqpd.vocabulary.records import QueueRecord

REMEDY = "`amqpd orphans list` says what they are, `amqpd orphans adopt`, `export` and `delete` end it"


class Orphan:
    """Messages in the journal without a queue. Nothing acts on them by itself."""

    def __init__(self, node: NodePort, found: Mapping[int, RecoveredQueue]) -> None:
        """`found`: what the journal has of its id, or of the ids of its levels."""
        self.ids = sorted(found)
        base = self.ids[0]
        self.record = QueueRecord("", f"orphan {base}", base)
        self.lane = node.journal.lane_of(base)
        self.state = QueueState.PARKED
        self.facts = Facts(node.now_ms)
        self.audit_level: str | None = node.books.strongest.text
        self.recorded_share = 0
        self.messages: Messages | Levels
        self.busy = ""
        """what is being done to it, if anything is: one thing at a time"""
        if len(found) > 1:
            self.messages = levels = Levels(base, node.journal, self.record.durable, PRIORITY_MAX)
            for queue_id in self.ids:
                levels.recover(queue_id - base, found[queue_id])
        else:
            self.messages = Messages(base, node.journal, self.record.durable)
            self.messages.recover(found[base])
        self.facts.begin(self.ready_count)

    @property
    def id(self) -> int:
        return self.record.id

    @property
    def ready_count(self) -> int:
        return sum([level.backlog.ready for level in self.levels()])

    @property
    def ready_bytes(self) -> int:
        return sum([level.backlog.ready_bytes for level in self.levels()])

    @property
    def unacked_count(self) -> int:
        return sum([level.backlog.unacked for level in self.levels()])

    def levels(self) -> Iterable[Messages]:
        return self.messages.levels()

    def keep_books(self, open_book: Callable[[Messages], Book] | None) -> None:
        self.messages.keep_books(open_book)

    def withdrawn(self, count: int) -> None:
        """An operator took this many of its messages out."""
        self.facts.withdrawn += count

    def drop(self) -> int:
        """What it has leaves the disk with the journal's next transaction; how many messages that were."""
        count = self.ready_count
        for level in self.levels():
            if level.store.book is not None:
                for first, last, _ in level.backlog.standing():
                    level.store.book.ended(first, last, WITHDRAWN)
                level.store.book = None
        self.state = QueueState.DELETED
        self.messages.drop()
        return count

    def levels_in_order(self) -> list[Messages]:
        """Of the highest priority first, as they would have been delivered."""
        return sorted(self.levels(), key=attrgetter("queue_id"), reverse=True)

    def facts_of(self) -> dict[str, Any]:
        """Times are in ms since the epoch, None when not known. The newest one is that of the last row, whose later
        messages may have come a little later."""
        levels = [level for level in self.levels() if level.store.segments]
        oldest = [level.store.segments[0].published_ms for level in levels]
        newest = [level.store.segments[-1].arrival(level.store.segments[-1].size - 1) for level in levels]
        return {
            "id": str(self.id),  # a text: programs that keep numbers as floats would change it
            "messages": self.ready_count,
            "bytes": self.ready_bytes,
            "levels": len(levels),
            "oldest_ms": min(filter(None, oldest), default=None),
            "newest_ms": max(filter(None, newest), default=None),
            "persistent": True,  # what is not leaves the journal when it is opened
            "busy": self.busy,
        }


class Orphans:
    """All orphans of a node, by id."""

    def __init__(self, node: NodePort) -> None:
        self._node = node
        self._by_id: dict[int, Orphan] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Orphan]:
        return iter(self._by_id.values())

    @property
    def messages(self) -> int:
        return sum(orphan.ready_count for orphan in self)

    def get(self, queue_id: int) -> Orphan | None:
        return self._by_id.get(queue_id)

    def park(self, found: Mapping[int, RecoveredQueue]) -> None:
        """Keep what the journal has of these ids. What contradicts itself is in the log, and stays on the disk."""
        for ids in grouped(found):
            try:
                orphan = Orphan(self._node, {queue_id: found[queue_id] for queue_id in ids})
            except Exception as error:  # noqa: BLE001 - one orphan's; faults reports it, or raises it on
                self._node.faults.contain(QUEUE, f"orphan {ids[0]}", error)
                continue
            self._by_id[orphan.id] = orphan

    def forget(self, orphan: Orphan) -> None:
        """Somebody else has its messages now, or the transaction with their end (`Orphan.drop`) is durable; not
        before: its id may be used again (`delayed_id`), and a row that is in the same transaction as the end of its
        queue is not written."""
        del self._by_id[orphan.id]
        self._node.books.gone(orphan)


def grouped(ids: Iterable[int]) -> list[list[int]]:
    """Ids that are the levels of one queue, together. (They are drawn from 2^63, so no others are so near.)"""
    found: list[list[int]] = []
    for queue_id in sorted(ids):
        if found and queue_id - found[-1][0] <= PRIORITY_MAX:
            found[-1].append(queue_id)
        else:
            found.append([queue_id])
    return found


def parted(
    found: Mapping[int, RecoveredQueue], unknown: Iterable[int], dropped: Collection[int]
) -> tuple[list[int], dict[int, RecoveredQueue]]:
    """Of ids that no queue claims: those to drop, and those to park. `dropped` are the ids of queues whose deletion
    is recorded, each with those of its levels. Where there is no message, nothing is lost."""
    gone: list[int] = []
    parked: dict[int, RecoveredQueue] = {}
    ends = sorted(dropped)
    at = 0
    for ids in grouped(unknown):
        left = []
        for queue_id in ids:
            while at < len(ends) and ends[at] + PRIORITY_MAX < queue_id:
                at += 1
            if at < len(ends) and ends[at] <= queue_id:
                gone.append(queue_id)
            else:
                left.append(queue_id)
        if any(found[queue_id].rows for queue_id in left):
            # Levels without a message stay with the others: the lowest id is the orphan's, also after a restart.
            parked.update((queue_id, found[queue_id]) for queue_id in left)
        else:
            gone += left
    return gone, parked


def deleted_of(ids: Iterable[int], dropped: Collection[int]) -> set[int]:
    """Those of the ids that are of queues, or levels of queues, whose deletion is recorded."""
    ends = sorted(dropped)
    found = set()
    for queue_id in ids:
        at = bisect_right(ends, queue_id)
        if at and queue_id - ends[at - 1] <= PRIORITY_MAX:
            found.add(queue_id)
    return found


def done_with(dropped: Iterable[int], in_journal: Iterable[int]) -> set[int]:
    """Of the ids of queues whose deletion is recorded, those that the journal has nothing of any more, nor of their
    levels: the record of the deletion has done its work."""
    present = sorted(in_journal)
    found = set()
    for queue_id in dropped:
        at = bisect_left(present, queue_id)
        if at == len(present) or present[at] - queue_id > PRIORITY_MAX:
            found.add(queue_id)
    return found


def bodies_of(row: Row) -> Segment:
    """The row's messages, as a segment that belongs to no queue. When they cannot be parsed, `row.damage` says so,
    and the segment has none."""
    bodies = Segment.on_disk(row.first_seq, row.last_seq, row.body_bytes, row.published_ms)
    if not row.damage:
        try:
            bodies.load(parse_row(row.data))
        except ValueError as error:
            row.damage = f"messages {row.first_seq}..{row.last_seq} of queue {row.queue_id} are not messages: {error}"
    return bodies


def live(level: Messages, row: Row) -> list[tuple[int, int]]:
    """(first, last) of the row's messages that are not settled."""
    return level.store.live_in(row.first_seq, row.last_seq)
