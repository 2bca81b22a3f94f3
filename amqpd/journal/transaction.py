"""One group commit.

What comes in: what `buffer.py` cuts. What goes out: `JournalTransaction`, which a disk commits.
Rules: 1. Everything of it is on the disk, or nothing. 2. A compiled class: a client that waits for each confirm makes
one with each message.
Not here: rows and ranges (`records.py`), when it is cut (`buffer.py`).
"""

from __future__ import annotations

from amqpd.journal.operation_marks import MarkChange
from amqpd.journal.records import Row, SeqRange, SourceEntry
from amqpd.peers.entry import Position
from amqpd.replication.replica import Appended, Write, source_of

BRIEF_RECORDS = 64


class JournalTransaction:
    """The numbered batch of records of the local source, and what is written of other sources.

    `index` grows by one with each transaction of this journal. `settled` ranges never cross a row's edge, or
    cover whole rows only. `deletes` are ranges whose settling an earlier transaction has committed: their rows
    and settled records leave the disk. `delivered` maps queue_id -> what stands below this sequence number may
    have been delivered; the last one written counts, also when it is lower. `counts` are (queue_id, seq, count): how
    often a message has come back (the delivery count of quorum queues); the last one written for a message counts,
    and it leaves the disk with the message's row. `dropped` are the ids of queues that were deleted.

    `marks`: how far the operations of edges are whose effects it has (`operation_marks.py`).

    `entries`, at most one of a source, are what this node has as a leader: before the disk gets the transaction each
    becomes an `Appended` of `writes` (`JournalWriter`). `writes` are carried out in order. `committed`: how far
    sources are known to be committed after that. `own`: sources of which this node made the writes; None: all.
    `unusable`: what was left out of it, source -> why, since another node made it and no disk takes it."""

    def __init__(
        self,
        index: int,
        rows: list[Row] | None = None,
        settled: list[SeqRange] | None = None,
        deletes: list[SeqRange] | None = None,
        delivered: dict[int, int] | None = None,
        counts: list[tuple[int, int, int]] | None = None,
        dropped: list[int] | None = None,
        entries: list[SourceEntry] | None = None,
        writes: list[Write] | None = None,
        committed: dict[int, Position] | None = None,
        marks: list[MarkChange] | None = None,
    ) -> None:
        self.index = index
        self.after = index - 1
        """the last transaction that the disk was given: those in between had nothing"""
        self.rows = [] if rows is None else rows
        self.settled = [] if settled is None else settled
        self.deletes = [] if deletes is None else deletes
        self.delivered = {} if delivered is None else delivered
        self.counts = [] if counts is None else counts
        self.dropped = [] if dropped is None else dropped
        self.entries = [] if entries is None else entries
        self.writes = [] if writes is None else writes
        self.committed = {} if committed is None else committed
        self.marks = [] if marks is None else marks
        self.own: frozenset[int] | None = None
        self.unusable: dict[int, str] = {}

    def leave_out(self, source: int, reason: str) -> None:
        """Nothing of this source is written. Several disks' threads may say so, one after the other."""
        self.unusable = {**self.unusable, source: reason}
        self.writes = [write for write in self.writes if source_of(write) != source]
        self.committed = {each: position for each, position in self.committed.items() if each != source}

    @property
    def writes_nothing(self) -> bool:
        """No disk need be given it: somebody waits for its number only. What is known to be `committed` waits."""
        return not (
            self.rows
            or self.settled
            or self.deletes
            or self.delivered
            or self.counts
            or self.dropped
            or self.marks
            or self.entries
            or self.writes
        )

    @property
    def is_brief(self) -> bool:
        """A disk takes little more than a sync for it, if its messages are few bytes: none of what is rare, which may
        take long, is in it."""
        records = len(self.rows) + len(self.settled) + len(self.deletes) + len(self.delivered) + len(self.writes)
        rare = self.counts or self.dropped or not all(isinstance(each, Appended) for each in self.writes)
        return records <= BRIEF_RECORDS and not rare

    @property
    def is_one_row(self) -> bool:
        """That of a client that waits for each confirm: one row without deadlines, and nothing else."""
        return (
            len(self.rows) == 1
            and not self.rows[0].deadlines
            and not (self.settled or self.deletes or self.delivered)
            and not (self.counts or self.dropped or self.marks)
            and not (self.entries or self.writes or self.committed)
        )
