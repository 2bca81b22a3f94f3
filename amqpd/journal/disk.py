"""`Disk`: what every disk of a journal implements (SQLite, and in tests a memory disk with fault hooks).

What comes in: transactions. What goes out: rows and recovery.
Not here: SQL (`sqlite/disk.py`), threads (`writer.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

from amqpd.journal.records import Recovered, Row, SourceEntry
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import LogEntry, Position, Vote
from amqpd.replication.log import EntryHead

# Of one read. Each becomes a segment, on the loop, in some microseconds; most rows hold thousands of messages, and
# these are one or two.
READ_ROWS_MAX = 1_000


class Disk(Protocol):
    """The disk of a journal, which blocks; the shell calls it in threads. `commit` is called by one thread at a
    time, `read` by one thread at a time, and the two at the same time."""

    def recover(self) -> Recovered:
        """Called once, before anything else. Deletes transient rows; reads the index only, never all bodies."""
        ...

    def commit(self, transaction: JournalTransaction, *, housekeeping: bool = True) -> None:
        """Returns when everything is on stable storage (fsync). Any exception but `errors.DiskFull` means that the
        outcome is unknown: the caller stops the node and never tries again. DiskFull means that nothing was written:
        the same transaction may be committed again when there is space. ValueError: its `after` is not the last one.
        Without `housekeeping`, for which `prompt` must be true, it writes and syncs what it is given, and nothing
        else that lasts is done."""
        ...

    @property
    def prompt(self) -> bool:
        """No housekeeping that lasts is due with a commit, and there is nothing to be deleted in pieces."""
        ...

    def read(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Row]:
        """Rows of the queue that overlap first_seq..last_seq, ascending, until bytes_max is reached (at least one
        row if there is any), or READ_ROWS_MAX. Raises JournalDamaged when a checksum does not fit; DisksLost, of
        several disks, while none that answers has everything: the same may be asked again."""
        ...

    def vacuum_step(self, rests: bool = False) -> bool:
        """Housekeeping of some milliseconds, called by the thread of `commit` when there is nothing to commit, as
        long as it returns True. `rests`: there was nothing for long, and what is kept for more may go, too. Raises
        like `commit`; after DiskFull it may be called again."""
        ...

    def release_reserve(self) -> None:
        """After DiskFull: give up the space that is held back, so that settles can still be committed."""
        ...

    def restore_reserve(self) -> bool:
        """Hold the space back again. True: it is held, publishers may go on; False: there is too little."""
        ...

    def close(self) -> None: ...


class ReplicaState(NamedTuple):
    """The state of one source's replica, as the disk has it."""

    source: int
    vote: Vote
    base: Position
    """the last entry that the disk knows to be committed"""
    tail: list[EntryHead]
    """what stands above it"""
    reserved: int
    """sequence numbers below it may have been given (`numbers.py`)"""


class SourcesDisk(Disk, Protocol):
    """A disk that keeps sources which are replicated: what `JournalTransaction.writes` has of them may be undone
    until it is committed, and until then nothing of it leaves. `recover` gives no queue of theirs. A source that is
    met for the first time is kept from then on.

    `commit` raises ValueError, too, for a write that does not follow what is there, and nothing of the transaction is
    written. Any thread may call the others, one at a time; what was committed before is in the answer. They raise
    JournalDamaged, DiskFailure."""

    def payload(self, entry: SourceEntry) -> bytes:
        """What an `Appended` of it is to have; it joins the bodies."""
        ...

    def replicas(self) -> list[ReplicaState]:
        """Of each source, the local one aside, in the order of their numbers."""
        ...

    def log_entries(self, source: int, after: Position, bytes_max: int) -> list[LogEntry]:
        """Entries above this position that are not known to be committed, in order, until they have this many bytes;
        at least one, if there is any."""
        ...

    def state_parts(self, source: int, after: Position, base: Position) -> Iterator[bytes]:
        """What the source has at `base`, a position that is committed, beyond `after`, up to which the other log is
        the same, to be taken in by `StatePart`, in order. Each part is read when it is asked for, and what another
        disk lacks by then because it left this one, the entries above `base` tell. ValueError: it has not that."""
        ...

    def recovered_of(self, sources: Collection[int]) -> Recovered:
        """The queues of these sources, as a leader builds them. Reads the index only."""
        ...
