"""Messages that wait on disk for their time, a second time and in the order of their times.

What comes in: segments that leave memory, whose messages expire in another order than they stand in the queue, and
whose bodies will be needed then (dead letters, delayed messages). What goes out: those messages, when their time has
come.
Rules: 1. Without this, each of a million messages would need the row that it stands in read again, for one message
out of a thousand. So their frames are written once more: some megabytes are gathered, sorted by deadline, and
written as rows of their own, a batch. 2. Of each batch only the row that falls due next is in memory, read some
seconds before its time: a thirtieth of what is on disk, which the queue's limit does not count. 3. A copy is
transient whatever the message is: deadlines and bodies are recovered from the message's own row, and copied again.
4. What is in here may be settled, delivered or expired by now: what takes it asks the backlog. 5. A batch goes
when all its rows have expired, or all segments it was made of. 6. A batch with a damaged row is given up (`lost`),
and the messages' own rows are read instead.
Not here: which messages are ready (`backlog.py`), messages that fall due in order, whose own rows are as good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import sha256
from heapq import heappop, heappush

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import Row
from amqpd.kernel import Run
from amqpd.kernel.rows import parse_row
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.segment import Segment

# What is sorted together, and what of it is read at once. A million messages of 100 bytes are 60 batches.
BATCH_BYTES = 4 * 1024 * 1024
ROW_BYTES = 128 * 1024
# How long before its time a row is read: many times what a read takes on a busy node.
AHEAD_MS = 3000

Entry = tuple[int, int, Run, int, int]
"""deadline, sequence number of the first message, the run, where in it, how many messages"""
Due = tuple[int, int, Run, int]
"""the messages first..last are the run's, from this number on"""


class CopyBatch:
    """A batch of copies in a timetable: its number, by which segments name it; of how many segments that still
    have messages; its rows."""

    __slots__ = ("number", "rows", "sources")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sources = 0
        self.rows: list[_Copies] = []


class _Copies:
    """One row of copies, and what of it is in memory."""

    __slots__ = ("at", "batch", "entries", "first_ms", "segment")

    def __init__(self, segment: Segment, first_ms: int, batch: CopyBatch) -> None:
        self.segment = segment
        self.batch = batch
        self.first_ms = first_ms
        self.entries: list[Entry] | None = None
        self.at = 0
        """entries before it are done with"""


