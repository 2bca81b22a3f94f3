"""How far each source of a journal is: its last transaction, what of it is committed, what waits for that.

What comes in: the records of sources, as they are on the disk. What goes out: whether something is committed; whether
something that waits for that may leave the disk.
Rules: 1. The order is by (epoch, idx), never by idx alone. 2. What is stored of the local source is committed; of any
other one, what the disk was told. 3. Nothing changes here before it is on the disk. 4. The local source's record may
be a few transactions of one row behind (`one_row.py`); those rows say so themselves.
Not here: what a transaction that is under way changes (`draft.py`), SQL (`statements.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from amqpd.journal.records import SeqRange
from amqpd.journal.sqlite import checksums
from amqpd.journal.sqlite.entry_checks import QueueEnds
from amqpd.journal.sqlite.payload import triples
from amqpd.journal.sqlite.schema import HEAD_COLUMNS, SOURCE
from amqpd.peers.entry import START, Position

RANGE_BYTES = 24
"""of `HeldRanges.packed`"""
BEHIND_MAX = 64
"""The local source's record is written at least once in this number of transactions of one row."""


@dataclass(slots=True)
class SourceHead:
    """The record of a source."""

    source: int
    epoch: int = 0
    idx: int = 0
    reserved: int = 0
    replicated: bool = False
    committed: Position = START
    """of a replicated source: at least this far"""

    @property
    def position(self) -> Position:
        return self.epoch, self.idx

    def is_committed(self, position: Position) -> bool:
        return not self.replicated or position <= self.committed

    def at(self, position: Position, reserved: int = 0) -> SourceHead:
        """As it is with this as its last transaction."""
        committed = self.committed if self.replicated else START
        return SourceHead(self.source, *position, reserved or self.reserved, self.replicated, committed)

    def record(self, identity: str) -> tuple[int, ...]:
        said = (self.source, self.epoch, self.idx, self.reserved, int(self.replicated), *self.committed)
        return (*said, checksums.of_source(*said, identity))

    def parameters(self, identity: str, rows: int = 0) -> dict[str, int]:
        """Of `statements.PUT_HEAD`."""
        return dict(zip(HEAD_COLUMNS, self.record(identity), strict=True)) | {"more_rows": rows}


class HeldRanges(NamedTuple):
    """Ranges of a source whose rows leave the disk when this position of the source is committed."""

    source: int
    position: Position
    packed: bytes
    """as an entry has them: nobody looks at them while they wait"""

    @property
    def ranges_count(self) -> int:
        return len(self.packed) // RANGE_BYTES

    @property
    def ranges(self) -> list[SeqRange]:
        return [SeqRange(*each) for each in triples(self.packed)]


@dataclass(frozen=True, slots=True)
class StagedState:
    """The staged state of a source, which is to take the place of what stands (`staging.py`)."""

    first_row: int
    """in `batch`; from this one on, rows of the source are staged"""
    count: int = 1
    """of its records"""
    last: Position | None = None
    """its last entry; None: the state has not come yet"""
    base: Position = START
    """up to there is what the state has"""


class SourceProgress:
    """The progress of each source of one journal: its last transaction, and what of it is committed."""

    def __init__(self, heads: dict[int, SourceHead], held: Iterable[HeldRanges] = (), behind: int = 0) -> None:
        self.heads = heads
        self.behind = behind
        """transactions of one row that the local source's record on the disk does not tell of, nor count"""
        self._due = True
        """that record is written with the next transaction"""
        self.local = heads.setdefault(SOURCE, SourceHead(SOURCE))
        self.held = list(held)
        self.staged: dict[int, StagedState] = {}
        self.stale: dict[int, int] = {}
        """source -> first row of what an earlier process staged, or what was left out: that goes before anything else
        of it is written"""
        self.ends = QueueEnds()

    def head(self, source: int) -> SourceHead:
        """A source that is met for the first time is replicated, unless it is the local one."""
        return self.heads.get(source) or SourceHead(source, replicated=source != SOURCE)

    def is_committed(self, source: int, position: Position) -> bool:
        return self.head(source).is_committed(position)

    def leave_out(self, sources: Iterable[int]) -> None:
        """What was being staged of them is not gone on with."""
        for source in sources:
            if (staged := self.staged.pop(source, None)) is not None:
                self.stale[source] = staged.first_row

    @property
    def waits(self) -> bool:
        """Something that is committed may leave the disk."""
        return bool(self.stale) or any(self.is_committed(each.source, each.position) for each in self.held)

    @property
    def may_lag(self) -> bool:
        """The record of the local source need not be written with a transaction of one row."""
        return not self._due and self.behind + 1 < BEHIND_MAX

    def lag(self, idx: int) -> None:
        """The transaction of one row is on the disk, and the record is not."""
        self.local.idx = idx
        self.behind += 1

    def begin(self, head: SourceHead) -> None:
        """An epoch of the local source that the disk does not know of yet."""
        self.heads[SOURCE] = self.local = head
        self._due = True

    def log_begins(self) -> None:
        """What is written now is in a new log, perhaps: it has the record from its start, so that it does not fit an
        older database."""
        self._due = True

    def record_due(self) -> None:
        """Transactions that had nothing were left out. Rows that the record does not tell of follow it one by one."""
        self._due = True

    def put(self, heads: Iterable[SourceHead]) -> None:
        """These are on the disk."""
        for head in heads:
            self.heads[head.source] = head
            if head.source == SOURCE:
                self.local, self.behind, self._due = head, 0, False
