"""What a source's log has of the operations of edges: how far each incarnation of an edge is, and what was refused.

What comes in: records, in the order of the log. What goes out: the state that they make (`Marks`), for a new leader;
what one transaction has of them (`GatheringMarks`).
Rules (by their numbers in docs/decisions/remote-protocol.md): 1. Of each forwarder one incarnation lives at a source:
a record of a newer one says that those before it have ended, and what comes of an ended one changes nothing (8). 2. A
mark only grows; outcomes are kept until the edge has heard them (2), those that are alike as one range (31). 3. The
fold of a state and a record cannot fail: what a peer may say is bounded where it comes in
(`sqlite/mark_bytes.py`), and by the leader (`OUTCOME_RANGES_MAX`).
Not here: which operations write something (`amqpd.remote.leader`), tables (`sqlite/mark_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

# Of one incarnation, undecided: each is 40 bytes of a record that is written with every transaction that has
# operations of it. A queue that refuses everything makes one; one that refuses each second publish, thousands in a
# second.
OUTCOME_RANGES_MAX = 4096
# The same, one by one, as a leader has them in memory: more undecided operations than an edge keeps.
OUTCOMES_MAX = 1 << 18
# Of one source: of all that were members and are not decommissioned.
FORWARDERS_MAX = 1024

NEVER = 1 << 62
"""An operation that never comes."""

Member = tuple[str, int]
"""forwarder, and its incarnation at this source"""


class Refused(NamedTuple):
    """Messages low..high-1 of the run that operation `number` has published were not taken by some queue."""

    number: int
    low: int
    high: int


class Purged(NamedTuple):
    """Operation `number`, a purge, took out this many messages."""

    number: int
    messages: int


Outcome = Refused | Purged


class OutcomeRange(NamedTuple):
    """Outcomes of operations first..last, which are alike: refusals of low..high-1 each, or, with `purge`, purges of
    `low` messages each."""

    purge: int
    first: int
    last: int
    low: int
    high: int

    def outcomes(self) -> Iterator[Outcome]:
        """One by one."""
        for number in range(self.first, self.last + 1):
            yield Purged(number, self.low) if self.purge else Refused(number, self.low, self.high)

    def follows(self, before: OutcomeRange) -> bool:
        """Both are one range."""
        return self.first == before.last + 1 and (self.purge, *self[3:]) == (before.purge, *before[3:])


def range_of(outcome: Outcome) -> OutcomeRange:
    if isinstance(outcome, Refused):
        return OutcomeRange(0, outcome.number, outcome.number, outcome.low, outcome.high)
    return OutcomeRange(1, outcome.number, outcome.number, outcome.messages, 0)


def ranges_of(outcomes: Iterable[Outcome]) -> list[OutcomeRange]:
    """In the order of their operations, which is theirs."""
    return joined(map(range_of, outcomes))


def joined(ranges: Iterable[OutcomeRange]) -> list[OutcomeRange]:
    """Neighbours that are alike in one."""
    found: list[OutcomeRange] = []
    for each in ranges:
        if found and each.follows(found[-1]):
            found[-1] = found[-1]._replace(last=each.last)
        else:
            found.append(each)
    return found


def _within(ranges: Iterable[OutcomeRange], first: int, last: int) -> list[OutcomeRange]:
    """Of operations first..last."""
    parts = [each._replace(first=max(first, each.first), last=min(last, each.last)) for each in ranges]
    return [each for each in parts if each.first <= each.last]


class Marked(NamedTuple):
    """Record of the log: all operations of this incarnation up to `mark` are done (rules 1, 2)."""

    forwarder: str
    incarnation: int
    mark: int
    heard: int
    """the edge has heard the outcomes of operations up to this one: they may be forgotten"""
    outcomes: tuple[Outcome, ...]
    """what is new of them; of operation `mark` + 1, which is a purge then, what it has done so far"""


class IncarnationEnded(NamedTuple):
    """Record of the log: this incarnation of the forwarder, and all before it, have ended at this source (rule 8)."""

    forwarder: str
    incarnation: int


class ForwarderGone(NamedTuple):
    """Record of the log: the forwarder is decommissioned, and no incarnation of it comes back: nothing is kept of it
    (rule 8)."""

    forwarder: str


MarkRecord = Marked | IncarnationEnded | ForwarderGone


@dataclass(frozen=True, slots=True)
class OperationMark:
    """What the log has of one living incarnation."""

    mark: int = 0
    ranges: tuple[OutcomeRange, ...] = ()
    """outcomes that the edge has not heard, in order; of operation `mark` + 1 what a purge has done so far"""

    @property
    def outcomes(self) -> list[Outcome]:
        """One by one."""
        return [outcome for each in self.ranges for outcome in each.outcomes()]

    def after(self, mark: int, heard: int, fresh: Iterable[OutcomeRange]) -> OperationMark:
        """With what is new. What is said twice counts once; how far a purge has come is said again by each record,
        until it is done."""
        before = _within(self.ranges, heard + 1, self.mark)
        last = before[-1].last if before else 0
        ranges = [*before, *(each for each in _within(fresh, heard + 1, NEVER) if each.first > last)]
        return OperationMark(max(self.mark, mark), tuple(joined(ranges)))


@dataclass(slots=True)
class Marks:
    """What the log has of all edges of a source: what a new leader begins with."""

    marks: dict[Member, OperationMark] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    """forwarder -> its last incarnation that has ended"""

    def apply(self, record: MarkRecord) -> None:
        """The next record of the log."""
        forwarder = record.forwarder
        if isinstance(record, Marked):
            member = forwarder, record.incarnation
            if record.incarnation <= self.ended.get(forwarder, 0):
                return
            if member not in self.marks:
                if any(each[0] == forwarder and each[1] > record.incarnation for each in self.marks):
                    return
                self._end(forwarder, record.incarnation - 1)
            before = self.marks.get(member, OperationMark())
            self.marks[member] = before.after(record.mark, record.heard, ranges_of(record.outcomes))
        elif isinstance(record, IncarnationEnded):
            self._end(forwarder, record.incarnation)
        else:
            self.ended.pop(forwarder, None)
            for each in [each for each in self.marks if each[0] == forwarder]:
                del self.marks[each]

    def _end(self, forwarder: str, incarnation: int) -> None:
        """It, and all before it."""
        if incarnation > self.ended.get(forwarder, 0):
            self.ended[forwarder] = incarnation
        for each in [each for each in self.marks if each[0] == forwarder and each[1] <= incarnation]:
            del self.marks[each]


class MarkChange(NamedTuple):
    """What one transaction has of one forwarder, in this order: it is gone; an incarnation of it has ended; one is
    marked."""

    forwarder: str
    gone: bool = False
    ended: int = 0
    """the incarnation, and all before it; 0: none"""
    incarnation: int = 0
    """that is marked; 0: none"""
    mark: int = 0
    heard: int = 0
    """as in `Marked`"""
    ranges: tuple[OutcomeRange, ...] = ()
    """what is new of its outcomes"""

    def records(self) -> Iterator[MarkRecord]:
        """Those that say the same."""
        if self.gone:
            yield ForwarderGone(self.forwarder)
        if self.ended:
            yield IncarnationEnded(self.forwarder, self.ended)
        if self.incarnation:
            outcomes = tuple([outcome for each in self.ranges for outcome in each.outcomes()])
            yield Marked(self.forwarder, self.incarnation, self.mark, self.heard, outcomes)


class _GatheringChange:
    """A `MarkChange` that is added to."""

    __slots__ = ("ended", "gone", "heard", "incarnation", "mark", "outcomes")

    def __init__(self, *, gone: bool) -> None:
        self.gone = gone
        self.ended = self.incarnation = self.mark = self.heard = 0
        self.outcomes: list[Outcome] = []

    def end(self, incarnation: int) -> None:
        self.ended = max(self.ended, incarnation)
        if self.incarnation <= incarnation:
            self.incarnation = self.mark = self.heard = 0
            self.outcomes = []

    def add(self, record: Marked) -> None:
        if record.incarnation <= max(self.ended, self.incarnation - 1):
            return
        if record.incarnation > self.incarnation:
            self.incarnation, self.mark, self.heard, self.outcomes = record.incarnation, 0, 0, []
        # How far a purge has come is said again, until it is done.
        while self.outcomes and self.outcomes[-1].number > self.mark:
            self.outcomes.pop()
        self.mark, self.heard = max(self.mark, record.mark), max(self.heard, record.heard)
        # Of an ended incarnation, which the log ignores, the same may come twice.
        last = self.outcomes[-1].number if self.outcomes else 0
        self.outcomes += [each for each in record.outcomes if each.number > last]

    def change(self, forwarder: str) -> MarkChange:
        ranges = ranges_of([each for each in self.outcomes if each.number > self.heard])
        said = self.gone, self.ended, self.incarnation, self.mark, self.heard
        return MarkChange(forwarder, *said, tuple(ranges))


class GatheringMarks:
    """The records of one source that gather for a transaction, folded: one change of each forwarder."""

    def __init__(self) -> None:
        self._changes: dict[str, _GatheringChange] = {}

    def __len__(self) -> int:
        return len(self._changes)

    def note(self, record: MarkRecord) -> None:
        """The next one. Raises ValueError for an incarnation below 1."""
        change = self._changes.get(record.forwarder)
        if isinstance(record, ForwarderGone):
            self._changes[record.forwarder] = _GatheringChange(gone=True)
            return
        if record.incarnation < 1:
            raise ValueError(f"incarnation {record.incarnation} of {record.forwarder}: they begin with 1")
        if change is None:
            change = self._changes[record.forwarder] = _GatheringChange(gone=False)
        if isinstance(record, Marked):
            change.add(record)
        else:
            change.end(record.incarnation)

    def changes(self) -> list[MarkChange]:
        """Of each forwarder, in the order in which they came first."""
        return [change.change(forwarder) for forwarder, change in self._changes.items()]
