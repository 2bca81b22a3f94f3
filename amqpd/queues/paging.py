"""Between memory and disk: which segments of a backlog leave memory, and what is read back.

What comes in: a bound in bytes; rows read back. What goes out: segments without bodies, copies for the timetable,
requests to read; which rows are damaged.
Rules: 1. A segment may leave memory once the journal holds it; neighbours on disk that were never delivered are one
segment, so a backlog costs no memory that grows with it. 2. One whose messages expire in any order, and whose bodies
will be needed then, leaves a copy of them to the timetable. 3. A row that is damaged or missing is not read again.
Not here: when the journal writes (`journal/buffer.py`), how much may stay in memory (`flow/congestion.py`), what
becomes of a queue with damage (`damage.py`).
"""

from __future__ import annotations

from amqpd.journal.records import Row
from amqpd.kernel.rows import parse_row
from amqpd.queues.backlog import Backlog
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.segment import Segment

# Segments that are looked at in one call, and in a microsecond.
VISITS_MAX, VISITS_A_WORK = 2_000, 2
# After this many messages that were touched one by one, some milliseconds, the rest leaves with the next tick; a
# little later when there is this many times as much as there should be.
EFFORT_MAX, URGENT_EFFORT_MAX, EFFORT_SHARE = 1000, 3000, 3

# Why a segment is damaged.
MISSING = "the journal has no row for these messages"


