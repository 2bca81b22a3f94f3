"""Large deletions: what is to leave the disk and is too much for one commit.

What comes in: ranges of rows (a dropped queue, a purge). What goes out: pieces of bounded size that a commit takes
along or an idle moment carries out.
Rules: 1. A discard is durable with the transaction that begins it; from then on its rows do not exist for anyone,
a crash in between does not bring them back; an undo of that transaction does. They leave the disk when it is
committed. 2. A piece changes nothing here until `done` says that it is on disk, so it can be given up with its
transaction. 3. It concerns only rows up to its own (epoch, idx), so a queue id that were used again would be safe.
`Gone` is asked which discards a row belongs to, in ascending order: one sweep over both lists.
Not here: the transaction itself (`disk.py`).
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from amqpd.journal.records import SeqRange
from amqpd.journal.sqlite import queries
from amqpd.journal.sqlite.schema import SEQ_MAX
from amqpd.peers.entry import START, Position

PIECE_BYTES_MAX = 2 << 20
"""Deleting 2 MB of cold rows takes 0.9 ms here, about three fsyncs: what a commit may be late by."""
PIECE_ROWS_MAX = 256
"""The bound for small rows, same time."""
PIECE_SETTLED_MAX = 2048
"""Settled records of one discard that a piece deletes, same time; and as many counts of returned messages."""
PIECE_DISCARDS_MAX = 64
"""Dropped queues that are empty or small, many at a time."""
OUTFLOW = 2
"""A piece that goes with a commit is larger by this many times what the commit itself brings, so that discards leave
faster than they can gather, however busy the writer is."""


class Discard(NamedTuple):
    """A record of the table `discard`."""

    discard_id: int
    queue_id: int
    first_seq: int
    last_seq: int
    source: int
    epoch: int
    idx: int

    @property
    def position(self) -> tuple[int, int]:
        return self.epoch, self.idx


@dataclass(slots=True)
class Piece:
    """A piece of large deletions, as lists for `statements.COMMIT`."""

    deletes: list[tuple[int, int, int]] = field(default_factory=list)
    row_discards: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    settled_discards: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    discarded: list[tuple[int]] = field(default_factory=list)
    nbytes: int = 0

    def __bool__(self) -> bool:
        """There is something to delete."""
        return bool(self.deletes or self.row_discards or self.settled_discards or self.discarded)

    def add(self, ranges: Iterable[SeqRange], epoch: int, idx: int) -> None:
        """Rows and records of these ranges, up to this (epoch, idx)."""
        for item in ranges:
            self.row_discards.append((item.queue_id, item.first_seq, item.last_seq, epoch, idx))
            self.settled_discards.append((item.queue_id, item.first_seq, item.last_seq, item.last_seq, epoch, idx))

    def take_in(self, more: Piece) -> None:
        """The deletions of large ranges that go with it."""
        self.row_discards += more.row_discards
        self.settled_discards += more.settled_discards
        self.discarded, self.nbytes = more.discarded, more.nbytes


class Discards:
    """The large deletions of one journal that are begun and not carried out."""

    def __init__(self, begun: list[Discard], is_committed: Callable[[int, tuple[int, int]], bool]) -> None:
        """`is_committed`: whether this (epoch, idx) of a source is."""
        self._is_committed = is_committed
        self.pending: deque[Discard] = deque()
        """what is committed: to be deleted"""
        self._waiting: list[Discard] = []
        """not committed"""
        self._next_id = 1
        self.begun(begun)

    def of_queues(self, ranges: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Of these (queue_id, first_seq, last_seq) those of queues of which something is being discarded."""
        if not (self.pending or self._waiting):
            return []
        queues = {discard.queue_id for discard in (*self.pending, *self._waiting)}
        return [item for item in ranges if item[0] in queues]

    def numbered(self, ranges: list[tuple[int, int, int, int, int, int]]) -> list[Discard]:
        """Discards for these (queue_id, first_seq, last_seq, source, epoch, idx); hand them to `begun` when they are
        on disk. Their numbers are used up, whatever becomes of them."""
        found = [Discard(self._next_id + at, *item) for at, item in enumerate(ranges)]
        self._next_id += len(found)
        return found

    def begun(self, discards: list[Discard]) -> None:
        for discard in discards:
            committed = self._is_committed(discard.source, discard.position)
            (self.pending if committed else self._waiting).append(discard)
            self._next_id = max(self._next_id, discard.discard_id + 1)

    def copied(self, is_committed: Callable[[int, tuple[int, int]], bool]) -> Discards:
        """The same, of another disk."""
        copy = Discards([*self.pending, *self._waiting], is_committed)
        copy._next_id = self._next_id
        return copy

    @property
    def waiting(self) -> list[Discard]:
        """What is begun by transactions that are not committed."""
        return self._waiting

    def drops(self, queue_id: int, *, unless_of: AbstractSet[int]) -> bool:
        """All of the queue is to be deleted, which is committed, by another source than these."""
        return any(
            each.queue_id == queue_id and each.last_seq == SEQ_MAX and each.source not in unless_of
            for each in self.pending
        )

    def undone(self, source: int, position: tuple[int, int]) -> None:
        """What the source had above this position is gone. What of it was committed is in the log of its leader, too,
        and goes on; unless all is gone: then the leader may never have had it, of a set that was forced to go on
        without this member, and what comes in its place is not to be deleted."""
        self._waiting = [each for each in self._waiting if each.source != source or each.position <= position]
        if position == START and any(each.source == source for each in self.pending):
            self.pending = deque(each for each in self.pending if each.source != source)

    def committed(self) -> None:
        """More is committed than before."""
        waiting, self._waiting = self._waiting, []
        self.begun(waiting)

    def piece(
        self,
        connection: sqlite3.Connection,
        *,
        rows: int,
        nbytes: int,
        begun: int,
        counted: AbstractSet[int],
    ) -> Piece:
        """What can go next, with a commit that writes this many rows and bytes and begins this many discards;
        `counted` are the queues that may have counts of returned messages. Reads the index only."""
        piece = Piece()
        rows_left = PIECE_ROWS_MAX + OUTFLOW * rows
        bytes_max = PIECE_BYTES_MAX + OUTFLOW * nbytes
        for discard in islice(self.pending, PIECE_DISCARDS_MAX + OUTFLOW * begun):
            given = {**discard._asdict(), "count_max": rows_left}
            found = connection.execute(queries.ROWS_TO_DISCARD, given).fetchall()
            if not _take_rows(piece, discard, found, bytes_max, whole=len(found) < rows_left):
                break
            rows_left -= len(found)
            given["count_max"] = PIECE_SETTLED_MAX
            beyond = connection.execute(queries.SETTLED_TO_DISCARD, given).fetchall()
            if discard.queue_id in counted:
                beyond += connection.execute(queries.RETURNED_TO_DISCARD, given).fetchall()
            until = min((seq for (seq,) in beyond), default=discard.last_seq)
            settled = (discard.queue_id, discard.first_seq, until, discard.last_seq, *discard.position)
            piece.settled_discards.append(settled)
            if beyond:
                break
            piece.discarded.append((discard.discard_id,))
        return piece

    def done(self, piece: Piece) -> None:
        """The piece is on disk."""
        for (discard_id,) in piece.discarded:
            assert self.pending[0].discard_id == discard_id, (self.pending[0], discard_id)
            self.pending.popleft()


