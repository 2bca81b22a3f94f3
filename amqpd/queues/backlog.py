"""The messages of one queue, in the order in which they were published: which are ready, which are delivered.

What comes in: runs of publishes, some with a deadline; ranges to settle or to requeue. What goes out: pieces of runs
to deliver, in order.
Rules: 1. A message is a sequence number. It is *ready* (not yet delivered: at or behind `cursor`; or returned),
*unacked* (taken, not settled), or settled. ready + unacked + settled = accepted, always. 2. Returned messages have
smaller numbers than those at the cursor, so they go first: a requeue puts a message back to its place; or, with
`fifo_returns`, to the end of those that came back, as quorum queues do. 3. A message that is unacked when its time
has come expires when it comes back.
Not here: the segments that hold them (`store.py`), memory and disk (`paging.py`), what expires (`expiry.py`), which
consumer gets a message (`queue.py`), what is held by claims, and what another leader may have delivered before
(`claimed.py`).
"""

from __future__ import annotations

from amqpd.audit.kinds import ACKED, QUEUE_DELETED
from amqpd.audit.publication import Publication
from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Run
from amqpd.queues.consumer import Piece
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.delivered_ranges import DeliveredRanges
from amqpd.queues.segment import Segment
from amqpd.queues.store import Store
from amqpd.queues.stretches import Stretches

# How far ahead of the deliveries the journal's mark of what was delivered is set, while there are consumers: the mark
# must be on disk before a delivery goes out that it should cover, and a commit takes some thousand deliveries' time.
MARK_AHEAD_MESSAGES = 65_536
# A deadline: what no consumer takes in the next dispatch is never delivered (a TTL of 0).
INSTANT = 0


