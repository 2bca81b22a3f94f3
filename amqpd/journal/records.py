"""What crosses between the queues and the disk: rows in, rows and recovery out.

What comes in: nothing. What goes out: the value classes of the journal.
Rules: 1. A row is one segment of a queue: the frames of its publishes as they were received, end to end, as one blob.
2. Sequence numbers are per queue (`queue_id`), start at 0 and grow; a row covers first_seq..last_seq (both included)
and holds `count` messages, count == last_seq - first_seq + 1. 3. What a queue must know of its messages before their
bodies are read again (how large they are, how old, when they expire, how often they came back) stands beside the
bodies, and recovery gives it.
Not here: what is committed together (`transaction.py`), what keeps it (`disk.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from amqpd.errors import StorageFailure
from amqpd.journal.operation_marks import MarkChange, Marks

if TYPE_CHECKING:
    from amqpd.kernel import Run


LOCAL = 0
"""The number of the local source, the only one of a node without replicas."""


@dataclass(slots=True)
class Row:
    """A row of the journal: one segment of a queue's messages, bodies end to end. `persistent` is False for transient
    messages that were paged out: they are deleted when the journal is opened.

    `body_bytes` is the sum of the bodies without framing, `published_ms` when the first message came, in milliseconds
    since the epoch (0: not known). `deadlines` is empty unless messages expire one by one, which nearly none do:
    then it is little-endian int64 triples (deadline_ms, first_seq, last_seq).

    What the queues hand in has `runs` in place of `data` and `body_bytes`: what writes it joins them, in a thread
    of its own. A segment may have ten thousand runs, and a transaction a hundred segments.

    `damage` is set by `Disk.read` only: why the messages cannot be given, in one sentence. `data` is then what bytes
    could be read, for export; it must not be parsed."""

    queue_id: int
    first_seq: int
    last_seq: int
    data: bytes = b""
    persistent: bool = True
    body_bytes: int = 0
    published_ms: int = 0
    deadlines: bytes = b""
    runs: Sequence[Run] | None = None
    damage: str = ""

    def join(self) -> None:
        """Set `data` and `body_bytes`, if there are runs instead."""
        runs = self.runs
        if runs is not None:
            if len(runs) == 1:
                run = runs[0]
                self.data, self.body_bytes = run.raw(), run.body_bytes
            else:
                self.data = b"".join([run.raw() for run in runs])
                self.body_bytes = sum([run.body_bytes for run in runs])
            self.runs = None


@dataclass(slots=True, frozen=True)
class SeqRange:
    """The messages first_seq..last_seq (both included) of a queue."""

    queue_id: int
    first_seq: int
    last_seq: int


@dataclass(slots=True)
class SourceEntry:
    """What one transaction of a leader's journal has of one source that is not the local one. The order of a source's
    entries is by (epoch, idx): each is above the one before, and gaps are fine. A queue, by its id, belongs to one
    source (docs/decisions/sources-and-tails.md), and an id is used once.

    `retired` are those of `settled` that cover whole rows, of which nothing is left then: each disk that has the
    entry lets the rows go when it knows that the entry is committed. `reserved`: sequence numbers below it may be
    given in the source's queues, once this entry is committed; 0: as before. `marks`: how far the operations of edges
    are whose effects it has. For the other fields see `JournalTransaction`."""

    source: int
    epoch: int
    idx: int
    rows: list[Row] = field(default_factory=list)
    settled: list[SeqRange] = field(default_factory=list)
    retired: list[SeqRange] = field(default_factory=list)
    delivered: dict[int, int] = field(default_factory=dict)
    counts: list[tuple[int, int, int]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    reserved: int = 0
    marks: list[MarkChange] = field(default_factory=list)


@dataclass(slots=True)
class RecoveredRow:
    """A row of the index; `settled` are the parts (first, last) of it that are settled, ascending and disjoint.
    `nbytes` is the size of the blob; the next three are as the row was written (`Row`), whatever is settled of it.
    `epoch`: of its source, in which the messages came in; 0: of the local one."""

    first_seq: int
    last_seq: int
    nbytes: int
    settled: list[tuple[int, int]] = field(default_factory=list)
    body_bytes: int = 0
    published_ms: int = 0
    deadlines: bytes = b""
    epoch: int = 0

    @property
    def left(self) -> int:
        """How many of its messages are not settled."""
        return self.last_seq - self.first_seq + 1 - sum(last - first + 1 for first, last in self.settled)


@dataclass(slots=True)
class RecoveredQueue:
    """What is on disk of one queue: its rows in order (rows that are wholly settled left out), the next free sequence
    number, the delivered mark (see `JournalTransaction.delivered`), and seq -> count of messages that came back (see
    `JournalTransaction.counts`) and are neither settled nor gone."""

    rows: list[RecoveredRow]
    next_seq: int
    delivered: int
    counts: dict[int, int] = field(default_factory=dict)


class StandingMessages(NamedTuple):
    """What stands in queues before they are built, by their ids; those in which nothing stands left out."""

    messages: dict[int, int]
    total: int
    """messages of all of them"""
    eras: dict[int, list[tuple[int, int]]]
    """(epoch, first number) wherever another epoch of the source begins, ascending"""


@dataclass(slots=True)
class Recovered:
    """All that a disk has, as queues are built from it."""

    index: int
    """of the last transaction, 0 when there is none"""
    queues: dict[int, RecoveredQueue]
    marks: dict[int, Marks] = field(default_factory=dict)
    """source -> what its log has of the operations of edges; of those that it was asked for, and have any"""
    _standing: StandingMessages | None = field(default=None, repr=False, compare=False)

    def marks_of(self, source: int) -> Marks:
        return self.marks.get(source) or Marks()

    def standing(self) -> StandingMessages:
        """Found when it is first asked for, which takes as long as there are rows: what reads a disk that is in
        use asks in the thread that reads."""
        if self._standing is None:
            self._standing = _standing_in(self.queues)
        return self._standing


def _standing_in(queues: dict[int, RecoveredQueue]) -> StandingMessages:
    messages: dict[int, int] = {}
    eras: dict[int, list[tuple[int, int]]] = {}
    for queue_id, found in queues.items():
        if found.rows:
            messages[queue_id] = sum([row.left for row in found.rows])
            eras[queue_id] = begun = []
            epoch = -1
            for row in found.rows:
                if row.epoch != epoch:
                    epoch = row.epoch
                    begun.append((epoch, row.first_seq))
    return StandingMessages(messages, sum(messages.values()), eras)


class JournalDamaged(StorageFailure):
    """A stored blob does not fit its checksum, or the index contradicts itself. Never skipped: the node stops."""
