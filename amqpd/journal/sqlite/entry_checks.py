"""Looks at an entry of another node before it is written: what a start would not believe is not taken.

What comes in: a payload that is decoded; a connection with a transaction open. What goes out: nothing, or BadPayload.
Rules: 1. Whatever a start compares (checksums, the order of rows, deadlines) or counts on with numbers is looked at
here: what is on the disk it cannot refuse any more without ending the node. 2. No function of Python's own is called
for each row or range; many rows are looked at as columns. 3. A queue belongs to one source: an entry says nothing of
another one's. Whose it is the disk knows by its rows and its mark, and is asked once for each queue. 4. What a node
has made itself is not looked at.
Not here: the layout (`payload.py`), a state (`state.py`, `staging.py`), bodies: they are compared when they are read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from itertools import islice, repeat
from operator import ge, gt, itemgetter, lt
from struct import Struct
from struct import error as struct_error
from zlib import crc32

import numpy as np

from amqpd.journal.sqlite import checksums, queries
from amqpd.journal.sqlite.payload import BadPayload, Payload, PayloadChunk, numbers, pack_tuples
from amqpd.journal.sqlite.schema import SEQ_MAX
from amqpd.journal.sqlite.statement_parameters import checksum_of_deadlines, listed
from amqpd.journal.sqlite.statements import NUMBER_BYTES, NUMBERS
from amqpd.peers.entry import NUMBER_MAX

_head = Struct("<qqqqqqqqq")
_four = Struct("<qqqq")
_digits = Struct(f"{NUMBER_BYTES}s" * NUMBERS)
_heads = Struct(f"{_head.size}s")
_deadline = Struct("<qqq")
_place, _begin = itemgetter(0, 1), itemgetter(0, 2)

FEW_ROWS = 24
"""numpy's calls cost as much as this number of rows."""
_HALF = NUMBER_BYTES // 2
"""digits of half a number: what they say, a float has as it is"""
_TENS = 10.0 ** np.arange(_HALF - 1, -1, -1)
_ZEROS = ord("0") * _TENS.sum()
_NO_ROW = "what is said of its rows, end to end, are no rows"
_NO_SUM = "what is said of a row does not fit its checksum"

NO_ROW, NOTHING = -1, -2
"""in place of a queue's last number; with the second it has no mark either"""

Place = tuple[int, int, int]
"""of a row: queue_id, last_seq, first_seq"""


class QueueEnds:
    """The ends of queues of sources on one disk, as far as they were asked for: (source, queue_id) -> the highest
    number of a row. It may be too high, which costs a look at the disk, and is never too low."""

    def __init__(self) -> None:
        self._ends: dict[int, dict[int, int]] = {}

    def forget(self, source: int) -> None:
        """Its rows changed otherwise than by entries that were looked at."""
        self._ends.pop(source, None)

    def dropped(self, source: int, queues: Iterable[int]) -> None:
        ends = self._ends.get(source, {})
        for queue_id in queues:
            ends.pop(queue_id, None)

    def of(self, connection: sqlite3.Connection, source: int, queues: Iterable[int]) -> dict[int, int]:
        """With these queues among them. Raises BadPayload for one of another source, sqlite3.Error."""
        ends = self._ends.setdefault(source, {})
        if unknown := set(queues).difference(ends):
            require_own(connection, source, unknown, ends)
            for other, theirs in self._ends.items():
                if other != source:
                    for queue_id in unknown.intersection(theirs):  # it has nothing of that here
                        del theirs[queue_id]
        return ends


def require_own(
    connection: sqlite3.Connection, source: int, queues: Iterable[int], ends: dict[int, int] | None = None
) -> None:
    """Of these queues nothing here is of another source. `ends`: gets the last number of each. Raises BadPayload,
    sqlite3.Error."""
    for queue_id, last, of_row, of_mark in connection.execute(queries.QUEUE_ENDS, {"queues": str([*queues])}):
        for owner in (of_row, of_mark):
            if owner not in (None, source):
                raise BadPayload(f"queue {queue_id} is of source {owner}, and not of {source}")
        if ends is not None:
            ends[queue_id] = (NOTHING if of_mark is None else NO_ROW) if last is None else last


