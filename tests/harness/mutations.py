"""What a broken or hostile client makes of a valid session.

What comes in: frames, a random generator, frames of another session to splice in. What goes out: bytes, and the name
of each mutation that was made.
Rules: mutations of bits and of bytes break the framing; those of frames keep it, so that what they break is found
deeper inside. Both are made.
Not here: valid sessions (`sessions.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from pamqp import commands

from tests.harness.harness import PROTOCOL_HEADER

EDGE_BYTES = (0, 1, 0x7F, 0x80, 0xCE, 0xFE, 0xFF)
EDGE_SIZES = (0, 1, 7, 8, 4096, 131_072, 131_080, 131_081, 2**31 - 1, 2**31, 2**32 - 1)
PUBLISH = b"\x00\x3c\x00\x28"
METHOD_IDS = sorted(commands.INDEX_MAPPING)

Frames = list[bytes]


def mutated(random: Random, frames: Frames, other: Frames) -> tuple[bytes, list[str]]:
    """The frames with one to four mutations, as bytes; the mutations' names."""
    frames, names = list(frames), []
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if not frames:
            break
        mutate = random.choice(_OF_FRAMES)
        names.append(mutate.__name__.strip("_"))
        mutate(random, frames, other)
    data = bytearray(b"".join(frames))
    if data and random.random() < 0.3:
        change = random.choice(_OF_BYTES)
        names.append(change.__name__.strip("_"))
        change(random, data, b"".join(other))
    return bytes(data), names


# Frames stay frames


def _reframe(one: bytes, payload: bytes) -> bytes:
    return one[:3] + struct.pack(">I", len(payload)) + payload + b"\xce"


def _is_frame(one: bytes) -> bool:
    return len(one) >= 8 and one[:8] != PROTOCOL_HEADER


def _on_one(change: Callable[[Random, bytes], bytes]) -> Callable[[Random, Frames, Frames], None]:
    def mutate(random: Random, frames: Frames, _: Frames) -> None:
        at = random.randrange(len(frames))
        if _is_frame(frames[at]):
            frames[at] = change(random, frames[at])

    mutate.__name__ = change.__name__
    return mutate


def _flip_in_payload(random: Random, one: bytes) -> bytes:
    payload = bytearray(one[7:-1])
    for _ in range(random.choice((1, 1, 3, 8))):
        if payload:
            payload[random.randrange(len(payload))] ^= 1 << random.randrange(8)
    return _reframe(one, bytes(payload))


def _edge_in_payload(random: Random, one: bytes) -> bytes:
    payload = bytearray(one[7:-1])
    if payload:
        payload[random.randrange(len(payload))] = random.choice(EDGE_BYTES)
    return _reframe(one, bytes(payload))


def _length_in_payload(random: Random, one: bytes) -> bytes:
    """Four bytes somewhere become an edge of a length field."""
    payload = bytearray(one[7:-1])
    if len(payload) >= 4:
        at = random.randrange(len(payload) - 3)
        payload[at : at + 4] = struct.pack(">I", random.choice(EDGE_SIZES))
    return _reframe(one, bytes(payload))


def _shorter_payload(random: Random, one: bytes) -> bytes:
    return _reframe(one, one[7 : 7 + random.randrange(len(one) - 7)])


def _longer_payload(random: Random, one: bytes) -> bytes:
    return _reframe(one, one[7:-1] + random.randbytes(random.choice((1, 4, 50))))


def _random_payload(random: Random, one: bytes) -> bytes:
    return _reframe(one, random.randbytes(random.choice((0, 1, 4, 14, 60))))


def _other_method(random: Random, one: bytes) -> bytes:
    """The arguments of one method under the name of another."""
    return _reframe(one, struct.pack(">I", random.choice(METHOD_IDS)) + one[11:-1])


def _random_method(random: Random, one: bytes) -> bytes:
    arguments = bytes(random.choice((*EDGE_BYTES, 2, 3, 5)) for _ in range(random.choice((0, 1, 5, 20))))
    return b"\x01" + _reframe(one, struct.pack(">I", random.choice(METHOD_IDS)) + arguments)[1:]


def _deep_table(random: Random, one: bytes) -> bytes:
    """exchange.declare with tables in tables."""
    depth, kind = random.choice((3, 90, 110, 300, 900)), random.choice((b"\x01aF", b"A"))
    table = b""
    for _ in range(depth):
        table = kind + struct.pack(">I", len(table)) + table
    table = b"\x01aA" + struct.pack(">I", len(table)) + table if kind == b"A" else table
    name = b"deep" + str(random.randrange(1000)).encode()
    arguments = b"\0\0" + bytes([len(name)]) + name + b"\x06direct\0" + struct.pack(">I", len(table)) + table
    return b"\x01" + _reframe(one, b"\x00\x28\x00\x0a" + arguments)[1:]


def _frame_type(random: Random, one: bytes) -> bytes:
    return bytes([random.choice((0, 1, 2, 3, 4, 8, 255))]) + one[1:]


def _channel_number(random: Random, one: bytes) -> bytes:
    return one[:1] + struct.pack(">H", random.choice((0, 1, 2, 3, 5, 17, 2047, 2048, 65535))) + one[3:]


def _frame_size(random: Random, one: bytes) -> bytes:
    size = random.choice((*EDGE_SIZES, len(one) - 9, len(one) - 7))
    return one[:3] + struct.pack(">I", size & 0xFFFFFFFF) + one[7:]