class Timetable:
    """The copies of one backlog's messages that wait on disk for their deadlines. It stands among the backlog's
    segments where it is looked up what is due next: hence `first` and `due_ms`."""

    first = -1

    def __init__(self, queue_id: int, journal: JournalBuffer) -> None:
        self.due_ms: int | None = None
        self.queue_id = 0
        """of the copies, in the journal"""
        self._of = queue_id
        self._journal = journal
        self._number = 0
        """of the last batch"""
        self._begin()

    def _begin(self) -> None:
        self._next = 0
        self._gathered: list[Entry] = []
        """a heap"""
        self._gathered_bytes = 0
        self._batches: dict[int, CopyBatch] = {}
        """those of which some segment still has messages"""
        self._batch = self._next_batch()
        self._writing: list[Entry] = []
        """the heap that was gathered before, while its rows are made one by one"""
        self._written = self._batch
        """what it is a batch of"""
        self._unwritten: deque[_Copies] | None = None
        """in memory until the journal has them; None for none yet"""
        self._later: list[tuple[int, int, _Copies]] = []
        self._soon: list[tuple[int, int, _Copies]] = []
        """heaps: rows that are on disk or need not be read yet, rows with entries; by deadline"""
        self.coming: _Copies | None = None
        """wanted, or being read"""
        self.lost: frozenset[int] = frozenset()
        """batches given up; what they were made of has to be read"""
        self.damaged = ""
        """why one was given up, until it is told"""

    def drop(self) -> None:
        """The queue is deleted: nothing waits any more."""
        if self._next:
            self._journal.drop(self.queue_id)
        self._begin()
        self.due_ms = None

    def _next_batch(self) -> CopyBatch:
        self._number += 1
        return CopyBatch(self._number)

    def take_over(self, segment: Segment) -> None:
        """The segment, whose bodies are about to leave memory: its deadlines are kept here from now on, except what
        is overdue."""
        assert segment.deadlines is not None
        self._release()
        deadlines = segment.deadlines.by_message()
        for first, last, deadline_ms in deadlines:
            for low, high in segment.live_in(first, last):
                at = low
                while at <= high:
                    run, start, stop = segment.alike(at - segment.first, high - segment.first + 1)
                    heappush(self._gathered, (deadline_ms, at, run, start, stop - start))
                    self._gathered_bytes += run.stride * (stop - start)
                    at += stop - start
        segment.batch = self._batch.number
        self._batches[segment.batch] = self._batch
        self._batch.sources += 1
        segment.deadlines = segment.deadlines.overdue_alone()
        if self._gathered_bytes >= BATCH_BYTES and not self._writing:
            self._writing, self._written = self._gathered, self._batch
            self._gathered, self._gathered_bytes, self._batch = [], 0, self._next_batch()

    def write_row(self) -> int:
        """The next row of the batch that is written, if one is: with 2,000 small messages it takes some milliseconds.
        How many pieces it has."""
        if not self._writing:
            return 0
        if not self._next:
            # New each time: a number that was dropped must not come again in the transaction that drops it.
            said = b"copies of %d at %d" % (self._of, self._journal.index)
            self.queue_id = int.from_bytes(sha256(said).digest()[:8], "big") >> 1
        segment, deadlines = Segment(self._next, False), Deadlines()
        copies = _Copies(segment, self._writing[0][0], self._written)
        pieces = 0
        while self._writing and segment.nbytes < ROW_BYTES:
            pieces += 1
            deadline_ms, first, run, low, count = heappop(self._writing)
            segment.add(run if count == run.count else run.part(low, low + count), 0)
            deadlines.add(deadline_ms, first, first + count - 1)
        segment.deadlines = deadlines
        self._next = segment.last + 1
        self._written.rows.append(copies)
        self._journal.append(self.queue_id, segment)
        if self._unwritten is None:
            self._unwritten = deque()
        self._unwritten.append(copies)
        heappush(self._later, (copies.first_ms, segment.first, copies))
        return pieces

    def forget(self, number: int) -> None:
        """One of the segments of the batch has no messages any more."""
        batch = self._batches.get(number)
        if batch is None:
            return  # of before the queue was deleted
        batch.sources -= 1
        if batch.sources:
            return
        del self._batches[number]
        if batch is self._batch:
            self._gathered, self._gathered_bytes = [], 0
        self._end(batch)

    def next_ms(self) -> int | None:
        """When there is something to do: messages are due, or a row has to be read."""
        times = [heap[0][0] for heap in (self._gathered, self._writing, self._live(self._soon)) if heap]
        if self.coming is None and self._live(self._later):
            times.append(self._later[0][0] - AHEAD_MS)
        return min(times, default=None)

    @property
    def earliest_ms(self) -> int | None:
        """The first deadline of all."""
        heaps = (self._gathered, self._writing, self._live(self._soon), self._live(self._later))
        times = [heap[0][0] for heap in heaps if heap]
        if self.coming is not None:
            times.append(self.coming.first_ms)
        return min(times, default=None)

    def due(self, now_ms: int) -> Iterator[Due]:
        """What is due, in the order of the deadlines as far as it is in memory. Nothing is told twice."""
        self._release()
        later = self._live(self._later)
        while later and later[0][0] - AHEAD_MS <= now_ms and self.coming is None:
            copies = heappop(later)[2]
            if copies.segment.runs is None:
                self.coming = copies
            else:
                assert copies.segment.deadlines is not None
                self._ready(copies, copies.segment.runs, copies.segment.deadlines)
        soon = self._live(self._soon)
        while soon and soon[0][0] <= now_ms:
            copies = soon[0][2]
            assert copies.entries is not None
            _, first, run, low, count = copies.entries[copies.at]
            copies.at += 1
            heappop(soon)
            if copies.at < len(copies.entries):
                heappush(soon, (copies.entries[copies.at][0], copies.segment.first, copies))
            else:
                self._over(copies)
            yield first, first + count - 1, run, low
            soon = self._live(self._soon)
        while self._writing and self._writing[0][0] <= now_ms:
            _, first, run, low, count = heappop(self._writing)
            yield first, first + count - 1, run, low
        while self._gathered and self._gathered[0][0] <= now_ms:
            _, first, run, low, count = heappop(self._gathered)
            self._gathered_bytes -= run.stride * count
            yield first, first + count - 1, run, low

    def next_read(self) -> tuple[int, int] | None:
        """First and last number of the row that is `coming`; None when it need not be any more: `next_ms` may be
        earlier then."""
        copies = self.coming
        if copies is not None and not copies.segment.left:
            copies = self.coming = None
        return None if copies is None else (copies.segment.first, copies.segment.last)

    def loaded(self, first: int, rows: list[Row]) -> None:
        """These copies were read back. What is `lost` then has to be read."""
        copies, self.coming = self.coming, None
        if copies is not None and copies.segment.left:
            damage = "the journal has no row for these copies"
            if rows and rows[0].first_seq == first == copies.segment.first:
                damage = rows[0].damage
                try:
                    if not damage:
                        self._ready(copies, parse_row(rows[0].data), Deadlines.unpack(rows[0].deadlines))
                except (ValueError, IndexError) as error:
                    damage = f"the journal's row for these copies is not what was written: {error}"
            if damage:
                self.damaged = damage
                self._end(copies.batch)
                self.lost |= {copies.batch.number}

    def _end(self, batch: CopyBatch) -> None:
        """Its rows are not needed any more, nor made."""
        if batch is self._written:
            self._writing = []
        for copies in batch.rows:
            self._over(copies)
        batch.rows = []

    def _ready(self, copies: _Copies, runs: list[Run], deadlines: Deadlines) -> None:
        copies.entries = list(_entries(runs, deadlines.by_deadline()))
        heappush(self._soon, (copies.entries[0][0], copies.segment.first, copies))

    def _release(self) -> None:
        """What the journal has by now needs no memory until its time comes near."""
        unwritten = self._unwritten
        while unwritten:
            segment = unwritten[0].segment
            if segment.left and not (segment.stored and segment.index <= self._journal.stored_index):
                return
            unwritten.popleft()
            segment.evict()
            segment.deadlines = None

    def _over(self, copies: _Copies) -> None:
        """The row is not needed any more."""
        segment = copies.segment
        if segment.left:
            segment.left = 0
            copies.entries = None
            if segment.stored:
                self._journal.retire(self.queue_id, segment.first, segment.last)

    def _live(self, heap: list[tuple[int, int, _Copies]]) -> list[tuple[int, int, _Copies]]:
        """The heap, with a row on top that is not over."""
        while heap and not heap[0][2].segment.left:
            heappop(heap)
        return heap


def _entries(runs: list[Run], deadlines: Iterable[tuple[int, int, int]]) -> Iterator[Entry]:
    """The messages of the runs, to which the stretches (deadline, first, last) belong in this order. Raises
    IndexError when there are fewer messages."""
    index = low = 0
    for deadline_ms, first, last in deadlines:
        while first <= last:
            run = runs[index]
            count = min(run.count - low, last - first + 1)
            yield deadline_ms, first, run, low, count
            first += count
            low += count
            if low == run.count:
                index, low = index + 1, 0
