"""A transaction in the shape in which SQLite takes it in (`statements.COMMIT`).

What comes in: rows and ranges of a transaction. What goes out: JSON lists, numbers and bodies end to end, checksums.
Rules: 1. This is all the Python that a commit costs per row, so it stays short: about 2 us a row.
2. What does not fit into one statement is cut between rows.
Not here: the statement, and running it (`disk.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from amqpd.journal.records import Row, SeqRange
from amqpd.journal.sqlite.checksums import HEAD, HEAD_SHIFT, head_sum, seed
from amqpd.journal.sqlite.statements import NUMBER_BYTES, NUMBERS

INLINE_RANGES_MAX = 256
INLINE_MESSAGES_MAX = 65_536
"""Deletions that a commit carries out itself; the rest become discards. A range is one row, or some hundred when a
queue was purged; so this is about 30 ms at the worst."""
INLINE_RANGES_PER_ROW = 2
"""A commit may delete more than that if it writes as much itself: else many busy queues would gather discards."""
STATEMENT_BYTES_MAX = 4 << 20
"""A transaction with more bodies is written by several statements. SQLite takes no value above 1e9 bytes, and each
statement's bodies are there twice more while it runs: joined, and as the driver's copy."""

CRC_BYTES_MAX = 4096
"""What is summed up in one call; below zlib's 5 kB."""

_numbers = b"%%0%dd" % NUMBER_BYTES * NUMBERS
_about = Struct("<qqq?qqq")
_about_less = Struct("<qqq?")
_about_deadlines = Struct("<qqq")


class Chunk(NamedTuple):
    """Rows and deadlines of one statement, in the form of `statements.COMMIT`."""

    rows: int
    numbers: bytes
    deadlines: list[tuple[int, ...]]
    data: bytes

    def take_in(self, given: dict[str, Any]) -> None:
        """Among the parameters of `statements.COMMIT`."""
        given["rows"] = offsets(self.rows)
        given["inserted"], given["numbers"], given["data"] = self.rows, self.numbers, self.data
        given["deadlines"] = listed(self.deadlines) if self.deadlines else None


def offsets(rows: int) -> str | None:
    """Where the numbers of each of this many rows begin, as `statements.COMMIT` wants it."""
    step = NUMBERS * NUMBER_BYTES
    return str(list(range(1, 1 + step * rows, step))) if rows else None


def listed(items: Sequence[tuple[int, ...]]) -> str | None:
    """A JSON array of arrays. Python writes lists of numbers as JSON does: no encoder is as fast."""
    if not items:
        return None
    return str(items).replace(",)", "]").replace("(", "[").replace(")", "]")


Part = tuple[list[Row], int, int, int]
"""Rows of one transaction of a source: with source, epoch, idx."""


def chunks(parts: list[Part]) -> Iterator[Chunk]:
    """At least one, more for a large transaction, each made when it is asked for."""
    numbers: list[bytes] = []
    timed: list[tuple[int, ...]] = []
    pieces: list[bytes] = []
    at, count = 1, 0
    for rows, source, epoch, index in parts:
        begun = seed(HEAD, source, epoch)
        for row in rows:
            row.join()
            nbytes, deadline_bytes = len(row.data), len(row.deadlines)
            if numbers and at + nbytes + deadline_bytes > STATEMENT_BYTES_MAX:
                yield Chunk(count, b"".join(numbers), timed, b"".join(pieces))
                numbers, timed, pieces, at, count = [], [], [], 1, 0
            queue_id, first, last = row.queue_id, row.first_seq, row.last_seq
            what = (row.body_bytes, row.published_ms, deadline_bytes)
            head = head_sum(begun, queue_id, first, last, row.persistent, nbytes, index, *what)
            crc = head << HEAD_SHIFT | checksum(row)
            numbers.append(_numbers % (queue_id, first, last, row.persistent, at, nbytes, crc, *what))
            count += 1
            pieces.append(row.data)
            at += nbytes
            if deadline_bytes:
                crc = checksum_of_deadlines(queue_id, first, last, row.deadlines)
                timed.append((queue_id, first, last, at, deadline_bytes, crc))
                pieces.append(row.deadlines)
                at += deadline_bytes
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    yield Chunk(count, b"".join(numbers), timed, data)


def checksum(row: Row) -> int:
    """CRC-32 of the body and of what the row says about it: a body in the wrong place is damage too. Of the deadlines
    only how many there are: recovery reads them without the body, so they have a checksum of their own.

    In slices, because zlib gives up the interpreter lock for more than 5 kB, once a row, and getting it back from a
    busy pump can take much longer than the sum: with both processors to itself, `bench/journal_commit.py` needed up
    to 600 ms for a commit of 50 rows of 20 kB; on a machine with other work there is no difference."""
    said = (row.queue_id, row.first_seq, row.last_seq, row.persistent)
    more = (row.body_bytes, row.published_ms, len(row.deadlines))
    # A row of the first format knows nothing more, and its checksum does not say so.
    crc = crc32(_about.pack(*said, *more) if any(more) else _about_less.pack(*said))
    if len(row.data) <= CRC_BYTES_MAX:
        return crc32(row.data, crc)
    body = memoryview(row.data)
    for at in range(0, len(body), CRC_BYTES_MAX):
        crc = crc32(body[at : at + CRC_BYTES_MAX], crc)
    return crc


def checksum_of_deadlines(queue_id: int, first_seq: int, last_seq: int, deadlines: bytes) -> int:
    """CRC-32 of a row's deadlines and of which row it is."""
    return crc32(deadlines, crc32(_about_deadlines.pack(queue_id, first_seq, last_seq)))


def split(ranges: list[SeqRange], rows: int) -> tuple[list[SeqRange], list[SeqRange]]:
    """(what a commit of this many rows deletes itself, what becomes a discard: joined where ranges touch)."""
    ranges_max = max(INLINE_RANGES_MAX, INLINE_RANGES_PER_ROW * rows)
    messages = 0
    for at, item in enumerate(ranges):
        messages += item.last_seq - item.first_seq + 1
        if at >= ranges_max or messages > INLINE_MESSAGES_MAX:
            return ranges[:at], _joined(ranges[at:])
    return ranges, []


def _joined(ranges: list[SeqRange]) -> list[SeqRange]:
    joined: list[SeqRange] = []
    for item in sorted(ranges, key=attrgetter("queue_id", "first_seq")):
        last = joined[-1] if joined else None
        if last is not None and last.queue_id == item.queue_id and last.last_seq + 1 == item.first_seq:
            joined[-1] = SeqRange(item.queue_id, last.first_seq, item.last_seq)
        else:
            joined.append(item)
    return joined
