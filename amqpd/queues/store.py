"""The segments of a queue, in order, and what of them is settled.

What comes in: runs; ranges to settle. What goes out: what is settled, for the journal; which segment holds a message.
Rules: 1. `cursor` is where reading has come to, and `at` the segment it stands in. 2. A segment without messages is
not kept, nor is its place in the agenda. 3. A row that is damaged or missing is a segment of its own, on disk only,
and is not read again.
Not here: which messages are ready (`backlog.py`), what leaves memory and comes back (`paging.py`), when the journal
writes (`journal/buffer.py`), what becomes of a queue with damage (`damage.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from amqpd.audit.book import Book
from amqpd.audit.kinds import ACKED, AUTO_ACKED
from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Run
from amqpd.queues.agenda import Agenda
from amqpd.queues.segment import RUN_BYTES, Segment

# Messages of a backlog have numbers of this many bits; what is above them outside says which backlog (`levels.py`).
SEQ_BITS = 55
# A segment is closed at this size, so that evicting, loading and deleting work in pieces of it.
SEGMENT_BYTES_MAX = 256 * 1024
_last = attrgetter("last")


class Store:
    """The segments of one backlog, in order, and what of them is settled."""

    def __init__(self, queue_id: int, journal: JournalBuffer, durable: bool) -> None:
        self.queue_id = queue_id
        self.journal = journal
        self.durable = durable
        self.agenda = Agenda(queue_id, journal)
        """when to look at which of the segments"""
        self.segments: list[Segment] = []
        self.numbers = journal.numbers_of(queue_id)
        """None: nothing bounds the sequence numbers"""
        begins = self.numbers.begins if self.numbers is not None else journal.begins
        self.cursor = begins
        self.at = 0
        """index of the segment that the cursor stands in, or of the next one"""
        self.next_seq = begins
        self.memory_bytes = 0
        self.released_bytes = 0
        """what left memory since the start because it was settled"""
        self.finished = 0
        """segments that were settled as a whole since the start"""
        self.journalled = False
        """some of the messages are, or were, on disk to stay"""
        self.paged = False
        """some left memory, for the disk, that are not to stay there"""
        self.miscounted_bytes = 0
        """counted as unacked and not as ready by mistake: see `segment.py` rule 4"""
        self.book: Book | None = None
        """of the audit log, while its messages are recorded"""
        self.damaged: dict[int, Segment] = {}
        """segments with `damage` by their first number, in the order in which they were found"""
        self.untold = 0
        """of how many of them, the last ones, nobody was told"""

    def append(self, run: Run, persistent: bool, now_ms: int) -> Segment:
        """The segment that holds the run now; the run's messages are its last ones."""
        segments = self.segments
        segment = segments[-1] if segments else None
        if (
            segment is None
            or segment.sealed
            or segment.persistent != persistent
            or segment.nbytes > SEGMENT_BYTES_MAX
        ):
            if segment is not None:
                segment.sealed = True
            if self.numbers is not None:
                self.numbers.used(self.next_seq)
            segment = Segment(self.next_seq, persistent)
            segments.append(segment)
            if persistent:
                self.journalled = True
                self.journal.append(self.queue_id, segment)
        nbytes = -segment.nbytes
        segment.add(run, now_ms)
        self.next_seq = segment.last + 1
        nbytes += segment.nbytes
        self.memory_bytes += nbytes + RUN_BYTES
        if persistent:
            self.journal.grow(self.queue_id, nbytes)
        return segment

    def settle(
        self, first: int, last: int, taken: bool = False, cause: int = ACKED, instead: int = 0
    ) -> tuple[int, int]:
        """Settle what is not settled yet of first..last, and unacked if `taken`: (number of messages, bytes of their
        bodies). `cause`: why, one of the ends in `audit.kinds`; `instead`: see `Book.ended`."""
        segments, journal, count, nbytes = self.segments, self.journal, 0, 0
        if cause != ACKED and cause != AUTO_ACKED:
            journal.unwritten.goes_on(self.queue_id)
        if segments:
            segment = segments[0]
            if segment.gone is None and first == segment.first + segment.head and last <= segment.last:
                if self.book is not None:
                    self.book.ended(first, last, cause, instead)
                return self._settle_in_order(segment, first, last, taken)
        began, index = first, self.index_of(first)
        # What is finished is one stretch nearly always: removed together, so a purge is linear.
        finished_from = finished_to = index
        while first <= last and index < len(segments):
            segment = segments[index]
            low, high = max(first, segment.first), min(last, segment.last)
            if low > high:
                break
            fresh = segment.live_in(low, high)
            for part in fresh:
                if self.book is not None:
                    self.book.ended(part[0], part[1], cause, instead + part[0] - began if instead else 0)
                settled = segment.settle(*part, taken)
                count += settled[0]
                nbytes += settled[1]
            if segment.left == 0:
                self._finish(segment)
                if finished_to != index:
                    finished_from = index
                finished_to = index + 1
            else:
                if segment.stored and segment.persistent:
                    # What was settled before is not told again: the journal's ranges never overlap.
                    for part in fresh:
                        journal.settle(self.queue_id, segment, *part)
                if segment.stored or segment.index == 0:
                    # What waits for the journal is written as it is.
                    freed = segment.compact()
                    self.memory_bytes -= freed
                    self.released_bytes += freed
            first = high + 1
            index += 1
        removed = finished_to - finished_from
        if removed:
            del segments[finished_from:finished_to]
            if self.at > finished_from:
                self.at = max(finished_from, self.at - removed)
                if self.at < len(segments):
                    self.cursor = max(self.cursor, segments[self.at].first)
        return count, nbytes

    def _settle_in_order(self, segment: Segment, first: int, last: int, taken: bool) -> tuple[int, int]:
        """The next messages of the first segment: what consumers take that acknowledge in order, or not at all."""
        count = last - first + 1
        if segment.body_size >= 0:
            nbytes = count * segment.body_size
        else:
            nbytes = segment.bytes_in(first, last)
            if taken and segment.runs is None:
                segment.taken_bytes -= nbytes
        segment.body_bytes -= nbytes
        segment.head += count
        segment.left -= count
        if segment.left:
            if segment.stored and segment.persistent:
                self.journal.settle(self.queue_id, segment, first, last)
            if segment.stored or segment.index == 0:
                freed = segment.compact()
                self.memory_bytes -= freed
                self.released_bytes += freed
        else:
            self._finish(segment)
            del self.segments[0]
            if self.at:
                self.at -= 1
                if self.at < len(self.segments):
                    self.cursor = max(self.cursor, self.segments[self.at].first)
        return count, nbytes

    def _finish(self, segment: Segment) -> None:
        nbytes = segment.memory_bytes
        self.finished += 1
        self.memory_bytes -= nbytes
        self.released_bytes += nbytes
        segment.sealed = True
        self.miscounted_bytes += segment.taken_bytes
        if segment.damage:
            del self.damaged[segment.first]
        if segment.stored:
            self.journal.retire(self.queue_id, segment.first, segment.last)
        elif segment.persistent:
            self.journal.unwritten.settled(self.queue_id)
        self.agenda.finished(segment)

    def index_of(self, seq: int) -> int:
        """Of the segment that holds the message, or else of the next one."""
        segments = self.segments
        if segments and segments[0].last >= seq:
            return 0
        return bisect_left(segments, seq, key=_last)

    def holds(self, seq: int) -> bool:
        """The message is not settled."""
        index = self.index_of(seq)
        if index >= len(self.segments) or self.segments[index].first > seq:
            return False
        return bool(self.segments[index].live_in(seq, seq))

    def live_in(self, first: int, last: int) -> list[tuple[int, int]]:
        """The messages of first..last that are not settled, as stretches inside one segment each."""
        found: list[tuple[int, int]] = []
        while first <= last:
            index = self.index_of(first)
            if index == len(self.segments) or (segment := self.segments[index]).first > last:
                break
            found += segment.live_in(max(first, segment.first), min(last, segment.last))
            first = segment.last + 1
        return found

    def on_disk_at(self, seq: int) -> Segment | None:
        """The segment on disk only that holds `seq`, if there is one."""
        index = self.index_of(seq)
        if index < len(self.segments):
            segment = self.segments[index]
            if segment.runs is None and segment.first <= seq:
                return segment
        return None

    def on_disk_only(self, seq: int) -> bool:
        """The message is not settled, and its body must be read."""
        segment = self.on_disk_at(seq)
        return segment is not None and bool(segment.live_in(seq, seq))

    def cut_at(self, first: int, last: int) -> None:
        """first..last is one row of the journal: so it is a segment of its own now, if it is on disk only. What is
        settled of it afterwards is then told to the journal by rows, as it has to be."""
        segment = self.on_disk_at(first)
        if segment is not None and segment.divisible:
            if segment.first < first:
                segment = self._split(segment, first)
            if segment.last > last:
                self._split(segment, last + 1)

    def cut_rows(self, first: int, last: int) -> None:
        """As `cut_at`, of each row that has some of the messages first..last."""
        index = self.index_of(first)
        while index < len(self.segments) and (segment := self.segments[index]).first <= last:
            if segment.row_offsets is not None and segment.divisible:
                rows = segment.rows_with(first, last)
                # From the far end on: what is cut off is copied.
                parts = [segment.cut_from(rows[-1][1] + 1)] if rows[-1][1] < segment.last else []
                parts += [segment.cut_from(row[0]) for row in reversed(rows) if row[0] > segment.first]
                parts.reverse()
                self.insert(index + 1, parts)
                index += len(parts)
            index += 1

    def insert(self, place: int, parts: list[Segment]) -> None:
        """What was cut off of the segment in front of that place, in order."""
        self.segments[place:place] = parts
        if place <= self.at:
            self.at += len(parts)

    def _split(self, segment: Segment, seq: int) -> Segment:
        """Cut the untouched segment on disk before `seq`; the part from there on."""
        rest = segment.cut_from(seq)
        self.insert(self.index_of(segment.first) + 1, [rest])
        return rest

    def mark_damaged(self, segment: Segment, reason: str) -> None:
        """Its row, on disk only, cannot be read."""
        segment.damage = reason
        self.damaged[segment.first] = segment
        self.untold += 1

    def standing(self) -> list[tuple[int, int, bool]]:
        """(first, last, persistent) of what is not settled, neighbours in one."""
        found: list[tuple[int, int, bool]] = []
        for segment in self.segments:
            persistent = segment.persistent
            for low, high in segment.live_ranges():
                first, last = segment.first + low, segment.first + high - 1
                if found and found[-1][1] + 1 == first and found[-1][2] is persistent:
                    found[-1] = (found[-1][0], last, persistent)
                else:
                    found.append((first, last, persistent))
        return found

    def drop(self) -> None:
        """Nothing of it stays on the disk, nor in memory."""
        if self.journalled or self.paged:
            # Else the disk knows nothing of it, and need not be told: that would cost a commit.
            self.journal.drop(self.queue_id)
        self.segments, self.damaged, self.untold = [], {}, 0
        self.agenda.drop()
        self.memory_bytes = 0
