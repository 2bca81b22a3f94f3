"""Publishes that differ in more than their bodies, in one batch: the plain Python kernel's other kind of run.

What comes in: a buffer of received bytes and a position. What goes out: a `Mixed`, which is a `Run` with a place for
each message; the bytes of its deliveries.
Rules: 1. Messages of one batch are of one channel and follow each other in one buffer, and what the broker acts on in
their properties is the same (`screening.py`); keys, sizes, ids and headers differ as they like. 2. Each has at most
one body frame, which is not large; there are two messages at least. 3. The index has 16 bytes for each message, in
the order of publication: where it begins, the sizes of its method and header frames and of its body, and which of
the batch's keys it has. No object is made for a message.
Not here: publishes that are alike (`reference.py`), which queues a key leads to (`publishing/batches.py`).
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from struct import Struct
from typing import Final

from amqpd.kernel.reference import (
    FRAME_OVERHEAD_BYTES,
    PIN_SHARE_MIN,
    Run,
    check_range,
    cut_body,
    delivery_head,
    header_frame,
    measure,
    pack_tag,
    scan_publishes,
)
from amqpd.kernel.screening import common_of

# This number of publishes that are alike are better off as a run of their own.
ALIKE_MIN: Final = 16
# Messages of one batch: what a turn may do at once, and few enough for a key's number to have 16 bits.
MESSAGES_MAX: Final = 4096
# A message with a larger body is a run of its own (`pieces.LARGE_BYTES_MIN`).
BODY_BYTES_MAX: Final = 16 * 1024 - 1
# What a message takes beside its frames.
PLACE_BYTES: Final = 16

# at, method size, key's number, header size, body size
_PLACE = Struct("=IHHII")
_unpack_place = _PLACE.unpack_from
_pack_place = _PLACE.pack
_AT_MAX = (1 << 32) - 1
_PUBLISH_ID = b"\x00\x3c\x00\x28"

Place = tuple[int, int, int, int, int]


class Mixed(Run):
    """A batch of publishes that differ in more than their bodies. `keys` are the different ones of its messages
    (payloads of basic.publish from the exchange on, flags included), which a place names by number, until they are
    routed; a key may be there twice. `common` is what the broker must know of the properties of all of them, as a
    property list. What a `Run` says of all its messages a Mixed cannot say: that is an AttributeError."""

    __slots__ = ("_body_bytes", "_body_size_max", "_nbytes", "common", "index", "keys")

    mixed = True

    def __init__(self, data: bytes, index: bytes, keys: tuple[bytes, ...], common: bytes) -> None:
        """Raises ValueError for an index that is not the data's."""
        places = list(_PLACE.iter_unpack(index))
        if not 2 <= len(places) <= MESSAGES_MAX:
            raise ValueError(f"no batch has {len(places)} messages")
        end, keys_max = 0, len(keys) or MESSAGES_MAX
        for at, method, key, header, body in places:
            if at < end or method < 17 or header < 22 or key >= keys_max or body > BODY_BYTES_MAX:
                raise ValueError("a batch's index is not one")
            end = at + _size(method, header, body)
        if end > len(data):
            raise ValueError("a batch's messages are not within its data")
        self._set(data, index, keys, common, places)

    def _set(self, data: bytes, index: bytes, keys: tuple[bytes, ...], common: bytes, places: list[Place]) -> None:
        """What is known to be right."""
        self.data = data
        self.index = index
        self.keys = keys
        self.common = common
        self.count = len(places)
        sizes = [body for _, _, _, _, body in places]
        self._body_bytes: int = sum(sizes)
        self._body_size_max: int = max(sizes)
        self._nbytes = sum([_size(method, header, body) for _, method, _, header, body in places])

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def body_bytes(self) -> int:
        return self._body_bytes

    @property
    def body_size_max(self) -> int:
        return self._body_size_max

    @property
    def memory_bytes(self) -> int:
        return self._nbytes + PLACE_BYTES * self.count

    @property
    def measures(self) -> tuple[int, int, int, int]:
        return self.count, -1, self._body_bytes, self.memory_bytes

    def raw(self) -> bytes:
        """The frames of all messages, end to end."""
        return self._frames(0, self.count)

    def _place(self, i: int) -> Place:
        place: Place = _unpack_place(self.index, PLACE_BYTES * i)
        return place

    def _frames(self, low: int, high: int) -> bytes:
        first, last = self._place(low), self._place(high - 1)
        stop = last[0] + _size(last[1], last[3], last[4])
        places = self._places(low, high)
        if stop - first[0] == sum([_size(method, header, body) for _, method, _, header, body in places]):
            return self.data[first[0] : stop]
        return b"".join([self.data[at : at + _size(method, header, body)] for at, method, _, header, body in places])

    def _places(self, low: int, high: int) -> list[Place]:
        return list(_PLACE.iter_unpack(self.index[PLACE_BYTES * low : PLACE_BYTES * high]))

    def part(self, low: int, high: int) -> Run:
        """A copy of the messages low..high-1 that shares no memory with this one: a Mixed, or a Run if they are fewer
        than two. Raises IndexError."""
        check_range(self, low, high)
        return _copied(self, self._places(low, high)) if low < high else _NONE

    def drop_keys(self) -> None:
        """It is routed: a message that stays in a queue for long must not pin all keys of its batch."""
        self.keys = ()

    def divided(self, ends: bytes, parts: bytes, count: int) -> list[Run]:
        """The batch in `count` parts, each with the messages whose keys lead to it, in their order; they have no keys
        any more. `parts` are numbers of parts, those of each key behind each other, and `ends` where each key's end
        among them: both packed, 32 bits each, in the machine's order. In one pass: what it takes is proportional to
        the messages of all parts together. Raises ValueError for other numbers, and for a part of nothing."""
        stops, numbers = array("I", ends), array("I", parts)
        if len(stops) != len(self.keys) or list(stops) != sorted(stops) or (stops and stops[-1] > len(numbers)):
            raise ValueError("an end for each key")
        if numbers and max(numbers) >= count:
            raise ValueError("a number of a part that there is not")
        begins = [0, *stops]
        found: list[list[Place]] = [[] for _ in range(count)]
        for place in self._places(0, self.count):
            for number in numbers[begins[place[2]] : stops[place[2]]]:
                found[number].append(place)
        if not found or not all(found):
            raise ValueError("a part of nothing")
        return [self._part_of(places) for places in found]

    def _part_of(self, places: list[Place]) -> Run:
        nbytes = sum([_size(method, header, body) for _, method, _, header, body in places])
        if len(places) < 2 or nbytes * PIN_SHARE_MIN < len(self.data):
            return _copied(self, places)
        return _made(self.data, (), self.common, places)

    def names_of(self, i: int) -> bytes:
        """Exchange and routing key of message i as they were published. Raises IndexError."""
        check_range(self, i, i + 1)
        at, method, _, _, _ = self._place(i)
        return self.data[at + 13 : at + method - 2]

    def body(self, i: int) -> bytes:
        check_range(self, i, i + 1)
        at, method, _, header, size = self._place(i)
        begin = at + method + header + 7
        return self.data[begin : begin + size] if size else b""

    def bytes_in(self, low: int, high: int) -> int:
        check_range(self, low, high)
        return sum([body for _, _, _, _, body in self._places(low, high)])

    def deliveries(
        self, low: int, high: int, channel: int, consumer: bytes, tag: int, redelivered: bool, frame_max: int
    ) -> bytes:
        delivery_head(channel, consumer, b"")  # raises what is wrong with these
        if low == high:
            return b""
        data, flag = self.data, b"\x01" if redelivered else b"\x00"
        pieces: list[bytes] = []
        first = self._place(low)[0]
        stays = data[first + 1 : first + 3] == channel.to_bytes(2, "big")
        for at, method, _, header, body in self._places(low, high):
            names = data[at + 13 : at + method - 2]
            pieces += (delivery_head(channel, consumer, names), pack_tag(tag), flag, names, b"\xce")
            at += method
            if stays and body + FRAME_OVERHEAD_BYTES <= frame_max:
                pieces.append(data[at : at + _size(0, header, body)])
            else:
                pieces.append(header_frame(data, at, header, channel))
                at += header + 7
                pieces.append(cut_body(data[at : at + body], channel, frame_max))
            tag += 1
        return b"".join(pieces)

    def content(self, i: int, channel: int, frame_max: int) -> bytes:
        at, method, _, header, _ = self._place(i)
        return header_frame(self.data, at + method, header, channel) + cut_body(self.body(i), channel, frame_max)


