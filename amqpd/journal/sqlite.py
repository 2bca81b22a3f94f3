"""The disk of the journal: one SQLite database in WAL mode.

What comes in: transactions and reads (`records.Disk`). What goes out: durability, rows, what recovery found.
Rules: 1. A commit is one statement and one fsync (why: `statements.py`). 2. What a commit deletes is bounded; more
is written down as a discard and leaves in pieces (`discards.py`). 3. After a failure of the disk nothing is
written any more; only a full disk, where SQLite has rolled everything back, may be tried again. 4. The WAL is copied
into the database here, when it has grown enough; a reader can delay that only for the time of one read.
Not here: when a transaction is cut (`buffer.py`), SQL text (`statements.py`), files and formats (`database.py`).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amqpd.journal import statements
from amqpd.journal.database import JOURNAL, meaning, open_journal
from amqpd.journal.discards import Discard, Discards, Piece
from amqpd.journal.errors import DiskFailure, DiskFull
from amqpd.journal.intake import checksum, checksum_of_deadlines, chunks, listed, split
from amqpd.journal.records import READ_ROWS_MAX, JournalDamaged, Recovered, Row, Transaction
from amqpd.journal.recovery import Found, find
from amqpd.journal.reserve import RESERVE_BYTES, Reserve
from amqpd.journal.schema import PAGE_BYTES, SEQ_MAX

SOURCE, EPOCH = 0, 1
"""The only source of a single node and its reign (CLUSTER.md 1)."""

CHECKPOINT_BYTES = 8 << 20
"""WAL bytes after which a commit copies the WAL into the database. Measured: with 2 MB a commit of 200 kB costs up to
twice as much, because a page is copied each time; with 32 MB nothing is won, and recovery would read it all."""
WAL_BYTES_MAX = 2 * CHECKPOINT_BYTES
"""WAL bytes after which that waits for the reader to finish, instead of leaving pages for the next time; half of
the reserve, which must be enough for the WAL and a transaction (`reserve.py`)."""
VACUUM_PAGES = 256
"""Free pages that one idle step gives back to the file system: 2 MB, 1 to 3 ms."""
FREE_BYTES_KEPT = 64 << 20
"""Free pages are kept for the next backlog up to this, or a quarter of the file if that is more."""
RECOVERY_STEPS_MAX = 16
"""Pieces of dead rows that recovery itself deletes (32 MB); the rest is left to idle moments."""


class SqliteDisk:
    """Implements `records.Disk`. The directory is created when it is missing.

    Raises NotAJournal, NewerFormat, JournalInUse, JournalDamaged, DiskFull, DiskFailure."""

    def __init__(self, directory: Path, *, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._path = directory / JOURNAL
        self._writer, self._reader = open_journal(directory)
        self._reserve = Reserve(directory, reserve_bytes)
        self._reading = threading.Lock()
        """held for the time of one read"""
        self._discards = Discards([])
        self._timed: set[int] = set()
        """ids of queues that may have deadlines on disk: they are looked for only when rows of these are deleted"""
        self._counted: set[int] = set()
        """the same for counts of returned messages"""
        self._index: int | None = None
        self._wal_bytes = 0
        """estimate of what is in the WAL and not in the database; exact after a checkpoint"""
        self._checkpoint_at = CHECKPOINT_BYTES
        self._failure: str | None = None
        try:
            self._writer.executescript(";".join(("BEGIN", *statements.CREATE_INTAKE, "COMMIT")))
            self._reserve.restore()
        except BaseException:
            self.close()
            raise

    # --- Disk

    def recover(self) -> Recovered:
        """See `Disk`. Rows that are dead are written down as such in one transaction, and leave in pieces."""
        try:
            row = self._writer.execute(statements.SOURCE, {"source": SOURCE}).fetchone()
            if row is None:
                row = (EPOCH, 0)
                self._writer.execute(statements.NEW_SOURCE, {"source": SOURCE, "epoch": EPOCH, "idx": 0})
            self._index = row[1]
            found = find(self._writer, row[1])
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._discards = Discards(found.discards)
        self._timed, self._counted = found.timed, found.counted
        try:
            self._bury(found)
            for _ in range(RECOVERY_STEPS_MAX):
                if not self._discards:
                    break
                self.vacuum_step()
        except DiskFull:
            # A node has to start on a full disk, to let its consumers empty it. What is dead stays so, and is found
            # again by the next recovery.
            pass
        return found.recovered

    def commit(self, transaction: Transaction) -> None:
        """See `Disk`. Of DiskFull only: nothing was written, the same transaction may be committed again."""
        self._refuse_after_failure()
        if self._index is None or transaction.index != self._index + 1:
            raise ValueError(f"transaction {transaction.index} does not follow {self._index}")
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
        lists: dict[str, list[Any]] = {
            "returned": transaction.counts,
            "settled": [(item.queue_id, item.first_seq, item.last_seq) for item in transaction.settled],
            "marks": marks,
            "dropped": [(queue_id,) for queue_id in transaction.dropped],
        }
        self._write(index, rows, piece, begun, lists, counts=1)
        self._index = index
        if self._wal_bytes >= self._checkpoint_at:
            self._checkpoint()

    def read(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Row]:
        """See `Disk`. Rows that do not fit into bytes_max any more are not read; the first one always is."""
        connection = self._reader
        with self._reading:
            try:
                connection.execute("BEGIN")  # the search and the read see the same state
                try:
                    heads = self._find(queue_id, first_seq, last_seq, bytes_max)
                    if not heads:
                        return []
                    given = {"queue_id": queue_id, "first_seq": first_seq, "last_seq": heads[-1][1]}
                    found = connection.execute(statements.READ, given).fetchall()
                finally:
                    connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise meaning(error, self._path) from error
        if len(found) != len(heads):
            raise JournalDamaged(f"{len(heads)} rows of queue {queue_id} in {self._path} are {len(found)}")
        return [self._row(queue_id, head, body) for head, body in zip(heads, found, strict=True)]

    def vacuum_step(self) -> bool:
        """See `Disk`. Deletes what was discarded, then gives free pages back to the file system, then empties the
        WAL."""
        if self._index is None:
            raise ValueError("the journal is not recovered yet")
        if self._discards:
            self._write(self._index, [], self._piece([], []), [], {}, counts=0)
            more = True
        else:
            more = self._shrink()
        if self._wal_bytes >= (self._checkpoint_at if more else CHECKPOINT_BYTES // 4):
            self._checkpoint()
        return more

    def release_reserve(self) -> None:
        """The disk is full: give up the held space, so that settles can be committed and rows deleted."""
        self._reserve.release()
        self._checkpoint_at = CHECKPOINT_BYTES
        self._checkpoint()

    def restore_reserve(self) -> bool:
        """Hold the space again, when there is twice as much. True: it is held, publishers may go on."""
        return self._reserve.restore()

    def close(self) -> None:
        """No call may be running. The WAL is copied into the database and removed, as far as the disk allows."""
        self._reader.close()
        self._writer.close()

    # --- writing

    def _write(
        self,
        index: int,
        rows: list[Row],
        piece: Piece,
        begun: list[Discard],
        lists: dict[str, list[Any]],
        *,
        counts: int,
    ) -> None:
        """One transaction. `counts`: 1 when `index` becomes the last committed one, 0 for housekeeping."""
        self._refuse_after_failure()
        given: dict[str, Any] = dict.fromkeys((*statements.LISTS, *statements.RARE_LISTS))
        given.update(source=SOURCE, epoch=EPOCH, idx=index, counts=0)
        last = {
            "counts": counts,
            "row_deletes": listed(piece.row_deletes),
            "deadline_deletes": listed(_among(self._timed, piece.row_deletes)),
            "settled_deletes": listed(piece.settled_deletes),
            "returned_deletes": listed(_among(self._counted, piece.settled_deletes)),
            "discarded": listed(piece.discarded),
            "discards": listed(begun),
            **{name: listed(items) for name, items in lists.items()},
        }
        connection = self._writer
        try:
            parts = chunks(rows)
            part = next(parts).taken_in()
            for following in parts:
                if not connection.in_transaction:
                    connection.execute("BEGIN IMMEDIATE")
                self._take_in({**given, **part})
                part = following.taken_in()
            self._take_in({**given, **last, **part})
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._discards.done(piece)
        self._discards.begun(begun)
        # A row dirties a page of the table and one of the index; freed bodies dirty 1 page of the free list and 1 of
        # the map for some hundred of theirs; 8 are dirty always.
        dirty = 8 + sum(3 if row.deadlines else 2 for row in rows)
        dirty += len(piece.row_deletes) + piece.nbytes // (100 * PAGE_BYTES)
        self._wal_bytes += dirty * PAGE_BYTES + _nbytes(rows)

    def _take_in(self, given: dict[str, Any]) -> None:
        rare = any(map(given.get, statements.RARE_LISTS))
        self._writer.execute(statements.COMMIT_WITH_RARE if rare else statements.COMMIT, given)

    def _piece(self, rows: list[Row], begun: list[Discard]) -> Piece:
        """What of the discards goes with the next transaction."""
        if not self._discards:
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
        exception = meaning(error, self._path)
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error as second:
            exception = DiskFailure(f"{exception}; and the transaction cannot be rolled back: {second}")
        if not isinstance(exception, DiskFull):
            self._failure = f"the journal stopped after a failure: {exception}"
        return exception

    def _bury(self, found: Found) -> None:
        """Write down what recovery found dead."""
        if not found.dead and not found.orphans:
            return
        assert self._index is not None
        index = self._index
        begun = self._discards.numbered([(*item, index) for item in found.dead])
        orphans = [(queue_id, first, first, last, index) for queue_id, first, last in found.orphans]
        marks = [(queue_id, last + 1, -1) for queue_id, _, last in found.dead]
        self._write(index, [], Piece(settled_deletes=orphans), begun, {"marks": marks}, counts=0)

    # --- housekeeping

    def _checkpoint(self) -> None:
        """Copy the WAL into the database. What was committed stays so, whatever happens here: a full disk leaves
        the WAL as it is, to grow until a commit finds no space (and is refused) or there is space again."""
        self._refuse_after_failure()
        try:
            _, pages, copied = self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages * PAGE_BYTES > WAL_BYTES_MAX:
                with self._reading:
                    _, pages, copied = self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            if not isinstance(meaning(error, self._path), DiskFull):
                raise self._failed(error) from error
            self._checkpoint_at = self._wal_bytes + CHECKPOINT_BYTES // 8
            return
        # A WAL that is copied as a whole, and that no reader uses, is begun anew by the next commit.
        self._wal_bytes = (pages - copied) * PAGE_BYTES
        self._checkpoint_at = self._wal_bytes + CHECKPOINT_BYTES

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
            raise self._failed(error) from error
        self._wal_bytes += min(spare, VACUUM_PAGES) * PAGE_BYTES
        return spare > VACUUM_PAGES

    # --- reading

    def _find(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[tuple[int, ...]]:
        """What the index alone says of the rows to read (`statements.FIND`)."""
        heads: list[tuple[int, ...]] = []
        total = 0
        cursor = self._reader.execute(statements.FIND, {"queue_id": queue_id, "first_seq": first_seq})
        for head in cursor:
            first, _, nbytes, *_ = head
            total += nbytes
            if first > last_seq or (heads and total > bytes_max) or len(heads) == READ_ROWS_MAX:
                break
            heads.append(head)
        cursor.close()
        return heads

    def _row(self, queue_id: int, head: tuple[int, ...], body: tuple[Any, ...]) -> Row:
        """Raises JournalDamaged when what the index says, the body and the deadlines do not belong together."""
        first, last, nbytes, persistent, body_bytes, published_ms, deadline_bytes = head
        crc, data, deadline_crc, deadlines = body
        row = Row(queue_id, first, last, data, bool(persistent), body_bytes, published_ms, deadlines or b"")
        if (
            *(len(data), len(row.deadlines), checksum(row)),
            checksum_of_deadlines(queue_id, first, last, row.deadlines) if deadline_bytes else None,
        ) != (nbytes, deadline_bytes, crc, deadline_crc):
            raise JournalDamaged(f"messages {first}..{last} of queue {queue_id} in {self._path} are damaged")
        return row


def _nbytes(rows: list[Row]) -> int:
    return sum([len(row.data) + len(row.deadlines) for row in rows])


def _among(queues: set[int], items: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [item for item in items if item[0] in queues] if queues else []
