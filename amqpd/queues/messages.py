"""All that there is of one priority of a queue, or of a queue without priorities: one number in the journal.

What comes in: what the journal has of it. What goes out: its parts, each of which knows those named before it: the
agenda and the store of segments, the backlog over them, and over that what expires, and what is in memory.
Rules: what a queue does with each message it asks of the backlog itself; the rest it asks here, and of a priority
queue in the same words of `levels.py`.
Not here: several priorities (`levels.py`), what the parts do (`store.py`, `backlog.py`, `expiry.py`, `paging.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from amqpd.audit.book import Book
from amqpd.audit.kinds import PURGED
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import RecoveredQueue, Row
from amqpd.queues import claimed
from amqpd.queues.backlog import Backlog
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.expiry import Expiry
from amqpd.queues.paging import Paging
from amqpd.queues.segment import Segment

# Segments, or stretches that came back, that leave in one step of a purge; and what each takes.
PURGED_AT_ONCE_MAX, PURGE_WORK = 200, 3
# Read ahead while the cursor is so near to what is on disk only: one being delivered, one coming.
READ_AHEAD_SEGMENTS = 3


class RowsWanted:
    """Rows of the journal that a level has to read: whose, and of which messages, the first and the last."""

    __slots__ = ("copies", "first", "last", "level", "queue_id")

    def __init__(self, level: Messages, copies: bool, first: int, last: int) -> None:
        self.level = level
        self.copies = copies
        """they are the timetable's"""
        self.queue_id = level.store.agenda.timetable.queue_id if copies else level.queue_id
        self.first = first
        self.last = last

    def loaded(self, rows: list[Row]) -> None:
        """Here they are."""
        if self.copies:
            self.level.paging.copies_loaded(self.first, rows)
        else:
            self.level.paging.loaded(self.first, rows, self.last)