def check(connection: sqlite3.Connection, payload: Payload, known: QueueEnds, *, staged: bool = False) -> set[int]:
    """The queues of which nothing is here, nor in the entry: whose they are is not known. `staged`: its rows stand
    beside those that they replace, and are compared when those are gone; it is not looked for such queues. Raises
    BadPayload, sqlite3.Error."""
    places = _places(payload)
    settled = _settled(payload)
    queues = {*map(itemgetter(0), places), *settled, *_rare_queues(payload)}
    if staged:
        require_own(connection, payload.source, queues)
        return set()
    ends = known.of(connection, payload.source, queues)
    if all(map(gt, map(itemgetter(2), places), map(ends.__getitem__, map(itemgetter(0), places)))):
        ends.update(map(_place, places))
    else:
        for queue_id, first in connection.execute(queries.OVERLAPPED, {"places": listed(places)}):
            raise BadPayload(f"message {first} of queue {queue_id} has a row here")
        for queue_id, last, _ in places:
            ends[queue_id] = max(ends[queue_id], last)
    if payload.delivered:  # these have a mark now
        for queue_id in numbers(payload.delivered)[::2]:
            ends[queue_id] = max(ends[queue_id], NO_ROW)
    absent: set[int] = set()
    if NOTHING in map(ends.__getitem__, queues):
        absent.update(queue_id for queue_id in queues if ends[queue_id] == NOTHING)
    if payload.dropped:
        known.dropped(payload.source, numbers(payload.dropped))
    return absent


def without(payload: Payload, queues: Set[int]) -> Payload:
    """As it is written where there is nothing of these queues: another source may bring them before what is said here
    is committed, and then it is not said of that one's."""
    settled = [tuple(item) for item in _parsed(payload.settled) if item[0] not in queues]

    def rest(packed: bytes, width: int) -> bytes:
        items = Struct(f"<{width}q").iter_unpack(packed)
        return pack_tuples(item for item in items if item[0] not in queues)

    lists = rest(payload.retired, 3), rest(payload.counts, 3), rest(payload.dropped, 1)
    return replace(payload, settled=listed(settled), retired=lists[0], counts=lists[1], dropped=lists[2])


def check_deadlines(queue_id: int, first: int, last: int, deadlines: bytes | memoryview) -> None:
    """Those of a row are of its messages. Raises BadPayload."""
    if len(deadlines) % _deadline.size:
        raise BadPayload(f"{len(deadlines)} bytes are no deadlines")
    for deadline_ms, begin, end in _deadline.iter_unpack(deadlines):
        if not (0 <= deadline_ms <= NUMBER_MAX and first <= begin <= end <= last):
            raise BadPayload(f"a deadline {deadline_ms} of {begin}..{end} in {first}..{last} of queue {queue_id}")


def _places(payload: Payload) -> list[Place]:
    """Of its rows, which are disjoint, in order. Raises BadPayload."""
    places: list[Place] = []
    for chunk in payload.chunks:
        digits = bytes(chunk.numbers)
        if digits and not digits.isdigit():  # SQLite and Python would read something else
            raise BadPayload("what is said of its rows is no list of numbers")
        few = chunk.rows <= FEW_ROWS
        places += _few_rows(payload, chunk, digits) if few else _many_rows(payload, chunk, digits)
    if len(places) > 1:
        places.sort()
        if not all(map(lt, map(_place, places), map(_begin, islice(places, 1, None)))):
            raise BadPayload("two of its rows hold the same message")
    return places


def _few_rows(payload: Payload, chunk: PayloadChunk, digits: bytes) -> list[Place]:
    """numpy's calls would cost more than the rows."""
    begun, idx = checksums.seed(checksums.HEAD, payload.source, payload.epoch), payload.idx
    places, timed_rows = [], []
    end = 1
    for each in _digits.iter_unpack(digits):
        queue_id, first, last, persistent, begin, size, crc, body, published, timed = map(int, each)
        if not (
            last - first < size  # a message has at least one byte
            and first <= last <= NUMBER_MAX
            and queue_id <= SEQ_MAX
            and persistent <= 1
            and body <= size
            and published <= NUMBER_MAX
            and begin == end
            and size + timed <= len(chunk.data)
        ):
            raise BadPayload(_NO_ROW)
        end += size + timed
        said = _head.pack(queue_id, first, last, persistent, size, idx, body, published, timed)
        if crc >> checksums.HEAD_SHIFT != (crc32(said, begun) >> 1 or 1):
            raise BadPayload(_NO_SUM)
        places.append((queue_id, last, first))
        if timed:
            timed_rows.append((queue_id, first, last, begin + size, timed))
    if end != len(chunk.data) + 1:
        raise BadPayload(_NO_ROW)
    if timed_rows or chunk.deadlines:
        _check_timed(chunk, timed_rows)
    return places


