"""The bytes of a source's state, as one disk sends it to another that lacks more than entries: a difference.

What comes in: what a leader's disk has at `base`, the last entry that is told as committed, beyond `after`, up to
which both logs are the same. What goes out: parts of bounded size; at the other disk, what is in them.
Rules: 1. Rows and records go as they are, with their own (epoch, idx) and checksums. 2. Of all that is live at `base`
the ranges go along: what stands at the other disk and is not in one has died. 3. What is not in the state because it
died or was written over after `base`, the entries above `base` tell. 4. What a start of the disk that takes it would
not believe (checksums, numbers, positions) is refused where it comes in: it would end that start. 5. Of the
operations of edges all records go along, each whole: they are few.
Not here: reading it (`replica_reading.py`), taking it in (`staging.py`).

The layout, little-endian: version, number of rows, source, after, base, reserved, bytes of each of the lists below;
then live (triples: queue_id, first_seq, last_seq), settled (sextuples: queue_id, first_seq, last_seq, epoch, idx,
crc), returned (the same: queue_id, seq, count, ...), marks (quadruples: queue_id, delivered, epoch, idx), known
(pairs: queue_id, next_seq, of all queues that there are), facts of the rows (see `StateRow`), and, in version 2
alone, operations (see `_operations`); then bodies and deadlines, end to end. What has no operations is of version 1,
which nodes read that know no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct, pack
from struct import error as struct_error
from typing import NamedTuple

from amqpd.journal.operation_marks import FORWARDERS_MAX, OperationMark
from amqpd.journal.sqlite import checksums
from amqpd.journal.sqlite.entry_checks import check_deadlines
from amqpd.journal.sqlite.mark_bytes import BadMarks, unpack_ranges
from amqpd.journal.sqlite.mark_rows import MarkRow, record_of
from amqpd.journal.sqlite.payload import BadPayload
from amqpd.journal.sqlite.schema import SEQ_MAX
from amqpd.journal.sqlite.statement_parameters import checksum_of_deadlines
from amqpd.peers.entry import NUMBER_MAX, START, Position

PART_BYTES = 1 << 20
"""About so much is in one part, or one row that is larger: some milliseconds of a disk."""
WITHOUT_OPERATIONS, VERSION = 1, 2
_head = Struct("<BxxxIqqqqqq")
_sizes = {WITHOUT_OPERATIONS: Struct("<IIIIII"), VERSION: Struct("<IIIIIII")}
_operations = Struct("<HIqqqqqq")
"""bytes of the forwarder's name and of outcomes; ended, incarnation, mark, epoch, idx, crc; then name and outcomes"""
_rows = Struct("<12q")


class StateRow(NamedTuple):
    """A row of messages in the state of a source: what the tables have of it beside its source and its bodies."""

    queue_id: int
    first_seq: int
    last_seq: int
    nbytes: int
    persistent: int
    body_bytes: int
    published_ms: int
    deadline_bytes: int
    epoch: int
    idx: int
    crc: int
    deadline_crc: int


@dataclass(slots=True)
class SourceState:
    """A part of the state of a source, or several parts together, beside their rows."""

    source: int
    after: Position
    base: Position
    reserved: int
    live: list[tuple[int, ...]] = field(default_factory=list)
    """in the order of queues and messages"""
    settled: list[tuple[int, ...]] = field(default_factory=list)
    returned: list[tuple[int, ...]] = field(default_factory=list)
    marks: list[tuple[int, ...]] = field(default_factory=list)
    known: list[tuple[int, ...]] = field(default_factory=list)
    rows: list[tuple[StateRow, memoryview | bytes, memoryview | bytes]] = field(default_factory=list)
    """with bodies, and deadlines"""
    operations: dict[str, MarkRow] = field(default_factory=dict)
    """of edges, by forwarder"""

    @property
    def queues(self) -> set[int]:
        """All that something is said of."""
        lists = (self.live, self.settled, self.returned, self.marks, self.known, [row for row, _, _ in self.rows])
        return {each[0] for items in lists for each in items}

    def encode(self, *, with_rows: bool = True) -> bytes:
        rows = self.rows if with_rows else []
        lists = [_packed(each) for each in (self.live, self.settled, self.returned, self.marks, self.known)]
        lists.append(b"".join([_rows.pack(*row) for row, _, _ in rows]))
        version = WITHOUT_OPERATIONS
        if self.operations:
            version = VERSION
            lists.append(b"".join([_packed_operations(self.source, *each) for each in self.operations.items()]))
        head = _head.pack(version, len(rows), self.source, *self.after, *self.base, self.reserved)
        sizes = _sizes[version].pack(*map(len, lists))
        return b"".join([head, sizes, *lists, *(piece for _, data, timed in rows for piece in (data, timed))])


def decode(part: bytes) -> SourceState:
    """Raises BadPayload."""
    whole = memoryview(part)
    try:
        version, count, source, *said = _head.unpack_from(whole)
        if version not in _sizes:
            raise BadPayload(f"state of version {version}, and this one knows up to {VERSION}")
        after, base, reserved = (said[0], said[1]), (said[2], said[3]), said[4]
        sizes = _sizes[version].unpack_from(whole, _head.size)
        at = _head.size + _sizes[version].size
        lists: list[memoryview] = []
        for size in sizes:
            lists.append(whole[at : at + size])
            at += size
        *packed, facts = lists[:6]
        live, settled, returned, marks, known = map(_tuples, packed, (3, 6, 6, 4, 2))
        if not 0 <= reserved <= NUMBER_MAX:
            raise BadPayload(f"a state of source {source} reserves numbers up to {reserved}")
        state = SourceState(source, after, base, reserved, live, settled, returned, marks, known)
        state.rows = list(_bodies(whole, at, [StateRow(*each) for each in _rows.iter_unpack(facts)]))
        if len(state.rows) != count:
            raise BadPayload(f"state of {len(state.rows)} rows where it says {count}")
        if version != WITHOUT_OPERATIONS:
            state.operations = _operations_of(source, bytes(lists[6]))
        _require_sound(state)
        return state
    except (struct_error, UnicodeDecodeError, BadMarks) as error:
        raise BadPayload(f"a part of a state of {len(whole)} bytes is none: {error}") from error


