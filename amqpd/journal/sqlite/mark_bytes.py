"""The bytes of what an entry, and a record, say of operation marks.

What comes in: changes of a transaction; bytes of another node. What goes out: bytes; changes, or BadMarks.
Rules: 1. Everything that is counted, multiplied or kept is bounded here: a start would not end at it, and a disk
cannot refuse it any more. 2. Outcomes are ranges of operations, ascending, above none twice.
Not here: what the changes make of what there is (`mark_rows.py`), payloads (`payload.py`).

The layout, little-endian: of each change whether the forwarder is gone, bytes of its name, number of ranges; ended,
incarnation, mark, heard; the name; the ranges (see `OutcomeRange`), five int64 each.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from struct import Struct, pack
from struct import error as struct_error

from amqpd.journal.operation_marks import (
    FORWARDERS_MAX,
    OUTCOME_RANGES_MAX,
    OUTCOMES_MAX,
    MarkChange,
    OutcomeRange,
)
from amqpd.peers.entry import NUMBER_MAX
from amqpd.peers.formats import NAME_BYTES_MAX

RANGES_READ_MAX = 2 * OUTCOME_RANGES_MAX
"""Of one change or record: a leader stops a little later than it should, perhaps."""
_change = Struct("<?xHIqqqq")
_range = Struct("<qqqqq")
RANGE_BYTES = _range.size


class BadMarks(ValueError):
    """Operation marks that no leader has made."""


def pack_changes(changes: Iterable[MarkChange]) -> bytes:
    pieces = []
    for each in changes:
        name = each.forwarder.encode()
        said = each.ended, each.incarnation, each.mark, each.heard
        pieces += [_change.pack(each.gone, len(name), len(each.ranges), *said), name, pack_ranges(each.ranges)]
    return b"".join(pieces)


def unpack_changes(packed: bytes) -> list[MarkChange]:
    """Raises BadMarks."""
    found: list[MarkChange] = []
    at = 0
    try:
        while at < len(packed):
            gone, name_bytes, ranges, ended, incarnation, mark, heard = _change.unpack_from(packed, at)
            at += _change.size
            end = at + name_bytes + ranges * _range.size
            if end > len(packed):
                raise BadMarks(f"operation marks of {end} bytes in {len(packed)}")
            name, outcomes = packed[at : at + name_bytes].decode(), unpack_ranges(packed[at + name_bytes : end])
            found.append(MarkChange(name, gone, ended, incarnation, mark, heard, outcomes))
            at = end
            _require_sound(found[-1])
    except (struct_error, UnicodeDecodeError) as error:
        raise BadMarks(f"operation marks of {len(packed)} bytes are none: {error}") from error
    if len(found) > FORWARDERS_MAX or len({each.forwarder for each in found}) < len(found):
        raise BadMarks(f"operation marks of {len(found)} forwarders, or of one twice")
    return found


def pack_ranges(ranges: Iterable[OutcomeRange]) -> bytes:
    flat = list(chain.from_iterable(ranges))
    return pack(f"<{len(flat)}q", *flat)


def unpack_ranges(packed: bytes) -> tuple[OutcomeRange, ...]:
    """Raises BadMarks."""
    if len(packed) % _range.size or len(packed) > RANGES_READ_MAX * _range.size:
        raise BadMarks(f"{len(packed)} bytes are no outcomes of operations")
    ranges = tuple([OutcomeRange(*each) for each in _range.iter_unpack(packed)])
    last = total = 0
    for each in ranges:
        if not (0 <= each.purge <= 1 and last < each.first <= each.last <= NUMBER_MAX):
            raise BadMarks(f"outcomes of operations {each.first}..{each.last} behind {last}")
        if not (0 <= each.low <= NUMBER_MAX and 0 <= each.high <= NUMBER_MAX):
            raise BadMarks(f"an outcome of {each.low} and {each.high} messages")
        last = each.last
        total += last - each.first + 1
    if total > OUTCOMES_MAX:  # a leader has them one by one
        raise BadMarks(f"outcomes of {total} operations, the limit is {OUTCOMES_MAX}")
    return ranges


def _require_sound(change: MarkChange) -> None:
    """Raises BadMarks."""
    said = change.ended, change.incarnation, change.mark, change.heard
    if not change.forwarder or len(change.forwarder.encode()) > NAME_BYTES_MAX:
        raise BadMarks("operation marks of no forwarder")
    if min(said) < 0 or max(said) > NUMBER_MAX:
        raise BadMarks(f"{said} of {change.forwarder} are no incarnations and marks")
    if change.ranges:
        last = change.ranges[-1]
        # Of the next operation, what a purge has done so far.
        if not change.incarnation or last.last > change.mark + last.purge:
            raise BadMarks(f"outcomes of {change.forwarder} above its mark {change.mark}")
