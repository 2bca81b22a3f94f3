"""The bytes of what messages between forwarders consist of.

What comes in: entries, frames, openings, answers, ballots. What goes out: their bytes in pieces; the same again.
Rules: 1. All numbers are little-endian and of fixed width; what has no fixed width has its length or count in front.
2. A payload is a piece of its own when it is written, and copied once when it is read. 3. A count is compared with
the bytes that are there before anything is made for it, and with what a message may have. 4. Every number is one that
a forwarder gives: not below zero, and far from the end of its 64 bits. 5. An entry whose checksum does not fit is
malformed: what is read is as its leader made it.
What another version has otherwise has that version's number in its name: `read_frame_4` is of version 4, and of those
before.
Not here: which message has which of them (`encoding.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, NamedTuple, cast

from amqpd.peers.entry import EPOCH_MAX, NUMBER_MAX, SOURCES_MAX, Frame, LogEntry, Position, Vote
from amqpd.peers.messages import Acknowledgement, Ballot, Body, OpenedSource, Opening, SnapshotPart, SourceEpoch

Pieces = list[bytes]
"""to be sent one behind the other"""


class Part(NamedTuple):
    """The way to write, and to read, one value that messages have; of its pieces all but the first are payloads."""

    write: Callable[[Any], Pieces]
    read: Callable[[MessageReader], Any]


ENTRIES_MAX = 1 << 16
"""In one message: a hundredth of a second's work. Who sends what was missed sends less than a megabyte at a time."""
DRAWN_MAX = (1 << 63) - 1
"""of numbers that are drawn: generations, ids of queues"""
NAME_BYTES_MAX = 255
"""of a forwarder (`setting_types.NODE_NAME_MAX` characters)"""
HEAD_BYTES_MAX = 4096
"""A first piece of a body up to this is copied behind the message's head: a piece of its own costs as much."""


class MalformedMessage(Exception):
    """These bytes are no message of this version. The text says why."""


class MessageReader:
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

    def fixed(self, layout: Struct, number_max: int = NUMBER_MAX) -> tuple[Any, ...]:
        values = layout.unpack(self.view(layout.size))
        for value in values:
            if isinstance(value, int) and not 0 <= value <= number_max:
                raise MalformedMessage(f"{value} is no number that a forwarder gives")
        return values

    def many(
        self, count: int, layout: Struct, count_max: int = SOURCES_MAX, number_max: int = NUMBER_MAX
    ) -> list[tuple[Any, ...]]:
        if count > count_max:
            raise MalformedMessage(f"a list of {count} is announced, the limit is {count_max}")
        found = list(layout.iter_unpack(self.view(count * layout.size)))
        for values in found:
            if min(values) < 0 or max(values) > number_max:
                raise MalformedMessage(f"{min(values)} or {max(values)} is no number that a forwarder gives")
        return found

    def sources(self, count: int) -> list[int]:
        return [as_source(source) for (source,) in self.many(count, _number)]

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
_vote = Struct("<qqH")
_entry = Struct("<qqqqqII")


def read_number(reading: MessageReader) -> int:
    [number] = reading.fixed(_number)
    return int(number)


NUMBER = Part(lambda number: [_number.pack(number)], read_number)


def as_position(epoch: int, idx: int) -> Position:
    """Raises MalformedMessage."""
    if epoch > EPOCH_MAX or idx > NUMBER_MAX:
        raise MalformedMessage(f"there is no entry {idx} of epoch {epoch}")
    return epoch, idx


POSITION = Part(lambda position: [_position.pack(*position)], lambda reading: as_position(*reading.fixed(_position)))


def as_source(number: int) -> int:
    """Raises MalformedMessage."""
    if not 1 <= number <= SOURCES_MAX:
        raise MalformedMessage(f"{number} is no source")
    return number


def as_led_source(number: int) -> int:
    """A source with its leader at the node that has accepted the connection; 0: that node's local one. Raises
    MalformedMessage."""
    return number if number == 0 else as_source(number)


def write_vote(vote: Vote) -> bytes:
    name = vote.forwarder.encode()
    return _vote.pack(vote.epoch, vote.incarnation, len(name)) + name


