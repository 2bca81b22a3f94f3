"""What crosses between the queues and the disk: batches of rows in, rows and recovery out.

What comes in: nothing. What goes out: the value classes of the journal and `Disk`, the interface that every
disk implements (SQLite, and in tests a memory disk with fault hooks).
Rules: 1. A row is a batch of messages of one queue: the publishes' frames as they were received, end to end,
as one blob. 2. Sequence numbers are per queue (`queue_id`), start at 0 and grow; a row covers
first_seq..last_seq (both included) and holds `count` messages, count == last_seq - first_seq + 1.
3. Everything of one `Transaction` is on disk, or nothing. 4. What a queue must know of its messages before their
bodies are read again (how large they are, how old, when they expire, how often they came back) stands beside the
bodies, and recovery gives it.
Not here: when a transaction is cut (`buffer.py`), SQL (`sqlite/disk.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from amqpd.errors import StorageFailure

if TYPE_CHECKING:
    from amqpd.kernel import Run

# Of one read. Each becomes a segment, on the loop, in some microseconds; most rows hold thousands of messages, and
# these are one or two.
READ_ROWS_MAX = 1_000


@dataclass(slots=True)
class Row:
    """A batch of messages. `persistent` is False for transient messages that were paged out: they are
    deleted when the journal is opened.

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
class Range:
    """The messages first_seq..last_seq (both included) of a queue."""

    queue_id: int
    first_seq: int
    last_seq: int


@dataclass(slots=True)
class SourceEntry:
    """What one transaction has of one source that is not the local one. The order of a source's entries is by
    (epoch, idx): each is above the one before, and gaps are fine. A queue, by its id, belongs to one source
    (docs/decisions/sources-and-tails.md).

    `deletes` is this disk's own business and never travels: ranges whose settling an earlier entry of the source
    holds. Their rows leave the disk when that entry is committed. `reserved`: sequence numbers below it may be given
    in the source's queues, once this entry is committed; 0: as before. For the other fields see `Transaction`."""

    source: int
    epoch: int
    idx: int
    rows: list[Row] = field(default_factory=list)
    settled: list[Range] = field(default_factory=list)
    deletes: list[Range] = field(default_factory=list)
    delivered: dict[int, int] = field(default_factory=dict)
    counts: list[tuple[int, int, int]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    reserved: int = 0


@dataclass(slots=True)
class Transaction:
    """One group commit: the numbered batch of records of the local source, and of other sources one entry each at the
    most. All of it is on the disk, or nothing.

    `index` grows by one with each transaction of this journal. `settled` ranges never cross a row's edge, or
    cover whole rows only. `deletes` are ranges whose settling an earlier transaction has committed: their rows
    and settled records leave the disk. `delivered` maps queue_id -> what stands below this sequence number may
    have been delivered; the last one written counts, also when it is lower. `counts` are (queue_id, seq, count): how
    often a message has come back (the delivery count of quorum queues); the last one written for a message counts,
    and it leaves the disk with the message's row. `dropped` are the ids of queues that were deleted."""

    index: int
    rows: list[Row] = field(default_factory=list)
    settled: list[Range] = field(default_factory=list)
    deletes: list[Range] = field(default_factory=list)
    delivered: dict[int, int] = field(default_factory=dict)
    counts: list[tuple[int, int, int]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    entries: list[SourceEntry] = field(default_factory=list)


@dataclass(slots=True)
class RecoveredRow:
    """A row of the index; `settled` are the parts (first, last) of it that are settled, ascending and disjoint.
    `nbytes` is the size of the blob; the last three are as the row was written (`Row`), whatever is settled of it."""

    first_seq: int
    last_seq: int
    nbytes: int
    settled: list[tuple[int, int]] = field(default_factory=list)
    body_bytes: int = 0
    published_ms: int = 0
    deadlines: bytes = b""


@dataclass(slots=True)
class RecoveredQueue:
    """What is on disk of one queue: its rows in order (rows that are wholly settled left out), the next free
    sequence number, the delivered mark (see `Transaction.delivered`), and seq -> count of messages that came back
    (see `Transaction.counts`) and are neither settled nor gone."""

    rows: list[RecoveredRow]
    next_seq: int
    delivered: int
    counts: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Recovered:
    """All that a disk has, as queues are built from it."""

    index: int
    """of the last transaction, 0 when there is none"""
    queues: dict[int, RecoveredQueue]


class JournalDamaged(StorageFailure):
    """A stored blob does not fit its checksum, or the index contradicts itself. Never skipped: the node stops."""


class Disk(Protocol):
    """Blocking; the shell calls it in threads. `commit` is called by one thread at a time, `read` by one thread
    at a time, and the two at the same time."""

    def recover(self) -> Recovered:
        """Called once, before anything else. Deletes transient rows; reads the index only, never all bodies."""
        ...

    def commit(self, transaction: Transaction, *, housekeeping: bool = True) -> None:
        """Returns when everything is on stable storage (fsync). Any exception but `errors.DiskFull` means that the
        outcome is unknown: the caller stops the node and never tries again. DiskFull means that nothing was written:
        the same transaction may be committed again when there is space. ValueError: `index` is not the next one.
        Without `housekeeping`, for which `prompt` must be true, it writes and syncs what it is given, and nothing
        else that lasts is done."""
        ...

    @property
    def prompt(self) -> bool:
        """No housekeeping that lasts is due with a commit, and there is nothing to be deleted in pieces."""
        ...

    def read(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Row]:
        """Rows of the queue that overlap first_seq..last_seq, ascending, until bytes_max is reached (at least one
        row if there is any), or READ_ROWS_MAX. Raises JournalDamaged when a checksum does not fit."""
        ...

    def vacuum_step(self) -> bool:
        """Housekeeping of some milliseconds, called by the thread of `commit` when there is nothing to commit, as
        long as it returns True. Raises like `commit`; after DiskFull it may be called again."""
        ...

    def release_reserve(self) -> None:
        """After DiskFull: give up the space that is held back, so that settles can still be committed."""
        ...

    def restore_reserve(self) -> bool:
        """Hold the space back again. True: it is held, publishers may go on; False: there is too little."""
        ...

    def close(self) -> None: ...


class SourcesDisk(Disk, Protocol):
    """A disk that keeps sources which are replicated: what is stored of them may be undone until it is committed, and
    until then nothing of it leaves. Called by the thread of `commit`."""

    def set_replicated(self, source: int, replicated: bool) -> None:
        """From now on what is stored of the source, beyond what is there, is committed when that is said; without
        it, at once. Durable. ValueError for the local source, which is never replicated. Raises like `commit`."""
        ...

    def committed(self, source: int, epoch: int, idx: int) -> None:
        """The entries of the source up to this one are: what they settled, dropped or replaced may leave. Nothing is
        written. After a restart the disk may know less until it is told again. ValueError: it is not stored here."""
        ...

    def undo(self, source: int, epoch: int, idx: int) -> Recovered:
        """Take back the entries of the source above this position, all at once: what is there then, of all sources,
        as `recover` gives it. ValueError: some of them are committed. Raises like `commit`."""
        ...