def _many_rows(payload: Payload, chunk: PayloadChunk, digits: bytes) -> list[Place]:
    halves = np.frombuffer(digits, np.uint8).reshape(-1, _HALF).astype(np.float64) @ _TENS - _ZEROS
    high, low = halves.reshape(-1, NUMBERS, 2).transpose(2, 1, 0).astype(np.int64)
    if high.max() >= SEQ_MAX // 10**_HALF:
        raise BadPayload(_NO_ROW)
    numbered = high * 10**_HALF + low
    queues, firsts, lasts, persistent, begins, sizes, crcs, bodies, published, timed = numbered
    if not (
        (lasts - firsts < sizes).all()
        and (firsts <= lasts).all()
        and lasts.max() <= NUMBER_MAX
        and persistent.max() <= 1
        and (bodies <= sizes).all()
        and published.max() <= NUMBER_MAX
        and max(sizes.max(), timed.max()) <= len(chunk.data)
    ):
        raise BadPayload(_NO_ROW)
    ends = np.cumsum(sizes + timed) + 1
    if begins[0] != 1 or (begins[1:] != ends[:-1]).any() or ends[-1] != len(chunk.data) + 1:
        raise BadPayload(_NO_ROW)
    idx = np.full_like(queues, payload.idx)
    said = np.stack((queues, firsts, lasts, persistent, sizes, idx, bodies, published, timed), axis=1).tobytes()
    begun = checksums.seed(checksums.HEAD, payload.source, payload.epoch)
    sums = np.array(list(map(crc32, map(itemgetter(0), _heads.iter_unpack(said)), repeat(begun))), np.int64)
    if (np.maximum(sums >> 1, 1) != crcs >> checksums.HEAD_SHIFT).any():
        raise BadPayload(_NO_SUM)
    if chunk.deadlines or timed.any():
        of_timed = numbered[:, timed > 0]
        _check_timed(chunk, np.stack((*of_timed[:3], of_timed[4] + of_timed[5], of_timed[9]), axis=1).tolist())
    return list(zip(queues.tolist(), lasts.tolist(), firsts.tolist(), strict=True))


def _check_timed(chunk: PayloadChunk, rows: Iterable[Sequence[int]]) -> None:
    """`rows`: queue_id, first_seq, last_seq, where its deadlines begin, how many bytes. Raises BadPayload."""
    expected = []
    for queue_id, first, last, at, nbytes in rows:
        deadlines = bytes(chunk.data[at - 1 : at - 1 + nbytes])
        check_deadlines(queue_id, first, last, deadlines)
        crc = checksum_of_deadlines(queue_id, first, last, deadlines)
        expected.append([queue_id, first, last, at, nbytes, crc])
    if _parsed(chunk.deadlines) != expected:
        raise BadPayload("the list of its deadlines is not what its rows have")


def _settled(payload: Payload) -> set[int]:
    """The queues of what it settled. Raises BadPayload."""
    queues: set[int] = set()
    if payload.settled is None:
        return queues
    begun, idx, pack = checksums.seed(checksums.SETTLED, payload.source, payload.epoch), payload.idx, _four.pack
    try:
        for queue_id, first, last, crc in _parsed(payload.settled):
            if crc32(pack(queue_id, first, last, idx), begun) != crc or not 0 <= first <= last <= NUMBER_MAX:
                raise BadPayload(f"{first}..{last} of queue {queue_id}, which it settled, do not fit their checksum")
            queues.add(queue_id)
    except (TypeError, struct_error) as error:
        raise BadPayload(f"what it settled is no list of numbers: {error}") from error
    if min(queues, default=0) < 0:
        raise BadPayload("it settled messages of a queue below zero")
    return queues


def _rare_queues(payload: Payload) -> Iterable[int]:
    """The queues of all else that it has. Raises BadPayload."""
    queues: list[int] = []
    for packed, width in ((payload.retired, 3), (payload.counts, 3), (payload.delivered, 2), (payload.dropped, 1)):
        if packed:
            values = numbers(packed)
            queues += values[::width]
            if width > 1 and max(values[1::width]) > NUMBER_MAX:
                raise BadPayload("it names messages that cannot be")
    if payload.retired:
        values = numbers(payload.retired)
        if not _are_ranges(values[1::3], values[2::3]):
            raise BadPayload("what it retires are no messages")
    return queues


def _are_ranges(firsts: list[int], lasts: list[int]) -> bool:
    return min(firsts) >= 0 and max(lasts) <= NUMBER_MAX and all(map(ge, lasts, firsts))


def _parsed(text: str | None) -> list[list[int]]:
    """Raises BadPayload."""
    if text is None:
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"a list in it is none: {error}") from error
    if not isinstance(found, list):
        raise BadPayload("a list in it is something else")
    return found
