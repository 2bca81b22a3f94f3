"""Large bodies on their way out: not one octet of them is copied.

What comes in: a run whose bodies are large, and which consumer gets which of its messages. What goes out: the same
frames as `encode_deliveries` and `encode_content` make, as a list of pieces: what is made here, in a few octets, and
views of the bytes that were received.
Rules: 1. A view holds all of the run's buffer for as long as it lives: a caller that keeps one for long looks at how
much that is (`transport/link.py`). 2. Frames are cut again only when one is too large for the receiver. 3. Where
pieces would be small, there is one, a copy.
Not here: small bodies (`reference.py` and other builds of it), sending (`pump.py`).

Source: AMQP 0-9-1 sections 2.3.5 (frames), 4.2.6 (content framing).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from amqpd.kernel import Run, encode_content, encode_deliveries
from amqpd.kernel.reference import BODY, FRAME_OVERHEAD_BYTES, HEADER, METHOD

# From here on a body is large: two objects and a second buffer in a system call (a microsecond) cost less than two
# copies of it.
LARGE_BYTES_MIN: Final = 16 * 1024

_HEAD = Struct(">BHI")
_CHANNEL_SIZE = Struct(">HI")
_SIZE = Struct(">I")
_BODY_SIZE = Struct(">Q")
_HEAD_BYTES = 7
_pack_tag = Struct(">Q").pack
_DELIVER = b"\x00\x3c\x00\x3c"

Pieces = list[bytes | bytearray | memoryview]


def delivery_pieces(
    run: Run, low: int, high: int, channel: int, consumer: bytes, tag: int, redelivered: bool, frame_max: int
) -> Pieces:
    """What `encode_deliveries` gives for the same arguments, in pieces."""
    if not _worth_it(run, frame_max):
        return [encode_deliveries(run, low, high, channel, consumer, tag, redelivered, frame_max)]
    names = run.names
    before = _HEAD.pack(METHOD, channel, 4 + len(consumer) + 9 + len(names)) + _DELIVER + consumer
    behind = (b"\x01" if redelivered else b"\x00") + names + b"\xce"
    pieces: Pieces = []
    for i in range(low, high):
        _add_content(pieces, before + _pack_tag(tag + i - low) + behind, run, i, channel, frame_max)
    return pieces


def content_pieces(run: Run, i: int, channel: int, frame_max: int) -> Pieces:
    """What `encode_content` gives for the same arguments, in pieces."""
    if not _worth_it(run, frame_max):
        return [encode_content(run, i, channel, frame_max)]
    pieces: Pieces = []
    _add_content(pieces, b"", run, i, channel, frame_max)
    return pieces


def bytes_to_frame_end(data: bytes, pos: int, end: int) -> int:
    """How many bytes behind `pos`, where a frame begins, there will be when the first frame is whole that does not
    end before `end`: as far as one can tell without its size."""
    at = pos
    while end - at >= _HEAD_BYTES:
        size: int = _SIZE.unpack_from(data, at + 3)[0]
        at += size + FRAME_OVERHEAD_BYTES
        if at > end:
            return at - pos
    return at - pos + _HEAD_BYTES


def publish_bytes_min(data: bytes, pos: int, end: int) -> int:
    """How many bytes at least the publish takes that begins at `pos` and is not whole: with its body, when its
    content header is there to say how large that is."""
    if end - pos < _HEAD_BYTES:
        return end - pos
    header_at: int = pos + _SIZE.unpack_from(data, pos + 3)[0] + FRAME_OVERHEAD_BYTES
    if end - header_at < _HEAD_BYTES + 12:
        return end - pos
    body_size: int = _BODY_SIZE.unpack_from(data, header_at + _HEAD_BYTES + 4)[0]
    return max(end - pos, header_at - pos + body_size)


def _worth_it(run: Run, frame_max: int) -> bool:
    """The pieces would be large: on the average, for frames that stay as they are."""
    if run.mixed:
        return False
    return frame_max >= LARGE_BYTES_MIN and run.body_size >= LARGE_BYTES_MIN * max(run.body_frames, 1)


def _add_content(pieces: Pieces, method: bytes, run: Run, i: int, channel: int, frame_max: int) -> None:
    data, view = run.data, memoryview(run.data)
    header_at = run.start + i * run.stride + run.method_size
    at = header_at + run.header_size
    stop = header_at - run.method_size + run.stride
    payload_max = frame_max - FRAME_OVERHEAD_BYTES
    number, size = _CHANNEL_SIZE.unpack_from(data, at + 1)
    if run.body_frames == 1 and number == channel and size <= payload_max:
        if method:
            pieces.append(method)
        pieces.append(view[header_at:stop])
        return
    head = method + _HEAD.pack(HEADER, channel, run.header_size - FRAME_OVERHEAD_BYTES)
    head += data[header_at + _HEAD_BYTES : at]
    while at < stop:
        size = _SIZE.unpack_from(data, at + 3)[0]
        at += _HEAD_BYTES
        for begin in range(at, at + size, payload_max):
            part = min(payload_max, at + size - begin)
            pieces.append(head + _HEAD.pack(BODY, channel, part))
            pieces.append(view[begin : begin + part])
            head = b"\xce"
        at += size + 1
    pieces.append(b"\xce")
