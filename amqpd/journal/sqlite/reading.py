"""Reads rows of messages back, and holds each against its checksum.

What comes in: a connection that only reads, a queue's id and a range. What goes out: rows; in place of one that is
damaged its reason (`Row.damage`).
Rules: 1. What is wanted is found in the index alone; a body is read once. 2. A damaged row is the matter of its queue
(`Row.damage`); an index that cannot be searched is the journal's, and a disk that fails is the node's.
Not here: recovery, which reads no body (`recovery.py`).
"""

from __future__ import annotations

import sqlite3
import struct
import threading
import time
from pathlib import Path
from typing import Any

from amqpd.journal.disk import READ_ROWS_MAX
from amqpd.journal.records import JournalDamaged, Row
from amqpd.journal.sqlite import checksums, queries
from amqpd.journal.sqlite.database import meaning
from amqpd.journal.sqlite.statement_parameters import checksum, checksum_of_deadlines
from amqpd.storage.probe import disk_error_of

LOOK_AGAIN_S = 60.0
Head = tuple[int, ...]
"""of `queries.FIND`"""


class RowReader:
    """Reads rows by their numbers, in a thread; one that does not fit its checksum is said to be damaged."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self.turn = threading.Lock()
        """held for the time of one read"""
        self._unreadable: str | None = None
        """what the system said of the disk when it was last looked at"""
        self._look_again_s = 0.0

    def read(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Row]:
        """Rows that do not fit into bytes_max any more are not read; the first always is."""
        connection = self._connection
        with self.turn:
            try:
                connection.execute("BEGIN")  # the search and the read see the same state
                try:
                    heads = self._find(queue_id, first_seq, last_seq, bytes_max)
                    bodies = self._bodies(queue_id, first_seq, heads) if heads else {}
                finally:
                    # Not COMMIT, which fails after a page that cannot be read.
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise meaning(error, self._path) from error
        return [self._row(queue_id, head, bodies.get(head[1])) for head in heads]

    def _find(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Head]:
        """What the index alone says of the rows to read (`queries.FIND`)."""
        heads: list[Head] = []
        total = 0
        cursor = self._connection.execute(queries.FIND, {"queue_id": queue_id, "first_seq": first_seq})
        for head in cursor:
            first, _, nbytes, *_ = head
            total += nbytes
            if first > last_seq or (heads and total > bytes_max) or len(heads) == READ_ROWS_MAX:
                break
            heads.append(head)
        cursor.close()
        return heads

    def _bodies(self, queue_id: int, first_seq: int, heads: list[Head]) -> dict[int, tuple[Any, ...]]:
        """By the rows' last messages; what cannot be read is left out."""
        given = {"queue_id": queue_id, "first_seq": first_seq, "last_seq": heads[-1][1]}
        try:
            return {last: body for last, *body in self._connection.execute(queries.READ, given).fetchall()}
        except sqlite3.Error as error:
            if not isinstance(meaning(error, self._path), JournalDamaged):
                raise
        bodies: dict[int, tuple[Any, ...]] = {}
        for head in heads:
            given = {"queue_id": queue_id, "first_seq": head[1], "last_seq": head[1]}
            try:
                for last, *body in self._connection.execute(queries.READ, given).fetchall():
                    bodies[last] = tuple(body)
            except sqlite3.Error as error:
                if not isinstance(meaning(error, self._path), JournalDamaged):
                    raise
        return bodies

    def _disk_error(self) -> str | None:
        """Now and then: it reads all of the journal."""
        if time.monotonic() >= self._look_again_s:
            self._unreadable = disk_error_of(self._path)
            self._look_again_s = time.monotonic() + LOOK_AGAIN_S
        return self._unreadable

    def _row(self, queue_id: int, head: Head, body: tuple[Any, ...] | None) -> Row:
        """With `damage`, when what the index says, the body and the deadlines do not belong together."""
        first, last, nbytes, persistent, body_bytes, published_ms, deadline_bytes, *transaction, head_crc = head
        row = Row(queue_id, first, last, b"", bool(persistent), body_bytes, published_ms)
        if body is None:
            why = self._disk_error() or "their row or a page of it is damaged"
            row.damage = f"messages {first}..{last} in {self._path} cannot be read: {why}"
            return row
        crc, data, deadline_crc, deadlines = body
        # SQLite returns what type a damaged record says.
        row.data, row.deadlines = _bytes(data), _bytes(deadlines)
        said = (queue_id, first, last, persistent, nbytes, *transaction, body_bytes, published_ms, deadline_bytes)
        try:
            upper = head_crc >> checksums.HEAD_SHIFT
            whole = (
                head_crc,
                len(row.data),
                len(row.deadlines),
                checksum(row),
                checksums.of_head(*said) if upper else 0,
                checksum_of_deadlines(queue_id, first, last, row.deadlines) if deadline_bytes else None,
            ) == (crc, nbytes, deadline_bytes, head_crc & checksums.BODY_MASK, upper, deadline_crc)
        except (struct.error, TypeError):
            whole = False
        if not whole:
            row.damage = f"messages {first}..{last} in {self._path} are damaged: they do not fit their checksum"
        return row


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else b""
