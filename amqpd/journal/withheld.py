"""What is settled because it went on to another source, and is not settled on the disk before it is safe there.

What comes in: which queues let messages go on elsewhere in a transaction, and where messages came in. What goes out:
ranges that are left out of that transaction, and come with a later one.
Rules: 1. Across sources nothing is atomic: after a failure each has its own end. So a dead letter, a delayed or a
moved message is settled when the sources that got something in its transaction have that committed; until then a
crash leaves it where it was. It may come twice then, and is never lost. 2. Inside one source both are in one entry.
3. A row of which something is withheld is not settled as a whole before all of that. Beside that each waits for its
own lanes only, and not for what was let go before. 4. A source whose leader goes elsewhere before it has committed
may never do so: what waited for it stays unsettled, and comes again with the next leader or start. 5. The marks of
operations (`operation_marks.py`) wait for nothing: what an edge's client settled may come again then, as what any
client did, and a source without a majority would hold back all that edges publish to this one
(docs/decisions/operation-marks.md).
Not here: a node without replicas, where one transaction has both (`docs/decisions/dead-letters-twice.md`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from amqpd.journal.lane import Lane
from amqpd.journal.led_sources import LedSource
from amqpd.journal.records import LOCAL, SeqRange
from amqpd.journal.transaction import JournalTransaction

Value = TypeVar("Value")


class RangeMap(Generic[Value]):
    """Ranges of sequence numbers, each with a value."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._found: dict[int, tuple[int, Value]] = {}
        """first -> last, value"""

    def add(self, first: int, last: int, value: Value) -> None:
        self._found[first] = last, value
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)  # they come in order mostly
        else:
            self._firsts.insert(bisect_left(self._firsts, first), first)

    def remove(self, first: int) -> None:
        """The range that begins there."""
        del self._found[first], self._firsts[bisect_left(self._firsts, first)]

    def within(self, first: int, last: int) -> list[Value]:
        """Those of the ranges that have something of first..last."""
        firsts, found = self._firsts, self._found
        values: list[Value] = []
        at = bisect_left(firsts, first)
        if at and found[firsts[at - 1]][0] >= first:
            at -= 1
        while at < len(firsts) and firsts[at] <= last:
            values.append(found[firsts[at]][1])
            at += 1
        return values