class Paging:
    """Decides which segments of one backlog leave memory, and takes in the rows that are read back."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._store = backlog.store
        self._agenda = backlog.store.agenda
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
        self._untimed: list[Segment] = []
        """whose deadlines must be read again, from the last one on: the copies of their messages are damaged"""

    def shrink(self, bytes_max: int) -> int:
        """Let segments leave memory, from the far end on, until at most about `bytes_max` stay. What the journal
        does not hold yet is given to it, and leaves after its commit: call again then. The segment at the cursor
        stays. One call looks at some of them: while `shrinking`, call again soon. What that took, in the unit of
        `flow/turns.py`; nothing, while nothing may leave that could not when all were looked at."""
        store = self._store
        if store.memory_bytes <= bytes_max:
            self.shrinking, self._pass_end = False, -1
            return 0
        if not (self.shrinking or self._begin_pass()):
            return 0
        segments = store.segments
        index = begin = store.index_of(self._passed) - 1
        effort, absorbed = self._write_behind(), 0
        while index >= 0 and store.memory_bytes > bytes_max and segments[index].last >= self._pass_floor:
            urgent = store.memory_bytes >= bytes_max * EFFORT_SHARE
            if begin - index >= VISITS_MAX or effort > (URGENT_EFFORT_MAX if urgent else EFFORT_MAX):
                break
            segment = segments[index]
            self._passed = segment.first
            if segment.runs is not None and segment.left and index != store.at:
                effort += self._leave_memory(segment)
            absorbed = self._absorb(index, absorbed)
            index -= 1
        self.visited += begin - index
        self.shrinking = store.memory_bytes > bytes_max and index >= 0 and segments[index].last >= self._pass_floor
        if store.memory_bytes <= bytes_max:
            self._pass_end = -1
        if index >= 0:
            absorbed = self._absorb(index, absorbed)
        self._join(max(index, 0), absorbed)
        if effort < EFFORT_MAX:
            effort += self._write_behind()
        return effort + (begin - index) // VISITS_A_WORK

    def _leave_memory(self, segment: Segment) -> int:
        """If it may, or when it is written. What that cost, see `_copy`."""
        store, journal, effort = self._store, self._store.journal, 0
        if segment.stored and segment.index <= journal.stored_index:
            store.memory_bytes -= segment.memory_bytes
            if segment.body_size < 0:
                segment.taken_bytes = segment.body_bytes - self._ready_bytes_in(segment)
            effort = self._copy(segment)
            segment.evict()
            return effort
        if not segment.index and not segment.persistent and segment.held == segment.size:
            segment.sealed = True
            store.paged = True
            journal.append(store.queue_id, segment)
        waits_for = self._waits_for
        if segment.index and (waits_for is None or segment.index < waits_for.index):
            self._waits_for = segment
        return effort

    def _copy(self, segment: Segment) -> int:
        """Its bodies are about to leave memory. How many messages had to be touched one by one."""
        if self._backlog.transfers and segment.scattered:
            self._agenda.copy(segment)
            return segment.left
        return 0

    def _begin_pass(self) -> bool:
        """Whether segments may leave that could not when all were looked at: new ones, or others too."""
        store = self._store
        waits_for, floor = self._waits_for, 0
        if (
            self._pass_end >= 0
            and store.at == self._pass_at
            and not (
                waits_for is not None
                and (
                    waits_for.runs is None
                    or not waits_for.left
                    or (waits_for.stored and waits_for.index <= store.journal.stored_index)
                )
            )
        ):
            if self._pass_end == store.next_seq:
                return False
            floor = self._pass_end - 1
        else:
            self._waits_for = None
        self._passed, self._pass_floor = store.next_seq, floor
        self._pass_end, self._pass_at = store.next_seq, store.at
        return True

    def _write_behind(self) -> int:
        """What those that left have still to be written of them, as far as a step has time for; see `_copy`."""
        effort = 0
        while effort < EFFORT_MAX and (written := self._agenda.timetable.write_row()):
            effort += written
        return effort

    def _absorb(self, index: int, absorbed: int) -> int:
        """The segment and the one behind it may become one, if nothing of them was delivered. `absorbed`: this many
        segments that follow behind that one are to become one with it; how many those are now, this one included."""
        segments = self._store.segments
        followed = index < len(segments) - 1 and segments[index].first >= self._store.cursor
        if followed and segments[index].mergeable(segments[index + 1]):
            return absorbed + 1
        self._join(index + 1, absorbed)
        return 0

    def _join(self, index: int, absorbed: int) -> None:
        """The segment takes in this many that follow it: from the front on, so that each is copied once."""
        store = self._store
        if absorbed:
            segment, behind = store.segments[index], slice(index + 1, index + 1 + absorbed)
            for each in store.segments[behind]:
                segment.absorb(each)
            del store.segments[behind]

    # Back into memory

    def next_read(self, distance: int) -> tuple[int, int] | None:
        """What to read now, the first and last sequence number of a segment that is on disk only: the one that is
        wanted, else one of the next `distance` behind the cursor, but none behind damage; None when there is none."""
        store, wanted = self._store, self._backlog.wanted
        if wanted is not None:
            self._backlog.wanted = None
            segment = store.on_disk_at(wanted[0])
            if segment is None or not segment.damage:
                return wanted
        while self._untimed:
            if self._untimed[-1].left:
                return self._untimed[-1].first, self._untimed[-1].last
            self._untimed.pop()
        for segment in store.segments[store.at : store.at + distance]:
            if segment.damage:
                return None
            if segment.runs is None:
                return segment.first, segment.last
        return None

    def next_copies(self) -> tuple[int, int] | None:
        """As `next_read`, of the timetable's rows."""
        found = self._agenda.timetable.next_read()
        if found is None:
            self._agenda.timetable_changed()
        return found

    @property
    def wants(self) -> bool:
        """Something must be read before anything can go on."""
        return self._backlog.wanted is not None or bool(self._untimed)

    def copies_loaded(self, first: int, rows: list[Row]) -> None:
        """Rows of the timetable's that were read back."""
        timetable = self._agenda.timetable
        timetable.loaded(first, rows)
        if timetable.lost:
            found = [each for each in self._store.segments if each.batch in timetable.lost]
            self._untimed = [*reversed(found), *self._untimed]
            timetable.lost = frozenset()
        self._agenda.timetable_changed()

    def loaded(self, first: int, rows: list[Row], last: int | None = None) -> None:
        """Rows that were read back, from the segment on that was first..last when they were asked for. Those whose
        messages are settled or in memory by now are passed over. One that is missing, or does not hold what it
        should, is damage."""
        store = self._store
        if self._untimed:
            self._take_deadlines(first, rows)
        segment = store.on_disk_at(first)
        if segment is not None and not (rows and rows[0].first_seq <= first):
            self.mark_damaged(
                first, rows[0].first_seq - 1 if rows else segment.last if last is None else last, MISSING
            )
        # The last ones first: what is cut off of a segment is a row then, and not all that is behind it.
        end = len(rows)
        while end:
            segment = store.on_disk_at(rows[end - 1].first_seq)
            begin = end - 1
            if segment is not None:
                while begin and rows[begin - 1].first_seq >= segment.first:
                    begin -= 1
                edges = segment.divisible or (
                    (rows[begin].first_seq, rows[end - 1].last_seq) == (segment.first, segment.last)
                )
                if not edges:
                    self.mark_damaged(
                        segment.first, segment.last, "the journal's row for them holds other messages too"
                    )
                elif not segment.damage:
                    self._load(segment, rows[begin:end])
            end = begin
        segment = store.on_disk_at(first)
        if segment is not None:
            # Never again, or it would be read without end.
            self.mark_damaged(first, segment.last, "the journal's row for them holds other messages")

    def _take_deadlines(self, first: int, rows: list[Row]) -> None:
        """Of the last `untimed` segment, if it begins there. Where the row is damaged too, the messages have no
        deadline until a restart."""
        if self._untimed[-1].first == first:
            segment = self._untimed.pop()
            segment.batch = 0
            if rows and rows[0].first_seq == first and rows[0].deadlines and not rows[0].damage:
                # All of it, also what is overdue: it is told again, and kept again.
                segment.deadlines = Deadlines.unpack(rows[0].deadlines)
                self._agenda.put(segment)

    def _load(self, segment: Segment, rows: list[Row]) -> None:
        """These rows, all in this segment that is on disk only, come into memory as segments of their own."""
        store = self._store
        place, parts = store.index_of(segment.first) + 1, list[Segment]()
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
            store.memory_bytes += here.memory_bytes
            if estimated:
                # What the row has more than was thought, the other part has less.
                self._recount(here, body_bytes, behind or (None if here is segment else segment))
        parts.reverse()
        store.insert(place, parts)
        self._pass_end = -1

    def _take_bodies(self, segment: Segment, row: Row) -> bool:
        """Into the segment, which is this row alone; False when they are damaged."""
        reason = row.damage
        if not reason:
            try:
                segment.load(parse_row(row.data, batches=True))
                return True
            except ValueError as error:
                reason = unlike(error)
        self._store.mark_damaged(segment, reason)
        return False

    def mark_damaged(self, first: int, last: int, reason: str) -> None:
        """What is on disk only of first..last, which is one row or several, cannot be read, and is not read again."""
        store = self._store
        store.cut_at(first, last)
        segment = store.on_disk_at(first)
        if segment is not None and not segment.damage:
            store.mark_damaged(segment, reason)
            self._pass_end = -1

    # Bytes of bodies

    def _ready_bytes_in(self, segment: Segment) -> int:
        """Of the bodies of its messages that are ready, while they are in memory."""
        backlog = self._backlog
        if segment.whole and segment.first >= backlog.store.cursor and not backlog.leaving:
            return segment.body_bytes
        nbytes = 0
        for low, high in segment.live_ranges():
            for part in backlog.ready_in(segment.first + low, segment.first + high - 1):
                for first, last in backlog.not_leaving(*part) if backlog.leaving else (part,):
                    nbytes += segment.bytes_in(first, last)
        return nbytes

    def _recount(self, segment: Segment, body_bytes: int, rest: Segment | None) -> None:
        """The segment came back, its bodies made up this many bytes until now; in the sum with `rest` it was
        right."""
        backlog = self._backlog
        ready_bytes, taken_bytes = self._ready_bytes_in(segment), segment.taken_bytes
        backlog.ready_bytes += ready_bytes - (body_bytes - taken_bytes)
        backlog.unacked_bytes += segment.body_bytes - ready_bytes - taken_bytes
        segment.taken_bytes = 0
        if rest is not None:
            # Untouched, so all of it is ready.
            rest.body_bytes -= segment.body_bytes - body_bytes
            backlog.ready_bytes -= segment.body_bytes - body_bytes

    def drop(self) -> None:
        """The queue is deleted."""
        self._untimed = []


def unlike(error: ValueError) -> str:
    """Why a row is damaged that its checksum fits."""
    return f"the journal's row for them is not what was written: {error}"
