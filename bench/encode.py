"""Encodes what the generator sends: publishes in large buffers, and acks.

What comes in: a route, a body size and properties, once; afterwards sequence numbers. What goes out: bytes of
whole AMQP frames. Rules: 1. frames are marshalled by pamqp once, and only their numbers are rewritten later;
2. the body of every message begins with its stamp: stream number (2 bytes) and sequence number (6 bytes),
big-endian; 3. a ring is stamped again only when all of it has been sent.
Not here: reading frames (`count.py`, `confirms.py`), sockets (`wire.py`).
"""

from __future__ import annotations

import struct

from pamqp import commands, frame, header
from pamqp.body import ContentBody

STAMP = struct.Struct(">Q")
STAMP_BYTES = STAMP.size
"""Stream and sequence number share one unsigned 64-bit integer, so that one pack writes both."""

SEQUENCE_BITS = 48
RING_MESSAGES_MAX = 65_536
"""Bounds the buffer: at 64 bytes of overhead a message, 4 MB and the bodies."""

_ACK = struct.Struct(">BHIHHQBB")
ACK_BYTES = _ACK.size
ACK_CLASS_AND_METHOD = (60, 80)
ACKS = 1024
"""Single acks in a ring."""
_FRAME = struct.Struct(">BHI")
_END = b"\xce"
_LOW_BYTES = bytes(range(256))


def stamp(stream: int, sequence: int) -> int:
    return stream << SEQUENCE_BITS | sequence


def encode_ack(channel: int, delivery_tag: int, *, multiple: bool) -> bytes:
    """One `basic.ack` frame, 21 bytes (AMQP 0-9-1, 1.8.3.13)."""
    return _ACK.pack(1, channel, 13, *ACK_CLASS_AND_METHOD, delivery_tag, multiple, 0xCE)


def encode_publish(
    exchange: str,
    routing_key: str,
    body: bytes,
    *,
    channel: int = 1,
    persistent: bool = False,
    frame_bytes_max: int = 131_072,
) -> tuple[bytes, int]:
    """Method, header and body frames of one `basic.publish`, and where in them the body's first byte is.

    `frame_bytes_max` is the negotiated frame-max: frame header and end octet count as part of it
    (AMQP 0-9-1, 4.2.3)."""
    method = commands.Basic.Publish(exchange=exchange, routing_key=routing_key)
    properties = commands.Basic.Properties(delivery_mode=2 if persistent else None)
    head = frame.marshal(method, channel) + frame.marshal(
        header.ContentHeader(body_size=len(body), properties=properties), channel
    )
    piece_bytes = frame_bytes_max - 8
    pieces = [body[at : at + piece_bytes] for at in range(0, len(body), piece_bytes)]
    return head + b"".join(frame.marshal(ContentBody(piece), channel) for piece in pieces), len(head) + 7


def encode_frames(method: bytes, header: bytes, body: bytes, *, channel: int = 1) -> bytes:
    """Method, header and body frame of their payloads; the body fits one frame."""
    pieces = [
        _FRAME.pack(1, channel, len(method)),
        method,
        _END + _FRAME.pack(2, channel, len(header)),
        header,
        _END + _FRAME.pack(3, channel, len(body)),
        body,
        _END,
    ]
    return b"".join(pieces)


class PublishRing:
    """`messages` publishes of one size in one buffer, stamped with consecutive sequence numbers.

    Message `i` of the ring is `ones[i % len(ones)]`, all of one length with the body at `body_at`. `data` is
    the buffer and `stride` the bytes of one publish; message number `n` of the stream is at `(n % messages) *
    stride` once `stamp_lap(n // messages)` was called. Raises ValueError for a ring or a body that cannot
    carry stamps.

    Stamping costs a few strided slice assignments a lap, not one step per message: byte j of all stamps is a
    column, and a column is a few runs of constants, or for the lowest byte a piece of 0, 1, 2 .. 255
    repeated."""

    def __init__(self, ones: list[bytes], body_at: int, messages: int, *, stream: int = 0) -> None:
        if not 1 <= messages <= RING_MESSAGES_MAX:
            raise ValueError(f"a ring holds 1 to {RING_MESSAGES_MAX} messages, not {messages}")
        one = ones[0]
        if any(len(other) != len(one) for other in ones):
            raise ValueError("all publishes of a ring have one size")
        if len(one) - body_at - 1 < STAMP_BYTES:
            raise ValueError(f"a body of fewer than {STAMP_BYTES} bytes cannot carry the stamp")
        self.messages = messages
        self.stride = len(one)
        self.data = bytearray(b"".join(ones[i % len(ones)] for i in range(messages)))
        self.send_bytes_max = len(self.data)
        self._body_at = body_at
        self._stream = stream
        self._columns: list[bytes] = [b""] * STAMP_BYTES
        self._low_bytes = _LOW_BYTES * (messages // 256 + 2)
        self.stamp_lap(0)

    def stamp_lap(self, lap: int) -> None:
        """Write the stamps of messages `lap * messages` and following. The whole ring must have been sent."""
        first = stamp(self._stream, lap * self.messages)
        for at in range(STAMP_BYTES):
            column = self._column(first, STAMP_BYTES - 1 - at)
            if column != self._columns[at]:
                self.data[self._body_at + at :: self.stride] = column
                self._columns[at] = column

    def _column(self, first: int, place: int) -> bytes:
        """Byte `place` (0 is the lowest) of `first`, `first + 1`, and so on round the ring."""
        if place == 0:
            low = first & 255
            return self._low_bytes[low : low + self.messages]
        run = 1 << 8 * place
        runs, at, left = [], first, self.messages
        while left > 0:
            length = min(left, run - at % run)
            runs.append(bytes([at >> 8 * place & 255]) * length)
            at += length
            left -= length
        return b"".join(runs)

    def offset(self, position: int) -> int:
        """Where message `position` of the ring begins; `position` may be `messages`, the end of the ring."""
        return position * self.stride

    def whole_until(self, offset: int) -> int:
        """How many messages of the ring end at or before `offset`."""
        return offset // self.stride


class SingleAcks:
    """An ack of its own for each of consecutive delivery tags, cut out of a ring as publishes are."""

    def __init__(self) -> None:
        one = encode_ack(1, 0, multiple=False)
        self._ring = PublishRing([one], ACK_BYTES - 2 - STAMP_BYTES, ACKS)
        self._lap = 0

    def encode(self, first: int, last: int) -> bytes:
        """The acks of tags `first` to `last`; `first` is never below what was asked for before."""
        pieces = []
        while first <= last:
            lap, at = divmod(first, ACKS)
            if lap != self._lap:
                self._ring.stamp_lap(lap)
                self._lap = lap
            count = min(last + 1 - first, ACKS - at)
            pieces.append(self._ring.data[at * ACK_BYTES : (at + count) * ACK_BYTES])
            first += count
        return b"".join(pieces)
