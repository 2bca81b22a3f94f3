"""The messages of a priority queue: a level for each priority that occurs.

What comes in and goes out: what a `Backlog` and a `Messages` take and give, so that the queue does not know the
difference.
Rules: 1. The highest priority with something ready is served first; inside a priority the order is the one of
publication. 2. A message with more than the queue's maximum has the maximum, one without any has 0. 3. Each level has
its own sequence numbers and its own number in the journal: the queue's id plus the priority. Outside, the upper bits
of a sequence number say the level.
Not here: order inside a level (`backlog.py`).

Source: https://www.rabbitmq.com/docs/priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from amqpd.audit.book import Book
from amqpd.audit.kinds import ACKED
from amqpd.audit.publication import Publication
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import RecoveredQueue
from amqpd.kernel import Run
from amqpd.queues.consumer import Piece
from amqpd.queues.expiry import Leaving, Transfer
from amqpd.queues.messages import Messages, RowsWanted
from amqpd.queues.store import SEQ_BITS

# Sequence numbers below this are the level's own: SQLite's integers have 63 bits, priorities 8.
SEQ_MASK = (1 << SEQ_BITS) - 1


class Levels:
    """The messages of a queue with priorities, with the methods of `Messages`: sequence numbers have the priority
    above the level's own."""

    def __init__(self, queue_id: int, journal: JournalBuffer, durable: bool, max_priority: int) -> None:
        self.queue_id = queue_id
        self.max_priority = max_priority
        self._journal = journal
        self._durable = durable
        self._levels: dict[int, Messages] = {}
        self._order: list[tuple[int, Messages]] = []
        """highest priority first"""
        self.arrived_ms = 0
        self._transfers = False
        self._transferring_from = 0
        self._open_book: Callable[[Messages], Book] | None = None

    def keep_books(self, open_book: Callable[[Messages], Book] | None) -> None:
        """Begin or end the ledgers that the audit log needs."""
        self._open_book = open_book
        for level in self.levels():
            level.keep_books(open_book)

    def level_of(self, seq: int) -> Messages:
        return self._levels[seq >> SEQ_BITS]

    def transfers(self, transfers: bool) -> None:
        """What expires goes somewhere, so its body is needed."""
        self._transfers = transfers
        for level in self.levels():
            level.transfers(transfers)

    def recover(self, priority: int, found: RecoveredQueue) -> None:
        """Take over what the journal has of one level."""
        self._level(priority).recover(found)

    def levels(self) -> Iterator[Messages]:
        return iter(self._levels.values())

    def _level(self, priority: int) -> Messages:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = Messages(self.queue_id + priority, self._journal, self._durable)
            level.transfers(self._transfers)
            if self._open_book is not None:
                level.store.book = self._open_book(level)
            self._order = sorted(self._levels.items(), reverse=True)
        return level

    def publish(
        self,
        run: Run,
        persistent: bool,
        now_ms: int,
        deadline_ms: int | None = None,
        publication: Publication | None = None,
        priority: int | None = None,
    ) -> bool:
        level = self._level(min(priority or 0, self.max_priority))
        return level.backlog.publish(run, persistent, now_ms, deadline_ms, publication)

    def take(self, limit: int, nbytes: int = 0, alike: bool = False) -> Piece | None:
        for priority, level in self._order:
            backlog = level.backlog
            if backlog.ready:
                piece = backlog.take(limit, nbytes, alike)
                if piece is None:
                    return None
                self.arrived_ms = backlog.arrived_ms
                run, low, high, seq, redelivered = piece
                return run, low, high, priority << SEQ_BITS | seq, redelivered
        return None

    def settle(self, first: int, last: int, cause: int = ACKED, instead: int = 0) -> int:
        return self._levels[first >> SEQ_BITS].backlog.settle(first & SEQ_MASK, last & SEQ_MASK, cause, instead)

    def transfer(self, first: int, last: int, transfer: Transfer, cause: int) -> tuple[int, int, int]:
        self._transferring_from = first >> SEQ_BITS
        count, back, stopped = self._levels[first >> SEQ_BITS].transfer(
            first & SEQ_MASK, last & SEQ_MASK, transfer, cause
        )
        return count, back, (first & ~SEQ_MASK) + stopped

    @property
    def transferring(self) -> int:
        """As that of a backlog: the number of the message that `transfer` speaks of now."""
        priority = self._transferring_from
        return priority << SEQ_BITS | self._levels[priority].backlog.transferring

    def requeue(self, first: int, last: int) -> None:
        self._levels[first >> SEQ_BITS].backlog.requeue(first & SEQ_MASK, last & SEQ_MASK)

    # What clients of other nodes hold

    def hold(self, first: int, last: int) -> list[tuple[int, int]]:
        return [
            (priority << SEQ_BITS | low, priority << SEQ_BITS | high)
            for priority, level, begin, end in self._parts(first, last)
            for low, high in level.hold(begin, end)
        ]

    def mark_redelivered(self, first: int, last: int) -> None:
        for _, level, begin, end in self._parts(first, last):
            level.mark_redelivered(begin, end)

    def mark_newest_redelivered(self, count: int, priority: int | None = None) -> None:
        """`priority`: of the run that has come."""
        self._level(min(priority or 0, self.max_priority)).mark_newest_redelivered(count)

    def forget_redelivered(self) -> None:
        for level in self.levels():
            level.forget_redelivered()

    def redelivered(self) -> list[tuple[int, int]]:
        return [
            (priority << SEQ_BITS | first, priority << SEQ_BITS | last)
            for priority, level in sorted(self._levels.items())
            for first, last in level.redelivered()
        ]

    def _parts(self, first: int, last: int) -> list[tuple[int, Messages, int, int]]:
        """(priority, level, first, last) of what the levels have numbers for: others may name any."""
        return [
            (priority, level, max(first - begin, 0), min(last - begin, SEQ_MASK))
            for priority, level in sorted(self._levels.items())
            if (begin := priority << SEQ_BITS) <= last and first <= begin + SEQ_MASK
        ]

    def purging(self) -> Iterator[tuple[int, int]]:
        """Settle all that is ready now, level by level, in steps."""
        for level in list(self.levels()):
            yield from level.purging()

    def expire(
        self, now_ms: int, transfer: Transfer | None, leaving: Leaving, cause: int, work_max: int
    ) -> tuple[int, int]:
        """What is ready and whose deadline is `now_ms` or earlier is not ready any more."""
        count = work = 0
        for priority, level in list(self._levels.items()):
            gone, took = level.expire(
                now_ms, transfer, partial(_leaving_in, leaving, priority), cause, work_max - work
            )
            count += gone
            work += took
        return count, work

    def expire_in_line(self, now_ms: int, leaving: Leaving) -> int:
        """What is due and would be delivered next goes, while `expire` waits for a read."""
        return sum(
            [
                level.expire_in_line(now_ms, partial(_leaving_in, leaving, priority))
                for priority, level in self._levels.items()
            ]
        )

    def expire_returned(self, now_ms: int, leaving: Leaving) -> None:
        """As `expire_in_line`, of what came back and is the next to be delivered."""
        for priority, level in self._levels.items():
            level.expire_returned(now_ms, partial(_leaving_in, leaving, priority))

    @property
    def finished(self) -> int:
        """Segments that were settled as a whole since the start."""
        return sum([level.finished for level in self.levels()])

    @property
    def due(self) -> bool:
        """Some message may have a deadline."""
        return any(level.backlog.due for level in self.levels())

    @property
    def instants(self) -> bool:
        return any(level.backlog.instants for level in self.levels())

    def end_instants(self, now_ms: int) -> None:
        for level in self.levels():
            level.end_instants(now_ms)

    @property
    def next_due_ms(self) -> int | None:
        return min((due for level in self.levels() if (due := level.next_due_ms) is not None), default=None)

    def oldest_ms(self) -> int | None:
        return min((at for level in self.levels() if (at := level.backlog.oldest_ms()) is not None), default=None)

    def mark_delivered(self, ahead: bool) -> None:
        for level in self.levels():
            level.backlog.mark_delivered(ahead)

    def drop(self) -> None:
        for level in self.levels():
            level.drop()

    @property
    def damaged(self) -> bool:
        """Some of its rows are."""
        return any(level.damaged for level in self.levels())

    @property
    def wants(self) -> bool:
        """Something of it must be read before anything can go on."""
        return any(level.wants for level in self.levels())

    def next_copies(self) -> RowsWanted | None:
        """What has to be read of the timetable now."""
        for level in self.levels():
            if (request := level.next_copies()) is not None:
                return request
        return None

    def next_read(self, ahead: int) -> RowsWanted | None:
        """What has to be read of its own rows now."""
        for level in self.levels():
            if (request := level.next_read(ahead)) is not None:
                return request
        return None

    @property
    def shrinking(self) -> bool:
        """More segments are to be looked at for what may leave memory."""
        return any(level.shrinking for level in self.levels())

    def shrink(self, bytes_max: int) -> int:
        """The lowest priority leaves memory first: it is delivered last."""
        left, work = self.memory_bytes, 0
        for _, level in reversed(self._order):
            if left <= bytes_max:
                break
            before = level.memory_bytes
            work += level.shrink(max(0, before - (left - bytes_max)))
            left -= before - level.memory_bytes
        return work

    @property
    def ready(self) -> int:
        return sum(level.backlog.ready for level in self.levels())

    @property
    def unacked(self) -> int:
        return sum(level.backlog.unacked for level in self.levels())

    @property
    def ready_bytes(self) -> int:
        return sum(level.backlog.ready_bytes for level in self.levels())

    @property
    def unacked_bytes(self) -> int:
        return sum(level.backlog.unacked_bytes for level in self.levels())

    @property
    def memory_bytes(self) -> int:
        return sum(level.memory_bytes for level in self.levels())

    @property
    def released_bytes(self) -> int:
        return sum(level.released_bytes for level in self.levels())


def _leaving_in(leaving: Leaving, priority: int, first: int, last: int) -> None:
    leaving(priority << SEQ_BITS | first, priority << SEQ_BITS | last)