def read_vote(reading: MessageReader) -> Vote:
    epoch, incarnation, nbytes = reading.fixed(_vote)
    if nbytes > NAME_BYTES_MAX:
        raise MalformedMessage(f"a name of {nbytes} bytes is announced, the limit is {NAME_BYTES_MAX}")
    return Vote(as_position(epoch, 0)[0], reading.text(nbytes), incarnation)


VOTE = Part(lambda vote: [write_vote(vote)], read_vote)


def write_entries(entries: Iterable[LogEntry]) -> Pieces:
    """All that is not payload first, so that a payload stands alone."""
    entries = tuple(entries)
    heads = b"".join(
        _entry.pack(each.source, *each.position, *each.before, each.checksum, len(each.payload)) for each in entries
    )
    return [_count.pack(len(entries)) + heads, *(each.payload for each in entries if each.payload)]


def read_entries(reading: MessageReader) -> tuple[LogEntry, ...]:
    [count] = reading.fixed(_count)
    found = []
    for source, epoch, idx, epoch_before, idx_before, checksum, nbytes in reading.many(count, _entry, ENTRIES_MAX):
        position, before = as_position(epoch, idx), (epoch_before, idx_before)
        entry = LogEntry(as_source(source), position, before, bytes(reading.view(nbytes)), checksum)
        if position <= before or not entry.sound:
            raise MalformedMessage(f"entry {position} of source {source} is not as its leader made it")
        found.append(entry)
    return tuple(found)


ENTRIES = Part(write_entries, read_entries)


_opening = Struct("<qqI")
_opened = Struct("<qqqq?Iq")


def write_opening(opening: Opening) -> Pieces:
    sources = b"".join(
        _opened.pack(source, epoch, *last, checksum is not None, checksum or 0, since)
        for source, epoch, last, checksum, since in opening.sources
    )
    return [_opening.pack(opening.number, opening.committed, len(opening.sources)) + sources]


def read_opening(reading: MessageReader) -> Opening:
    number, committed, count = reading.fixed(_opening)
    sources = tuple(
        OpenedSource(
            as_source(source),
            as_position(epoch, 0)[0],
            as_position(last_epoch, last_idx),
            checksum if known else None,
            since,
        )
        for source, epoch, last_epoch, last_idx, known, checksum, since in reading.many(count, _opened)
    )
    return Opening(number, sources, committed)


OPENING = Part(write_opening, read_opening)
_frame = Struct("<qqqqI")


def write_frame(frame: Frame) -> Pieces:
    head, *payloads = _write_frame(frame)
    return [_number.pack(frame.revision) + head, *payloads]


def write_frame_4(frame: Frame) -> Pieces:
    if frame.revision:
        # A frame is cut for a set, all of whose members are to read what it has.
        raise ValueError(f"a frame that names revision {frame.revision}, for a node of version 4")
    return _write_frame(frame)


def _write_frame(frame: Frame) -> Pieces:
    first, *payloads = write_entries(frame.entries)
    head = _frame.pack(frame.number, frame.after, frame.committed, frame.passed, len(frame.left_out))
    return [head + b"".join(map(_number.pack, frame.left_out)) + first, *payloads]


def read_frame(reading: MessageReader) -> Frame:
    return read_frame_4(reading, read_number(reading))


def read_frame_4(reading: MessageReader, revision: int = 0) -> Frame:
    number, after, committed, passed, count = reading.fixed(_frame)
    left_out = tuple(reading.sources(count))
    return Frame(number, after, read_entries(reading), committed, passed, left_out, revision)


FRAME, FRAME_4 = Part(write_frame, read_frame), Part(write_frame_4, read_frame_4)
_state = Struct("<qqqqqq??")


def write_state(state: SnapshotPart) -> Pieces:
    head = (state.source, state.transfer, *state.base, *state.after, state.first, state.last)
    return [_state.pack(*head), state.part]


def read_state(reading: MessageReader) -> SnapshotPart:
    source, transfer, epoch, idx, epoch_after, idx_after, first, last = reading.fixed(_state)
    base, after = as_position(epoch, idx), as_position(epoch_after, idx_after)
    if after > base:
        raise MalformedMessage(f"a state of source {source} from {after} to {base}")
    return SnapshotPart(as_source(source), transfer, base, reading.rest(), first, last, after)


STATE = Part(write_state, read_state)
_answer = Struct("<qIIIII")


