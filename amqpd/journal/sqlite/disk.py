"""The disk of the journal: one SQLite database in WAL mode.

What comes in: transactions and reads (`journal.disk.Disk`). What goes out: durability, rows, what recovery found.
Rules: 1. A commit is one statement and one fsync (why: `statements.py`). 2. What a commit deletes is bounded; more
is written down as a discard and leaves in pieces (`discards.py`). 3. After a failure of the disk nothing is
written any more; only a full disk, where SQLite has rolled everything back, may be tried again.
Not here: when a transaction is cut (`journal/buffer.py`), SQL text (`statements.py`), files and formats
(`database.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from amqpd.journal.errors import DiskFailure, DiskFull, UnusableWrites
from amqpd.journal.records import JournalDamaged, Recovered, SourceEntry
from amqpd.journal.sqlite import statements, trust
from amqpd.journal.sqlite.adoption import Adopts
from amqpd.journal.sqlite.checkpoints import Checkpoints
from amqpd.journal.sqlite.database import JOURNAL, VFS, is_damage, meaning, open_journal, put_names, try_to_write
from amqpd.journal.sqlite.discards import Discards, Piece
from amqpd.journal.sqlite.draft import Draft
from amqpd.journal.sqlite.entries import InMemoryState, work_of_dead, write_sources
from amqpd.journal.sqlite.mark_rows import MarkRows
from amqpd.journal.sqlite.one_row import PAGES, write_row
from amqpd.journal.sqlite.outcome import JointOutcome
from amqpd.journal.sqlite.payload import encode
from amqpd.journal.sqlite.queue_marks import QueueMarks
from amqpd.journal.sqlite.reading import RowReader
from amqpd.journal.sqlite.recovery import JournalContents, ReportProgress, examine
from amqpd.journal.sqlite.replica_reading import ReplicaReader
from amqpd.journal.sqlite.reserve import RESERVE_BYTES, Reserve
from amqpd.journal.sqlite.schema import SOURCE
from amqpd.journal.sqlite.sources import SourceHead, SourceProgress
from amqpd.journal.sqlite.work import Work, plain_work, write
from amqpd.journal.transaction import JournalTransaction
from amqpd.storage.closing import close_unchanged
from amqpd.storage.mark import Mark

RECOVERY_STEPS_MAX = 16
"""Pieces of dead rows that recovery itself deletes (32 MB); the rest is left to idle moments."""

_log = structlog.get_logger("amqpd.journal")


class SqliteDisk(Adopts):
    """The disk of a journal in one SQLite database; it implements `SourcesDisk`. The directory is created when it
    is missing.

    Raises NotAJournal, NewerFormat, JournalInUse, JournalDamaged, DiskFull, DiskFailure."""

    def __init__(
        self,
        directory: Path,
        *,
        reserve_bytes: int = RESERVE_BYTES,
        keep_free_bytes: int = 0,
        accept_loss: bool = False,
        one_of_several: bool = False,
    ) -> None:
        """`keep_free_bytes`: see `Checkpoints`; `accept_loss`: go on with less than was once confirmed;
        `one_of_several`: should this disk hang, other threads go on."""
        self._one_of_several, self.path = one_of_several, directory / JOURNAL
        opened = open_journal(directory, accept_loss=accept_loss)
        self.accepted = opened.accepted
        """what was accepted as lost, or is not known any more: sentences for the log"""
        self.names = opened.names
        """see `schema.names`"""
        self._noted: dict[str, str] = {}  # names that the next transaction writes along
        self._sources = SourceProgress(opened.source.heads() if opened.source is not None else {})
        self._created, self._had_log = opened.created, opened.had_log
        self._found: JournalContents | None = None
        self._writer, self._reader = opened.writer, opened.reader
        self._rows, self._replicas = RowReader(self._reader, self.path), ReplicaReader(self.path)
        self.read, self.replicas = self._rows.read, self._replicas.replicas
        self.log_entries, self.state_parts = self._replicas.log_entries, self._replicas.state_parts
        self.recovered_of = self._replicas.recovered_of
        self._reserve = Reserve(directory, reserve_bytes)
        self._mark: Mark | None = None  # on a full disk, too
        self._discards = Discards([], self._sources.is_committed)
        self._timed: set[int] = set()
        """ids of queues that may have deadlines on disk: they are looked for only when rows of these are deleted"""
        self._counted: set[int] = set()  # the same for counts of returned messages
        self._marks, self._operations, self._recovered = QueueMarks({}), MarkRows({}), False
        self.checkpoints = Checkpoints(
            self._writer, self.path, self._rows.turn, keep_free_bytes, lambda: self._sources.log_begins()
        )
        self._failure: str | None = None
        self.kept: str | None = None  # why settled messages do not leave the disk any more: a damaged page

    def examine(self, report_progress: ReportProgress | None = None) -> None:
        """Read all that `recover` goes by, and change nothing. Raises JournalDamaged, DiskFailure."""
        self._found = self._look(report_progress)

    def _look(self, report_progress: ReportProgress | None = None) -> JournalContents:
        try:
            found = examine(self.path, self._reader, report_progress)
            try_to_write(self._writer, self.path)
            return found
        except sqlite3.Error as error:
            raise self._failed(error) from error
        except JournalDamaged as error:
            self._failure = str(error)
            raise

    @property
    def index(self) -> int:
        """Of the last transaction."""
        return self._sources.local.idx

    def head(self, source: int) -> SourceHead:
        """How far a source is: its last entry, and what of it is known to be committed."""
        return self._sources.head(source)

    def recover(self, epoch: int = 0) -> Recovered:
        """Rows that are dead are written down as such in one transaction, and leave in pieces. Nothing is written
        before all is read. `epoch`: of this incarnation, if it is not the next one."""
        found, self._found = self._found or self._look(), None
        self._take_over(found)
        self._begin_epoch(epoch, found.rows)
        self._recovered = True
        self._reserve.restore()
        # A node has to start on a full disk, to let its consumers empty it. What is dead stays so, and is found again
        # by the next recovery.
        with suppress(DiskFull):
            if self._sources.stale:
                self._commit_of_sources(None)
            self._delete_dead(found)
            for _ in range(RECOVERY_STEPS_MAX):
                if not self._discards.pending or self.kept:
                    break
                self.vacuum_step()
        self._make_mark()
        return found.of((SOURCE,))

    def commit(
        self, transaction: JournalTransaction, *, housekeeping: bool = True, outcome: JointOutcome | None = None
    ) -> None:
        """Of DiskFull only: nothing was written, the same transaction may be committed again. `outcome`: of several
        disks."""
        if self._failure is not None:  # not by a call: this is done for each commit
            raise DiskFailure(self._failure)
        sources, local = self._sources, self._sources.local
        if not self._recovered or transaction.after != local.idx:
            raise ValueError(f"transaction {transaction.index} follows {transaction.after}, and not {local.idx}")
        if transaction.index != local.idx + 1:
            sources.record_due()
        if transaction.writes or transaction.committed or transaction.entries or transaction.unusable:
            self._commit_of_sources(transaction, outcome)
        elif transaction.is_one_row and not (self._discards.pending or self._noted or self.checkpoints.shared):
            try:
                nbytes = write_row(self._writer, transaction, sources, self.names["identity"])
            except sqlite3.Error as error:  # not by `_failing`: as above
                raise self._failed(error) from error
            self.checkpoints.wrote_row(transaction.rows[0].queue_id, PAGES, nbytes)
        else:
            work, now = plain_work(transaction, local, self._discards, self._marks, self._operations)
            piece = self._piece(work) if self._discards.pending else Piece()
            piece.deletes = now
            self._timed.update([row.queue_id for row in transaction.rows if row.deadlines])
            self._write(work, piece)
        if self._mark is not None:
            self._mark.promise(transaction.index)
        if self.checkpoints.is_due() and (housekeeping or not self.checkpoints.lasts()):
            self._checkpoint()

    @property
    def prompt(self) -> bool:
        return not (self.checkpoints.lasts() or self._discards.pending or self._noted)

    def vacuum_step(self, rests: bool = False) -> bool:
        """Deletes what was discarded, gives free pages back to the file system, empties the WAL."""
        if not self._recovered:
            raise ValueError("the journal is not recovered yet")
        if self.kept:
            more = False
        elif self._sources.waits:
            self._commit_of_sources(None)
            more = True
        elif self._discards.pending:
            work = Work(self._sources.local)
            self._write(work, self._piece(work))
            more = True
        else:
            more = self._idle_step(rests)
        if self.checkpoints.is_due() if more else self.checkpoints.is_worthwhile():
            self._checkpoint()
        return more

    def payload(self, entry: SourceEntry) -> bytes:
        return encode(entry)

    def _take_over(self, found: JournalContents) -> None:
        self._sources = SourceProgress(found.heads, found.held, found.behind)
        self._sources.stale = found.staged
        self._discards = Discards(found.discards, self._sources.is_committed)
        self._timed, self._counted, self._marks = found.timed, found.counted, QueueMarks(found.marks)
        self._operations = MarkRows(found.operations, found.formerly)

    def _begin_epoch(self, epoch: int, rows: int) -> None:
        """Each incarnation of a process is a new epoch of the local source, from its first transaction on. `rows`: of
        messages, that there are."""
        local, identity = self._sources.local, self.names["identity"]
        new = local.at((max(epoch, local.epoch + 1), local.idx))
        try:
            self._writer.execute(statements.PUT_HEAD, new.parameters(identity, self._sources.behind))
        except sqlite3.Error as error:
            # On a full disk the first transaction that finds space writes it, before anything is said to be stored.
            if not local.epoch or not isinstance(meaning(error, self.path), DiskFull):
                raise self._failed(error) from error
            self._sources.begin(new)
            return
        with self._failing():
            found = trust.read_record(self.path, self._reader, identity)
        # From here on nothing counts these rows again: a record that is not there would make the next start refuse.
        if found is None or (found.epoch, found.idx, found.rows) != (*new.position, rows):
            self._failure = (
                f"the disk of {self.path} failed: the record of transaction {local.idx} was written, and is not "
                "there; start again, and if that does not help, look at the disk"
            )
            raise DiskFailure(self._failure)
        self._sources.put([new])

    def _commit_of_sources(self, transaction: JournalTransaction | None, outcome: JointOutcome | None = None) -> None:
        """Other sources first, then the local one. Also housekeeping, without a transaction. What another node has
        made and cannot be written is left out, with all of its source, and the transaction says so."""
        while True:
            left = transaction if transaction is None or outcome is None else outcome.left()
            if left is not None and left.unusable:
                self._sources.leave_out(left.unusable)
            try:
                if self._write_of_sources(left, outcome):
                    return
            except UnusableWrites as error:
                if transaction is None or transaction.own is None or error.source in transaction.own:
                    raise error.__cause__ or error from None
                (transaction if outcome is None else outcome).leave_out(error.source, error.reason)

    def _write_of_sources(self, transaction: JournalTransaction | None, outcome: JointOutcome | None) -> bool:
        """Raises UnusableWrites; then nothing was written. Nor was it if False: other disks leave out more."""
        self._refuse_after_failure()
        identity = self.names["identity"]
        known = InMemoryState(self._sources, self._discards, self._marks, self._operations, identity)
        given = transaction or JournalTransaction(self._sources.local.idx)
        try:
            with self._failing():
                draft, work, piece = write_sources(self._writer, given, known, release_rows=not self.kept)
            self._timed |= draft.timed.union(row.queue_id for row in given.rows if row.deadlines)
            self._counted |= draft.counted
            piece.take_in(Piece() if draft.undone else self._piece(work))  # discards may be gone with what is
            if outcome is not None and transaction is not None and not outcome.stores(transaction.unusable):
                self._writer.execute("ROLLBACK")
                return False
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise
        self._write(work, piece, draft, lambda: self._commit_of_sources(transaction))
        return True

    def release_reserve(self) -> None:
        """The disk is full: give up the held space, so that settles can be committed and rows deleted."""
        self._reserve.release()
        self._refuse_after_failure()
        with self._failing():
            self.checkpoints.run_after_release()

    def restore_reserve(self) -> bool:
        """Hold the space again, when there is twice as much. True: it is held, publishers may go on."""
        if (held := self._reserve.restore()) and self._mark is None and self._recovered:
            self._make_mark()
        return held

    def set_names(self, **names: str) -> None:
        """Write down names (`schema.names`), which are changed rarely. Raises like `commit`."""
        self._refuse_after_failure()
        with self._failing():
            put_names(self._writer, names)
            self._writer.execute("COMMIT")
        self._has_names(names)

    def note(self, **names: str) -> None:
        """Write down names with the next transaction, whenever it comes. From any thread."""
        self._noted = dict(({**self._noted, **names}).items() - self.names.items())

    def _has_names(self, names: dict[str, str]) -> None:
        """They are on the disk. A note that comes at this moment may be forgotten; its maker repeats it."""
        self.names |= names
        self.note()

    def forsake(self) -> None:
        """Close it as it was before it was opened: what was created then is removed. Only before `recover`."""
        self.close()
        if self._created:
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """No call may be running. The WAL is copied into the database and removed, as far as the disk allows; after a
        failure, or of a journal that was never recovered, the files are left as they are."""
        self._replicas.close()
        if self._failure is not None or not self._recovered:
            close_unchanged(
                self.path, (self._writer, self._reader), vfs=VFS, had_log=self._had_log or self._recovered
            )
        else:
            self._reader.close()
            self._writer.close()
        if self._mark is not None:
            if self._failure is None:
                with suppress(OSError):  # then it is as old as after a power cut
                    self._mark.sync()
            self._mark.close()
            self._mark = None

    # --- writing

    def _write(
        self,
        work: Work,
        piece: Piece,
        draft: Draft | None = None,
        again: Callable[[], None] | None = None,
    ) -> None:
        """The end of a transaction, or all of it; of housekeeping `work.head` is the local source's as it was. A page
        that cannot be changed when something is to be deleted ends deletions and nothing else. `draft`: what has been
        written of other sources, which `again` repeats."""
        self._refuse_after_failure()
        self._counted.update(work.counted)
        work.behind = self._sources.behind
        if self.kept:
            piece = Piece()
        noted = self._noted
        try:
            try:
                wrote = write(self._writer, work, piece, self._timed, self._counted, self.names, noted)
            except sqlite3.DatabaseError as error:
                if not piece or not is_damage(error, self.path):
                    raise
                self._keep(error)
                if again is not None:
                    again()
                    return
                piece = Piece()
                wrote = write(self._writer, work, piece, self._timed, self._counted, self.names, noted)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._sources.put((work.head,))
        if draft is not None:
            draft.apply()
        if noted:
            self._has_names(noted)
        self._marks.put(work.marks, work.dropped)
        self._operations.put(work.operations)
        if piece.discarded:
            self._discards.done(piece)
        if work.begun:
            self._discards.begun(work.begun)
        self.checkpoints.wrote(*wrote)

    def _keep(self, error: sqlite3.Error) -> None:
        """Delete nothing from now on: what is settled stays settled, and its space is lost until a repair."""
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
        where = f"{self.path} is damaged where settled messages are to be deleted"
        self.kept = f"{where} ({error}): they stay on the disk"
        _log.error("deletions stop", reason=self.kept, remedy=trust.REMEDY_OF_RECORDS)

    def _piece(self, work: Work) -> Piece:
        """What of the discards goes with this transaction."""
        if self.kept:
            return Piece()
        discards, counted = self._discards, self._counted
        with self._failing():
            return discards.piece(
                self._writer, rows=work.rows, nbytes=work.nbytes, begun=len(work.begun), counted=counted
            )

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise DiskFailure(self._failure)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """What SQLite raises becomes what is to be raised."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> Exception:
        """The exception to raise. Whatever it was, SQLite has rolled back; unless it was a full disk, what is in the
        WAL is unknown (a failed fsync may have written it, or not), and nothing is written after it."""
        exception = meaning(error, self.path)
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error as second:
            exception = DiskFailure(f"{exception}; and the transaction cannot be rolled back: {second}")
        if not isinstance(exception, DiskFull):
            self._failure = f"the journal stopped after a failure: {exception}"
        return exception

    def _delete_dead(self, found: JournalContents) -> None:
        """Write down what recovery found dead."""
        if found.dead or found.orphans:
            with self._failing():
                given = work_of_dead(self._writer, found, self._sources.local, self._discards, self._marks)
            self._write(*given)

    def _make_mark(self) -> None:
        if self._mark is not None:
            self._mark.close()
        try:
            self._mark = trust.make_mark(self.path, self.names["identity"], self.index, by_calls=self._one_of_several)
        except DiskFailure as error:
            self._failure = f"the journal stopped after a failure: {error}"
            raise

    def _idle_step(self, rests: bool) -> bool:
        self._refuse_after_failure()
        try:
            return self.checkpoints.idle_step(rests)
        except sqlite3.Error as error:
            if not isinstance(meaning(error, self.path), JournalDamaged):
                raise self._failed(error) from error
            self._keep(error)
            return False

    def _checkpoint(self) -> None:
        self._refuse_after_failure()
        with self._failing():
            self.checkpoints.run()
