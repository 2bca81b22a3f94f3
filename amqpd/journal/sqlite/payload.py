"""The bytes of an entry of a source: what the leader's transaction has of it, as each disk of the replica set takes
it.

What comes in: a `SourceEntry` at its leader; a payload at any disk. What goes out: the payload; its parts, as the
statement for an entry wants them (`entry_statements.py`).
Rules: 1. Whatever costs work for each row, range or message (numbers, checksums, JSON) is done once, at the leader. A
disk takes a payload apart in a number of steps that does not depend on how much it has. 2. Control comes first, then
data: bodies and deadlines, end to end in the order of the rows. So a disk that keeps control and rows can put the
payload together again, byte for byte. 3. Numbers of queues are those of the cluster; nothing in it is of one disk.
Not here: positions and checksums of entries (`amqpd.peers.entry`), what a disk does with it (`entries.py`).

The layout, little-endian: version, number of chunks, source, epoch, idx, reserved, bytes of each of the lists below;
for each chunk how many rows, and bytes of numbers, deadlines and data; then settled (as `statements.COMMIT` wants
it), retired (triples of int64), delivered (pairs), counts (triples), dropped, and marks (`mark_bytes.py`), in version
2 alone; numbers and deadlines of each chunk (as `statements.COMMIT` wants them); then data.

| version | what it added | read since |
|---|---|---|
| 1 | | |
| 2 | operation marks; a payload without any is of version 1 | version 6 of the messages |

A node that does not know the version takes nothing more of that leader, and says so: what it has of the source stays
as it is, and is never taken for all (`copy_unusable` in its log).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from struct import Struct, pack
from struct import error as struct_error
from typing import NamedTuple

from amqpd.journal.operation_marks import MarkChange
from amqpd.journal.records import SeqRange, SourceEntry
from amqpd.journal.sqlite import checksums
from amqpd.journal.sqlite.mark_bytes import BadMarks, pack_changes, unpack_changes
from amqpd.journal.sqlite.statement_parameters import chunks, listed
from amqpd.journal.sqlite.statements import NUMBER_BYTES, NUMBERS

WITHOUT_MARKS, VERSION = 1, 2
"""A payload is of the lowest version that has what it says."""
ROW_BYTES = NUMBERS * NUMBER_BYTES
"""The numbers of one row, as the statement for an entry wants them."""
_head = Struct("<BxxxIqqqq")
_sizes = {WITHOUT_MARKS: Struct("<IIIII"), VERSION: Struct("<IIIIII")}
_chunk = Struct("<IIIQ")
_pair = Struct("<qq")
_triple = Struct("<qqq")


class BadPayload(ValueError):
    """An entry's payload cannot be decoded: its bytes are not what a leader of this version makes."""


class PayloadChunk(NamedTuple):
    """The part of a payload that one statement takes in."""

    rows: int
    numbers: memoryview
    deadlines: str | None
    data: memoryview


@dataclass(frozen=True, slots=True)
class Payload:
    """The parts of one payload. Lists as they are bound, or packed: `triples`, `pairs`, `numbers` unpack them."""

    source: int
    epoch: int
    idx: int
    reserved: int
    settled: str | None
    retired: bytes
    delivered: bytes
    counts: bytes
    dropped: bytes
    chunks: list[PayloadChunk]
    control: bytes
    """all of it except the data"""
    marks: Sequence[MarkChange] = ()

    @property
    def rows(self) -> int:
        return sum([chunk.rows for chunk in self.chunks])


