"""What a transaction that is under way changes of what is known in memory of sources and queues.

What comes in: what is on the disk (`SourceProgress`, `Discards`, `QueueMarks`, `MarkRows`), then each write as it is
carried out. What goes out: how it is for the next write; the change itself, once all is on the disk.
Rules: 1. Nothing in memory changes before `apply`: a transaction that found the disk full is begun again from the
same state. 2. What one write changed the next one sees. 3. What leaves the disk is committed.
Not here: SQL (`entries.py`, `undoing.py`).
"""

from __future__ import annotations

from amqpd.journal.sqlite.discards import Discard, Discards
from amqpd.journal.sqlite.mark_rows import MarkRow, MarkRows, Place
from amqpd.journal.sqlite.queue_marks import Mark, QueueMarks
from amqpd.journal.sqlite.schema import SEQ_MAX, SOURCE
from amqpd.journal.sqlite.sources import HeldRanges, SourceHead, SourceProgress, StagedState
from amqpd.peers.entry import START, Position


class Draft:
    """The changes of one transaction to what is known in memory of sources and queues, applied when it is on the
    disk."""

    def __init__(
        self, sources: SourceProgress, discards: Discards, marks: QueueMarks, operations: MarkRows, next_row: int
    ) -> None:
        self._operations = operations
        self.operation_rows: dict[Place, MarkRow | None] = {}
        """of edges, that change; None: there is none any more"""
        self._sources = sources
        self._discards = discards
        self._marks = marks
        self.heads: dict[int, SourceHead] = {}
        """those that change"""
        self.marks: dict[int, Mark | None] = {}
        """of queues whose mark changes; None: it has none any more"""
        self.held = list(sources.held)
        """all that is held then"""
        self.begun: list[Discard] = []
        self.undone: list[tuple[int, Position]] = []
        """sources, and up to where they stand still"""
        self.ends = sources.ends
        """of queues: what is too high in it after a transaction that was not committed costs a look at the disk"""
        self.next_row = next_row
        """the number of the next row in `batch`"""
        self.timed: set[int] = set()
        """queues that may have deadlines from now on"""
        self.counted: set[int] = set()
        """the same for counts of returned messages"""
        self._staged: dict[int, StagedState | None] = {}

    def head(self, source: int) -> SourceHead:
        return self.heads.get(source) or self._sources.head(source)

    def mark(self, queue_id: int) -> Mark | None:
        return self.marks[queue_id] if queue_id in self.marks else self._marks.of(queue_id)

    def operations(self, source: int) -> dict[str, MarkRow]:
        """By forwarder: what there is of the operations of its clients."""
        found = dict(self._operations.of(source))
        for (of, forwarder), row in self.operation_rows.items():
            if of == source:
                found.pop(forwarder, None)
                if row is not None:
                    found[forwarder] = row
        return found

    def has_operations(self, source: int) -> bool:
        """Former versions of what is said of them may be on the disk."""
        return self._operations.has(source) or any(of == source for of, _ in self.operation_rows)

    def staged(self, source: int) -> StagedState | None:
        """What is staged of it."""
        return self._staged[source] if source in self._staged else self._sources.staged.get(source)

    def stage(self, source: int, staged: StagedState | None) -> None:
        """This is."""
        self._staged[source] = staged

    def add_source(self, source: int) -> None:
        """There is a record of it from now on."""
        self.heads.setdefault(source, self._sources.head(source))

    def commit(self, source: int, position: Position) -> None:
        """It is so far. Raises ValueError for what is not stored, which would be kept for committed when something
        else takes its place."""
        head = self.head(source)
        if source == SOURCE or position > head.position:
            raise ValueError(f"{position} of source {source} is not stored here, which ends at {head.position}")
        if position > head.committed:
            self.heads[source] = SourceHead(source, *head.position, head.reserved, head.replicated, position)

    def undo(self, source: int, position: Position, *, replaced: bool = False) -> None:
        """Nothing of it above this position stands. Raises ValueError for what is committed, unless that is
        `replaced` by the same from elsewhere."""
        head = self.head(source)
        if not (replaced or head.committed <= position) or position > head.position or source == SOURCE:
            raise ValueError(
                f"source {source} is at {head.position}, committed {head.committed}: no undo to {position}"
            )
        self.ends.forget(source)
        committed = min(head.committed, position)
        self.heads[source] = SourceHead(source, *position, head.reserved, head.replicated, committed)
        self.undone.append((source, position))
        self.held = [each for each in self.held if each.source != source or each.position <= position]
        self.begun = [each for each in self.begun if each.source != source or each.position <= position]

    def discard(self, ranges: list[tuple[int, int, int, int, int, int]]) -> None:
        """(queue_id, first_seq, last_seq, source, epoch, idx) leave the disk in pieces."""
        self.begun += self._discards.numbered(ranges)

    def release(self, ranges_max: int) -> list[HeldRanges]:
        """What may leave the disk with this transaction, oldest first; at least one, if there is any, and not above
        this many ranges."""
        released: list[HeldRanges] = []
        kept: list[HeldRanges] = []
        ranges, full = 0, False
        for each in self.held:
            ready = not full and self.head(each.source).is_committed(each.position)
            if ready:
                ranges += each.ranges_count
                full = bool(released) and ranges > ranges_max
            (released if ready and not full else kept).append(each)
        self.held = kept
        return released

    def dropped(self) -> list[int]:
        """Queues whose drop is committed with this transaction."""
        waiting = self._discards.waiting
        if self.undone:
            waiting = [each for each in waiting if self._stands(each)]
        return [
            each.queue_id
            for each in (*waiting, *self.begun)
            if each.last_seq == SEQ_MAX and self.head(each.source).is_committed(each.position)
        ]

    def _stands(self, discard: Discard) -> bool:
        """It was begun before, and the transaction undoes no more than what came after it. Else its (epoch, idx) says
        nothing: what takes its place may be committed far above that."""
        return not any(discard.source == source and discard.position > position for source, position in self.undone)

    def drops(self, queue_id: int) -> bool:
        """The queue's drop was committed before, and is not gone with all that the source had."""
        replaced = {source for source, position in self.undone if position == START}
        return self._discards.drops(queue_id, unless_of=replaced)

    def forgettable(self) -> list[SourceHead]:
        """Of which more is committed than the disk knows: what was kept for an undo goes."""
        before = self._sources.heads
        return [
            head
            for source, head in self.heads.items()
            if head.committed > (before[source].committed if source in before else START)
        ]

    def apply(self) -> None:
        """It is on the disk."""
        self._sources.put(self.heads.values())
        self._sources.held = self.held
        self._sources.stale = {}
        self._marks.put(
            {queue_id: mark for queue_id, mark in self.marks.items() if mark is not None},
            [queue_id for queue_id, mark in self.marks.items() if mark is None],
        )
        self._operations.put(self.operation_rows)
        for source, staged in self._staged.items():
            self._sources.staged.pop(source, None)
            if staged is not None:
                self._sources.staged[source] = staged
        for source, position in self.undone:
            self._discards.undone(source, position)
        self._discards.committed()
