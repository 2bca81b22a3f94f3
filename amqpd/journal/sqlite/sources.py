"""How far each source of a journal is: its last transaction, what of it is committed, what waits for that.

What comes in: the records of sources, transactions, and the word that an (epoch, idx) is committed. What goes out:
whether something is committed; ranges whose rows may leave the disk now.
Rules: 1. The order is by (epoch, idx), never by idx alone. 2. What is stored of a source that is not replicated is
committed; of a replicated one, what the disk was told. 3. Nothing changes here before it is on the disk, except that
more is committed, which needs no writing: a start with an older word deletes later, and nothing else. 4. The local
source's record may be a few transactions of one row behind (`one_row.py`); those rows say so themselves.
Not here: SQL (`statements.py`), the undo of what is not committed (`undoing.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from amqpd.journal.records import Range
from amqpd.journal.sqlite import checksums
from amqpd.journal.sqlite.schema import HEAD_COLUMNS, SOURCE

Position = tuple[int, int]
"""(epoch, idx)"""
START: Position = (0, 0)
"""before every transaction"""
BEHIND_MAX = 64
"""The local source's record is written at least once in this number of transactions of one row."""


@dataclass(slots=True)
class Head:
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

    def at(self, position: Position, reserved: int = 0) -> Head:
        """As it is with this as its last transaction."""
        committed = self.committed if self.replicated else START
        return Head(self.source, *position, reserved or self.reserved, self.replicated, committed)

    def record(self, identity: str) -> tuple[int, ...]:
        said = (self.source, self.epoch, self.idx, self.reserved, int(self.replicated), *self.committed)
        return (*said, checksums.of_source(*said, identity))

    def parameters(self, identity: str, rows: int = 0) -> dict[str, int]:
        """Of `statements.PUT_HEAD`."""
        return dict(zip(HEAD_COLUMNS, self.record(identity), strict=True)) | {"more_rows": rows}


class Held(NamedTuple):
    """Ranges whose rows leave the disk when this position of the source is committed."""

    source: int
    position: Position
    ranges: list[Range]


class Sources:
    """How far the sources of one journal are."""

    def __init__(self, heads: dict[int, Head], held: Iterable[Held] = (), behind: int = 0) -> None:
        self.heads = heads
        self.behind = behind
        """transactions of one row that the local source's record on the disk does not tell of, nor count"""
        self._due = True
        """that record is written with the next transaction"""
        self.local = heads.setdefault(SOURCE, Head(SOURCE))
        self.held = list(held)
        self.replicated = any(head.replicated for head in heads.values())
        """of some source not all that is stored is committed"""
        self._told: dict[int, Position] = {number: head.committed for number, head in heads.items()}
        """what the disk knows to be committed"""

    def head(self, source: int) -> Head:
        """A source that is met for the first time is not replicated until that is said."""
        return self.heads.get(source) or Head(source)

    def is_committed(self, source: int, position: Position) -> bool:
        return self.head(source).is_committed(position)

    def committed(self, source: int, position: Position) -> bool:
        """True: more is committed than before. Raises ValueError for what is not stored, which would be kept for
        committed when something else takes its place."""
        head = self.heads.get(source)
        if head is None or position > head.position:
            raise ValueError(f"{position} of source {source} is not stored here")
        if not head.replicated or position <= head.committed:
            return False
        head.committed = position
        return True

    def unwritten(self) -> list[Head]:
        """Of which more is committed than their records say."""
        return [head for head in self.heads.values() if self._told.get(head.source, START) < head.committed]

    @property
    def waits(self) -> bool:
        """Something may leave the disk, or be written down as committed, and nothing did that yet."""
        return bool(self.releasable((), 0)) or bool(self.unwritten())

    def releasable(self, more: Iterable[Held], ranges_max: int) -> list[Held]:
        """What may leave the disk with the next transaction, of what is held and of `more`, oldest first; at least
        one, if there is any, and not above this many ranges."""
        found: list[Held] = []
        ranges = 0
        for each in (*self.held, *more):
            if self.is_committed(each.source, each.position):
                ranges += len(each.ranges)
                if found and ranges > ranges_max:
                    break
                found.append(each)
        return found

    def hold(self, held: Iterable[Held], released: Iterable[Held]) -> None:
        """These are on the disk as settled, and those are on their way off it: that is written."""
        gone = {id(each) for each in released}
        self.held = [each for each in (*self.held, *held) if id(each) not in gone]

    @property
    def may_lag(self) -> bool:
        """The record of the local source need not be written with a transaction of one row."""
        return not self._due and self.behind + 1 < BEHIND_MAX

    def lag(self, idx: int) -> None:
        """The transaction of one row is on the disk, and the record is not."""
        self.local.idx = idx
        self.behind += 1

    def begin(self, head: Head) -> None:
        """An epoch of the local source that the disk does not know of yet."""
        self.heads[SOURCE] = self.local = head
        self._due = True

    def log_begins(self) -> None:
        """What is written now is in a new log, perhaps: it has the record from its start, so that it does not fit an
        older database."""
        self._due = True

    def put(self, heads: Iterable[Head]) -> None:
        """These are on the disk."""
        for head in heads:
            self.heads[head.source] = head
            self._told[head.source] = head.committed
            if head.source == SOURCE:
                self.local, self.behind, self._due = head, 0, False
            else:
                self.replicated = any(each.replicated for each in self.heads.values())
