"""The messages of one queue, in the order in which they were published: which are ready, which are delivered.

What comes in: runs of publishes, some with a deadline; ranges to settle or to requeue; the time. What goes out:
pieces of runs to deliver, in order.
Rules: 1. A message is a sequence number. It is *ready* (not yet delivered: at or behind `cursor`; or returned),
*unacked* (taken, not settled), or settled. ready + unacked + settled = accepted, always. 2. Returned messages have
smaller numbers than those at the cursor, so they go first: a requeue puts a message back to its place; or, with
`fifo_returns`, to the end of those that came back, as quorum queues do. 3. A message that is unacked when its time is
over expires when it comes back.
Not here: memory and disk (`segments.py`), what expires (`expiry.py`), who gets a message (`queue.py`), when to look
at the time (`node/node.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from amqpd.audit.kinds import ACKED, DEAD_EXPIRED, PURGED, QUEUE_DELETED
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import RecoveredQueue
from amqpd.kernel import Run
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.expiry import INSTANT, Bury, Expiring
from amqpd.queues.fences import put_back
from amqpd.queues.segment import Segment
from amqpd.queues.sorted_keys import SortedKeys
from amqpd.queues.stretches import Stretches

# How far ahead of the deliveries the journal's mark of what was delivered is set, while there are consumers: the mark
# must be on disk before a delivery goes out that it should cover, and a commit takes some thousand deliveries' time.
MARK_AHEAD_MESSAGES = 65_536
# Segments, or stretches that came back, that leave in one step of a purge; and what each takes.
PURGED_AT_ONCE_MAX, PURGE_WORK = 200, 3
Piece = tuple[Run, int, int, int, bool]
"""messages low..high-1 of the run, the sequence number of the first, redelivered"""


class Backlog(Expiring):
    def __init__(self, queue_id: int, journal: JournalBuffer, durable: bool, fifo_returns: bool = False) -> None:
        super().__init__(queue_id, journal, durable, fifo_returns)
        self.redelivered_below = 0
        """what was recovered below this number had been delivered before the restart"""
        self.arrived_ms = 0
        """when what `take` gave last had come"""
        self.fresh: list[Run] = []
        """what came in since the last dispatch and has no place among the segments yet: transient, without a
        deadline, behind all the rest; counted as ready and in `memory_bytes`. Empty between two ticks."""
        self.fresh_ms = 0
        """when the first of it came"""
        self.first_of_life = 0
        """smaller numbers came before the last start"""
        self._marked = 0

    def recover(self, found: RecoveredQueue) -> None:
        """Take over what the journal found on disk. Called once, before anything else."""
        for row in found.rows:
            previous = self.segments[-1] if self.segments else None
            segment = Segment.on_disk(row.first_seq, row.last_seq, row.body_bytes, row.published_ms)
            if row.deadlines:
                segment.deadlines = Deadlines.unpack(row.deadlines)
            for first, last in row.settled:
                segment.settle(first, last)
            self.ready += segment.left
            self.ready_bytes += segment.body_bytes
            if previous is not None and previous.mergeable(segment):
                previous.absorb(segment)
            else:
                self.segments.append(segment)
                self.recovered(segment)
        self.journalled = True
        self.next_seq = self.first_of_life = found.next_seq
        self.cursor = self.segments[0].first if self.segments else found.next_seq
        self.redelivered_below = found.delivered

    def publish(self, run: Run, persistent: bool, now_ms: int, deadline_ms: int | None = None) -> bool:
        """Append; True when the journal will hold it (a persistent message in a durable queue)."""
        if self.fresh:
            self.take_in()
        persistent = persistent and self.durable
        if self.book is not None:
            self.book.routed(run.count, run.body_size, persistent)
        segment = self.append(run, persistent, now_ms)
        self.ready += run.count
        self.ready_bytes += run.count * run.body_size
        if deadline_ms == INSTANT:
            self.instants.append((self.next_seq - run.count, self.next_seq - 1))
        elif deadline_ms is not None:
            if segment.deadlines is None:
                segment.deadlines = Deadlines()
            segment.deadlines.add(deadline_ms, self.next_seq - run.count, self.next_seq - 1)
            if segment.due_ms is None or deadline_ms < segment.due_ms:
                self.schedule_at(segment, deadline_ms)
        return persistent

    def take_in(self) -> None:
        """What is fresh gets its numbers, and its place behind the rest."""
        fresh, self.fresh = self.fresh, []
        for run in fresh:
            self.memory_bytes -= run.stride * run.count
            self.append(run, False, self.fresh_ms)

    @property
    def only_fresh(self) -> bool:
        """Nothing else is ready."""
        return self.ready == sum([run.count for run in self.fresh])

    def taken_in(self, runs: int) -> int:
        """What is fresh gets its place, while nothing else is ready, and so many of its runs, from the first on, are
        taken with that: they went to a consumer who is to acknowledge them. How many messages that are."""
        count = nbytes = 0
        for run in self.fresh[:runs]:
            count += run.count
            nbytes += run.count * run.body_size
        self.cursor = self.next_seq + count
        self.take_in()
        segments = self.segments
        while self.at < len(segments) - 1 and segments[self.at].last < self.cursor:
            self.at += 1
        self.ready -= count
        self.unacked += count
        self.ready_bytes -= nbytes
        self.unacked_bytes += nbytes
        return count

    def passed_on(self, runs: int) -> int:
        """So many of the fresh runs, from the first on, went to a consumer who acknowledges nothing, while there was
        nothing else here: they are settled, and were never anywhere. How many messages that are."""
        fresh = self.fresh
        if runs == len(fresh):
            count, body_bytes, nbytes = self.ready, self.ready_bytes, self.memory_bytes
            self.fresh = []
        else:
            count = body_bytes = nbytes = 0
            for run in fresh[:runs]:
                count += run.count
                body_bytes += run.count * run.body_size
                nbytes += run.count * run.stride
            del fresh[:runs]
        self.ready -= count
        self.ready_bytes -= body_bytes
        self.memory_bytes -= nbytes
        self.released_bytes += nbytes
        self.next_seq += count
        self.cursor = self.next_seq
        return count

    def lanes(self) -> tuple[Backlog, ...]:
        """The backlogs that this one consists of, each with its own rows in the journal."""
        return (self,)

    def take(self, limit: int, nbytes: int = 0) -> Piece | None:
        """The next piece of ready messages, at most `limit` of them and from one run; with `nbytes`, no more than
        make up so many bytes of bodies. None when nothing is ready, when it must be read first (`wanted`), or when it
        cannot be read."""
        if self.fresh:
            self.take_in()
        if self.returned:
            return self._take_returned(limit, nbytes)
        segments = self.segments
        while self.at < len(segments):
            segment = segments[self.at]
            low = self.cursor - segment.first
            if segment.gone is None:
                if low < segment.head:
                    low = segment.head
                high = min(low + limit, segment.last - segment.first + 1)
            else:
                low, high = segment.next_live(low, limit)
            if low >= high:
                if self.at == len(segments) - 1:
                    return None
                self.at += 1
                self.cursor = segments[self.at].first
                continue
            seq = segment.first + low
            if self.doomed:
                doomed_from, doomed_to = self.doomed.first
                if doomed_from <= seq:
                    # The cursor has come to it, or has passed it.
                    self.doomed.cut(doomed_from, doomed_to)
                    self.cursor = max(seq, doomed_to + 1)
                    continue
                high = min(high, doomed_from - segment.first)
            if segment.runs is None:
                if not segment.damage:
                    self.wanted = (segment.first, segment.last)
                return None
            redelivered = seq < self.redelivered_below
            if redelivered:
                high = min(high, self.redelivered_below - segment.first)
            run, start, stop = segment.piece(low, high)
            if nbytes:
                stop = min(stop, start + _ceil(nbytes, run.body_size))
            count = stop - start
            self.cursor = seq + count
            self.ready -= count
            self.unacked += count
            nbytes = count * run.body_size
            self.ready_bytes -= nbytes
            self.unacked_bytes += nbytes
            self.arrived_ms = segment.published_ms if segment.arrivals is None else segment.arrival(low)
            return run, start, stop, seq, redelivered
        return None

    def next_returned(self, limit: int) -> int:
        """How many of those that came back `take` gives at once, of one run; there must be one. 1 when it must be
        read first."""
        first, last = self.returned.first
        segment = self.segments[self.index_of(first)]
        if segment.runs is None:
            return 1
        low = first - segment.first
        _, start, stop = segment.piece(low, min(low + limit, last - segment.first + 1))
        return stop - start

    def _take_returned(self, limit: int, nbytes: int) -> Piece | None:
        first, last = self.returned.first
        segment = self.segments[self.index_of(first)]
        if segment.runs is None:
            if not segment.damage:
                self.wanted = (segment.first, segment.last)
            return None
        low = first - segment.first
        run, start, stop = segment.piece(low, min(low + limit, last - segment.first + 1))
        if nbytes:
            stop = min(stop, start + _ceil(nbytes, run.body_size))
        taken = stop - start
        self.returned.serve(taken)
        self.ready -= taken
        self.unacked += taken
        self.ready_bytes -= taken * run.body_size
        self.unacked_bytes += taken * run.body_size
        self.arrived_ms = segment.arrival(low)
        return run, start, stop, first, True

    def oldest_ms(self) -> int | None:
        """When the first ready message came, in ms since the epoch; None when there is none."""
        if self.returned:
            first = self.returned.lowest()
            segment = self.segments[self.index_of(first)]
            return segment.arrival(first - segment.first)
        for segment in self.segments[self.at :] if self.ready else ():
            low, high = segment.next_live(self.cursor - segment.first, 1)
            if low < high:
                return segment.arrival(low)
        return None

    def settle(self, first: int, last: int, cause: int = ACKED) -> int:
        """The taken messages first..last are done. The number of those that were not before."""
        if self.doomed:
            self.settle_doomed(first, last)
        count, nbytes = self.discard(first, last, True, cause)
        self.unacked -= count
        self.unacked_bytes -= nbytes
        if self.miscounted_bytes:
            self.count_again()
        return count

    def bury(self, first: int, last: int, bury: Bury, cause: int) -> tuple[int, int, int]:
        """The taken messages first..last are done when `bury` has taken care of them. Returns how many that were, how
        many are back in line because they are damaged, and the number of the first one that was not reached because
        its body must be read (`wanted`) or it has to stay; last + 1 when none is left."""
        count = back = 0
        while first <= last:
            segment = self.segments[self.index_of(first)]
            low = first - segment.first
            if segment.damage:
                end = min(last, segment.last)
                back += put_back(self, segment, first, end, cause == DEAD_EXPIRED)
                first = end + 1
                continue
            if segment.runs is None:
                self.wanted = (segment.first, segment.last)
                break
            run, start, stop = segment.piece(low, min(last, segment.last) - segment.first + 1)
            buried = bury(run, start, stop)
            if buried:
                count += self.settle(first, first + buried - 1, cause)
                first += buried
            if buried < stop - start:
                break
        return count, back, first

    def requeue(self, first: int, last: int) -> None:
        """The taken messages first..last are ready again, at their place."""
        # One interval stays inside one segment, so that it can be taken and read back in one piece.
        index = self.index_of(first)
        while first <= last:
            segment = self.segments[index]
            end = min(last, segment.last)
            self.returned.add(first, end)
            count, nbytes = end - first + 1, segment.bytes_in(first, end)
            self.ready += count
            self.unacked -= count
            self.ready_bytes += nbytes
            self.unacked_bytes -= nbytes
            if segment.estimated:
                segment.taken_bytes -= nbytes
            if segment.deadlines is not None and segment.deadlines.come_back(first, end):
                self.schedule_at(segment, 0)
            first = end + 1
            index += 1

    def purging(self) -> Iterator[tuple[int, int]]:
        """Settle all that is ready now, in steps (queue.purge): each says how many those were, and what it took, in
        the unit of `limiting/turns.py`. Between two of them messages may come and go, and the backlog too."""
        if self.fresh:
            self.take_in()
        below = self.next_seq
        while stretches := list(islice(self.returned, PURGED_AT_ONCE_MAX)):
            yield sum([self.leave(first, last, PURGED) for first, last in stretches]), PURGE_WORK * len(stretches)
        while self.cursor < below and self.segments and self.segments[-1].last >= self.cursor:
            end = min(self.at + PURGED_AT_ONCE_MAX, len(self.segments) - 1)
            last, work = min(below - 1, self.segments[end].last), PURGE_WORK * (end - self.at + 1)
            gone = sum([self.leave(*part, PURGED) for part in self.not_doomed(self.cursor, last)])
            self.settle_doomed(self.cursor, last)
            self.cursor = max(self.cursor, last + 1)
            # The last segment may still grow, so the cursor stays in it.
            self.at = max(0, min(self.index_of(self.cursor), len(self.segments) - 1))
            yield gone, work
        if not (self.ready or self.unacked):
            self.wanted = None
        yield from self._purged_bytes()

    def _purged_bytes(self) -> Iterator[tuple[int, int]]:
        """While nothing is ready: of what is on disk only, how much was ready had been estimated."""
        at = 0
        while self.ready_bytes and not self.ready and at < len(self.segments):
            part = self.segments[at : at + PURGED_AT_ONCE_MAX]
            for segment in part:
                if segment.estimated:
                    rest = segment.body_bytes - segment.taken_bytes
                    segment.taken_bytes += rest
                    self.ready_bytes -= rest
                    self.unacked_bytes += rest
            at += len(part)
            yield 0, len(part)

    def mark_delivered(self, ahead: bool) -> None:
        """Let the journal know how far deliveries may have come, so that a restart can tell what is redelivered. With
        `ahead`, while there are consumers, the mark runs ahead; without, also at a shutdown, it goes back to what is
        true, never below what an earlier run had delivered."""
        if not self.journalled:
            return
        cursor = self.cursor
        distance = MARK_AHEAD_MESSAGES if ahead else 0
        mark = max(cursor + distance, self.redelivered_below)
        if cursor > self._marked - distance // 2 or (not distance and mark < self._marked):
            self._marked = mark
            self.journal.delivered(self.queue_id, mark)

    def standing(self) -> list[tuple[int, int, bool]]:
        """(first, last, persistent) of what is here, ready or not, neighbours in one."""
        if self.fresh:
            self.take_in()
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
        """The queue is deleted: its messages leave the disk, and memory. `ready` still says what it had. Clients may
        hold on to the queue for as long as they do not settle what they have of it, its messages need not stay."""
        if self.book is not None:
            for first, last, _ in self.standing():
                self.book.ended(first, last, QUEUE_DELETED)
        if self.journalled or self.paged:
            # Else the disk knows nothing of it, and need not be told: that would cost a commit.
            self.journal.drop(self.queue_id)
        self.segments, self.fresh, self.wanted = [], [], None
        self.damaged, self.untold, self.untimed = {}, 0, []
        self.due, self._due_keys, self.doomed = {}, SortedKeys(), Stretches()
        self.timetable.drop()
        self.returned.clear()
        self.memory_bytes = 0


def _ceil(nbytes: int, body_size: int) -> int:
    """How many bodies make up so many bytes; at least one."""
    return max(1, -(-nbytes // body_size)) if body_size else 1
