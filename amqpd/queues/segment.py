"""A stretch of a queue's messages that lives and dies together: what becomes one row of the journal.

What comes in: runs, in order; ranges of sequence numbers that are settled. What goes out: pieces of runs, and how
many messages and bytes are left; when which message came, and when it expires.
Rules: 1. Messages first..last of the queue, numbered without gaps while the segment grows. 2. `left` counts those
that are not settled; settled ones are the leading `head` and those marked in `gone`. 3. `runs` is None when the
bodies are on disk only. 4. Bytes of bodies are exact while all bodies have one size or are in memory; of a segment on
disk with bodies of several sizes they are the average's, and exact again in the sum. 5. One that is on disk only and
untouched may be several rows; it knows where each of them begins.
Not here: the order of segments (`store.py`) and which message is ready (`backlog.py`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate

from amqpd.journal.pending_row import PendingRow
from amqpd.kernel import Run
from amqpd.queues.arrivals import ArrivalTimes
from amqpd.queues.deadlines import Deadlines

# Survivors are copied out of a segment when fewer than one in this many of the messages that it holds in memory is
# left: what an old message pins is then at most this many times its own size. Less eagerly while messages are settled
# in order: then the survivors will soon be settled too, and the copy was for nothing.
COMPACT_SHARE, COMPACT_SHARE_IN_ORDER = 2, 4
# Below this it is not worth the copy.
COMPACT_BYTES_MIN = 4096
# What a run takes beside its bytes: the object, the head of its bytes and where it begins in the segment. For small
# messages of which each is another it is more than the message, and memory is bounded by what is counted here. With
# the plain kernel and CPython 3.11 it is 146 (`tests/node/test_memory_bounds.py`).
RUN_BYTES = 144


class Segment(PendingRow):
    """Messages with consecutive numbers, in memory or on disk: what of them is left, and how large it is."""

    __slots__ = (
        "arrivals",
        "arrived_ms",
        "batch",
        "begin",
        "body_bytes",
        "body_size",
        "damage",
        "deadlines",
        "due_ms",
        "gone",
        "head",
        "held",
        "offsets",
        "row_offsets",
        "taken_bytes",
    )

    def __init__(self, first: int, persistent: bool) -> None:
        self.first = first
        self.last = first - 1
        self.left = 0
        self.head = 0
        self.gone: bytearray | None = None
        self.runs = []
        self.begin = 0
        """where the first of the runs begins, as an offset into the segment"""
        self.offsets: array[int] | None = None
        """where the others do, if there are others"""
        self.nbytes = 0
        """of the runs held in memory: their frames, and where these begin if they are a batch"""
        self.held = 0
        """messages held in memory"""
        self.persistent = persistent
        self.sealed = False
        self.stored = False
        self.index = 0
        self.body_bytes = 0
        """bytes of the bodies that are not settled"""
        self.body_size = -1
        """of each body, -1 when they differ"""
        self.taken_bytes = 0
        """what of `body_bytes` counts as unacked, while it is on disk only and its bodies differ in size"""
        self.published_ms = 0
        self.arrived_ms = 0
        """when its last message came"""
        self.arrivals: ArrivalTimes | None = None
        """of the later ones, if they came later"""
        self.deadlines: Deadlines | None = None
        self.due_ms: int | None = None
        """when `expire` will look at it; None when it has no deadline, or is not there any more"""
        self.batch = 0
        """of the timetable that keeps its deadlines; 0: none does"""
        self.damage = ""
        """why its row, on disk only, cannot be read: it is not read again"""
        self.row_offsets: array[int] | None = None
        """where its second row and those behind it begin, if it is several"""

    @classmethod
    def on_disk(cls, first: int, last: int, body_bytes: int = 0, published_ms: int = 0) -> Segment:
        """A segment whose messages, none of them settled, are in the journal only."""
        segment = cls(first, True)
        segment.last = last
        segment.left = last - first + 1
        segment.runs = None
        segment.sealed = segment.stored = True
        segment.body_bytes = body_bytes
        segment.published_ms = published_ms
        return segment

    def add(self, run: Run, now_ms: int) -> None:
        assert self.runs is not None
        count, size, body_bytes, nbytes = run.measures
        offset = self.last - self.first + 1
        if not self.runs:
            self.published_ms = self.arrived_ms = now_ms
            self.body_size = size
        else:
            if size != self.body_size:
                self.body_size = -1
            if now_ms != self.arrived_ms:
                self.arrived_ms = now_ms
                if self.arrivals is None:
                    self.arrivals = ArrivalTimes(self.published_ms)
                self.arrivals.add(offset, now_ms)
            if self.offsets is None:
                self.offsets = array("I")
            self.offsets.append(offset)
        self.runs.append(run)
        self.last += count
        self.left += count
        self.held += count
        self.nbytes += nbytes
        self.body_bytes += body_bytes

    def absorb(self, behind: Segment) -> None:
        """Become one with the segment behind, when `mergeable`."""
        if self.arrivals is None:
            self.arrivals = ArrivalTimes(self.published_ms)
        size = self.last - self.first + 1
        self.arrivals.extend(size, behind.arrivals or ArrivalTimes(behind.published_ms))
        if self.row_offsets is None:
            self.row_offsets = array("I")
        self.row_offsets.append(size)
        if behind.row_offsets is not None:
            self.row_offsets.extend([size + each for each in behind.row_offsets])
        self.last = behind.last
        self.left += behind.left
        self.body_bytes += behind.body_bytes
        if behind.body_size != self.body_size:
            self.body_size = -1

    def cut_from(self, seq: int) -> Segment:
        """Cut it before `seq`, on disk and untouched as it is; the part from there on."""
        count = self.last - seq + 1
        nbytes = self.bytes_in(seq, self.last)
        rest = Segment.on_disk(seq, self.last, nbytes)
        rest.published_ms = self.arrival(seq - self.first)
        if self.arrivals is not None:
            rest.arrivals = self.arrivals.cut_from(seq - self.first)
        offsets, offset = self.row_offsets, seq - self.first
        if offsets is not None:
            at = bisect_right(offsets, offset)
            if at < len(offsets):
                rest.row_offsets = array("I", [each - offset for each in offsets[at:]])
            if at and offsets[at - 1] == offset:
                at -= 1
            if at:
                del offsets[at:]
            else:
                self.row_offsets = None
        rest.body_size = self.body_size
        self.last = seq - 1
        self.left -= count
        self.body_bytes -= nbytes
        return rest

    def rows_with(self, first: int, last: int) -> list[tuple[int, int]]:
        """(first, last) of each of its rows that has some of the messages first..last."""
        offsets = self.row_offsets
        if offsets is None:
            return [(self.first, self.last)]
        low = bisect_right(offsets, max(first - self.first, 0))
        high = bisect_right(offsets, max(last - self.first, 0))
        begins = [self.first + (offsets[low - 1] if low else 0)]
        begins += [self.first + each for each in offsets[low:high]]
        ends = [each - 1 for each in begins[1:]]
        ends.append(self.first + offsets[high] - 1 if high < len(offsets) else self.last)
        return list(zip(begins, ends, strict=True))

    def arrival(self, offset: int) -> int:
        """When the message came, in ms since the epoch; to COARSE_MS if it has been on disk only."""
        return self.published_ms if self.arrivals is None else self.arrivals.at(offset)

    @property
    def estimated(self) -> bool:
        """How many bytes some of its bodies have is not known."""
        return self.body_size < 0 and self.runs is None

    @property
    def scattered(self) -> bool:
        """Its messages fall due in another order than they stand in the queue."""
        return self.deadlines is not None and self.deadlines.scattered

    def bytes_in(self, first: int, last: int) -> int:
        """The bytes of the bodies of first..last, none of which is settled."""
        count = last - first + 1
        if self.body_size >= 0:
            return count * self.body_size
        if self.runs is None:
            return self.body_bytes * count // self.left if self.left else 0
        nbytes, low, high = 0, first - self.first, last - self.first + 1
        while low < high:
            run, start, stop = self.piece(low, high)
            nbytes += run.bytes_in(start, stop)
            low += stop - start
        return nbytes

    def load(self, runs: list[Run]) -> None:
        """Take the bodies back from the journal; `body_bytes` is right then. Raises ValueError when there are not as
        many messages as there should be."""
        count = sum([run.count for run in runs])
        if count != self.last - self.first + 1:
            raise ValueError(f"{count} messages read where {self.last - self.first + 1} were written")
        self._hold(runs, [0, *accumulate([run.count for run in runs])][:-1])
        self.held = count
        if self.body_size >= 0:
            return
        sizes = {-1 if run.mixed else run.body_size for run in runs}
        if len(sizes) == 1:
            self.body_size = sizes.pop()
        if self.whole:
            self.body_bytes = sum([run.body_bytes for run in runs])
            return
        self.body_bytes = sum(
            self.bytes_in(self.first + low, self.first + high - 1) for low, high in self.live_ranges()
        )

    def evict(self) -> None:
        if self.arrivals is not None:
            self.arrivals = self.arrivals.coarse()
        self.runs, self.offsets, self.nbytes, self.held = None, None, 0, 0

    @property
    def memory_bytes(self) -> int:
        """What its runs take in memory."""
        return self.nbytes + RUN_BYTES * len(self.runs) if self.runs else 0

    @property
    def size(self) -> int:
        """How many messages it was made of."""
        return self.last - self.first + 1

    @property
    def whole(self) -> bool:
        return self.head == 0 and self.gone is None

    def mark_settled(self, first: int, last: int) -> int:
        """Mark first..last, which lie inside the segment, as settled. The number that were not so before."""
        low, high = first - self.first, last - self.first + 1
        gone = self.gone
        if low == self.head and gone is None:
            self.head = high
            self.left -= high - low
            return high - low
        low = max(low, self.head)
        if low >= high:
            return 0
        if gone is None:
            gone = self.gone = bytearray(self.last - self.first + 1)
        elif len(gone) < high:
            gone.extend(bytes(high - len(gone)))
        count = gone.count(0, low, high)
        gone[low:high] = b"\x01" * (high - low)
        if low == self.head:
            head = gone.find(0, high)
            self.head = len(gone) if head < 0 else head
        self.left -= count
        return count

    def settle(self, first: int, last: int, taken: bool = False) -> tuple[int, int]:
        """As `mark_settled`, of messages that are all unsettled, and unacked if `taken`: (their number, the bytes of
        their bodies)."""
        nbytes = self.bytes_in(first, last)
        self.body_bytes -= nbytes
        if taken and self.estimated:
            self.taken_bytes -= nbytes
        return self.mark_settled(first, last), nbytes

    def next_live(self, index: int, limit: int) -> tuple[int, int]:
        """(low, high): the first stretch of at most `limit` unsettled messages at or behind `index` (an offset into
        the segment); low == high when there is none."""
        end = self.last - self.first + 1
        index = max(index, self.head)
        gone = self.gone
        if gone is not None and index < len(gone):
            low = gone.find(0, index)
            if low < 0:
                # The bitmap is as long as the segment was when it was made: what was added later is not in it.
                index = len(gone)
            else:
                index = low
                high = gone.find(1, low, low + limit)
                return low, (min(low + limit, end) if high < 0 else high)
        return index, max(index, min(index + limit, end))

    def packed_deadlines(self) -> bytes:
        return self.deadlines.pack() if self.deadlines is not None else b""

    def live_in(self, first: int, last: int) -> list[tuple[int, int]]:
        """The unsettled messages among first..last, as (first, last) stretches of sequence numbers."""
        index, end = first - self.first, last - self.first + 1
        if self.gone is None and index >= self.head:
            return [(first, last)]
        found: list[tuple[int, int]] = []
        while index < end:
            low, high = self.next_live(index, end - index)
            if low >= end or low >= high:
                break
            high = min(high, end)
            found.append((self.first + low, self.first + high - 1))
            index = high
        return found

    def piece(self, low: int, high: int) -> tuple[Run, int, int]:
        """The run that holds offset `low`, and the part of it up to `high`: (run, from, to)."""
        assert self.runs is not None
        offsets = self.offsets
        at = bisect_right(offsets, low) if offsets is not None else 0
        run, offset = self.runs[at], offsets[at - 1] if offsets is not None and at else self.begin
        return run, low - offset, min(high - offset, run.count)

    def alike(self, low: int, high: int) -> tuple[Run, int, int]:
        """As `piece`, of messages with the same properties: one by one, if it is of a batch."""
        run, start, stop = self.piece(low, high)
        return (run.part(start, start + 1), 0, 1) if run.mixed else (run, start, stop)

    def live_ranges(self) -> list[tuple[int, int]]:
        """The unsettled messages as (low, high) offsets, high excluded."""
        ranges: list[tuple[int, int]] = []
        index, end = 0, self.last - self.first + 1
        while True:
            low, high = self.next_live(index, end)
            if low >= high:
                return ranges
            ranges.append((low, high))
            index = high

    def settled_ranges(self) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        index = 0
        for low, high in self.live_ranges():
            if low > index:
                ranges.append((self.first + index, self.first + low - 1))
            index = high
        if self.first + index <= self.last:
            ranges.append((self.first + index, self.last))
        return ranges

    def compact(self) -> int:
        """Copy the survivors out, when they are few; the number of bytes given back."""
        share = COMPACT_SHARE_IN_ORDER if self.gone is None else COMPACT_SHARE
        if self.runs is None or self.left * share >= self.held or self.nbytes < COMPACT_BYTES_MIN:
            return 0
        before = self.memory_bytes
        runs: list[Run] = []
        offsets: list[int] = []
        for low, high in self.live_ranges():
            while low < high:
                run, start, stop = self.piece(low, high)
                runs.append(run.part(start, stop))
                offsets.append(low)
                low += stop - start
        self._hold(runs, offsets)
        self.held = self.left
        return before - self.memory_bytes

    def _hold(self, runs: list[Run], offsets: list[int]) -> None:
        """These runs, which begin there, and no others."""
        self.runs, self.begin = runs, offsets[0] if offsets else 0
        self.offsets = array("I", offsets[1:]) if len(offsets) > 1 else None
        self.nbytes = sum([run.memory_bytes for run in runs])

    @property
    def divisible(self) -> bool:
        """It may be several rows on disk: it is there only, untouched and without deadlines."""
        return self.runs is None and self.whole and self.deadlines is None and not self.batch and not self.damage

    def mergeable(self, behind: Segment) -> bool:
        """Both may be several rows, and there is no gap between them."""
        return self.divisible and behind.divisible and self.last + 1 == behind.first
