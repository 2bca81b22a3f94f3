"""The disk of the journal: one SQLite database in WAL mode.

What comes in: transactions and reads (`records.Disk`). What goes out: durability, rows, what recovery found.
Rules: 1. A commit is one statement and one fsync (why: `statements.py`). 2. What a commit deletes is bounded; more
is written down as a discard and leaves in pieces (`discards.py`). 3. After a failure of the disk nothing is
written any more; only a full disk, where SQLite has rolled everything back, may be tried again.
Not here: when a transaction is cut (`journal/buffer.py`), SQL text (`statements.py`), files and formats
(`database.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from amqpd.journal.errors import DiskFailure, DiskFull
from amqpd.journal.records import JournalDamaged, Recovered, Row, Transaction
from amqpd.journal.sqlite import checksums, statements, trust
from amqpd.journal.sqlite.checkpoints import Checkpoints
from amqpd.journal.sqlite.database import JOURNAL, VFS, is_damage, meaning, open_journal, put_names, try_to_write
from amqpd.journal.sqlite.discards import Discard, Discards, Piece
from amqpd.journal.sqlite.intake import chunks, listed, split
from amqpd.journal.sqlite.queue_marks import QueueMarks
from amqpd.journal.sqlite.reading import RowReader
from amqpd.journal.sqlite.recovery import Found, examine
from amqpd.journal.sqlite.reserve import RESERVE_BYTES, Reserve
from amqpd.journal.sqlite.schema import EPOCH, PAGE_BYTES, SEQ_MAX, SOURCE
from amqpd.storage.closing import close_unchanged
from amqpd.storage.mark import Mark

VACUUM_PAGES = 256
"""Free pages that one idle step gives back to the file system: 2 MB, 1 to 3 ms."""
FREE_BYTES_KEPT = 64 << 20
"""Free pages are kept for the next backlog up to this, or a quarter of the file if that is more."""
_NEW_SOURCE = {
    "source": SOURCE,
    "epoch": EPOCH,
    "idx": 0,
    "rows": 0,
    "rows_check": 0,
    "settled": 0,
    "settled_check": 0,
}
RECOVERY_STEPS_MAX = 16
"""Pieces of dead rows that recovery itself deletes (32 MB); the rest is left to idle moments."""

_log = structlog.get_logger("amqpd.journal")


class SqliteDisk:
    """Implements `records.Disk`. The directory is created when it is missing.

    Raises NotAJournal, NewerFormat, JournalInUse, JournalDamaged, DiskFull, DiskFailure."""

    def __init__(self, directory: Path, *, reserve_bytes: int = RESERVE_BYTES, accept_loss: bool = False) -> None:
        """`accept_loss`: go on with a journal that has less than it once confirmed."""
        self.path = directory / JOURNAL
        opened = open_journal(directory, accept_loss=accept_loss)
        self.accepted = opened.accepted
        """what was accepted as lost, or is not known any more: sentences for the log"""
        self.names = opened.names
        """see `schema.names`"""
        self._noted: dict[str, str] = {}  # names that the next transaction writes along
        self.index = opened.source.idx if opened.source is not None else 0
        """of the last transaction"""
        self._created, self._had_log = opened.created, opened.had_log
        self._found: Found | None = None
        self._writer, self._reader = opened.writer, opened.reader
        self._rows = RowReader(self._reader, self.path)
        self._reserve = Reserve(directory, reserve_bytes)
        self._mark: Mark | None = None  # on a full disk, too
        self._discards = Discards([])
        self._timed: set[int] = set()
        """ids of queues that may have deadlines on disk: they are looked for only when rows of these are deleted"""
        self._counted: set[int] = set()
        """the same for counts of returned messages"""
        self._marks = QueueMarks({})
        self._recovered = False
        self._checkpoints = Checkpoints(self._writer, self.path, self._rows.turn)
        self._failure: str | None = None
        self.kept: str | None = None  # why settled messages do not leave the disk any more: a damaged page

    def examine(self) -> None:
        """Read all that `recover` goes by, and change nothing. Raises JournalDamaged, DiskFailure."""
        try:
            self._found = examine(self.path, self._reader)
            try_to_write(self._writer, self.path)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        except JournalDamaged as error:
            self._failure = str(error)
            raise

    def recover(self) -> Recovered:
        """See `Disk`. Rows that are dead are written down as such in one transaction, and leave in pieces. Nothing is
        written before all is read."""
        if self._found is None:
            self.examine()
        found, self._found = self._found, None
        assert found is not None
        try:
            crc = checksums.of_source(SOURCE, EPOCH, 0, self.names["identity"])
            self._writer.execute(statements.NEW_SOURCE, {**_NEW_SOURCE, "crc": crc})
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self.index, self._recovered = found.recovered.index, True
        self._reserve.restore()
        self._discards = Discards(found.discards)
        self._timed, self._counted, self._marks = found.timed, found.counted, QueueMarks(found.marks)
        try:
            self._delete_dead(found)
            for _ in range(RECOVERY_STEPS_MAX):
                if not self._discards or self.kept:
                    break
                self.vacuum_step()
        except DiskFull:
            # A node has to start on a full disk, to let its consumers empty it. What is dead stays so, and is found
            # again by the next recovery.
            pass
        self._make_mark()
        return found.recovered

    def commit(self, transaction: Transaction) -> None:
        """See `Disk`. Of DiskFull only: nothing was written, the same transaction may be committed again."""
        self._refuse_after_failure()
        if not self._recovered or transaction.index != self.index + 1:
            raise ValueError(f"transaction {transaction.index} does not follow {self.index}")
        index = transaction.index
        rows = transaction.rows
        now, later = split(transaction.deletes, len(rows))
        marks = [(queue_id, 0, below) for queue_id, below in transaction.delivered.items()]
        marks += [(item.queue_id, item.last_seq + 1, -1) for item in (*now, *later)]
        begun = self._discards.numbered(
            [(item.queue_id, item.first_seq, item.last_seq, index) for item in later]
            + [(queue_id, 0, SEQ_MAX, index) for queue_id in transaction.dropped]
        )
        piece = self._piece(rows, begun)
        piece.row_deletes += [(item.queue_id, item.first_seq, item.last_seq, index) for item in now]
        piece.settled_deletes += [
            (item.queue_id, item.first_seq, item.last_seq, item.last_seq, index) for item in now
        ]
        self._timed.update([row.queue_id for row in rows if row.deadlines])
        self._counted.update([queue_id for queue_id, *_ in transaction.counts])
        settled = [(item.queue_id, item.first_seq, item.last_seq) for item in transaction.settled]
        lists: dict[str, list[Any]] = {
            "returned": [(*item, checksums.of_returned(*item, index)) for item in transaction.counts],
            "settled": [(*item, checksums.of_settled(*item, index)) for item in settled],
            "settled_again": self._discards.of_queues(settled),
            "marks": self._marks.raised(marks),
            "dropped": [(queue_id,) for queue_id in transaction.dropped],
        }
        self._write(index, rows, piece, begun, lists)
        self.index = index
        if self._mark is not None:
            self._mark.promise(index)
        if self._checkpoints.is_due():
            self._checkpoint()

    def read(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Row]:
        """See `Disk`."""
        return self._rows.read(queue_id, first_seq, last_seq, bytes_max)

    def vacuum_step(self) -> bool:
        """See `Disk`. Deletes what was discarded, gives free pages back to the file system, empties the WAL."""
        if not self._recovered:
            raise ValueError("the journal is not recovered yet")
        if self.kept:
            more = False
        elif self._discards:
            self._write(self.index, [], self._piece([], []), [], {})
            more = True
        else:
            more = self._shrink()
        if self._checkpoints.is_due() if more else self._checkpoints.is_worthwhile():
            self._checkpoint()
        return more

    def release_reserve(self) -> None:
        """The disk is full: give up the held space, so that settles can be committed and rows deleted."""
        self._reserve.release()
        self._refuse_after_failure()
        try:
            self._checkpoints.run_after_release()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def restore_reserve(self) -> bool:
        """Hold the space again, when there is twice as much. True: it is held, publishers may go on."""
        held = self._reserve.restore()
        if held and self._mark is None and self._recovered:
            self._make_mark()
        return held

    def set_names(self, **names: str) -> None:
        """Write down names (`schema.names`), which are changed rarely. Raises like `commit`."""
        self._refuse_after_failure()
        try:
            put_names(self._writer, names)
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from error
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
        self, index: int, rows: list[Row], piece: Piece, begun: list[Discard], lists: dict[str, list[Any]]
    ) -> None:
        """One transaction; for housekeeping `index` is that of the last one. A page that cannot be changed when
        something is to be deleted ends deletions and nothing else."""
        self._refuse_after_failure()
        lists["discards"] = [(*discard, checksums.of_discard(*discard)) for discard in begun]
        if self.kept:
            piece = Piece()
        try:
            try:
                self._write_all(index, rows, piece, lists)
            except sqlite3.DatabaseError as error:
                if not piece or not is_damage(error, self.path):
                    raise
                self._keep(error)
                piece = Piece()
                self._write_all(index, rows, piece, lists)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._marks.put(lists.get("marks", ()), [queue_id for (queue_id,) in lists.get("dropped", ())])
        self._discards.done(piece)
        self._discards.begun(begun)
        # A row dirties a page of the table and one of the index; freed bodies dirty 1 page of the free list and 1 of
        # the map for some hundred of theirs; 8 are dirty always.
        dirty = 8 + sum(3 if row.deadlines else 2 for row in rows)
        dirty += len(piece.row_deletes) + piece.nbytes // (100 * PAGE_BYTES)
        self._checkpoints.wrote(dirty, _nbytes(rows))

    def _write_all(self, index: int, rows: list[Row], piece: Piece, lists: dict[str, list[Any]]) -> None:
        """Raises sqlite3.Error; a transaction may be open then."""
        given: dict[str, Any] = dict.fromkeys((*statements.LISTS, *statements.RARE_LISTS))
        given.update(source=SOURCE, epoch=EPOCH, idx=index)
        given["source_crc"] = checksums.of_source(SOURCE, EPOCH, index, self.names["identity"])
        last = {
            "row_deletes": listed(piece.row_deletes),
            "deadline_deletes": listed(_among(self._timed, piece.row_deletes)),
            "settled_deletes": listed(piece.settled_deletes),
            "returned_deletes": listed(_among(self._counted, piece.settled_deletes)),
            "discarded": listed(piece.discarded),
            **{name: listed(items) for name, items in lists.items()},
        }
        connection = self._writer
        noted = self._noted
        if noted:
            put_names(connection, noted)
        parts = chunks(rows, index)
        part = next(parts).taken_in()
        for following in parts:
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            self._take_in({**given, **part})
            part = following.taken_in()
        self._take_in({**given, **last, **part})
        if connection.in_transaction:
            connection.execute("COMMIT")
        if noted:
            self._has_names(noted)

    def _keep(self, error: sqlite3.Error) -> None:
        """Delete nothing from now on: what is settled stays settled, and its space is lost until a repair."""
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
        self.kept = (
            f"{self.path} is damaged where settled messages are to be deleted ({error}): they stay on the disk"
        )
        _log.error("deletions stop", reason=self.kept, remedy=trust.REMEDY_OF_RECORDS)

    def _take_in(self, given: dict[str, Any]) -> None:
        rare = any(map(given.get, statements.RARE_LISTS))
        self._writer.execute(statements.COMMIT_WITH_RARE if rare else statements.COMMIT, given)

    def _piece(self, rows: list[Row], begun: list[Discard]) -> Piece:
        """What of the discards goes with the next transaction."""
        if not self._discards or self.kept:
            return Piece()
        try:
            return self._discards.piece(
                self._writer,
                rows=len(rows),
                nbytes=_nbytes(rows),
                begun=len(begun),
                counted=self._counted,
            )
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise DiskFailure(self._failure)

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

    def _delete_dead(self, found: Found) -> None:
        """Write down what recovery found dead."""
        if not found.dead and not found.orphans:
            return
        index = self.index
        begun = self._discards.numbered([(*item, index) for item in found.dead])
        orphans = [(queue_id, first, first, last, index) for queue_id, first, last in found.orphans]
        marks = [(queue_id, last + 1, -1) for queue_id, _, last in found.dead]
        self._write(index, [], Piece(settled_deletes=orphans), begun, {"marks": self._marks.raised(marks)})

    def _make_mark(self) -> None:
        if self._mark is not None:
            self._mark.close()
        try:
            self._mark = trust.make_mark(self.path, self.names["identity"], self.index)
        except DiskFailure as error:
            self._failure = f"the journal stopped after a failure: {error}"
            raise

    # --- housekeeping

    def _checkpoint(self) -> None:
        self._refuse_after_failure()
        try:
            self._checkpoints.run()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _shrink(self) -> bool:
        """Give some free pages back; True when there are more of them than are kept."""
        self._refuse_after_failure()
        try:
            (free,) = self._writer.execute("PRAGMA freelist_count").fetchone()
            (pages,) = self._writer.execute("PRAGMA page_count").fetchone()
            spare = int(free - max(FREE_BYTES_KEPT // PAGE_BYTES, (pages - free) // 4))
            if spare <= 0:
                return False
            # executescript: SQLite returns after each page, and `execute` would stop at the first.
            self._writer.executescript(f"PRAGMA incremental_vacuum({min(spare, VACUUM_PAGES)})")
        except sqlite3.Error as error:
            if isinstance(meaning(error, self.path), JournalDamaged):
                self._keep(error)
                return False
            raise self._failed(error) from error
        self._checkpoints.wrote(min(spare, VACUUM_PAGES), 0)
        return spare > VACUUM_PAGES


def _nbytes(rows: list[Row]) -> int:
    return sum([len(row.data) + len(row.deadlines) for row in rows])


def _among(queues: set[int], items: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [item for item in items if item[0] in queues] if queues else []