def encode(entry: SourceEntry) -> bytes:
    """At the leader, in a thread: it joins the bodies."""
    source, epoch, idx = entry.source, entry.epoch, entry.idx
    made = list(chunks([(entry.rows, source, epoch, idx)]))
    settled = [(item.queue_id, item.first_seq, item.last_seq) for item in entry.settled]
    begun = checksums.seed(checksums.SETTLED, source, epoch)
    lists = [
        (listed(checksums.four_summed(begun, settled, idx)) or "").encode(),
        pack_ranges(entry.retired),
        pack_tuples(entry.delivered.items()),
        pack_tuples(entry.counts),
        pack_tuples((queue_id,) for queue_id in entry.dropped),
    ]
    if entry.marks:
        lists.append(pack_changes(entry.marks))
    version = VERSION if entry.marks else WITHOUT_MARKS
    timed = [(listed(chunk.deadlines) or "").encode() for chunk in made]
    return b"".join(
        [
            _head.pack(version, len(made), source, epoch, idx, entry.reserved),
            _sizes[version].pack(*map(len, lists)),
            *(
                _chunk.pack(chunk.rows, len(chunk.numbers), len(deadlines), len(chunk.data))
                for chunk, deadlines in zip(made, timed, strict=True)
            ),
            *lists,
            *chain.from_iterable((chunk.numbers, deadlines) for chunk, deadlines in zip(made, timed, strict=True)),
            *(chunk.data for chunk in made),
        ]
    )


def decode(payload: bytes, *, only_control: bool = False) -> Payload:
    """`only_control`: there is no data; the chunks have none then. Raises BadPayload."""
    whole = memoryview(payload)
    try:
        version, count, source, epoch, idx, reserved = _head.unpack_from(whole)
        if version not in _sizes:
            raise BadPayload(f"a payload of version {version}, and this one knows up to {VERSION}")
        at = _head.size + _sizes[version].size
        lengths = _sizes[version].unpack_from(whole, _head.size)
        sizes = [_chunk.unpack_from(whole, at + each * _chunk.size) for each in range(count)]
        at += count * _chunk.size
        lists = []
        for length in lengths:
            lists.append(bytes(whole[at : at + length]))
            at += length
        bound = []
        for rows, numbers, deadlines, _ in sizes:
            if numbers != rows * ROW_BYTES:  # what is done for each row would be done for as many as it says
                raise BadPayload(f"{rows} rows have {numbers} bytes of numbers")
            bound.append((whole[at : at + numbers], _text(whole[at + numbers : at + numbers + deadlines])))
            at += numbers + deadlines
        control, parts = bytes(whole[:at]), []
        for (rows, _, _, nbytes), (numbers, deadlines) in zip(sizes, bound, strict=True):
            parts.append(PayloadChunk(rows, numbers, deadlines, whole[at : at + nbytes]))
            at += 0 if only_control else nbytes
        settled, retired, delivered, counts, dropped, *marks = lists
        if at != len(whole):
            raise BadPayload(f"a payload of {len(whole)} bytes where it says {at}")
        rare = (retired, delivered, counts, dropped)
        changes = unpack_changes(marks[0]) if marks else ()
        return Payload(source, epoch, idx, reserved, _text(settled), *rare, parts, control, changes)
    except (struct_error, UnicodeDecodeError, BadMarks) as error:
        raise BadPayload(f"a payload of {len(whole)} bytes is none: {error}") from error


def pack_ranges(ranges: Iterable[SeqRange]) -> bytes:
    return pack_tuples((item.queue_id, item.first_seq, item.last_seq) for item in ranges)


def triples(packed: bytes) -> list[tuple[int, int, int]]:
    return list(_triple.iter_unpack(packed))


def pairs(packed: bytes) -> list[tuple[int, int]]:
    return list(_pair.iter_unpack(packed))


def numbers(packed: bytes) -> list[int]:
    return list(memoryview(packed).cast("q"))


def pack_tuples(items: Iterable[tuple[int, ...]]) -> bytes:
    """As the lists of a payload are."""
    flat = [value for item in items for value in item]
    return pack(f"<{len(flat)}q", *flat)


def _text(ascii_bytes: bytes | memoryview) -> str | None:
    return str(ascii_bytes, "ascii") or None
