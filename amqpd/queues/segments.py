"""The segments of a queue, in order: which are in memory and which on disk only, and what of them is settled.

What comes in: runs; ranges to settle; rows read back. What goes out: what is settled, for the journal; wishes to read
rows; which rows are damaged.
Rules: 1. `cursor` is where reading has come to, and `at` the segment it stands in. 2. A segment may leave memory once
the journal holds it; neighbours on disk that were never delivered are one segment, so a backlog costs no memory that
grows with it. 3. A segment without messages is not kept. 4. A row that is damaged or missing is a segment
of its own, on disk only, and is not read again.
Not here: which messages are ready (`backlog.py`), when the journal writes (`journal/buffer.py`), what becomes of a
queue with damage (`fences.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from amqpd.audit.book import Book
from amqpd.audit.kinds import ACKED
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import Row
from amqpd.kernel import Run
from amqpd.kernel.rows import parse_row
from amqpd.queues.segment import RUN_BYTES, Segment

# Messages of a backlog have numbers of so many bits; what is above them outside says which backlog (`levels.py`).
SEQ_BITS = 55
# A segment is closed at this size, so that evicting, loading and deleting work in pieces of it.
SEGMENT_BYTES_MAX = 256 * 1024
# So many segments are looked at in one call, and so many in a microsecond.
VISITS_MAX, VISITS_A_WORK = 2_000, 2
# After so many messages that were touched one by one, some milliseconds, the rest leaves with the next tick; a little
# later when there is this many times as much as there should be.
EFFORT_MAX, URGENT_EFFORT_MAX, EFFORT_SHARE = 1000, 3000, 3

# Why a segment is damaged.
MISSING = "the journal has no row for these messages"
_last = attrgetter("last")


class Segments:
    def __init__(self, queue_id: int, journal: JournalBuffer, durable: bool) -> None:
        self.queue_id = queue_id
        self.journal = journal
        self.durable = durable
        self.segments: list[Segment] = []
        self.cursor = 0
        self.at = 0
        """index of the segment that the cursor stands in, or of the next one"""
        self.next_seq = 0
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
        self.shrinking = False
        """more of them are to be looked at for what may leave memory"""
        self.visited = 0
        """segments that were looked at for that, since the start"""
        self._passed = 0
        """the last of these began here"""
        self._pass_floor = 0
        """segments that end before this are not looked at again"""
        self._pass_end = -1
        """`next_seq` when the last look at all of them began; -1: it did not come to its end"""
        self._pass_at = 0
        """`at` then"""
        self._waits_for: Segment | None = None
        """which the journal will hold first, of those that cannot leave before"""
        self.book: Book | None = None
        """of the audit log, while its messages are recorded"""
        self.wanted: tuple[int, int] | None = None
        """first and last sequence number of the segment that must be read before anything can go on"""
        self.damaged: dict[int, Segment] = {}
        """segments with `damage` by their first number, in the order in which they were found"""
        self.untold = 0
        """so many of them, the last ones, nobody was told of"""
        self.untimed: list[Segment] = []
        """whose deadlines must be read again, from the last one on: the copies of their messages are damaged"""

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
            segment = Segment(self.next_seq, persistent)
            segments.append(segment)
            if persistent:
                self.journalled = True
                self.journal.append(self.queue_id, segment)
        segment.add(run, now_ms)
        self.next_seq += run.count
        nbytes = run.stride * run.count
        self.memory_bytes += nbytes + RUN_BYTES
        if persistent:
            self.journal.gathered_bytes += nbytes
        return segment

    def discard(self, first: int, last: int, taken: bool = False, cause: int = ACKED) -> tuple[int, int]:
        """Settle what is not settled yet of first..last, and unacked if `taken`: (number of messages, bytes of their
        bodies). `cause`: why, one of the ends in `audit.kinds`."""
        segments, journal, count, nbytes = self.segments, self.journal, 0, 0
        if segments:
            segment = segments[0]
            if segment.gone is None and first == segment.first + segment.head and last <= segment.last:
                if self.book is not None:
                    self.book.ended(first, last, cause)
                return self._discard_in_order(segment, first, last, taken)
        index = self.index_of(first)
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
                    self.book.ended(part[0], part[1], cause)
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

    def _discard_in_order(self, segment: Segment, first: int, last: int, taken: bool) -> tuple[int, int]:
        """The next messages of the first segment: what consumers do who acknowledge in order, or not at all."""
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

    # Between memory and disk

    def shrink(self, bytes_max: int) -> int:
        """Let segments leave memory, from the far end on, until at most about `bytes_max` stay. What the journal
        does not hold yet is given to it, and leaves after its commit: call again then. The segment at the cursor
        stays. One call looks at some of them: while `shrinking`, call again soon. What that took, in the unit of
        `limiting/turns.py`; nothing, while nothing may leave that could not when all were looked at."""
        if self.memory_bytes <= bytes_max:
            self.shrinking, self._pass_end = False, -1
            return 0
        if not (self.shrinking or self._begin_pass()):
            return 0
        segments = self.segments
        index = begin = self.index_of(self._passed) - 1
        effort, absorbed = self._write_behind(), 0
        while index >= 0 and self.memory_bytes > bytes_max and segments[index].last >= self._pass_floor:
            urgent = self.memory_bytes >= bytes_max * EFFORT_SHARE
            if begin - index >= VISITS_MAX or effort > (URGENT_EFFORT_MAX if urgent else EFFORT_MAX):
                break
            segment = segments[index]
            self._passed = segment.first
            if segment.runs is not None and segment.left and index != self.at:
                effort += self._leave_memory(segment)
            absorbed = self._absorb(index, absorbed)
            index -= 1
        self.visited += begin - index
        self.shrinking = self.memory_bytes > bytes_max and index >= 0 and segments[index].last >= self._pass_floor
        if self.memory_bytes <= bytes_max:
            self._pass_end = -1
        if index >= 0:
            absorbed = self._absorb(index, absorbed)
        self._join(max(index, 0), absorbed)
        if effort < EFFORT_MAX:
            effort += self._write_behind()
        return effort + (begin - index) // VISITS_A_WORK

    def _leave_memory(self, segment: Segment) -> int:
        """If it may, or when it is written. What that cost, see `leaves`."""
        journal, effort = self.journal, 0
        if segment.stored and segment.index <= journal.durable:
            self.memory_bytes -= segment.memory_bytes
            if segment.body_size < 0:
                segment.taken_bytes = segment.body_bytes - self.ready_bytes_in(segment)
            effort = self.leaves(segment)
            segment.evict()
            return effort
        if not segment.index and not segment.persistent and segment.held == segment.size:
            segment.sealed = True
            self.paged = True
            journal.append(self.queue_id, segment)
        waits_for = self._waits_for
        if segment.index and (waits_for is None or segment.index < waits_for.index):
            self._waits_for = segment
        return effort

    def _begin_pass(self) -> bool:
        """Whether segments may leave that could not when all were looked at: new ones, or others too."""
        waits_for, floor = self._waits_for, 0
        if (
            self._pass_end >= 0
            and self.at == self._pass_at
            and not (
                waits_for is not None
                and (
                    waits_for.runs is None
                    or not waits_for.left
                    or (waits_for.stored and waits_for.index <= self.journal.durable)
                )
            )
        ):
            if self._pass_end == self.next_seq:
                return False
            floor = self._pass_end - 1
        else:
            self._waits_for = None
        self._passed, self._pass_floor = self.next_seq, floor
        self._pass_end, self._pass_at = self.next_seq, self.at
        return True

    def _write_behind(self) -> int:
        """What those that left have still to be written of them, as far as a step has room for; as `leaves` says."""
        effort = 0
        while effort < EFFORT_MAX and (written := self.write_part()):
            effort += written
        return effort

    def write_part(self) -> int:
        """The next part of that; what it cost, 0 when there is none."""
        return 0

    def leaves(self, segment: Segment) -> int:
        """Its bodies are about to leave memory. How much that cost, in messages that had to be touched one by one."""
        return 0

    def _absorb(self, index: int, absorbed: int) -> int:
        """The segment and the one behind it may become one, if nothing of them was delivered. `absorbed`: so many
        segments that follow behind that one are to become one with it; how many those are now, this one included."""
        segments = self.segments
        followed = index < len(segments) - 1 and segments[index].first >= self.cursor
        if followed and segments[index].mergeable(segments[index + 1]):
            return absorbed + 1
        self._join(index + 1, absorbed)
        return 0

    def _join(self, index: int, absorbed: int) -> None:
        """The segment takes in so many that follow it: from the front on, so that each is copied once."""
        if absorbed:
            segment, behind = self.segments[index], slice(index + 1, index + 1 + absorbed)
            for each in self.segments[behind]:
                segment.absorb(each)
            del self.segments[behind]

    def next_read(self, distance: int) -> tuple[int, int] | None:
        """What to read now, the first and last sequence number of a segment that is on disk only: the one that is
        wanted, else one of the next `distance` behind the cursor, but none behind damage; None when there is none."""
        if self.wanted is not None:
            wanted, self.wanted = self.wanted, None
            segment = self._on_disk_at(wanted[0])
            if segment is None or not segment.damage:
                return wanted
        while self.untimed:
            if self.untimed[-1].left:
                return self.untimed[-1].first, self.untimed[-1].last
            self.untimed.pop()
        for segment in self.segments[self.at : self.at + distance]:
            if segment.damage:
                return None
            if segment.runs is None:
                return segment.first, segment.last
        return None

    def ready_bytes_in(self, segment: Segment) -> int:
        """Of the bodies of its messages that are ready, while they are in memory."""
        raise NotImplementedError

    def recount(self, segment: Segment, body_bytes: int, rest: Segment | None) -> None:
        """The segment came back, its bodies made up so many bytes until now; in the sum with `rest` it was right."""
        raise NotImplementedError

    def loaded(self, first: int, rows: list[Row], last: int | None = None) -> None:
        """Rows that were read back, from the segment on that was first..last when they were asked for. Those whose
        messages are settled or in memory by now are passed over. One that is missing, or does not hold what it
        should, is damage."""
        if self.untimed:
            self.take_deadlines(first, rows)
        segment = self._on_disk_at(first)
        if segment is not None and not (rows and rows[0].first_seq <= first):
            self.fence(first, rows[0].first_seq - 1 if rows else segment.last if last is None else last, MISSING)
        # The last ones first: what is cut off of a segment is a row then, and not all that is behind it.
        end = len(rows)
        while end:
            segment = self._on_disk_at(rows[end - 1].first_seq)
            begin = end - 1
            if segment is not None:
                while begin and rows[begin - 1].first_seq >= segment.first:
                    begin -= 1
                edges = segment.divisible or (
                    (rows[begin].first_seq, rows[end - 1].last_seq) == (segment.first, segment.last)
                )
                if not edges:
                    self.fence(segment.first, segment.last, "the journal's row for them holds other messages too")
                elif not segment.damage:
                    self._load(segment, rows[begin:end])
            end = begin
        segment = self._on_disk_at(first)
        if segment is not None:
            # Never again, or it would be read without end.
            self.fence(first, segment.last, "the journal's row for them holds other messages")

    def take_deadlines(self, first: int, rows: list[Row]) -> None:
        """Of the last `untimed` segment, if it begins there."""
        raise NotImplementedError

    def _load(self, segment: Segment, rows: list[Row]) -> None:
        """These rows, all in this segment that is on disk only, come into memory as segments of their own."""
        place, parts = self.index_of(segment.first) + 1, list[Segment]()
        behind: Segment | None = None
        for row in reversed(rows):
            here = segment
            if segment.last > row.last_seq:
                behind = segment.cut_from(row.last_seq + 1)
                parts.append(behind)
            if segment.first < row.first_seq:
                # What stands before the row was evicted too and became one with it, maybe while a read was on
                # its way.
                here = segment.cut_from(row.first_seq)
                parts.append(here)
            estimated, body_bytes = here.estimated, here.body_bytes
            if not self._take_bodies(here, row):
                continue
            self.memory_bytes += here.memory_bytes
            if estimated:
                # What the row has more than was thought, the other part has less.
                self.recount(here, body_bytes, behind or (None if here is segment else segment))
        parts.reverse()
        self.segments[place:place] = parts
        self._pass_end = -1

    def _take_bodies(self, segment: Segment, row: Row) -> bool:
        """Into the segment, which is this row alone; False when they are damaged."""
        reason = row.damage
        if not reason:
            try:
                segment.load(parse_row(row.data))
                return True
            except ValueError as error:
                reason = unlike(error)
        self._damaged(segment, reason)
        return False

    def _damaged(self, segment: Segment, reason: str) -> None:
        segment.damage = reason
        self.damaged[segment.first] = segment
        self.untold += 1

    def fence(self, first: int, last: int, reason: str) -> None:
        """What is on disk only of first..last, which is one row or several, cannot be read, and is not read again."""
        self.cut_at(first, last)
        segment = self._on_disk_at(first)
        if segment is not None and not segment.damage:
            self._damaged(segment, reason)
            self._pass_end = -1

    def cut_at(self, first: int, last: int) -> None:
        """first..last is one row of the journal: so it is a segment of its own now, if it is on disk only. What is
        settled of it afterwards is then told to the journal by rows, as it has to be."""
        segment = self._on_disk_at(first)
        if segment is not None and segment.divisible:
            if segment.first < first:
                segment = self._split(segment, first)
            if segment.last > last:
                self._split(segment, last + 1)

    def on_disk_only(self, seq: int) -> bool:
        """The message is not settled, and its body must be read."""
        segment = self._on_disk_at(seq)
        return segment is not None and bool(segment.live_in(seq, seq))

    def _on_disk_at(self, seq: int) -> Segment | None:
        """The segment on disk only that holds `seq`, if there is one."""
        index = self.index_of(seq)
        if index < len(self.segments):
            segment = self.segments[index]
            if segment.runs is None and segment.first <= seq:
                return segment
        return None

    def _split(self, segment: Segment, seq: int) -> Segment:
        """Cut the untouched segment on disk before `seq`; the part from there on."""
        rest = segment.cut_from(seq)
        self.segments.insert(self.index_of(segment.first) + 1, rest)
        return rest


def unlike(error: ValueError) -> str:
    """Why a row is damaged that its checksum fits."""
    return f"the journal's row for them is not what was written: {error}"
