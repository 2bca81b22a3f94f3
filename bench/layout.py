"""What one delivery of a stream looks like, learnt from the first one.

What comes in: the received bytes from the first delivery on. What goes out: a `Layout`: the bytes of one
delivery and where its numbers are. Rules: 1. the first delivery is parsed frame by frame and must be complete
and correct; 2. the ones after it may differ from it in the delivery tag, the redelivered flag, the routing
key and the body's stamp, and in nothing else.
Not here: counting with it (`count.py`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bench.encode import STAMP_BYTES
from bench.errors import BenchError, name_of_frame

_FRAME = struct.Struct(">BHI")
_DELIVER = 60 << 16 | 60


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in bytes from the start of a delivery: `tag_at` of the 8 bytes of the delivery tag, `key_at` of
    the routing key's `key_bytes`, `stamp_at` of the body's stamp; `stride` bytes in all."""

    first: bytes
    tag_at: int
    key_at: int
    key_bytes: int
    stamp_at: int

    @property
    def stride(self) -> int:
        return len(self.first)

    def constant_parts(self) -> list[tuple[int, bytes]]:
        """(offset, bytes) of everything that every delivery repeats, except bodies beyond their first 256
        bytes: a large body is not compared in full, its length and its end octet are."""
        cuts = [
            (0, self.tag_at),
            (self.tag_at + 9, self.key_at),
            (self.key_at + self.key_bytes, self.stamp_at),
        ]
        after = self.stamp_at + STAMP_BYTES
        cuts += [(after, min(after + 256, self.stride)), (self.stride - 1, self.stride)]
        return [(start, self.first[start:stop]) for start, stop in cuts if start < stop]


def learn_layout(data: bytes | bytearray) -> Layout | None:
    """The layout of the delivery that `data` begins with, or None while it is not complete.

    Raises BenchError if another frame is found where the delivery should be."""
    method = _frame_at(data, 0, 1)
    if method is None:
        return None
    payload_at, size = method
    if int.from_bytes(data[payload_at : payload_at + 4]) != _DELIVER:
        raise BenchError(f"not a delivery: {name_of_frame(data)}")
    tag_at = payload_at + 5 + data[payload_at + 4]
    exchange_at = tag_at + 9
    key_at = exchange_at + 2 + data[exchange_at]
    header = _frame_at(data, payload_at + size + 1, 2)
    if header is None:
        return None
    payload_at, size = header
    body_bytes = int.from_bytes(data[payload_at + 4 : payload_at + 12])
    if body_bytes < STAMP_BYTES:
        raise BenchError(f"a body of {body_bytes} bytes carries no stamp")
    at, stamp_at = payload_at + size + 1, 0
    while body_bytes > 0:
        piece = _frame_at(data, at, 3)
        if piece is None:
            return None
        payload_at, size = piece
        if not stamp_at and size < STAMP_BYTES:
            raise BenchError("the first body frame is shorter than the stamp")
        stamp_at = stamp_at or payload_at
        body_bytes -= size
        at = payload_at + size + 1
    if body_bytes:
        raise BenchError("the body frames hold more than the header announced")
    return Layout(bytes(data[:at]), tag_at, key_at, data[key_at - 1], stamp_at)


def _frame_at(data: bytes | bytearray, at: int, kind: int) -> tuple[int, int] | None:
    """(offset, size) of the payload of the whole frame at `at`, None if it is not all there."""
    if len(data) > at and data[at] != kind:
        raise BenchError(f"frame type {data[at]} where {kind} was due: {name_of_frame(data[at:])}")
    if len(data) < at + 7:
        return None
    size = _FRAME.unpack_from(data, at)[2]
    if len(data) < at + 7 + size + 1:
        return None
    if data[at + 7 + size] != 0xCE:
        raise BenchError(f"no end octet after {size} bytes: {name_of_frame(data[at:])}")
    return at + 7, size
