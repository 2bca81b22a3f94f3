"""Reading messages for somebody who looks at a queue, wherever their bodies are.

What comes in: stretches of a queue; rows of the journal. What goes out: the same stretches in parts, each with its
bodies.
Rules: 1. What is in memory is looked at where it is; what is on disk only is read, one read at a time behind those of
consumers, and forgotten with the next one. 2. What is gone when the disk answers is left out. 3. What is damaged, or
missing though it should be there, is marked as damaged (`Paging.mark_damaged`), and given without bodies.
Not here: which stretches (`queues/browsing.py`), when the journal reads (`journal/writer.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, Protocol

import trio

from amqpd.journal.records import Row
from amqpd.management.running import NodeAnswer
from amqpd.queues.browsing import Stretch, body_segment
from amqpd.queues.messages import Messages
from amqpd.queues.paging import MISSING
from amqpd.queues.segment import Segment


class Reader(Protocol):
    """A reader of rows of the journal, such as `journal.writer.BacklogReader`."""

    def read(self, queue_id: int, first_seq: int, last_seq: int, answer: Callable[[list[Row]], None]) -> None: ...


class StretchPart(NamedTuple):
    """The messages first..last of a stretch. `bodies` has them all, as far as they are still there: the queue's own
    segment, or a row that was read; or says why it is damaged."""

    stretch: Stretch
    bodies: Segment
    first: int
    last: int


class Bodies:
    """Reads the bodies of messages, from memory and from the disk, piece by piece."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._level: Messages | None = None
        """whose the rows are"""
        self._rows: list[Row] = []
        """the last ones that were read"""
        self._parsed: Segment | None = None

    async def parts(self, stretch: Stretch, messages_max: int) -> AsyncGenerator[StretchPart, None]:
        """The stretch in parts of at most `messages_max` messages."""
        seq = stretch.first
        while seq <= stretch.last:
            bodies = _at_hand(stretch.level, seq) or self._known(stretch.level, seq)
            if bodies is None:
                await self._read(stretch.level, seq, stretch.last)
                if _at_hand(stretch.level, seq) is not None:
                    continue
                if not self._rows:
                    return
                # Rows whose messages were all settled meanwhile are not there any more.
                seq = max(seq, self._rows[0].first_seq)
                bodies = self._known(stretch.level, seq)
                assert bodies is not None
            last = min(stretch.last, bodies.last, seq + messages_max - 1)
            yield StretchPart(stretch, bodies, seq, last)
            seq = last + 1
            await trio.lowlevel.checkpoint()

    async def piece(self, level: Messages, seq: int, last: int) -> tuple[int, int] | None:
        """The next of the messages seq..last that are in one segment, and may be settled together: not only some of a
        segment on disk that is many rows, for the journal is told of what is settled row by row. None when nothing is
        left there."""
        while True:
            index = level.store.index_of(seq)
            if index == len(level.store.segments) or level.store.segments[index].first > last:
                return None
            segment = level.store.segments[index]
            low, high = max(seq, segment.first), min(last, segment.last)
            if not segment.divisible or (low, high) == (segment.first, segment.last) or self._is_row(level, segment):
                return low, high
            probe = low if low > segment.first else high
            await self._read(level, probe, probe)
            row = self._row_of(level, probe)
            if row is not None:
                level.store.cut_at(row.first_seq, row.last_seq)

    def _is_row(self, level: Messages, segment: Segment) -> bool:
        row = self._row_of(level, segment.first)
        return row is not None and (row.first_seq, row.last_seq) == (segment.first, segment.last)

    def _row_of(self, level: Messages, seq: int) -> Row | None:
        if level is self._level:
            for row in self._rows:
                if row.first_seq <= seq <= row.last_seq:
                    return row
        return None

    def _known(self, level: Messages, seq: int) -> Segment | None:
        row = self._row_of(level, seq)
        if row is None:
            return None
        if self._parsed is None or self._parsed.first != row.first_seq:
            self._parsed = body_segment(row)
            if self._parsed.damage:
                level.paging.mark_damaged(row.first_seq, row.last_seq, self._parsed.damage)
        return self._parsed

    async def _read(self, level: Messages, first: int, last: int) -> None:
        answer = NodeAnswer[list[Row]]()
        self._level, self._rows, self._parsed = None, [], None
        self._reader.read(level.queue_id, first, last, answer.give)
        self._level, self._rows = level, (found := await answer.wait())
        if self._row_of(level, first) is None and level.store.on_disk_only(first):
            level.paging.mark_damaged(first, found[0].first_seq - 1 if found else last, MISSING)


def _at_hand(level: Messages, seq: int) -> Segment | None:
    """The queue's own segment, if nothing has to be read of it, or can be."""
    index = level.store.index_of(seq)
    if index < len(level.store.segments):
        segment = level.store.segments[index]
        if (segment.runs is not None or segment.damage) and segment.first <= seq:
            return segment
    return None
