"""Reads every record of a journal in small steps, and holds each against its checksum, while the node writes.

What comes in: the journal's path. What goes out: steps: how much was read, and what of it is damaged.
Rules: 1. A connection of its own, in the process of the node, which only reads and remembers nothing from step to
step: what SQLite has in memory says nothing of the disk. 2. A step is one short transaction: the log can be emptied
between two of them. Memory is bounded: a large body is summed up in pieces. 3. No damage and no failure of the disk
raises: it is found. 4. Whether messages can be read is asked of `RowReader`, as for a consumer.
Not here: when the next step is, and what is done about damage (`amqpd/scrub.py`). That a record has vanished is not
seen here: recovery counts them.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from amqpd.journal.errors import DiskFailure, JournalInUse
from amqpd.journal.records import JournalDamaged, Row
from amqpd.journal.sqlite import checksums, queries, trust
from amqpd.journal.sqlite.database import VFS, meaning
from amqpd.journal.sqlite.reading import RowReader
from amqpd.journal.sqlite.schema import PAGE_BYTES, SEQ_MAX
from amqpd.journal.sqlite.statement_parameters import checksum, checksum_of_deadlines
from amqpd.storage.moment import connect
from amqpd.storage.page_cache import PageCache

STEP_BYTES_MAX = 256 << 10
STEP_ROWS_MAX = 64
STEP_RECORDS_MAX = 512
"""Each a fraction of a millisecond to some milliseconds in a thread; a body that is larger is read in one step."""
CACHE_PAGES = 64
PIECE_BYTES = 256 << 10
RECORD_BYTES = 64
"""What a small record, or what a row is beside its body, counts as."""

Entry = tuple[Any, ...]
"""of `queries.ENTRIES`"""
_SUMS: dict[str, Callable[..., int]] = {
    "queue": checksums.of_mark,
    "discard": checksums.of_discard,
    "settled": checksums.of_settled,
    "returned": checksums.of_returned,
    "former": checksums.of_former,
    "tail": checksums.of_tail,
    "seal": checksums.of_vote,
    "staged": checksums.of_staged,
    "operation_mark": checksums.of_operation_mark,
    "former_operation_mark": checksums.of_former_operation_mark,
}
_NO_NUMBERS = (struct.error, TypeError)
"""what a checksum raises for fields of other types"""
_PHASES = ("names", *_SUMS, "batch")


class ScrubbedDamage(NamedTuple):
    """One damage that a scan found. With `messages` the row first..last of the queue cannot be read; else a record
    of the table is damaged, and its messages, if it has any, can be read."""

    table: str
    key: tuple[Any, ...]
    reason: str
    messages: bool = False


class ScrubStep(NamedTuple):
    """The result of one step of a pass: how much was read, and the damage that was found."""

    nbytes: int
    rows: int
    total_bytes: int
    """of the journal, as it is now"""
    found: list[ScrubbedDamage]
    done: bool
    """that was the last one of the pass"""


class Scan:
    """The scan of one journal, step by step: it blocks, and is for one thread at a time."""

    def __init__(self, path: Path, page_cache: PageCache) -> None:
        self._path = path
        self._page_cache = page_cache
        self._connection: sqlite3.Connection | None = None
        self._phase = 0
        self._cursor: tuple[Any, ...] | None = None
        self._total_bytes = 0

    def begin(self) -> int:
        """A pass begins: how many bytes there are to read."""
        self._phase, self._cursor = 0, None
        self._page_cache.drop()
        try:
            self._total_bytes = self._size(self._opened())
        except sqlite3.Error:
            pass  # the steps say it
        return self._total_bytes

    def step(self) -> ScrubStep:
        """Read on."""
        table = _PHASES[self._phase]
        nbytes = rows = 0
        found: list[ScrubbedDamage] = []
        suspects: list[tuple[Entry, Entry | None]] = []
        try:
            connection = self._opened()
            connection.execute("BEGIN")
            try:
                if table == "names":
                    nbytes = self._names(connection, found)
                elif table == "batch":
                    nbytes, rows = self._rows(connection, suspects)
                else:
                    nbytes = self._records(connection, table, found)
                self._total_bytes = self._size(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            for entry, row in suspects:
                found += self._judged(connection, entry, row)
            connection.execute("PRAGMA shrink_memory")
        except sqlite3.Error as error:
            reason = meaning(error, self._path)
            if isinstance(reason, JournalInUse):
                nbytes = STEP_BYTES_MAX  # the same again, after the pause of a step
            else:
                found.append(ScrubbedDamage(table, (), f"'{table}' cannot be read as a whole: {reason}"))
                self._next_phase()
        done = self._phase == len(_PHASES)
        return ScrubStep(nbytes, rows, self._total_bytes, found, done)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path, f"vfs={VFS}&mode=rw", timeout_s=0, any_thread=True)
            self._connection.execute("PRAGMA query_only = ON")
            self._connection.execute(f"PRAGMA cache_size = {CACHE_PAGES}")
        return self._connection

    def _size(self, connection: sqlite3.Connection) -> int:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        return int(max(pages - free, 1) * PAGE_BYTES)

    def _next_phase(self) -> None:
        self._phase += 1
        self._cursor = None

    def _sliced(self, connection: sqlite3.Connection, statement: str, keys: int, count_max: int) -> list[Entry]:
        key = self._cursor or (-SEQ_MAX - 1,) * keys
        given = {f"key{at}": value for at, value in enumerate(key)}
        return connection.execute(statement, {**given, "count_max": count_max}).fetchall()

    def _passed(self, entries: list[Entry], whole: list[Entry], keys: int, more: bool) -> None:
        """The next slice begins behind the last record that is whole: the order of others means nothing."""
        behind = max((entry[:keys] for entry in whole), default=None)
        if not (more and entries) or behind is None or (self._cursor is not None and behind <= self._cursor):
            self._next_phase()
        else:
            self._cursor = behind

    # --- records beside the messages

    def _names(self, connection: sqlite3.Connection, found: list[ScrubbedDamage]) -> int:
        for read in (trust.read_names, trust.read_record):
            try:
                read(self._path, connection)
            except (JournalDamaged, *_NO_NUMBERS) as error:
                reason = str(error).removesuffix(f"; {trust.REMEDY_OF_RECORDS}")
                found.append(ScrubbedDamage("names" if read is trust.read_names else "source", (), reason))
                break  # the checksum of the last transaction is made with the identity
        self._next_phase()
        return 2 * RECORD_BYTES

    def _records(self, connection: sqlite3.Connection, table: str, found: list[ScrubbedDamage]) -> int:
        keys, statement = queries.SLICES[table]
        records = self._sliced(connection, statement, keys, STEP_RECORDS_MAX)
        whole = []
        for record in records:
            if _sum(_SUMS[table], record[:-1]) == record[-1]:
                whole.append(record)
            else:
                reason = f"the record {record[:-1]} of '{table}' does not fit its checksum"
                found.append(ScrubbedDamage(table, record[:keys], reason))
        self._passed(records, whole, keys, len(records) == STEP_RECORDS_MAX)
        return len(records) * RECORD_BYTES

    # --- messages

    def _rows(self, connection: sqlite3.Connection, suspects: list[tuple[Entry, Entry | None]]) -> tuple[int, int]:
        """Rows of the next entries of the index; how many bytes and rows those were."""
        entries = self._sliced(connection, queries.ENTRIES, 2, STEP_ROWS_MAX)
        nbytes = rows = 0
        whole = []
        for entry in entries:
            if nbytes >= STEP_BYTES_MAX:
                break
            rows += 1
            nbytes += RECORD_BYTES
            if _head_fits(entry):
                whole.append(entry)
                nbytes += entry[3] + entry[10]
            try:
                row = connection.execute(queries.HEAD_OF, {"batch_id": entry[-1]}).fetchone()
                fits = row == entry and _head_fits(entry) and self._body_fits(connection, entry)
            except sqlite3.Error:
                row, fits = None, False
            if not fits:
                suspects.append((entry, row))
        self._passed(entries, whole, 2, rows < len(entries) or len(entries) == STEP_ROWS_MAX)
        return nbytes, rows

    def _body_fits(self, connection: sqlite3.Connection, entry: Entry) -> bool:
        queue_id, last, first, nbytes, persistent, *_, body_bytes, published_ms, deadline_bytes, crc, row_id = entry
        given = {"batch_id": row_id}
        timed = b""
        if deadline_bytes:
            sum_of_timed, timed = connection.execute(queries.DEADLINES_OF, given).fetchone() or (None, b"")
            if not isinstance(timed, bytes) or len(timed) != deadline_bytes:
                return False
            if checksum_of_deadlines(queue_id, first, last, timed) != sum_of_timed:
                return False
        # The sum of what is said of the body, without the body.
        found = checksum(Row(queue_id, first, last, b"", bool(persistent), body_bytes, published_ms, timed))
        if nbytes <= PIECE_BYTES:
            (data,) = connection.execute(queries.BODY_OF, given).fetchone() or (b"",)
            if not isinstance(data, bytes) or len(data) != nbytes:
                return False
            found = crc32(data, found)
        else:
            with connection.blobopen("batch", "data", row_id, readonly=True) as body:
                if len(body) != nbytes:
                    return False
                while piece := body.read(PIECE_BYTES):
                    found = crc32(piece, found)
        return bool(found == crc & checksums.BODY_MASK)

    def _judged(self, connection: sqlite3.Connection, entry: Entry, row: Entry | None) -> list[ScrubbedDamage]:
        """What does not fit: for a consumer, and for what goes by the index."""
        found = []
        named = {(each[0], each[2], each[1]) for each in (entry, row) if each is not None and _head_fits(each)}
        for queue_id, first, last in sorted(named):
            try:
                rows = RowReader(connection, self._path).read(queue_id, first, last, 1)
            except (JournalDamaged, DiskFailure) as error:
                found.append(ScrubbedDamage("batch", (queue_id, first), str(error)))
                continue
            reason = rows[0].damage if rows else f"the index of {self._path} does not name messages {first}..{last}"
            if reason:
                found.append(ScrubbedDamage("batch", (queue_id, first, last), reason, messages=True))
        about = f"messages {entry[2]}..{entry[1]} of queue {entry[0]}"
        if not _head_fits(entry):
            found.append(
                ScrubbedDamage("batch_index", entry[:2], f"the index entry of {about} does not fit its checksum")
            )
        elif not found:
            found.append(
                ScrubbedDamage("batch", entry[:2], f"the row of {about} says something else than its index entry")
            )
        return found


def _sum(of: Callable[..., int], fields: Entry) -> int | None:
    """None when they are no numbers: what is damaged may be of any type."""
    try:
        return of(*fields)
    except _NO_NUMBERS:
        return None


def _head_fits(entry: Entry) -> bool:
    """Rows of formats before 0003 have no such checksum, and fit."""
    if not all(isinstance(field, int) for field in entry):
        return False
    queue_id, last, first, nbytes, persistent, source, epoch, idx, *more, crc, _ = entry
    head = crc >> checksums.HEAD_SHIFT
    return not head or head == _sum(
        checksums.of_head, (queue_id, first, last, persistent, nbytes, source, epoch, idx, *more)
    )