def _frame_end(random: Random, one: bytes) -> bytes:
    return one[:-1] + bytes([random.choice((0, 1, 0xCD, 0xCF, 0xFF))])


def _body_size(random: Random, one: bytes) -> bytes:
    """Another size than announced, where it is a content header."""
    if one[0] != 2 or len(one) < 22:
        return one
    size = int.from_bytes(one[11:19], "big")
    other = random.choice((0, 1, size + 1, max(0, size - 1), 2**20, 2**29, 2**29 + 1, 2**63, 2**64 - 1))
    return one[:11] + struct.pack(">Q", other) + one[19:]


def _drop(random: Random, frames: Frames, _: Frames) -> None:
    at = random.randrange(len(frames))
    del frames[at : at + random.choice((1, 1, 2, 10))]


def _repeat(random: Random, frames: Frames, _: Frames) -> None:
    at = random.randrange(len(frames))
    frames[at:at] = frames[at : at + random.choice((1, 1, 2, 10))] * random.choice((1, 1, 1, 20))


def _swap(random: Random, frames: Frames, _: Frames) -> None:
    here, there = random.randrange(len(frames)), random.randrange(len(frames))
    frames[here], frames[there] = frames[there], frames[here]


def _shuffle(random: Random, frames: Frames, _: Frames) -> None:
    at = random.randrange(len(frames))
    some = frames[at : at + 8]
    random.shuffle(some)
    frames[at : at + 8] = some


def _splice(random: Random, frames: Frames, other: Frames) -> None:
    if other:
        start, at = random.randrange(len(other)), random.randrange(len(frames) + 1)
        frames[at:at] = other[start : start + random.choice((1, 3, 20))]


def _plain_methods(frames: Frames) -> list[int]:
    """Where methods are that carry no content: moved about, they make no sense, but are still protocol."""
    return [at for at, one in enumerate(frames) if _is_frame(one) and one[0] == 1 and one[7:11] != PUBLISH]


def _swap_methods(random: Random, frames: Frames, _: Frames) -> None:
    if places := _plain_methods(frames):
        here, there = random.choice(places), random.choice(places)
        frames[here], frames[there] = frames[there], frames[here]


def _drop_methods(random: Random, frames: Frames, _: Frames) -> None:
    if places := _plain_methods(frames):
        for at in sorted(random.sample(places, min(len(places), random.choice((1, 3)))), reverse=True):
            del frames[at]


def _repeat_method(random: Random, frames: Frames, _: Frames) -> None:
    if places := _plain_methods(frames):
        at = random.choice(places)
        frames[at:at] = [frames[at]] * random.choice((1, 2, 30))


def _method_elsewhere(random: Random, frames: Frames, _: Frames) -> None:
    """On another channel, which may or may not be open."""
    if places := _plain_methods(frames):
        at = random.choice(places)
        frames[at] = _channel_number(random, frames[at])


def _method_in_payload(random: Random, frames: Frames, other: Frames) -> None:
    """One octet of a method's arguments."""
    if places := _plain_methods(frames):
        at = random.choice(places)
        if len(frames[at]) > 12:
            one = bytearray(frames[at])
            one[random.randrange(11, len(one) - 1)] ^= 1 << random.randrange(8)
            frames[at] = bytes(one)


def _end_early(random: Random, frames: Frames, _: Frames) -> None:
    del frames[random.randrange(len(frames)) :]


# Bytes


def _flip_bits(random: Random, data: bytearray, _: bytes) -> None:
    for _n in range(random.choice((1, 2, 8, 64))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _delete_bytes(random: Random, data: bytearray, _: bytes) -> None:
    at = random.randrange(len(data))
    del data[at : at + random.choice((1, 2, 8, 100))]


def _insert_bytes(random: Random, data: bytearray, _: bytes) -> None:
    at = random.randrange(len(data))
    data[at:at] = random.randbytes(random.choice((1, 2, 8, 100)))


def _repeat_bytes(random: Random, data: bytearray, _: bytes) -> None:
    at = random.randrange(len(data))
    data[at:at] = data[at : at + random.choice((1, 8, 100))]


def _splice_bytes(random: Random, data: bytearray, other: bytes) -> None:
    at, start = random.randrange(len(data)), random.randrange(len(other) + 1)
    data[at : at + 50] = other[start : start + random.choice((10, 100))]


def _cut(random: Random, data: bytearray, _: bytes) -> None:
    del data[random.randrange(len(data)) :]


_OF_FRAMES: list[Callable[[Random, Frames, Frames], None]] = [
    *map(
        _on_one,
        (
            _flip_in_payload,
            _edge_in_payload,
            _length_in_payload,
            _shorter_payload,
            _longer_payload,
            _random_payload,
            _other_method,
            _random_method,
            _deep_table,
            _frame_type,
            _channel_number,
            _frame_size,
            _frame_end,
            _body_size,
        ),
    ),
    _drop,
    _repeat,
    _swap,
    _shuffle,
    _splice,
    _end_early,
    *[_swap_methods, _drop_methods, _repeat_method, _method_elsewhere, _method_in_payload] * 3,
]
_OF_BYTES: list[Callable[[Random, bytearray, bytes], None]] = [
    _flip_bits,
    _delete_bytes,
    _insert_bytes,
    _repeat_bytes,
    _splice_bytes,
    _cut,
]
