"""What is settled because it went on to another source, and is not settled on the disk before it is safe there.

What comes in: which queues let messages go on elsewhere in a transaction, and where messages came in. What goes out:
ranges that are left out of that transaction, and come with a later one.
Rules: 1. Across sources nothing is atomic: after a failure each has its own end. So a dead letter, a delayed or a
moved message is settled when the sources that got something in its transaction have that committed; until then a
crash leaves it where it was. It may come twice then, and is never lost. 2. Inside one source both are in one entry.
3. A row of which something is withheld is not settled as a whole before that. 4. A source whose home goes elsewhere
before it has committed may never do so: what waited for it stays unsettled, and comes again with the next home or
start.
Not here: a node without replicas, where one transaction has both (`docs/decisions/letters-twice.md`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from amqpd.journal.homes import Home
from amqpd.journal.lane import Lane
from amqpd.journal.records import LOCAL, Range
from amqpd.journal.transaction import Transaction


class _Later:
    """Of one transaction."""

    def __init__(
        self, index: int, lanes: list[Lane], sources: set[int], settled: list[Range], retired: list[Range]
    ) -> None:
        self.index = index
        self.lanes = lanes
        self.sources = sources
        self.settled = settled
        self.retired = retired


class Withheld:
    """Of one journal."""

    def __init__(self) -> None:
        self._waiting: deque[_Later] = deque()
        self._lost: list[Range] = []
        """what is never settled by this home: where it went is not known to be safe"""
        self.strayed: set[int] = set()
        """queues that let something go to a source which this node left before that was taken"""

    @property
    def is_due(self) -> bool:
        """Some of it may be settled with the next transaction."""
        waiting = self._waiting
        return bool(waiting) and all(lane.reported >= waiting[0].index for lane in waiting[0].lanes)

    def release(self, transaction: Transaction, retired: list[Range]) -> None:
        """What is due goes with this transaction."""
        while self.is_due:
            later = self._waiting.popleft()
            transaction.settled += later.settled
            retired += later.retired

    def withhold(
        self,
        transaction: Transaction,
        retired: list[Range],
        going: Collection[int],
        entered: Collection[int],
        homes: Mapping[int, Home],
        local: Lane,
    ) -> list[Range]:
        """The queues `going` let messages go to other sources of `entered`: what they settled stays out of this
        transaction. What is left of `retired`."""
        if self.strayed:
            retired, self.strayed = self._lose(transaction, retired, self.strayed), set()
        if going:
            retired = self._put_off(transaction, retired, going, entered, homes, local)
        return self._keep_rows(transaction, retired) if self._waiting or self._lost else retired

    def _put_off(
        self,
        transaction: Transaction,
        retired: list[Range],
        going: Collection[int],
        entered: Collection[int],
        homes: Mapping[int, Home],
        local: Lane,
    ) -> list[Range]:
        lanes = [local if source == LOCAL else homes[source].lane for source in entered]
        settled = [each for each in transaction.settled if each.queue_id in going]
        gone = [each for each in retired if each.queue_id in going]
        if settled:
            self._waiting.append(_Later(transaction.index, lanes, set(entered), settled, gone))
            transaction.settled = [each for each in transaction.settled if each.queue_id not in going]
        return [each for each in retired if each.queue_id not in going]

    def _lose(self, transaction: Transaction, retired: list[Range], queues: Collection[int]) -> list[Range]:
        """What these queues let go is in no transaction. What is left of `retired`."""
        self._lost += [each for each in transaction.settled if each.queue_id in queues]
        transaction.settled = [each for each in transaction.settled if each.queue_id not in queues]
        return [each for each in retired if each.queue_id not in queues]

    def _keep_rows(self, transaction: Transaction, retired: list[Range]) -> list[Range]:
        """Rows of which only what is withheld is not settled wait with that. What is left of `retired`."""
        kept: set[Range] = set()
        for row in retired:
            if _meets(self._lost, row):
                kept.add(row)
                continue
            later = next((each for each in reversed(self._waiting) if _meets(each.settled, row)), None)
            if later is not None:
                kept.add(row)
                later.settled.append(row)
                later.retired.append(row)
        if kept:
            transaction.settled = [each for each in transaction.settled if each not in kept]
            return [each for each in retired if each not in kept]
        return retired

    def leave(self, source: int) -> None:
        """This node is its home no more: whether what it got was committed is not known here."""
        if any(source in later.sources for later in self._waiting):
            self._lost += [each for later in self._waiting if source in later.sources for each in later.settled]
            self._waiting = deque(later for later in self._waiting if source not in later.sources)

    def forget(self, queues: Collection[int]) -> None:
        """They are deleted, or their home is elsewhere."""
        if self._lost:
            self._lost = [each for each in self._lost if each.queue_id not in queues]
        for later in self._waiting:
            later.settled = [each for each in later.settled if each.queue_id not in queues]
            later.retired = [each for each in later.retired if each.queue_id not in queues]


def going_elsewhere(gone_on: Collection[int], entered: Collection[int], of: Mapping[int, int]) -> set[int]:
    """Those of the queues that let something go, where another source than their own got messages. `of`:
    queue_id -> source."""
    return {queue_id for queue_id in gone_on if any(source != of.get(queue_id, LOCAL) for source in entered)}


def _meets(ranges: list[Range], row: Range) -> bool:
    """Some of them are in the row."""
    return any(
        each.queue_id == row.queue_id and each.first_seq <= row.last_seq and row.first_seq <= each.last_seq
        for each in ranges
    )
