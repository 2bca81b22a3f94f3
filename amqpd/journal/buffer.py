"""What gathers for the next group commit: the pure half of the journal.

What comes in: segments of durable queues as they are filled, settled ranges, delivered marks, counts of messages that
came back, deleted queues, how far operations of edges are. What goes out: one `JournalTransaction` at a time for the
disk, and two numbers back: everything that was handed in while `index` had the value of `stored_index`, or a smaller
one, is on this disk; and of `committed_index`, cannot be undone any more. Confirms wait for committed, what leaves
memory for stored. A node without replicas commits what it stores.
Rules: 1. `take` is called only when the transaction before is stored: one writer, in order. 2. A message that is
settled before it is taken is never written. 3. A row is deleted in a later transaction than the one that records its
settling, and the disk keeps it until that is committed (docs/decisions/sources-and-tails.md). 4. What is persistent
goes with the next transaction, for somebody waits for it; what is only to leave memory goes a part at a time. 5. A
queue is of the local source, unless `assign` says of which other one, with a leader here. 6. The mark of an operation
is in the transaction that has its effects, and of a replicated source in the same entry
(docs/decisions/operation-marks.md).
Not here: threads and SQL (`writer.py`, `sqlite/disk.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

from amqpd.journal.lane import JournalLane, Lane
from amqpd.journal.led_sources import LedSource, divide, lanes_of
from amqpd.journal.numbers import Numbers
from amqpd.journal.operation_marks import GatheringMarks, MarkRecord
from amqpd.journal.pending_row import PendingRow
from amqpd.journal.records import LOCAL, SeqRange
from amqpd.journal.storing import bytes_of, store, store_settled
from amqpd.journal.transaction import JournalTransaction
from amqpd.journal.unwritten import UnwrittenQueues
from amqpd.journal.withheld import Withheld, going_elsewhere
from amqpd.peers.entry import Position
from amqpd.replication.replica import Write, source_of

# Of transient messages that leave memory, so much goes with one transaction, the rest with the next ones. The bodies
# are copied three times on their way to the disk, and what else the transaction holds waits for them: with 8 MB that
# is some 20 ms; larger transactions are not faster.
PAGED_BYTES_MAX = 8 << 20
# A row takes as long as this many bytes, and a range of settled messages that goes with it: with 4 kB for a row the
# loop makes some ten thousand of them for one transaction, which takes it 15 ms. One that is gone counts as a range.
ROW_BYTES, RANGE_BYTES = 4096, 512
# Why publishers wait for the journal: for the writer, for replicas, or until more numbers of a source are reserved.
FullBecause = Literal["disk", "majorities", "numbers"]
FULL_BYTES = 32 << 20  # while more waits for the writer, publishers are not read: some tens of ms of any disk
# Not more takes a disk as long as an empty transaction does, within some 100 us.
SMALL_RECORDS, SMALL_BYTES = 64, 256 << 10
LED_SMALL_BYTES = 32 << 10  # an entry is joined, summed and sent before
SETTLES_SOON_BYTES = 32 << 10  # some consumers take messages one at a time; of a stream, something always is left
FADING = 8  # what a transaction brought counts this many ones later for a third of it


class JournalBuffer:
    """The buffer of what queues hand in for the disk, until it is taken as transactions."""

    def __init__(self, index: int = 0) -> None:
        """`index` is the last transaction that recovery found."""
        self.stored_index = self.committed_index = index
        self.led_sources: dict[int, LedSource] = {}
        """source -> what this node has as its leader; without the local source"""
        self._sources: dict[int, int] = {}
        """queue_id -> source, of queues that are not of the local one"""
        self.replicates = False
        """this node has, or keeps, sources that are replicated: that more of them is committed is told at any time"""
        self.lagging = False
        """the lane of some source is (`Lane.lagging`), since replicas do not answer"""
        self.overfull = False
        """all of these together have more in memory than there is space for"""
        self._withheld = Withheld()
        self._lanes: list[Lane] = []
        """of the leaders, each once"""
        self._gone: list[int] = []
        """those of them that were deleted with the last transaction"""
        self._writes: list[Write] = []
        self.writes_bytes = 0
        """of what gathers and was sent by leaders: while there is any, a commit follows"""
        self._committed: dict[int, Position] = {}
        """by source"""
        self.begins = 0
        """queues of the local source go on with this number after a start, or a higher one; see `numbers.py`"""
        self.index = index + 1
        """the transaction that gathers now"""
        self.lane = JournalLane(self.force, self.index, index)
        """of the local source"""
        self.gathered_bytes = 0
        """bytes of bodies handed in and not yet taken; an upper bound, for back-pressure"""
        self.came = 0
        """how often something persistent came into a queue for the transaction that gathers: about as many clients
        wait for it, if they send one message at a time"""
        self.came_before = 0
        """in the last ones: the largest number, which fades"""
        self.unwritten = UnwrittenQueues()
        """what of it is settled before it is taken"""
        self._segments: list[tuple[int, PendingRow]] = []
        self._paged: deque[tuple[int, PendingRow, int]] = deque()
        """what is only to leave memory, with its bytes; hundreds of thousands, maybe, so nothing walks through all"""
        self._paged_bytes = 0
        self._paged_dropped: set[int] = set()
        """queues that were deleted while something waits in `_paged`"""
        self._settled: list[SeqRange] = []
        self._last_settled: SeqRange | None = None
        self._last_segment: PendingRow | None = None
        self._retired: list[SeqRange] = []
        self._deletable: list[SeqRange] = []
        self._delivered: dict[int, int] = {}
        self._counts: dict[int, dict[int, int]] = {}
        """queue_id -> seq -> count"""
        self._dropped: list[int] = []
        self._marks: dict[int, GatheringMarks] = {}
        """by source: of operations whose effects gather"""
        self._forced = False
        self.held = 0
        """this many gather what must be in one transaction, and are not done"""

    @property
    def pending(self) -> bool:
        """There is something to commit, and it may be."""
        return not self.held and self.gathered

    @property
    def gathered(self) -> bool:
        """There is something to commit."""
        return bool(
            self._segments
            or self._paged
            or self._settled
            or self._last_settled
            or self._retired
            or self._delivered
            or self._counts
            or self._dropped
            or self._marks
            or self._forced
            or self._writes
            or (self.led_sources and any(led.numbers.wanted for led in self.led_sources.values()))
        )

    @property
    def urgent(self) -> bool:
        """Somebody may wait for a commit of what gathers; for acknowledgements nobody does."""
        rare = self._dropped or self._paged or self._counts
        wanted = self.led_sources and any(led.numbers.wanted for led in self.led_sources.values())
        return bool(self._segments or self._forced or self._writes or rare or wanted)

    @property
    def settles_soon(self) -> bool:
        """Little gathers, and all of it that has to be written is messages which consumers may settle before."""
        return (
            self.unwritten.is_left
            and self.gathered_bytes <= SETTLES_SOON_BYTES
            and not (self._writes or self._dropped or self._marks or self._paged or self._counts)
        )

    @property
    def small(self) -> bool:
        """A commit of what gathers takes little more than a sync."""
        records = len(self._segments) + len(self._settled) + len(self._retired) + len(self._deletable)
        return (
            records + len(self._delivered) + len(self._marks) <= SMALL_RECORDS
            and self.gathered_bytes <= (LED_SMALL_BYTES if self.led_sources else SMALL_BYTES)
            and not (self._paged or self._counts or self._dropped or self._writes)
        )

    def lead(self, source: int, epoch: int, numbers: Numbers, lane: Lane) -> None:
        """From now on this node leads the source, in this epoch. `lane`: what confirms of its queues wait
        for, by the index of the journal."""
        self.led_sources[source] = LedSource(epoch, numbers, lane)
        self._lanes = lanes_of(self.led_sources)

    def move(self, source: int) -> None:
        """It is kept by others from now on: the transaction that gathers has an entry of it."""
        self.led_sources[source].numbers.renew()

    def leave(self, source: int) -> None:
        """This node is not the leader of the source any more: what gathers of its queues, which are gone, is not
        written. A transaction that was cut before may have some, see `JournalWriter`."""
        del self.led_sources[source]
        self._marks.pop(source, None)
        self._lanes = lanes_of(self.led_sources)
        gone = {queue_id for queue_id, number in self._sources.items() if number == source}
        for queue_id in gone:
            del self._sources[queue_id]
            self._delivered.pop(queue_id, None)
            self._counts.pop(queue_id, None)
        self.unwritten.forget(gone)
        self._withheld.forget(gone)
        self._withheld.leave(source)
        if self._last_settled is not None:
            self._settled.append(self._last_settled)
        self._last_settled = self._last_segment = None
        self._settled = [each for each in self._settled if each.queue_id not in gone]
        self._retired = [each for each in self._retired if each.queue_id not in gone]
        self._dropped = [each for each in self._dropped if each not in gone]
        if any(queue_id in gone for queue_id, _ in self._segments):
            self.stray()
        self._segments = [each for each in self._segments if each[0] not in gone]
        self._paged = deque([each for each in self._paged if each[0] not in gone])
        self._paged_bytes = sum([nbytes for _, _, nbytes in self._paged])

    def write(self, writes: Sequence[Write]) -> int:
        """To be carried out, in order, with the transaction that gathers now: its index. They are on the disk when
        `stored_index` has reached that. What a replica answers waits for it."""
        self._writes += writes
        nbytes = sum(map(bytes_of, writes))
        self.writes_bytes += nbytes
        self.gathered_bytes += nbytes
        return self.index

    def note_committed(self, source: int, position: Position) -> None:
        """The source is, up to this entry, which is written with this transaction or an earlier one, and stands (what
        is staged tells that with `StateInstall`). Told to the disk some time: it only frees space, so nobody
        waits."""
        self._committed[source] = max(position, self._committed.get(source, position))

    def leave_out(self, source: int) -> None:
        """What gathers of it goes on from what was not written, and is not written either."""
        self._writes = [write for write in self._writes if source_of(write) != source]
        self._committed.pop(source, None)

    def nothing_committed(self, source: int) -> None:
        """All of it goes with what is written next."""
        self._committed.pop(source, None)

    def assign(self, queue_id: int, source: int) -> None:
        """The queue, of which nothing was handed in yet, is of this source."""
        self._sources[queue_id] = source

    def lane_of(self, queue_id: int) -> Lane:
        """What confirms of the queue's messages wait for."""
        source = self._sources.get(queue_id)
        return self.lane if source is None else self.led_sources[source].lane

    def numbers_of(self, queue_id: int) -> Numbers | None:
        """What a queue's sequence numbers are bounded by; None: of the local source, which reserves none."""
        source = self._sources.get(queue_id)
        return None if source is None else self.led_sources[source].numbers

    @property
    def full(self) -> bool:
        """All publishers wait, see `full_because`."""
        return self.full_because is not None

    @property
    def full_because(self) -> FullBecause | None:
        """What all publishers wait for; of several reasons the one that comes first."""
        if self.gathered_bytes > FULL_BYTES:
            return "disk"
        if self.overfull:
            return "majorities"
        short = self.led_sources and any(led.numbers.short for led in self.led_sources.values())
        return "numbers" if short else None

    def append(self, queue_id: int, segment: PendingRow) -> None:
        """The segment will be in the transaction that gathers now, with all that is added to it until then; or in a
        later one, if it is not persistent: then `PendingRow.index` is true when it is `stored`."""
        segment.index = self.index
        if self.led_sources and (source := self._sources.get(queue_id)) is not None:
            # Also of what is settled before it is written: with replicas, a confirm waits for their word.
            self.led_sources[source].lane.force()
        if segment.persistent:
            self._segments.append((queue_id, segment))
            self.unwritten.append(queue_id)
            self.gathered_bytes += ROW_BYTES
        else:
            self._paged.append((queue_id, segment, segment.nbytes))
            self._paged_bytes += segment.nbytes
        self.gathered_bytes += segment.nbytes

    def grow(self, queue_id: int, nbytes: int) -> None:
        """These bytes of persistent messages came into the entry that was appended last for the queue."""
        self.gathered_bytes += nbytes
        self.came += 1
        self.unwritten.came(queue_id)

    def drop_settled(self) -> list[int]:
        """The end of a tick: queues of which all that gathers was settled, and need not be written. What waits for
        these entries waits for nothing. If that is so of all queues, they are no reason for a commit."""
        unwritten = self.unwritten
        settled = unwritten.look()
        if settled and not unwritten.is_left:
            for queue_id, segment in self._segments:
                self._forget_counts(queue_id, segment)
            self._segments = []
            self.came = 0
            self.gathered_bytes = self._paged_bytes + self.writes_bytes
        return settled

    def settle(self, queue_id: int, segment: PendingRow, first: int, last: int) -> None:
        """first..last, inside the stored segment, of which something is left, are settled."""
        previous = self._last_settled
        if previous is not None:
            # Acks come one by one and in order mostly. A range stays inside one row.
            if self._last_segment is segment and previous.last_seq + 1 == first:
                self._last_settled = SeqRange(queue_id, previous.first_seq, last)
                return
            self._settled.append(previous)
        self._last_settled, self._last_segment = SeqRange(queue_id, first, last), segment

    def retire(self, queue_id: int, first: int, last: int) -> None:
        """All of the stored segment first..last is settled: its rows may go, once that is on disk."""
        self._retired.append(SeqRange(queue_id, first, last))

    def delivered(self, queue_id: int, below: int) -> None:
        """Everything below this sequence number has been delivered at least once."""
        self._delivered[queue_id] = below

    def count(self, queue_id: int, seq: int, count: int) -> None:
        """The message, which is not settled, has come back this many times by now."""
        counts = self._counts.get(queue_id)
        if counts is None:
            counts = self._counts[queue_id] = {}
        counts[seq] = count

    def drop(self, queue_id: int) -> None:
        """The queue is deleted, with all its messages."""
        self._dropped.append(queue_id)
        self._withheld.forget((queue_id,))
        if self._paged:
            self._paged_dropped.add(queue_id)
        self._delivered.pop(queue_id, None)
        self._counts.pop(queue_id, None)

    def note_mark(self, source: int, record: MarkRecord) -> None:
        """It will be in the transaction that gathers now, with what the operations did that it speaks of: so it is
        called before the loop goes on. Raises ValueError for a source that is neither the local one nor led here."""
        if source != LOCAL and source not in self.led_sources:
            raise ValueError(f"source {source} has its leader elsewhere: no mark of an operation is written here")
        marks = self._marks.get(source)
        if marks is None:
            marks = self._marks[source] = GatheringMarks()
        marks.note(record)

    def stray(self) -> None:
        """What goes on elsewhere did not all arrive: none of it is settled on the disk (`Withheld`, rule 4)."""
        self._withheld.strayed |= self.unwritten.gone_on

    def hold(self) -> None:
        """Commit nothing until `release`: what gathers until then is to be in one transaction, others in between."""
        self.held += 1
        self.unwritten.together()

    def release(self) -> None:
        """One that held the journal is done."""
        assert self.held > 0
        self.held -= 1

    def force(self) -> None:
        """Commit even when there is nothing to write: somebody waits for `index` to be durable."""
        self._forced = True

    def take(self) -> JournalTransaction:
        """Cut the transaction that has gathered, and begin the next one."""
        transaction = JournalTransaction(self.index)
        self.index += 1
        self.lane.gathering = self.index
        for lane in self._lanes:
            lane.gathering = self.index
        if self._paged:
            self._take_paged(transaction)
        dropped = set(self._dropped)
        going, entered = set[int](), set[int]()
        if self.led_sources and self.unwritten.gone_on:
            of = self._sources
            comes = [each for each, segment in self._segments if segment.left and each not in dropped]
            entered = {of.get(each, LOCAL) for each in comes}
            going = going_elsewhere(self.unwritten.gone_on, entered, of) - dropped
        strayed = self._withheld.strayed
        for queue_id, segment in self._segments:
            segment.sealed = True
            if segment.left == 0 and queue_id not in dropped and (queue_id in going or queue_id in strayed):
                store_settled(transaction, queue_id, segment, self._retired)
            elif segment.left == 0 or queue_id in dropped:
                self._forget_counts(queue_id, segment)
            else:
                store(transaction, queue_id, segment)
        if self._last_settled is not None:
            self._settled.append(self._last_settled)
        transaction.settled += self._settled
        transaction.settled += self._retired
        transaction.deletes = self._deletable
        transaction.delivered = self._delivered
        if self._counts:
            transaction.counts = [(q, seq, n) for q, counts in self._counts.items() for seq, n in counts.items()]
        transaction.dropped = self._dropped
        retired = self._withheld.withhold(transaction, self._retired, going, entered, self.led_sources, self.lane)
        self._withheld.release(transaction, retired)
        self._deletable = retired
        self._segments, self._settled, self._retired = [], [], []
        self._last_settled = self._last_segment = None
        self.unwritten.take()
        if self.came:
            self.came_before = max(self.came, self.came_before - self.came_before // FADING - 1)
            self.came = 0
        self._delivered, self._counts, self._dropped, self._forced = {}, {}, [], False
        self.gathered_bytes = self._paged_bytes
        if self._writes or self._committed:
            transaction.writes, transaction.committed = self._writes, self._committed
            self._writes, self.writes_bytes, self._committed = [], 0, {}
        marks, self._marks = self._marks, {}
        if LOCAL in marks:
            transaction.marks = marks.pop(LOCAL).changes()
        if self.led_sources:
            self._deletable = divide(transaction, retired, self.led_sources, self._sources, marks)
            for queue_id in self._gone:
                self._sources.pop(queue_id, None)
            self._gone = [queue_id for entry in transaction.entries for queue_id in entry.dropped]
        return transaction

    def _take_paged(self, transaction: JournalTransaction) -> None:
        """As much as goes with one transaction."""
        paged, space = self._paged, PAGED_BYTES_MAX
        while paged and space > 0:
            queue_id, segment, nbytes = paged.popleft()
            self._paged_bytes -= nbytes
            if segment.left == 0 or queue_id in self._paged_dropped:
                self._forget_counts(queue_id, segment)
                space -= RANGE_BYTES
                continue
            space -= nbytes
            segment.index = transaction.index
            space -= ROW_BYTES + RANGE_BYTES * store(transaction, queue_id, segment)
        if not paged:
            self._paged_dropped.clear()

    @property
    def deletable(self) -> bool:
        """Rows wait to leave the disk; they go with the next transaction, whenever it comes."""
        return bool(self._deletable or self._committed or self._withheld.is_due)

    def stored(self, index: int) -> None:
        """The transactions up to `index` are on stable storage here."""
        assert self.stored_index < index < self.index, (self.stored_index, index, self.index)
        self.stored_index = index

    def committed(self, index: int) -> None:
        """The transactions up to `index` are committed, of the local source: stored, and nothing can undo them."""
        assert self.committed_index < index <= self.stored_index, (self.committed_index, index, self.stored_index)
        self.committed_index = self.lane.reported = index

    def source_committed(self, source: int, index: int) -> None:
        """The same of another source, of which this node is the leader. Its lane is not told by this."""
        self.led_sources[source].numbers.committed(index)

    def _forget_counts(self, queue_id: int, segment: PendingRow) -> None:
        """The segment is never written, so no row would take the counts of its messages along when it leaves."""
        counts = self._counts.get(queue_id)
        if counts:
            for seq in range(segment.first, segment.last + 1):
                counts.pop(seq, None)