_NONE = Run(b"", 0, 0, 0, 0, 0, 0, 0)


def _size(method: int, header: int, body: int) -> int:
    """Of a message, in frames."""
    return method + header + (body + FRAME_OVERHEAD_BYTES if body else 0)


def _copied(run: Mixed, places: list[Place]) -> Run:
    """These messages of it, and nothing else."""
    sizes = [_size(method, header, body) for _, method, _, header, body in places]
    data = b"".join([run.data[place[0] : place[0] + size] for place, size in zip(places, sizes, strict=True)])
    if len(places) == 1:
        _, method, _, header, body = places[0]
        return Run(data, 0, len(data), 1, method, header, body, 1 if body else 0)
    starts = [0, *accumulate(sizes)]
    moved = [(at, *place[1:]) for at, place in zip(starts, places, strict=False)]
    return _made(data, (), run.common, moved)


def _made(data: bytes, keys: tuple[bytes, ...], common: bytes, places: list[Place]) -> Mixed:
    batch = Mixed.__new__(Mixed)
    batch._set(data, b"".join([_pack_place(*place) for place in places]), keys, common, places)
    return batch


def scan_batch(data: bytes, pos: int, end: int, payload_max: int) -> Run | None:
    """As `scan_publishes`, and what follows the first of these publishes may be different: a `Mixed` then, of as many
    messages as go together."""
    run = scan_publishes(data, pos, end, payload_max)
    if run is None or not run.count or run.count >= ALIKE_MIN or run.body_frames > 1:
        return run
    if run.body_size > BODY_BYTES_MAX or end > _AT_MAX:
        return run
    at = pos + run.nbytes
    if end - at < 21 or data[at + 1 : at + 3] != data[pos + 1 : pos + 3]:
        return run
    common = common_of(run.properties)
    if common is None:
        return run
    shape = (run.method_size, run.header_size, run.body_size)
    found: list[tuple[int, int, int, int]] = [(begin, *shape) for begin in range(pos, at, run.stride)]
    numbers = {run.key: 0}
    keys = [0] * run.count
    channel = data[pos + 1 : pos + 3]
    while len(found) < MESSAGES_MAX and data[at + 1 : at + 3] == channel and data[at + 7 : at + 11] == _PUBLISH_ID:
        measured = measure(data, at, end, payload_max)
        if not measured:
            break
        stride, method, header, body, frames = measured
        if frames > 1 or body > BODY_BYTES_MAX:
            break
        if common_of(data[at + method + 19 : at + method + header - 1]) != common:
            break
        found.append((at, method, header, body))
        keys.append(numbers.setdefault(data[at + 13 : at + method - 1], len(numbers)))
        at += stride
    if len(found) == run.count:
        return run
    if (at - pos) * PIN_SHARE_MIN < len(data):
        data, less = data[pos:at], pos
    else:
        less = 0
    places = [
        (begin - less, method, key, header, body)
        for (begin, method, header, body), key in zip(found, keys, strict=True)
    ]
    return _made(data, tuple(numbers), common, places)