class Messages(Expiry):
    """The messages of a queue, or of one of its priorities: their backlog, expiry and paging, and what is asked of
    these less than once for each message."""

    def __init__(self, queue_id: int, journal: JournalBuffer, durable: bool, fifo_returns: bool = False) -> None:
        super().__init__(Backlog(queue_id, journal, durable, fifo_returns))
        self.queue_id = queue_id
        self.paging = Paging(self.backlog)

    def recover(self, found: RecoveredQueue) -> None:
        """Take over what the journal found on disk. Called once, before anything else."""
        backlog, store = self.backlog, self.store
        for row in found.rows:
            previous = store.segments[-1] if store.segments else None
            segment = Segment.on_disk(row.first_seq, row.last_seq, row.body_bytes, row.published_ms)
            if row.deadlines:
                segment.deadlines = Deadlines.unpack(row.deadlines)
            for first, last in row.settled:
                segment.settle(first, last)
            backlog.ready += segment.left
            backlog.ready_bytes += segment.body_bytes
            if previous is not None and previous.mergeable(segment):
                previous.absorb(segment)
            else:
                store.segments.append(segment)
                store.agenda.recovered(segment)
        store.journalled = True
        store.next_seq = backlog.first_of_incarnation = max(found.next_seq, store.next_seq)
        store.cursor = store.segments[0].first if store.segments else store.next_seq
        backlog.redelivered_below = found.delivered

    def levels(self) -> tuple[Messages, ...]:
        return (self,)

    def keep_books(self, open_book: Callable[[Messages], Book] | None) -> None:
        """Record them in this book from now on; None: do not."""
        if self.backlog.fresh:
            self.backlog.take_in()
        self.store.book = None if open_book is None else open_book(self)

    def transfers(self, transfers: bool) -> None:
        """What expires goes somewhere, so its body is needed."""
        self.backlog.transfers = transfers

    def drop(self) -> None:
        """The queue is deleted."""
        self.backlog.drop()
        self.paging.drop()

    # What clients of other nodes hold

    def hold(self, first: int, last: int) -> list[tuple[int, int]]:
        return claimed.hold(self.backlog, first, last)

    def mark_redelivered(self, first: int, last: int) -> None:
        claimed.mark_redelivered(self.backlog, first, last)

    def mark_newest_redelivered(self, count: int, priority: int | None = None) -> None:
        """As `mark_redelivered`, of this many messages, the last ones that came in. `priority`: theirs."""
        if self.backlog.fresh:
            self.backlog.take_in()
        self.mark_redelivered(self.store.next_seq - count, self.store.next_seq - 1)

    def forget_redelivered(self) -> None:
        claimed.forget_redelivered(self.backlog)

    def redelivered(self) -> list[tuple[int, int]]:
        return claimed.redelivered(self.backlog)

    def is_redelivered(self, seq: int) -> bool:
        return claimed.is_redelivered(self.backlog, seq)

    def purging(self) -> Iterator[tuple[int, int]]:
        """Settle all that is ready now, in steps (queue.purge): each says how many those were, and what it took, in
        the unit of `flow/turns.py`. Between two of them messages may come and go, and the backlog too."""
        backlog, store = self.backlog, self.store
        if backlog.fresh:
            backlog.take_in()
        below = store.next_seq
        while stretches := list(islice(backlog.returned, PURGED_AT_ONCE_MAX)):
            yield sum([backlog.leave(first, last, PURGED) for first, last in stretches]), PURGE_WORK * len(stretches)
        while store.cursor < below and store.segments and store.segments[-1].last >= store.cursor:
            end = min(store.at + PURGED_AT_ONCE_MAX, len(store.segments) - 1)
            last, work = min(below - 1, store.segments[end].last), PURGE_WORK * (end - store.at + 1)
            # What came in since it began may have left memory, and be in one segment with what was there before.
            store.cut_rows(last, last)
            gone = sum([backlog.leave(*part, PURGED) for part in backlog.not_leaving(store.cursor, last)])
            backlog.settle_leaving(store.cursor, last)
            store.cursor = max(store.cursor, last + 1)
            # The last segment may still grow, so the cursor stays in it.
            store.at = max(0, min(store.index_of(store.cursor), len(store.segments) - 1))
            yield gone, work
        if not (backlog.ready or backlog.unacked):
            backlog.wanted = None
        yield from self._purged_bytes()

    def _purged_bytes(self) -> Iterator[tuple[int, int]]:
        """While nothing is ready: of what is on disk only, how much was ready had been estimated."""
        backlog, store = self.backlog, self.store
        at = 0
        while backlog.ready_bytes and not backlog.ready and at < len(store.segments):
            part = store.segments[at : at + PURGED_AT_ONCE_MAX]
            for segment in part:
                if segment.estimated:
                    rest = segment.body_bytes - segment.taken_bytes
                    segment.taken_bytes += rest
                    backlog.ready_bytes -= rest
                    backlog.unacked_bytes += rest
            at += len(part)
            yield 0, len(part)

    # Between memory and disk

    @property
    def damaged(self) -> bool:
        """Some of its rows are."""
        return bool(self.store.damaged)

    @property
    def finished(self) -> int:
        """Segments that were settled as a whole since the start."""
        return self.store.finished

    @property
    def memory_bytes(self) -> int:
        return self.store.memory_bytes

    @property
    def released_bytes(self) -> int:
        return self.store.released_bytes

    @property
    def shrinking(self) -> bool:
        """More segments are to be looked at for what may leave memory."""
        return self.paging.shrinking

    def shrink(self, bytes_max: int) -> int:
        """Let segments leave memory, from the far end on, until at most about `bytes_max` stay."""
        return self.paging.shrink(bytes_max)

    @property
    def wants(self) -> bool:
        """Something of it must be read before anything can go on."""
        return self.paging.wants

    def next_copies(self) -> RowsWanted | None:
        """What has to be read of the timetable now."""
        agenda = self.store.agenda
        if not agenda.has_timetable or agenda.timetable.coming is None:
            return None
        copies = self.paging.next_copies()
        return None if copies is None else RowsWanted(self, True, *copies)

    def next_read(self, ahead: int) -> RowsWanted | None:
        """What has to be read of its own rows now; of what is not wanted yet, this many segments ahead."""
        if (ahead or self.paging.wants) and (found := self.paging.next_read(ahead)) is not None:
            return RowsWanted(self, False, *found)
        return None