class Backlog:
    """The messages of a queue, or of one of its priorities."""

    def __init__(self, queue_id: int, journal: JournalBuffer, durable: bool, fifo_returns: bool = False) -> None:
        self.queue_id = queue_id
        self.durable = durable
        self.store = Store(queue_id, journal, durable)
        self.due = self.store.agenda.due
        """of its agenda: something has a deadline"""
        self.returned = Stretches(fifo_returns)
        self.ready = 0
        self.unacked = 0
        self.ready_bytes = 0
        self.unacked_bytes = 0
        """of bodies; see `segment.py` rule 4"""
        self.instants: list[tuple[int, int]] = []
        """(first, last) published with the deadline INSTANT since the last dispatch"""
        self.leaving = Stretches()
        """at or behind the cursor: expired, counted as unacked, and not transferred yet"""
        self.transfers = False
        """what expires goes somewhere, so its body is needed"""
        self.transferring = 0
        """the sequence number of the first message of the run that is being transferred"""
        self.wanted: tuple[int, int] | None = None
        """first and last sequence number of the segment that must be read before anything can go on"""
        self.redelivered_below = 0
        """what is behind the cursor and below this number may have been delivered before: by an earlier run, mostly;
        all of it, without `delivered`"""
        self.delivered: DeliveredRanges | None = None
        """which of these exactly, if that is known"""
        self.undelivered: Stretches | None = None
        """of those that came back, what only the cursor has passed: not delivered before (`claimed.py`)"""
        self.arrived_ms = 0
        """when what `take` gave last had come"""
        self.fresh: list[Run] = []
        """what came in since the last dispatch and has no place among the segments yet: transient, without a
        deadline, behind all the rest; counted as ready and in `memory_bytes`. Empty between two ticks."""
        self.fresh_ms = 0
        """when the first of it came"""
        self.first_of_incarnation = 0
        """smaller numbers came before the last start"""
        self._marked = 0

    def publish(
        self,
        run: Run,
        persistent: bool,
        now_ms: int,
        deadline_ms: int | None = None,
        publication: Publication | None = None,
    ) -> bool:
        """Append; True when the journal will hold it (a persistent message in a durable queue)."""
        store = self.store
        if self.fresh:
            self.take_in()
        persistent = persistent and self.durable
        if store.book is not None:
            store.book.routed(publication, run.count, run.body_bytes // run.count, persistent)
        first = store.next_seq
        segment = store.append(run, persistent, now_ms)
        self.ready += store.next_seq - first
        self.ready_bytes += run.body_bytes
        if deadline_ms == INSTANT:
            self.instants.append((first, store.next_seq - 1))
        elif deadline_ms is not None:
            if segment.deadlines is None:
                segment.deadlines = Deadlines()
            segment.deadlines.add(deadline_ms, first, store.next_seq - 1)
            if segment.due_ms is None or deadline_ms < segment.due_ms:
                store.agenda.add(segment, deadline_ms)
        return persistent

    def take_in(self) -> None:
        """What is fresh gets its numbers, and its place behind the rest."""
        store = self.store
        fresh, self.fresh = self.fresh, []
        for run in fresh:
            store.memory_bytes -= run.memory_bytes
            store.append(run, False, self.fresh_ms)

    def taken_in(self, runs: int) -> int:
        """What is fresh gets its place, while nothing else is ready, and this many of its runs, from the first on,
        are taken with that: they went to a consumer that is to acknowledge them. How many messages that are."""
        store = self.store
        count = nbytes = 0
        for run in self.fresh[:runs]:
            count += run.count
            nbytes += run.body_bytes
        store.cursor = store.next_seq + count
        self.take_in()
        segments = store.segments
        while store.at < len(segments) - 1 and segments[store.at].last < store.cursor:
            store.at += 1
        self.ready -= count
        self.unacked += count
        self.ready_bytes -= nbytes
        self.unacked_bytes += nbytes
        return count

    def passed_on(self, runs: int) -> int:
        """This many of the fresh runs, from the first on, went to a consumer that acknowledges nothing, while there
        was nothing else here: they are settled, and were never anywhere. How many messages that are."""
        store = self.store
        fresh = self.fresh
        if runs == len(fresh):
            count, body_bytes, nbytes = self.ready, self.ready_bytes, store.memory_bytes
            self.fresh = []
        else:
            count = body_bytes = nbytes = 0
            for run in fresh[:runs]:
                count += run.count
                body_bytes += run.body_bytes
                nbytes += run.memory_bytes
            del fresh[:runs]
        self.ready -= count
        self.ready_bytes -= body_bytes
        store.memory_bytes -= nbytes
        store.released_bytes += nbytes
        store.next_seq += count
        if store.numbers is not None:
            store.numbers.used(store.next_seq)
        store.cursor = store.next_seq
        return count

    def take(self, limit: int, nbytes: int = 0, alike: bool = False) -> Piece | None:
        """The next piece of ready messages, at most `limit` of them and from one run; with `nbytes`, no more than
        make up this many bytes of bodies; with `alike`, the run is no batch. None when nothing is
        ready, when it must be read first (`wanted`), or when it cannot be read."""
        store = self.store
        if self.fresh:
            self.take_in()
        if self.returned:
            return self._take_returned(limit, nbytes, alike)
        segments = store.segments
        while store.at < len(segments):
            segment = segments[store.at]
            low = store.cursor - segment.first
            if segment.gone is None:
                if low < segment.head:
                    low = segment.head
                high = min(low + limit, segment.last - segment.first + 1)
            else:
                low, high = segment.next_live(low, limit)
            if low >= high:
                if store.at == len(segments) - 1:
                    return None
                store.at += 1
                store.cursor = segments[store.at].first
                continue
            seq = segment.first + low
            if self.leaving:
                leaving_from, leaving_to = self.leaving.first
                if leaving_from <= seq:
                    # The cursor has come to it, or has passed it.
                    self.leaving.cut(leaving_from, leaving_to)
                    store.cursor = max(seq, leaving_to + 1)
                    continue
                high = min(high, leaving_from - segment.first)
            if segment.runs is None:
                if not segment.damage:
                    self.wanted = (segment.first, segment.last)
                return None
            redelivered = seq < self.redelivered_below
            if redelivered:
                end = self.redelivered_below
                if self.delivered is not None:
                    redelivered, end = self.delivered.at(seq)
                high = min(high, end - segment.first)
            run, start, stop = segment.alike(low, high) if alike else segment.piece(low, high)
            if nbytes:
                stop = _making_up(run, start, stop, nbytes)
            count = stop - start
            store.cursor = seq + count
            self.ready -= count
            self.unacked += count
            nbytes = run.bytes_in(start, stop)
            self.ready_bytes -= nbytes
            self.unacked_bytes += nbytes
            self.arrived_ms = segment.published_ms if segment.arrivals is None else segment.arrival(low)
            return run, start, stop, seq, redelivered
        return None

    def next_returned(self, limit: int) -> int:
        """How many of those that came back `take` gives at once, all with the same properties; there must be one. 1
        when it must be read first."""
        store = self.store
        first, last = self.returned.first
        segment = store.segments[store.index_of(first)]
        if segment.runs is None:
            return 1
        low = first - segment.first
        run, start, stop = segment.piece(low, min(low + limit, last - segment.first + 1))
        return 1 if run.mixed else stop - start

    def _take_returned(self, limit: int, nbytes: int, alike: bool) -> Piece | None:
        store = self.store
        first, last = self.returned.first
        segment = store.segments[store.index_of(first)]
        if segment.runs is None:
            if not segment.damage:
                self.wanted = (segment.first, segment.last)
            return None
        redelivered = True
        if self.undelivered is not None:
            redelivered, last = self._again(first, last)
        low = first - segment.first
        high = min(low + limit, last - segment.first + 1)
        run, start, stop = segment.alike(low, high) if alike else segment.piece(low, high)
        if nbytes:
            stop = _making_up(run, start, stop, nbytes)
        taken, nbytes = stop - start, run.bytes_in(start, stop)
        if not redelivered and self.undelivered is not None:
            self.undelivered.cut(first, first + taken - 1)
        self.returned.remove_first(taken)
        self.ready -= taken
        self.unacked += taken
        self.ready_bytes -= nbytes
        self.unacked_bytes += nbytes
        self.arrived_ms = segment.arrival(low)
        return run, start, stop, first, redelivered

    def _again(self, first: int, last: int) -> tuple[bool, int]:
        """Of first..last, which came back: whether the first one was delivered before, and up to which one that is
        the same."""
        assert self.undelivered is not None
        if not self.undelivered:
            self.undelivered = None
            return True, last
        for low, high in self.undelivered.within(first, last):
            return (False, high) if low == first else (True, low - 1)
        return True, last

    def oldest_ms(self) -> int | None:
        """When the first ready message came, in ms since the epoch; None when there is none."""
        store = self.store
        if self.returned:
            first = self.returned.lowest()
            segment = store.segments[store.index_of(first)]
            return segment.arrival(first - segment.first)
        for segment in store.segments[store.at :] if self.ready else ():
            low, high = segment.next_live(store.cursor - segment.first, 1)
            if low < high:
                return segment.arrival(low)
        return None

    def settle(self, first: int, last: int, cause: int = ACKED, instead: int = 0) -> int:
        """The taken messages first..last are done. The number of those that were not before."""
        if self.leaving:
            self.settle_leaving(first, last)
        count, nbytes = self.store.settle(first, last, True, cause, instead)
        self.unacked -= count
        self.unacked_bytes -= nbytes
        if self.store.miscounted_bytes:
            self.count_again()
        return count

    def requeue(self, first: int, last: int) -> None:
        """The taken messages first..last are ready again, at their place."""
        store = self.store
        # One interval stays inside one segment, so that it can be taken and read back in one piece.
        index = store.index_of(first)
        while first <= last:
            segment = store.segments[index]
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
                store.agenda.add(segment, 0)
            first = end + 1
            index += 1

    def mark_delivered(self, ahead: bool) -> None:
        """Let the journal know how far deliveries may have come, so that a restart can tell what is redelivered. With
        `ahead`, while there are consumers, the mark runs ahead; without, also at a shutdown, it goes back to what is
        true, never below what an earlier run had delivered."""
        store = self.store
        if not store.journalled:
            return
        cursor = store.cursor
        distance = MARK_AHEAD_MESSAGES if ahead else 0
        mark = max(cursor + distance, self.redelivered_below)
        if cursor > self._marked - distance // 2 or (not distance and mark < self._marked):
            self._marked = mark
            store.journal.delivered(self.queue_id, mark)

    def leave(self, first: int, last: int, cause: int, instead: int = 0) -> int:
        """The ready messages first..last leave the queue; how many that are."""
        store = self.store
        if first < store.cursor:
            self.returned.cut(first, last)
        count, nbytes = store.settle(first, last, False, cause, instead)
        self.ready -= count
        self.ready_bytes -= nbytes
        if store.miscounted_bytes:
            self.count_again()
        return count

    def begin_leaving(self, segment: Segment, first: int, last: int) -> None:
        """Ready messages count as unacked. What stands at the cursor is passed; what stands behind it will be."""
        store = self.store
        if first < store.cursor:
            self.returned.cut(first, last)
        elif segment is store.segments[store.at] and (
            segment.first + segment.next_live(store.cursor - segment.first, 1)[0] == first
        ):
            store.cursor = last + 1
        else:
            self.leaving.add(first, last)
        count, nbytes = last - first + 1, segment.bytes_in(first, last)
        self.ready -= count
        self.unacked += count
        self.ready_bytes -= nbytes
        self.unacked_bytes += nbytes
        if segment.estimated:
            segment.taken_bytes += nbytes

    def settle_leaving(self, first: int, last: int) -> None:
        """Of first..last, what was leaving has left."""
        for part in self.leaving.within(first, last):
            self.leaving.cut(*part)

    def not_leaving(self, first: int, last: int) -> list[tuple[int, int]]:
        """Parts of first..last, at or behind the cursor."""
        found: list[tuple[int, int]] = []
        for low, high in self.leaving.within(first, last):
            if first < low:
                found.append((first, low - 1))
            first = high + 1
        if first <= last:
            found.append((first, last))
        return found

    def ready_in(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ready ones among the unsettled messages first..last of one segment, in order."""
        store = self.store
        found = self.returned.within(first, min(last, store.cursor - 1)) if first < store.cursor else []
        if last >= store.cursor:
            found.append((max(first, store.cursor), last))
        return found

    def count_again(self) -> None:
        store = self.store
        self.ready_bytes += store.miscounted_bytes
        self.unacked_bytes -= store.miscounted_bytes
        store.miscounted_bytes = 0

    def standing(self) -> list[tuple[int, int, bool]]:
        """(first, last, persistent) of what is here, ready or not, neighbours in one."""
        if self.fresh:
            self.take_in()
        return self.store.standing()

    def drop(self) -> None:
        """The queue is deleted: its messages leave the disk, and memory. `ready` still says what it had. Clients may
        hold on to the queue for as long as they do not settle what they have of it, its messages need not stay."""
        book = self.store.book
        if book is not None:
            for first, last, _ in self.standing():
                book.ended(first, last, QUEUE_DELETED)
        self.store.drop()
        self.fresh, self.wanted, self.leaving = [], None, Stretches()
        self.returned.clear()
        self.undelivered = self.delivered = None


def _making_up(run: Run, start: int, stop: int, nbytes: int) -> int:
    """Behind as many of the messages start..stop-1 as make up this many bytes of bodies; at least one."""
    if run.mixed:
        end = start + 1
        nbytes -= run.bytes_in(start, end)
        while nbytes > 0 and end < stop:
            nbytes -= run.bytes_in(end, end + 1)
            end += 1
        return end
    return min(stop, start + (max(1, -(-nbytes // run.body_size)) if run.body_size else 1))
