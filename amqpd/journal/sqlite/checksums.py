"""Checksums of the journal's records: CRC-32 of what a record says, with which kind of record it is.

What comes in: the fields of a record, as integers. What goes out: a number that is written beside them.
Rules: 1. Every field that recovery goes by is in it: SQLite itself has no checksums, and a flipped bit of a number is
another valid number. 2. The kind seeds the sum, so that a record of one table is none of another.
Not here: the checksum of a body (`statement_parameters.checksum`), who looks (`recovery.py`, `disk.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from zlib import crc32

_two = Struct("<qq")
_three = Struct("<qqq")
_four = Struct("<qqqq")
_five = Struct("<qqqqq")
_six = Struct("<qqqqqq")
_seven = Struct("<qqqqqqq")
_eight = Struct("<qqqqqqqq")
_head = Struct("<qqqqqqqqq")

_kinds = [crc32(b"amqpd journal %d" % at) for at in range(13)]
SETTLED, MARK, _DISCARD, RETURNED, _SOURCE, _NAME, HEAD, _FORMER, _TAIL, _VOTE, _STAGED = _kinds[:11]
_OPERATIONS, _FORMER_OPERATIONS = _kinds[11:]

NOT_AS_WRITTEN = (struct_error, TypeError, UnicodeDecodeError, OverflowError)
"""What is raised for a record whose fields are of other types than were written, as a damaged page may say."""

HEAD_SHIFT = 32
"""Bits of the body's checksum in `batch.crc`; the head's stands above them."""
BODY_MASK = (1 << HEAD_SHIFT) - 1


@lru_cache(maxsize=1024)
def seed(kind: int, source: int, epoch: int) -> int:
    """What the checksums of this kind begin with, in records of this source and epoch. The first epoch of the local
    source has the kind alone: formats before 0004 knew no other, and their records stay as they are."""
    return kind if source == 0 and epoch == 1 else crc32(_two.pack(source, epoch), kind)


def four_summed(begun: int, items: Iterable[tuple[int, int, int]], idx: int) -> list[tuple[int, int, int, int]]:
    """The items of the transaction `idx`, each with its checksum: settled ranges (queue_id, first_seq, last_seq),
    counts (queue_id, seq, count) or marks (queue_id, next_seq, delivered). `begun`: `seed(kind, source, epoch)`."""
    pack = _four.pack
    summed: list[tuple[int, int, int, int]] = []
    for one, two, three in items:  # no comprehension: on Python 3.11 that is one more call for each list
        summed.append((one, two, three, crc32(pack(one, two, three, idx), begun)))
    return summed


def head_sum(
    begun: int,
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
    """The checksum of what the index says of a row."""
    packed = _head.pack(
        queue_id, first_seq, last_seq, persistent, nbytes, idx, body_bytes, published_ms, deadline_bytes
    )
    return crc32(packed, begun) >> 1 or 1


def of_settled(queue_id: int, first_seq: int, last_seq: int, source: int, epoch: int, idx: int) -> int:
    return crc32(_four.pack(queue_id, first_seq, last_seq, idx), seed(SETTLED, source, epoch))


def of_mark(queue_id: int, next_seq: int, delivered: int, source: int, epoch: int, idx: int) -> int:
    return crc32(_four.pack(queue_id, next_seq, delivered, idx), seed(MARK, source, epoch))


def of_discard(
    discard_id: int, queue_id: int, first_seq: int, last_seq: int, source: int, epoch: int, idx: int
) -> int:
    return crc32(_five.pack(discard_id, queue_id, first_seq, last_seq, idx), seed(_DISCARD, source, epoch))


def of_returned(queue_id: int, seq: int, count: int, source: int, epoch: int, idx: int) -> int:
    return crc32(_four.pack(queue_id, seq, count, idx), seed(RETURNED, source, epoch))


def of_former(
    source: int,
    epoch: int,
    idx: int,
    kind: int,
    queue_id: int,
    one: int,
    two: int,
    was_epoch: int,
    was_idx: int,
) -> int:
    return crc32(_head.pack(source, epoch, idx, kind, queue_id, one, two, was_epoch, was_idx), _FORMER)


def of_operation_mark(
    source: int, forwarder: str, ended: int, incarnation: int, mark: int, epoch: int, idx: int, outcomes: bytes
) -> int:
    packed = _six.pack(source, ended, incarnation, mark, epoch, idx)
    return crc32(outcomes, crc32(f"{forwarder}".encode(), crc32(packed, _OPERATIONS)))


def of_former_operation_mark(
    source: int,
    epoch: int,
    idx: int,
    forwarder: str,
    ended: int,
    incarnation: int,
    mark: int,
    was_epoch: int,
    was_idx: int,
    outcomes: bytes,
) -> int:
    packed = _eight.pack(source, epoch, idx, ended, incarnation, mark, was_epoch, was_idx)
    return crc32(outcomes, crc32(f"{forwarder}".encode(), crc32(packed, _FORMER_OPERATIONS)))


def of_tail(
    source: int,
    epoch: int,
    idx: int,
    before_epoch: int,
    before_idx: int,
    checksum: int,
    first_row: int,
    rows: int,
    control: bytes,
) -> int:
    packed = _eight.pack(source, epoch, idx, before_epoch, before_idx, checksum, first_row, rows)
    return crc32(control, crc32(packed, _TAIL))


def of_staged(
    source: int,
    number: int,
    kind: int,
    epoch: int,
    idx: int,
    before_epoch: int,
    before_idx: int,
    checksum: int,
    first_row: int,
    rows: int,
    control: bytes,
) -> int:
    packed = _eight.pack(source, number, kind, epoch, idx, before_epoch, before_idx, checksum)
    return crc32(control, crc32(_two.pack(first_row, rows), crc32(packed, _STAGED)))


def of_vote(source: int, epoch: int, forwarder: str, incarnation: int) -> int:
    return crc32(f"{forwarder}".encode(), crc32(_three.pack(source, epoch, incarnation), _VOTE))


def of_source(
    source: int,
    epoch: int,
    idx: int,
    reserved: int,
    replicated: int,
    committed_epoch: int,
    committed_idx: int,
    identity: str,
) -> int:
    """`identity`: of the journal (`schema.names`). Pages of two journals in one file do not fit each other."""
    packed = _seven.pack(source, epoch, idx, reserved, replicated, committed_epoch, committed_idx)
    return crc32(packed, crc32(identity.encode(), _SOURCE))


def of_name(name: str, value: str) -> int:
    return crc32(f"{name}={value}".encode(), _NAME)


def of_head(
    queue_id: int,
    first_seq: int,
    last_seq: int,
    persistent: int,
    nbytes: int,
    source: int,
    epoch: int,
    idx: int,
    body_bytes: int,
    published_ms: int,
    deadline_bytes: int,
) -> int:
    """Of what the index says of a row: 1 to 2**31 - 1. Rows of formats before 0003 have 0, and are not checked until
    they are read."""
    begun = seed(HEAD, source, epoch)
    said = (queue_id, first_seq, last_seq, persistent, nbytes, idx, body_bytes, published_ms, deadline_bytes)
    return head_sum(begun, *said)


def of_mark_0003(queue_id: int, next_seq: int, delivered: int) -> int:
    """As format 0003 had it, for the migrations."""
    return crc32(_three.pack(queue_id, next_seq, delivered), MARK)


def of_source_0003(source: int, epoch: int, idx: int, identity: str) -> int:
    return crc32(_three.pack(source, epoch, idx), crc32(identity.encode(), _SOURCE))
