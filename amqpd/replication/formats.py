"""The bytes of what messages between forwarders consist of.

What comes in: entries, frames, openings, answers, ballots. What goes out: their bytes in pieces; the same again.
Rules: 1. All numbers are little-endian and of fixed width; what has no fixed width has its length or count in front.
2. A payload is a piece of its own when it is written, and copied once when it is read. 3. A count is compared with
the bytes that are there before anything is made for it. 4. An entry whose checksum does not fit is malformed: what is
read is as its home made it.
Not here: which message has which of them (`encoding.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any

from amqpd.replication.entry import Frame, LogEntry, Position
from amqpd.replication.receiver import Answer, Opened, Opening, State
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import Ballot

Pieces = list[bytes]
"""to be sent one behind the other"""


class MalformedMessage(Exception):
    """These bytes are no message of this version. The text says why."""


class Reading:
    """The bytes of one message, from front to end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def view(self, nbytes: int) -> memoryview:
        if nbytes > self.left:
            raise MalformedMessage(f"{nbytes} bytes are announced where {self.left} are left")
        self._at += nbytes
        return self._data[self._at - nbytes : self._at]

    def fixed(self, layout: Struct) -> tuple[Any, ...]:
        return layout.unpack(self.view(layout.size))

    def many(self, count: int, layout: Struct) -> list[tuple[Any, ...]]:
        return list(layout.iter_unpack(self.view(count * layout.size)))

    def text(self, nbytes: int) -> str:
        try:
            return str(self.view(nbytes), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage(f"a text is not UTF-8: {error.reason}") from None

    def rest(self) -> bytes:
        return bytes(self.view(self.left))


_count = Struct("<I")
_number = Struct("<q")
_position = Struct("<qq")
_at_source = Struct("<qqq")
_seal = Struct("<qqH")
_entry = Struct("<qqqqqII")


def write_position(position: Position) -> bytes:
    return _position.pack(*position)


def read_position(reading: Reading) -> Position:
    epoch, idx = reading.fixed(_position)
    return epoch, idx


def write_seal(seal: Seal) -> bytes:
    name = seal.forwarder.encode()
    return _seal.pack(seal.epoch, seal.life, len(name)) + name


def read_seal(reading: Reading) -> Seal:
    epoch, life, nbytes = reading.fixed(_seal)
    return Seal(epoch, reading.text(nbytes), life)


def write_entries(entries: Iterable[LogEntry]) -> Pieces:
    """All that is not payload first, so that a payload stands alone."""
    entries = tuple(entries)
    heads = b"".join(
        _entry.pack(each.source, *each.position, *each.before, each.checksum, len(each.payload)) for each in entries
    )
    return [_count.pack(len(entries)) + heads, *(each.payload for each in entries if each.payload)]


def read_entries(reading: Reading) -> tuple[LogEntry, ...]:
    [count] = reading.fixed(_count)
    found = []
    for source, epoch, idx, epoch_before, idx_before, checksum, nbytes in reading.many(count, _entry):
        position, before = (epoch, idx), (epoch_before, idx_before)
        entry = LogEntry(source, position, before, bytes(reading.view(nbytes)), checksum)
        if position <= before or not entry.sound:
            raise MalformedMessage(f"entry {position} of source {source} is not as its home made it")
        found.append(entry)
    return tuple(found)


_opening = Struct("<qqI")
_opened = Struct("<qqqq?Iq")


def write_opening(opening: Opening) -> bytes:
    sources = b"".join(
        _opened.pack(source, epoch, *last, checksum is not None, checksum or 0, since)
        for source, epoch, last, checksum, since in opening.sources
    )
    return _opening.pack(opening.number, opening.committed, len(opening.sources)) + sources


def read_opening(reading: Reading) -> Opening:
    number, committed, count = reading.fixed(_opening)
    sources = tuple(
        Opened(source, epoch, (last_epoch, last_idx), checksum if known else None, since)
        for source, epoch, last_epoch, last_idx, known, checksum, since in reading.many(count, _opened)
    )
    return Opening(number, sources, committed)


_frame = Struct("<qqqqI")


def write_frame(frame: Frame) -> Pieces:
    first, *payloads = write_entries(frame.entries)
    head = _frame.pack(frame.number, frame.after, frame.committed, frame.passed, len(frame.left_out))
    return [head + b"".join(map(_number.pack, frame.left_out)) + first, *payloads]


def read_frame(reading: Reading) -> Frame:
    number, after, committed, passed, count = reading.fixed(_frame)
    left_out = tuple(source for (source,) in reading.many(count, _number))
    return Frame(number, after, read_entries(reading), committed, passed, left_out)


_state = Struct("<qqqqqq??")


def write_state(state: State) -> Pieces:
    head = (state.source, state.transfer, *state.base, *state.after, state.first, state.last)
    return [_state.pack(*head), state.part]


def read_state(reading: Reading) -> State:
    source, transfer, epoch, idx, epoch_after, idx_after, first, last = reading.fixed(_state)
    return State(source, transfer, (epoch, idx), reading.rest(), first, last, (epoch_after, idx_after))


_answer = Struct("<qIIIII")


def write_answer(answer: Answer) -> bytes:
    lacks, fenced, incomplete, contradicted = answer.lacks, answer.fenced, answer.incomplete, answer.contradicted
    counts = (len(lacks), len(answer.bases), len(fenced), len(incomplete), len(contradicted))
    parts = [_answer.pack(answer.number, *counts)]
    parts += (_at_source.pack(source, *position) for source, position in lacks.items())
    parts += (_at_source.pack(source, *position) for source, position in answer.bases.items())
    for source, seal in fenced.items():
        parts += _number.pack(source), write_seal(seal)
    parts += map(_number.pack, incomplete)
    parts += map(_number.pack, contradicted)
    return b"".join(parts)


def read_answer(reading: Reading) -> Answer:
    number, *counts = reading.fixed(_answer)
    lacks, bases = (
        {source: (epoch, idx) for source, epoch, idx in reading.many(count, _at_source)} for count in counts[:2]
    )
    fenced = {}
    for _ in range(counts[2]):  # ends with the bytes, whatever the number is
        [source] = reading.fixed(_number)
        fenced[source] = read_seal(reading)
    incomplete, contradicted = (
        frozenset(source for (source,) in reading.many(count, _number)) for count in counts[3:]
    )
    return Answer(number, lacks, fenced, incomplete, contradicted, bases)


_ballot = Struct("<?qqqqq")


def write_ballot(ballot: Ballot) -> bytes:
    return _ballot.pack(ballot.granted, *ballot.last, ballot.generation, *ballot.base) + write_seal(ballot.seal)


def read_ballot(reading: Reading) -> Ballot:
    granted, epoch, idx, generation, base_epoch, base_idx = reading.fixed(_ballot)
    return Ballot(granted, read_seal(reading), (epoch, idx), generation, (base_epoch, base_idx))