def write_answer(answer: Acknowledgement) -> Pieces:
    lacks, fenced, incomplete, contradicted = answer.lacks, answer.fenced, answer.incomplete, answer.contradicted
    counts = (len(lacks), len(answer.bases), len(fenced), len(incomplete), len(contradicted))
    parts = [_answer.pack(answer.number, *counts)]
    parts += (_at_source.pack(source, *position) for source, position in lacks.items())
    parts += (_at_source.pack(source, *position) for source, position in answer.bases.items())
    for source, vote in fenced.items():
        parts += _number.pack(source), write_vote(vote)
    parts += map(_number.pack, incomplete)
    parts += map(_number.pack, contradicted)
    return [b"".join(parts)]


def read_answer(reading: MessageReader) -> Acknowledgement:
    number, *counts = reading.fixed(_answer)
    lacks, bases = (
        {as_source(source): as_position(epoch, idx) for source, epoch, idx in reading.many(count, _at_source)}
        for count in counts[:2]
    )
    fenced = {}
    for _ in range(counts[2]):  # ends with the bytes, whatever the number is
        [source] = reading.fixed(_number)
        fenced[as_source(source)] = read_vote(reading)
    incomplete, contradicted = (frozenset(reading.sources(count)) for count in counts[3:])
    return Acknowledgement(number, lacks, fenced, incomplete, contradicted, bases)


ANSWER = Part(write_answer, read_answer)
_ballot = Struct("<?qqqqq")


def write_ballot(ballot: Ballot) -> Pieces:
    return [_ballot.pack(ballot.granted, *ballot.last, ballot.generation, *ballot.base) + write_vote(ballot.vote)]


def read_ballot(reading: MessageReader) -> Ballot:
    granted, epoch, idx, generation, base_epoch, base_idx = reading.fixed(_ballot, DRAWN_MAX)
    last, base = as_position(epoch, idx), as_position(base_epoch, base_idx)
    if base > last:
        raise MalformedMessage(f"a log that ends at {last} is said to be committed up to {base}")
    return Ballot(granted, read_vote(reading), last, generation, base)


BALLOT = Part(write_ballot, read_ballot)
_source_epoch = Struct("<qq")


def write_source_epochs(sources: Iterable[SourceEpoch]) -> Pieces:
    said = [_source_epoch.pack(*each) for each in sources]
    return [_count.pack(len(said)) + b"".join(said)]


def read_source_epochs(reading: MessageReader) -> tuple[SourceEpoch, ...]:
    [count] = reading.fixed(_count)
    return tuple(
        SourceEpoch(as_led_source(source), as_position(epoch, 0)[0])
        for source, epoch in reading.many(count, _source_epoch)
    )


SOURCE_EPOCHS = Part(write_source_epochs, read_source_epochs)


_text_bytes = Struct("<H")
NAMES_MAX = 256
"""in one message: more nodes than a cluster has"""


def _write_text(text: str) -> bytes:
    data = text.encode()
    return _text_bytes.pack(len(data)) + data


def _read_text(reading: MessageReader) -> str:
    [nbytes] = reading.fixed(_text_bytes)
    if nbytes > NAME_BYTES_MAX:
        raise MalformedMessage(f"a name of {nbytes} bytes is announced, the limit is {NAME_BYTES_MAX}")
    return reading.text(nbytes)


NAME = Part(lambda name: [_write_text(name)], _read_text)


def write_names(names: Iterable[str]) -> Pieces:
    said = [_write_text(each) for each in names]
    return [_count.pack(len(said)) + b"".join(said)]


def read_names(reading: MessageReader) -> tuple[str, ...]:
    [count] = reading.fixed(_count)
    if count > NAMES_MAX:
        raise MalformedMessage(f"{count} names are announced, the limit is {NAMES_MAX}")
    return tuple(_read_text(reading) for _ in range(count))


NAMES = Part(write_names, read_names)


def write_body(pieces: Body) -> Pieces:
    """Raises ValueError for one of no bytes."""
    if not any(pieces):
        raise ValueError("a message of a session without a body")
    # A view of bytes is sent as bytes are.
    found = cast("Pieces", list(pieces))
    return found if len(found[0]) <= HEAD_BYTES_MAX else [b"", *found]


def read_body(reading: MessageReader) -> tuple[bytes, ...]:
    if not reading.left:
        raise MalformedMessage("a message of a session without a body")
    return (reading.rest(),)


BODY = Part(write_body, read_body)
