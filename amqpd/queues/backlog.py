"""The messages of one queue: in memory, on disk, or both; in the order in which they were published.

What comes in: runs of publishes; ranges to settle or to requeue; rows read back. What goes out: pieces of runs to
deliver, in order; wishes to read rows; what is settled, for the journal.
Rules: 1. A message is a sequence number. It is *ready* (not yet delivered: at or behind `cursor`; or returned),
*unacked* (taken, not settled), or settled. ready + unacked + settled = accepted, always. 2. Returned messages have
smaller numbers than those at the cursor, so they go first: a requeue puts a message back to its place. 3. Memory: a
segment may leave memory once the journal holds it; neighbours on disk that were never delivered are one segment, so
a backlog costs no memory that grows with it.
Not here: who gets a message (`queue.py`), when the journal writes (`journal/buffer.py`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import JournalDamaged, RecoveredQueue, Row
from amqpd.kernel import Run
from amqpd.kernel.rows import parse_row
from amqpd.queues.segment import Segment

# A segment is closed at this size, so that evicting, loading and deleting work in pieces of it.
SEGMENT_BYTES_MAX = 256 * 1024

Piece = tuple[Run, int, int, int, bool]

_last = attrgetter("last")


class Backlog:
    def __init__(self, queue_id: int, journal: JournalBuffer, durable: bool) -> None:
        self.queue_id = queue_id
        self.journal = journal
        self.durable = durable
        self.segments: list[Segment] = []
        self.returned: list[tuple[int, int]] = []
        self.cursor = 0
        self.at = 0
        """index of the segment that the cursor stands in, or of the next one"""
        self.next_seq = 0
        self.ready = 0
        self.unacked = 0
        self.redelivered_below = 0
        """what was recovered below this number had been delivered before the restart"""
        self.memory_bytes = 0
        self.released_bytes = 0
        """what left memory since the start because it was settled"""
        self.wanted: tuple[int, int] | None = None
        """first and last sequence number of the segment that must be read before `take` can go on"""

    def recover(self, found: RecoveredQueue) -> None:
        """Take over what the journal found on disk. Called once, before anything else."""
        for row in found.rows:
            previous = self.segments[-1] if self.segments else None
            segment = Segment.on_disk(row.first_seq, row.last_seq)
            for first, last in row.settled:
                segment.discard(first, last)
            self.ready += segment.left
            if previous is not None and _mergeable(previous, segment):
                previous.last = segment.last
                previous.left += segment.left
            else:
                self.segments.append(segment)
        self.next_seq = found.next_seq
        self.cursor = self.segments[0].first if self.segments else found.next_seq
        self.redelivered_below = found.delivered

    def publish(self, run: Run, persistent: bool) -> bool:
        """Append; True when the journal will hold it (a persistent message in a durable queue)."""
        persistent = persistent and self.durable
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
            segment = Segment(self.next_seq, persistent)
            segments.append(segment)
            if persistent:
                self.journal.append(self.queue_id, segment)
        segment.add(run)
        count = run.count
        self.next_seq += count
        self.ready += count
        nbytes = run.nbytes
        self.memory_bytes += nbytes
        if persistent:
            self.journal.gathered_bytes += nbytes
        return persistent

    def take(self, limit: int) -> Piece | None:
        """The next piece of ready messages, at most `limit` of them and from one run: (run, low, high, sequence
        number of the first, redelivered). None when nothing is ready, or when it must be read first (`wanted`)."""
        if self.returned:
            return self._take_returned(limit)
        segments = self.segments
        while self.at < len(segments):
            segment = segments[self.at]
            low, high = segment.next_live(self.cursor - segment.first, limit)
            if low >= high:
                if self.at == len(segments) - 1:
                    return None
                self.at += 1
                self.cursor = segments[self.at].first
                continue
            if segment.runs is None:
                self.wanted = (segment.first, segment.last)
                return None
            seq = segment.first + low
            redelivered = seq < self.redelivered_below
            if redelivered:
                high = min(high, self.redelivered_below - segment.first)
            run, start, stop = segment.piece(low, high)
            self.cursor = seq + stop - start
            self.ready -= stop - start
            self.unacked += stop - start
            return run, start, stop, seq, redelivered
        return None

    def _take_returned(self, limit: int) -> Piece | None:
        first, last = self.returned[0]
        segment = self.segments[self._index_of(first)]
        if segment.runs is None:
            self.wanted = (segment.first, segment.last)
            return None
        low = first - segment.first
        run, start, stop = segment.piece(low, min(low + limit, last - segment.first + 1))
        taken = stop - start
        if first + taken > last:
            del self.returned[0]
        else:
            self.returned[0] = (first + taken, last)
        self.ready -= taken
        self.unacked += taken
        return run, start, stop, first, True

    def settle(self, first: int, last: int) -> None:
        """The taken messages first..last are done."""
        self.unacked -= self._discard(first, last)

    def requeue(self, first: int, last: int) -> None:
        """The taken messages first..last are ready again, at their place."""
        # One interval stays inside one segment, so that it can be taken and read back in one piece.
        index = self._index_of(first)
        while first <= last:
            end = min(last, self.segments[index].last)
            insort(self.returned, (first, end))
            self.ready += end - first + 1
            self.unacked -= end - first + 1
            first = end + 1
            index += 1

    def purge(self) -> int:
        """Settle all that is ready; how many that were (queue.purge)."""
        count = self.ready
        for first, last in self.returned:
            self._discard(first, last)
        self.returned = []
        if self.cursor < self.next_seq:
            self._discard(self.cursor, self.next_seq - 1)
        self.cursor = self.next_seq
        # The last segment may still grow, so the cursor stays in it.
        self.at = max(0, len(self.segments) - 1)
        self.ready = 0
        self.wanted = None
        return count

    def forget(self) -> None:
        """The queue is gone; `ready` still says what it had. Clients may hold on to the queue for as long as they do
        not settle what they have of it, its messages need not stay for that."""
        self.segments, self.returned, self.wanted = [], [], None
        self.memory_bytes = 0

    def _discard(self, first: int, last: int) -> int:
        segments, journal, discarded = self.segments, self.journal, 0
        index = self._index_of(first)
        # What is finished is one stretch nearly always: removed together, so a purge is linear.
        finished_from = finished_to = index
        while first <= last and index < len(segments):
            segment = segments[index]
            low, high = max(first, segment.first), min(last, segment.last)
            if low > high:
                break
            fresh = segment.live_in(low, high)
            for part in fresh:
                discarded += segment.discard(*part)
            if segment.left == 0:
                self._finish(segment)
                if finished_to != index:
                    finished_from = index
                finished_to = index + 1
            else:
                if segment.stored:
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
        return discarded

    def _finish(self, segment: Segment) -> None:
        self.memory_bytes -= segment.nbytes
        self.released_bytes += segment.nbytes
        segment.sealed = True
        if segment.stored:
            self.journal.retire(self.queue_id, segment.first, segment.last)

    def _index_of(self, seq: int) -> int:
        segments = self.segments
        if segments and segments[0].last >= seq:
            return 0
        return bisect_left(segments, seq, key=_last)

    @property
    def journalled(self) -> bool:
        """Some of its messages are on disk, or will be. Looks at the ends only: enough for a hint."""
        segments = self.segments
        return bool(segments) and (segments[0].persistent or segments[-1].persistent)

    # Between memory and disk

    def shrink(self, bytes_max: int) -> None:
        """Let segments leave memory, from the far end on, until at most about `bytes_max` stay. What the journal
        does not hold yet is given to it, and leaves after its commit: call again then. The segment at the cursor
        stays."""
        segments, journal = self.segments, self.journal
        index = len(segments) - 1
        while self.memory_bytes > bytes_max and index >= 0:
            segment = segments[index]
            if segment.runs is not None and segment.left and index != self.at:
                if segment.stored and segment.index <= journal.durable:
                    self.memory_bytes -= segment.nbytes
                    segment.evict()
                    self._merge(index)
                    self._merge(index - 1)
                elif not segment.index and not segment.persistent and segment.held == segment.size:
                    segment.sealed = True
                    journal.append(self.queue_id, segment)
            index -= 1

    def _merge(self, index: int) -> None:
        """Make the segment and the one behind it one, when both are on disk only, were never delivered and have no
        gap between them."""
        segments = self.segments
        if 0 <= index < len(segments) - 1 and segments[index].first >= self.cursor:
            here, behind = segments[index], segments[index + 1]
            if _mergeable(here, behind):
                here.last = behind.last
                here.left += behind.left
                del segments[index + 1]

    def next_read(self, distance: int) -> tuple[int, int] | None:
        """What to read now, the first and last sequence number of a segment that is on disk only: the one that `take`
        stopped at, else one of the next `distance` behind the cursor; None when there is none."""
        if self.wanted is not None:
            wanted, self.wanted = self.wanted, None
            return wanted
        for segment in self.segments[self.at : self.at + distance]:
            if segment.runs is None:
                return segment.first, segment.last
        return None

    def loaded(self, first: int, rows: list[Row]) -> None:
        """Rows that were read back, from the segment on that began at `first` when they were asked for. Those whose
        messages are settled or in memory by now are passed over. Raises JournalDamaged when a row is missing, or
        does not hold what it should."""
        if self._on_disk_at(first) is not None and not (rows and rows[0].first_seq <= first <= rows[0].last_seq):
            raise JournalDamaged(f"the row with message {first} of queue {self.queue_id} is missing")
        for row in rows:
            segment = self._on_disk_at(row.first_seq)
            if segment is None:
                continue
            if segment.first < row.first_seq:
                # While the read was on its way, what stands before the row was evicted too and became one with it.
                segment = self._split(segment, row.first_seq)
            if segment.last > row.last_seq:
                self._split(segment, row.last_seq + 1)
            try:
                segment.load(parse_row(row.data))
            except ValueError as error:
                raise JournalDamaged(f"row {row.first_seq} of queue {self.queue_id}: {error}") from error
            self.memory_bytes += segment.nbytes

    def _on_disk_at(self, seq: int) -> Segment | None:
        """The segment on disk only that holds `seq`, if there is one."""
        index = self._index_of(seq)
        if index < len(self.segments):
            segment = self.segments[index]
            if segment.runs is None and segment.first <= seq:
                return segment
        return None

    def _split(self, segment: Segment, seq: int) -> Segment:
        """Cut the untouched segment on disk before `seq`; the part from there on."""
        rest = Segment.on_disk(seq, segment.last)
        segment.last = seq - 1
        segment.left -= rest.left
        self.segments.insert(self._index_of(segment.first) + 1, rest)
        return rest


def _mergeable(here: Segment, behind: Segment) -> bool:
    """Both are on disk only, untouched, and without a gap between them."""
    return here.runs is None and behind.runs is None and here.whole and behind.whole and here.last + 1 == behind.first