def _take_rows(piece: Piece, discard: Discard, rows: list[tuple[int, int]], bytes_max: int, *, whole: bool) -> bool:
    """Add what fits to the piece; True when no row of the discard is left after it (`whole`: these are all)."""
    until = None
    for last_seq, nbytes in rows:
        if piece.nbytes and piece.nbytes + nbytes > bytes_max:
            whole = False
            break
        piece.nbytes += nbytes
        until = last_seq
    if until is not None:
        piece.row_discards.append((discard.queue_id, discard.first_seq, until, *discard.position))
    return whole


class Gone:
    """The discarded ranges of a journal, asked in ascending order of (queue_id, first_seq): one sweep over both
    lists."""

    def __init__(self, discards: list[Discard]) -> None:
        self._waiting: dict[int, list[Discard]] = defaultdict(list)
        for discard in sorted(discards, key=lambda discard: -discard.first_seq):
            self._waiting[discard.queue_id].append(discard)
        self._queue_id: int | None = None
        self._open: list[Discard] = []

    def by(self, queue_id: int, first_seq: int, last_seq: int, position: Position) -> list[Discard]:
        """The discards that the range belongs to."""
        if queue_id not in self._waiting:
            return []
        if queue_id != self._queue_id:
            self._queue_id, self._open = queue_id, []
        waiting = self._waiting[queue_id]
        while waiting and waiting[-1].first_seq <= first_seq:
            self._open.append(waiting.pop())
        self._open = [discard for discard in self._open if discard.last_seq >= first_seq]
        return [discard for discard in self._open if last_seq <= discard.last_seq and position <= discard.position]