def _require_sound(state: SourceState) -> None:
    """A start reads each of these, and ends at one that nobody can have written. Raises BadPayload."""
    source, ranges = state.source, [*state.live]
    positions = [state.after, state.base]
    for queue_id, first, last, epoch, idx, crc in state.settled:
        ranges.append((queue_id, first, last))
        positions.append((epoch, idx))
        _require_sum(crc, checksums.of_settled(queue_id, first, last, source, epoch, idx))
    for queue_id, seq, count, epoch, idx, crc in state.returned:
        ranges.append((queue_id, seq, seq + min(count, 0)))
        positions.append((epoch, idx))
        _require_sum(crc, checksums.of_returned(queue_id, seq, count, source, epoch, idx))
    for row, _, timed in state.rows:
        ranges.append(row[:3])
        positions.append((row.epoch, row.idx))
        if head := row.crc >> checksums.HEAD_SHIFT:
            said = (source, row.epoch, row.idx, row.body_bytes, row.published_ms, row.deadline_bytes)
            _require_sum(head, checksums.of_head(*row[:3], row.persistent, row.nbytes, *said))
        if timed:
            if row.deadline_crc != checksum_of_deadlines(*row[:3], bytes(timed)):
                raise BadPayload(f"deadlines of queue {row.queue_id} in a state do not fit their checksum")
            check_deadlines(*row[:3], timed)
        if not (
            row.last_seq - row.first_seq < row.nbytes
            and 0 <= row.persistent <= 1
            and 0 <= row.body_bytes <= row.nbytes
            and 0 <= row.published_ms <= NUMBER_MAX
        ):
            raise BadPayload(f"a row of queue {row.queue_id} in a state has numbers that no row has")
    positions += [row.position for row in state.operations.values()]
    for queue_id, delivered, epoch, idx in state.marks:
        ranges.append((queue_id, 0, delivered))
        positions.append((epoch, idx))
    ranges += [(queue_id, 0, next_seq) for queue_id, next_seq in state.known]
    for queue_id, first, last in ranges:
        if not (0 <= queue_id <= SEQ_MAX and 0 <= first <= last <= NUMBER_MAX):
            raise BadPayload(f"{first}..{last} of queue {queue_id} in a state are no messages")
    for position in positions:
        if not START <= position <= state.base:
            raise BadPayload(f"a record of {position} in a state up to {state.base}")


def _packed_operations(source: int, forwarder: str, row: MarkRow) -> bytes:
    _, _, *numbers, outcomes, crc = record_of(source, forwarder, row)
    name = forwarder.encode()
    return b"".join([_operations.pack(len(name), len(outcomes), *numbers, crc), name, outcomes])


def _operations_of(source: int, packed: bytes) -> dict[str, MarkRow]:
    """Raises BadPayload, BadMarks, struct.error, UnicodeDecodeError."""
    found: dict[str, MarkRow] = {}
    at = 0
    while at < len(packed):
        name_bytes, nbytes, ended, incarnation, mark, epoch, idx, crc = _operations.unpack_from(packed, at)
        at += _operations.size
        name = packed[at : at + name_bytes].decode()
        outcomes = packed[at + name_bytes : at + name_bytes + nbytes]
        at += name_bytes + nbytes
        _require_sum(crc, checksums.of_operation_mark(source, name, ended, incarnation, mark, epoch, idx, outcomes))
        row = MarkRow(ended, incarnation, OperationMark(mark, unpack_ranges(outcomes)), (epoch, idx))
        if name in found or not name or not 0 <= min(ended, incarnation, mark) <= max(row[:2]) <= NUMBER_MAX:
            raise BadPayload(f"what a state says of the operations of {name!r} nobody has written")
        found[name] = row
    if at != len(packed) or len(found) > FORWARDERS_MAX:
        raise BadPayload(f"a state has {len(packed)} bytes of operations of {len(found)} forwarders")
    return found


def _require_sum(said: int, computed: int) -> None:
    """Raises BadPayload."""
    if said != computed:
        raise BadPayload("a record of a state does not fit its checksum")


def _bodies(
    whole: memoryview, at: int, rows: list[StateRow]
) -> Iterator[tuple[StateRow, memoryview | bytes, memoryview | bytes]]:
    for row in rows:
        if row.nbytes < 0 or row.deadline_bytes < 0:
            raise BadPayload("a row of a state has a size below zero")
        end = at + row.nbytes
        yield row, whole[at:end], whole[end : end + row.deadline_bytes]
        at = end + row.deadline_bytes
    if at != len(whole):
        raise BadPayload(f"a part of a state of {len(whole)} bytes where it says {at}")


def _tuples(packed: memoryview, width: int) -> list[tuple[int, ...]]:
    return list(Struct(f"<{width}q").iter_unpack(packed))


def _packed(items: list[tuple[int, ...]]) -> bytes:
    flat = [value for item in items for value in item]
    return pack(f"<{len(flat)}q", *flat)
