"""A transaction in the shape in which SQLite takes it in (`statements.COMMIT`).

What comes in: rows and ranges of a transaction. What goes out: JSON lists, bodies end to end, checksums.
Rules: 1. This is all the Python that a commit costs per row, so it stays short: about 2 us a row.
2. What does not fit into one statement is cut between rows.
Not here: the statement, and running it (`sqlite.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from json import JSONEncoder
from struct import Struct
from zlib import crc32

from amqpd.journal.records import Range, Row

INLINE_RANGES_MAX = 256
INLINE_MESSAGES_MAX = 16_384
"""Deletions that a commit carries out itself; the rest become discards."""
STATEMENT_BYTES_MAX = 256 << 20
"""SQLite takes no value above 1e9 bytes: a transaction with more bodies is written by several statements."""

_encode = JSONEncoder(separators=(",", ":"), check_circular=False).encode
_about = Struct("<qqq?")

Chunk = tuple[list[tuple[int, ...]], bytes]
"""Rows as `statements.COMMIT` wants them, and their bodies end to end."""


def listed(items: Sequence[object] | None) -> str | None:
    return _encode(items) if items else None


def chunks(rows: list[Row]) -> list[Chunk]:
    """At least one; more than one only for a huge transaction."""
    chunks = []
    items: list[tuple[int, ...]] = []
    bodies: list[bytes] = []
    at = 1
    for row in rows:
        nbytes = len(row.data)
        if items and at + nbytes > STATEMENT_BYTES_MAX:
            chunks.append((items, b"".join(bodies)))
            items, bodies, at = [], [], 1
        items.append((row.queue_id, row.first_seq, row.last_seq, int(row.persistent), at, nbytes, checksum(row)))
        bodies.append(row.data)
        at += nbytes
    chunks.append((items, bodies[0] if len(bodies) == 1 else b"".join(bodies)))
    return chunks


def checksum(row: Row) -> int:
    """CRC-32 of the body and of what the row says about it: a body in the wrong place is damage too."""
    return crc32(row.data, crc32(_about.pack(row.queue_id, row.first_seq, row.last_seq, row.persistent)))


def split(ranges: list[Range]) -> tuple[list[Range], list[Range]]:
    """(what this commit deletes, what becomes a discard); ranges that touch are joined."""
    joined: list[Range] = []
    for item in ranges:
        last = joined[-1] if joined else None
        if last is not None and last.queue_id == item.queue_id and last.last_seq + 1 == item.first_seq:
            joined[-1] = Range(item.queue_id, last.first_seq, item.last_seq)
        else:
            joined.append(item)
    messages = 0
    for at, item in enumerate(joined):
        messages += item.last_seq - item.first_seq + 1
        if at >= INLINE_RANGES_MAX or messages > INLINE_MESSAGES_MAX:
            return joined[:at], joined[at:]
    return joined, []
