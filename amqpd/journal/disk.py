"""`Disk`: what every disk of a journal implements (SQLite, and in tests a memory disk with fault hooks).

What comes in: transactions. What goes out: rows and recovery.
Not here: SQL (`sqlite/disk.py`), threads (`writer.py`).
"""

from __future__ import annotations

from typing import Protocol

from amqpd.journal.records import Recovered, Row
from amqpd.journal.transaction import Transaction

# Of one read. Each becomes a segment, on the loop, in some microseconds; most rows hold thousands of messages, and
# these are one or two.
READ_ROWS_MAX = 1_000


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