class MergedRanges:
    """Ranges of sequence numbers, merged where they touch."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, first: int, last: int) -> None:
        firsts, lasts = self._firsts, self._lasts
        # Those from `begin` to before `end` touch it.
        begin, end = bisect_left(lasts, first - 1), bisect_left(firsts, last + 2)
        if begin < end:
            first, last = min(first, firsts[begin]), max(last, lasts[end - 1])
        firsts[begin:end], lasts[begin:end] = [first], [last]

    def meets(self, first: int, last: int) -> bool:
        """Something of first..last is in one of them."""
        at = bisect_left(self._lasts, first)
        return at < len(self._lasts) and self._firsts[at] <= last


class _Row:
    """A row that is settled as a whole."""

    __slots__ = ("range", "waits")

    def __init__(self, row: SeqRange) -> None:
        self.range = row
        self.waits = 0
        """for this many parts; one that is lost is never taken off"""


class _Part:
    """The messages that one queue let go to other sources in one transaction."""

    __slots__ = ("index", "queue_id", "rows", "settled", "sources")

    def __init__(self, index: int, queue_id: int, sources: Collection[int]) -> None:
        self.index = index
        self.queue_id = queue_id
        self.sources = sources
        self.settled: list[SeqRange] = []
        """without whole rows"""
        self.rows: list[_Row] = []
        """that wait for it, and for others maybe"""


class Withheld:
    """The messages of one journal that went on to another source, and are not settled on the disk before they are
    safe there."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Lane, ...], deque[_Part]] = {}
        """by the lanes that must have reported its transaction; there are few different ones"""
        self._parts: dict[int, dict[_Part, None]] = {}
        """by queue"""
        self._places: dict[int, RangeMap[_Part]] = {}
        """by queue: where what the parts have settled stands"""
        self._lost: dict[int, MergedRanges] = {}
        """by queue: what is never settled by this leader, since where it went is not known to be safe"""
        self.strayed: set[int] = set()
        """queues that let something go to a source which this node left before that was taken"""

    @property
    def is_due(self) -> bool:
        """Some of it may be settled with the next transaction."""
        return any(_are_due(lanes, parts) for lanes, parts in self._waiting.items())

    def release(self, transaction: JournalTransaction, retired: list[SeqRange]) -> None:
        """What is due goes with this transaction."""
        for lanes, parts in list(self._waiting.items()):
            while _are_due(lanes, parts):
                self._release(parts.popleft(), transaction, retired)
            if not parts:
                del self._waiting[lanes]

    def _release(self, part: _Part, transaction: JournalTransaction, retired: list[SeqRange]) -> None:
        self._forget_part(part)
        transaction.settled += part.settled
        for row in part.rows:
            row.waits -= 1
            if not row.waits:
                transaction.settled.append(row.range)
                retired.append(row.range)

    def _forget_part(self, part: _Part) -> None:
        queue_id = part.queue_id
        parts = self._parts.get(queue_id)
        if parts is None:
            return  # its queue is forgotten
        del parts[part]
        places = self._places[queue_id]
        for each in part.settled:
            places.remove(each.first_seq)
        if not parts:
            del self._parts[queue_id], self._places[queue_id]

    def withhold(
        self,
        transaction: JournalTransaction,
        retired: list[SeqRange],
        going: Collection[int],
        entered: Collection[int],
        led_sources: Mapping[int, LedSource],
        local: Lane,
    ) -> list[SeqRange]:
        """The queues `going` let messages go to other sources of `entered`: what they settled stays out of this
        transaction. What is left of `retired`."""
        if self.strayed:
            retired, self.strayed = self._lose(transaction, retired, self.strayed), set()
        if going:
            lanes = [local if source == LOCAL else led_sources[source].lane for source in sorted(entered)]
            retired = self._put_off(transaction, retired, going, entered, tuple(dict.fromkeys(lanes)))
        return self._keep_rows(transaction, retired) if self._parts or self._lost else retired

    def _put_off(
        self,
        transaction: JournalTransaction,
        retired: list[SeqRange],
        going: Collection[int],
        entered: Collection[int],
        lanes: tuple[Lane, ...],
    ) -> list[SeqRange]:
        gone = [each for each in retired if each.queue_id in going]
        whole, parts, sources = set(gone), dict[int, _Part](), frozenset(entered)
        for each in transaction.settled:
            queue_id = each.queue_id
            if queue_id not in going:
                continue
            part = parts.get(queue_id)
            if part is None:
                part = parts[queue_id] = _Part(transaction.index, queue_id, sources)
            if each not in whole:
                part.settled.append(each)
        if not parts:
            return retired
        self._waiting.setdefault(lanes, deque()).extend(parts.values())
        for queue_id, part in parts.items():
            self._parts.setdefault(queue_id, {})[part] = None
            places = self._places.setdefault(queue_id, RangeMap())
            for each in part.settled:
                places.add(each.first_seq, each.last_seq, part)
        for each in gone:
            self._wait(each, parts[each.queue_id])
        transaction.settled = [each for each in transaction.settled if each.queue_id not in going]
        return [each for each in retired if each.queue_id not in going]

    def _lose(
        self, transaction: JournalTransaction, retired: list[SeqRange], queues: Collection[int]
    ) -> list[SeqRange]:
        """What these queues let go is in no transaction. What is left of `retired`."""
        for each in transaction.settled:
            if each.queue_id in queues:
                self._lost.setdefault(each.queue_id, MergedRanges()).add(each.first_seq, each.last_seq)
        transaction.settled = [each for each in transaction.settled if each.queue_id not in queues]
        return [each for each in retired if each.queue_id not in queues]

    def _keep_rows(self, transaction: JournalTransaction, retired: list[SeqRange]) -> list[SeqRange]:
        """Rows of which only what is withheld is not settled wait with that. What is left of `retired`."""
        kept = {row for row in retired if self._wait(row)}
        if kept:
            transaction.settled = [each for each in transaction.settled if each not in kept]
            return [each for each in retired if each not in kept]
        return retired

    def _wait(self, row: SeqRange, own: _Part | None = None) -> bool:
        """The row waits for all parts that have some of it, and its own; for ever, if some of it is lost. False if
        there is nothing to wait for."""
        lost, places = self._lost.get(row.queue_id), self._places.get(row.queue_id)
        if lost is not None and lost.meets(row.first_seq, row.last_seq):
            return True
        found = dict.fromkeys(() if places is None else places.within(row.first_seq, row.last_seq))
        if own is not None:
            found[own] = None
        waiting = _Row(row)
        waiting.waits = len(found)
        for part in found:
            part.rows.append(waiting)
        return bool(found)

    def leave(self, source: int) -> None:
        """This node is its leader no more: whether what it got was committed is not known here."""
        for lanes, parts in list(self._waiting.items()):
            left = [part for part in parts if source in part.sources]
            if not left:
                continue
            for part in left:
                self._forget_part(part)
                for each in [*part.settled, *[row.range for row in part.rows]]:
                    self._lost.setdefault(part.queue_id, MergedRanges()).add(each.first_seq, each.last_seq)
            self._waiting[lanes] = deque(part for part in parts if source not in part.sources)
            if not self._waiting[lanes]:
                del self._waiting[lanes]

    def forget(self, queues: Collection[int]) -> None:
        """They are deleted, or their leader is another node."""
        for queue_id in queues:
            self._lost.pop(queue_id, None)
            self._places.pop(queue_id, None)
            for part in self._parts.pop(queue_id, ()):
                part.settled, part.rows = [], []


def going_elsewhere(gone_on: Collection[int], entered: Collection[int], of: Mapping[int, int]) -> set[int]:
    """Those of the queues that let something go, where another source than their own got messages. `of`:
    queue_id -> source."""
    return {queue_id for queue_id in gone_on if any(source != of.get(queue_id, LOCAL) for source in entered)}


def _are_due(lanes: tuple[Lane, ...], parts: deque[_Part]) -> bool:
    """The first of them is."""
    return bool(parts) and all(lane.reported >= parts[0].index for lane in lanes)
