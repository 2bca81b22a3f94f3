"""Checksums of the journal's records: CRC-32 of what a record says, with which kind of record it is.

What comes in: the fields of a record, as integers. What goes out: a number that is written beside them.
Rules: 1. Every field that recovery goes by is in it: SQLite itself has no checksums, and a flipped bit of a number is
another valid number. 2. The kind seeds the sum, so that a record of one table is none of another.
Not here: the checksum of a body (`intake.checksum`), who looks (`recovery.py`, `disk.py`).
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from zlib import crc32

_three = Struct("<qqq")
_four = Struct("<qqqq")
_five = Struct("<qqqqq")
_head = Struct("<qqqqqqqqq")

_SETTLED, _MARK, _DISCARD, _RETURNED, _SOURCE, _NAME, _HEAD = (crc32(b"amqpd journal %d" % at) for at in range(7))

NOT_AS_WRITTEN = (struct_error, TypeError, UnicodeDecodeError, OverflowError)
"""What is raised for a record whose fields are of other types than were written, as a damaged page may say."""

HEAD_SHIFT = 32
"""Bits of the body's checksum in `batch.crc`; the head's stands above them."""
BODY_MASK = (1 << HEAD_SHIFT) - 1


def of_settled(queue_id: int, first_seq: int, last_seq: int, idx: int) -> int:
    return crc32(_four.pack(queue_id, first_seq, last_seq, idx), _SETTLED)


def of_mark(queue_id: int, next_seq: int, delivered: int) -> int:
    return crc32(_three.pack(queue_id, next_seq, delivered), _MARK)


def of_discard(discard_id: int, queue_id: int, first_seq: int, last_seq: int, idx: int) -> int:
    return crc32(_five.pack(discard_id, queue_id, first_seq, last_seq, idx), _DISCARD)


def of_returned(queue_id: int, seq: int, count: int, idx: int) -> int:
    return crc32(_four.pack(queue_id, seq, count, idx), _RETURNED)


def of_source(source: int, epoch: int, idx: int, identity: str) -> int:
    """`identity`: of the journal (`schema.names`). Pages of two journals in one file do not fit each other."""
    return crc32(_three.pack(source, epoch, idx), crc32(identity.encode(), _SOURCE))


def of_name(name: str, value: str) -> int:
    return crc32(f"{name}={value}".encode(), _NAME)


def of_head(
    queue_id: int,
    first_seq: int,
    last_seq: int,
    persistent: int,
    nbytes: int,
    idx: int,
    body_bytes: int,
    published_ms: int,
    deadline_bytes: int,
) -> int:
    """Of what the index says of a row: 1 to 2**31 - 1. Rows of formats before 0003 have 0, and are not checked until
    they are read."""
    packed = _head.pack(
        queue_id, first_seq, last_seq, persistent, nbytes, idx, body_bytes, published_ms, deadline_bytes
    )
    return crc32(packed, _HEAD) >> 1 or 1
