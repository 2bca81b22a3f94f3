"""The plain Python kernel: the definition of what every kernel does.

What comes in: a buffer of received bytes and a position. What goes out: a `Run`, the bytes of deliveries, or a
range of delivery tags.
Rules: 1. A run is one or more complete publishes (method, content header and content body frames of one channel,
not interleaved) that are equal byte for byte up to the body, so all that differs between them is the body's bytes;
a publish whose body takes other than one frame is a run of its own. Others go together in a `Mixed` (`mixed.py`). 2.
What is malformed or interleaved is no run (None), and the caller's frame-by-frame path gives the verdict. 3. Bytes
are copied at most once into a run and once out of it.
Not here: assembling content that is interleaved or spread over receives (`message/content.py`).

Source: AMQP 0-9-1 sections 2.3.5 (frames), 4.2.6 (content framing).
"""

from __future__ import annotations

from struct import Struct

NAME = "python"

FRAME_OVERHEAD_BYTES = 8
FRAME_END = 0xCE
METHOD, HEADER, BODY = 1, 2, 3

_HEAD = Struct(">BHI")
_CHANNEL_SIZE = Struct(">HI")
_CONTENT = Struct(">HHQ")
_ACK = Struct(">BHIIQBB")
_ACK_INDEX = 0x003C0050
pack_tag = Struct(">Q").pack
_unpack_tag = Struct(">Q").unpack_from

_DELIVER = b"\x00\x3c\x00\x3c"
ACK_FRAME_BYTES = 21
# Fewer acks are looked at one by one.
ACKS_AT_ONCE_MIN = 8

# A run that uses less than this share of the buffer it stands in is copied out, so that one kept run pins at most
# about twice its own size (docs/decisions/runs.md, "the buffer trap").
PIN_SHARE_MIN = 2


class Run:
    """A run of `count` publishes that differ only in their bodies, as they were received.

    Message i stands at data[start + i*stride : start + (i+1)*stride]: method frame (`method_size` bytes), content
    header frame (`header_size`), then `body_frames` body frames with `body_size` bytes of body in all. A caller that
    makes one sees to it that the numbers are so; a kernel that relies on it raises ValueError for others.
    """

    __slots__ = ("body_frames", "body_size", "count", "data", "header_size", "method_size", "start", "stride")

    mixed = False
    """it is a `Mixed`"""

    def __init__(
        self,
        data: bytes,
        start: int,
        stride: int,
        count: int,
        method_size: int,
        header_size: int,
        body_size: int,
        body_frames: int,
    ) -> None:
        self.data = data
        self.start = start
        self.stride = stride
        self.count = count
        self.method_size = method_size
        self.header_size = header_size
        self.body_size = body_size
        self.body_frames = body_frames

    @property
    def key(self) -> bytes:
        """The payload of the basic.publish method from the exchange on, flags included: what decides the route."""
        return self.data[self.start + 13 : self.start + self.method_size - 1]

    @property
    def names(self) -> bytes:
        """Exchange and routing key as they were published, two short strings."""
        return self.data[self.start + 13 : self.start + self.method_size - 2]

    @property
    def properties(self) -> bytes:
        """Property flags and property list of the content header, raw."""
        at = self.start + self.method_size
        return self.data[at + 19 : at + self.header_size - 1]

    @property
    def nbytes(self) -> int:
        return self.stride * self.count

    @property
    def body_bytes(self) -> int:
        """Of all bodies together."""
        return self.body_size * self.count

    @property
    def body_size_max(self) -> int:
        """Of the largest body."""
        return self.body_size

    @property
    def memory_bytes(self) -> int:
        """What is counted against a queue that has it, beside what an object takes."""
        return self.stride * self.count

    @property
    def measures(self) -> tuple[int, int, int, int]:
        """`count`; the size of each body, -1 if they differ; `body_bytes`; `memory_bytes`. In one: a run of one small
        message is looked at so often on its way that each number by itself would cost as much as what is done
        with it."""
        return self.count, self.body_size, self.body_size * self.count, self.stride * self.count

    def names_of(self, i: int) -> bytes:
        """`names`, of message i. Raises IndexError."""
        check_range(self, i, i + 1)
        return self.names

    def bytes_in(self, low: int, high: int) -> int:
        """Of the bodies of messages low..high-1. Raises IndexError."""
        check_range(self, low, high)
        return self.body_size * (high - low)

    def raw(self) -> bytes:
        """The frames of all messages, end to end: what the journal stores and `scan_publishes` reads again."""
        stop = self.start + self.stride * self.count
        if self.start == 0 and stop == len(self.data):
            return self.data
        return self.data[self.start : stop]

    def part(self, low: int, high: int) -> Run:
        """A copy of the messages low..high-1 that shares no memory with this run. Raises IndexError."""
        check_range(self, low, high)
        begin = self.start + low * self.stride
        data = self.data[begin : self.start + high * self.stride]
        return Run(
            data,
            0,
            self.stride,
            high - low,
            self.method_size,
            self.header_size,
            self.body_size,
            self.body_frames,
        )

    def body(self, i: int) -> bytes:
        """The body of message i, without its framing. Raises IndexError."""
        check_range(self, i, i + 1)
        at = self.start + i * self.stride + self.method_size + self.header_size
        pieces = []
        for _ in range(self.body_frames):
            size = _HEAD.unpack_from(self.data, at)[2]
            pieces.append(self.data[at + 7 : at + 7 + size])
            at += size + FRAME_OVERHEAD_BYTES
        return b"".join(pieces)


def check_range(run: Run, low: int, high: int) -> None:
    if not 0 <= low <= high <= run.count:
        raise IndexError(f"messages {low} to {high} of a run of {run.count}")


INCOMPLETE = Run(b"", 0, 0, 0, 0, 0, 0, 0)


def scan_publishes(data: bytes, pos: int, end: int, payload_max: int) -> Run | None:
    """The longest run of publishes that begins at data[pos] (the start of a basic.publish method frame) and lies
    wholly before `end`. `INCOMPLETE` when the bytes up to `end` are the beginning of a publish; None when the first
    publish is interleaved with other frames, malformed, or has a frame whose payload is larger than `payload_max`
    bytes. 0 <= pos <= end <= len(data) is for the caller to see to; where memory could be read that is not the
    data's, it is a ValueError."""
    first = measure(data, pos, end, payload_max)
    if not first:
        return None if first is None else INCOMPLETE
    stride, method_size, header_size, body_size, body_frames = first
    count = 1
    if end - pos < 2 * stride:
        pass  # no other of its size can be whole
    elif body_frames == 1:
        count += _count_alike(data, pos, end, stride, method_size + header_size + 7)
    elif body_frames == 0:
        count += _count_alike(data, pos, end, stride, stride)
    nbytes = stride * count
    if nbytes * PIN_SHARE_MIN < len(data):
        data, pos = data[pos : pos + nbytes], 0
    return Run(data, pos, stride, count, method_size, header_size, body_size, body_frames)


def _count_alike(data: bytes, pos: int, end: int, stride: int, same: int) -> int:
    """How many further messages follow that equal the first in their first `same` bytes and end as frames end."""
    prefix = data[pos : pos + same]
    starts_with = data.startswith
    last = at = pos + ((end - pos) // stride - 1) * stride
    for at in range(pos + stride, last + 1, stride):
        if not starts_with(prefix, at):
            last = at - stride
            break
    ends = data[pos + 2 * stride - 1 : last + stride : stride]
    return len(ends) - len(ends.lstrip(b"\xce"))


def measure(data: bytes, pos: int, end: int, payload_max: int) -> tuple[int, ...] | None:
    """(stride, method_size, header_size, body_size, body_frames) of the publish at `pos`; () when it goes on
    behind `end`; None when it is not one."""
    if end - pos < 7:
        return ()
    kind, channel, size = _HEAD.unpack_from(data, pos)
    method_size = size + FRAME_OVERHEAD_BYTES
    at = pos + method_size
    if kind != METHOD or size < 9 or size > payload_max:
        return None
    if end - at < 7:
        return ()
    exchange = data[pos + 13]
    key_at = pos + 14 + exchange
    if data[at - 1] != FRAME_END or exchange + 9 > size or key_at + data[key_at] + 3 != at:
        return None
    kind, header_channel, size = _HEAD.unpack_from(data, at)
    header_size = size + FRAME_OVERHEAD_BYTES
    if kind != HEADER or header_channel != channel or size < 14 or size > payload_max:
        return None
    if end - at < header_size:
        return ()
    class_id, weight, body_size = _CONTENT.unpack_from(data, at + 7)
    at += header_size
    if class_id != 60 or weight != 0 or data[at - 1] != FRAME_END:
        return None
    missing, body_frames = body_size, 0
    while missing > 0:
        if end - at < 7:
            return ()
        kind, body_channel, size = _HEAD.unpack_from(data, at)
        if kind != BODY or body_channel != channel or size > payload_max or not 0 < size <= missing:
            return None
        at += size + FRAME_OVERHEAD_BYTES
        if at > end:
            return ()
        if data[at - 1] != FRAME_END:
            return None
        missing -= size
        body_frames += 1
    return at - pos, method_size, header_size, body_size, body_frames


def encode_deliveries(
    run: Run, low: int, high: int, channel: int, consumer: bytes, tag: int, redelivered: bool, frame_max: int
) -> bytes | bytearray:
    """The frames of basic.deliver for messages low..high-1 of the run.

    `consumer` is the consumer tag as a short string (length octet first); the first delivery tag is `tag`, the
    others follow it; a body is cut again when one of its frames would be larger than `frame_max` bytes in all.
    Raises IndexError for messages that the run has not, ValueError for a `frame_max` that leaves nothing for a body.
    """
    check_range(run, low, high)
    check_frame_max(frame_max)
    if isinstance(run, Mixed):
        return run.deliveries(low, high, channel, consumer, tag, redelivered, frame_max)
    data, start, method_size = run.data, run.start, run.method_size
    names = run.names
    head = delivery_head(channel, consumer, names)
    content = start + method_size
    if high - low == 1 and run.body_frames < 2 and run.body_size + FRAME_OVERHEAD_BYTES <= frame_max:
        at = low * run.stride
        if data[start + 1 : start + 3] == head[1:3]:
            # One message that stays on its channel number, as when each publisher waits for its confirm.
            flag = b"\x01" if redelivered else b"\x00"
            return b"".join((head, pack_tag(tag), flag, names, b"\xce", data[content + at : start + at + run.stride]))
    # All but the tags and the bodies is the same in the whole run: the channel is patched once.
    each = head + pack_tag(tag) + (b"\x01" if redelivered else b"\x00") + names + b"\xce\x02"
    each += _CHANNEL_SIZE.pack(channel, run.header_size - FRAME_OVERHEAD_BYTES)
    each += data[content + 7 : content + run.header_size]
    count = high - low
    # An empty one first: what is the same goes between each two.
    bodies = [b""]
    if run.body_frames == 0:
        return _numbered(each, bodies * (count + 1), len(head), tag)
    if run.body_frames == 1 and run.body_size + FRAME_OVERHEAD_BYTES <= frame_max:
        each += _HEAD.pack(BODY, channel, run.body_size)
        stride, length = run.stride, run.body_size + 1
        begin = content + run.header_size + 7
        bodies += [data[at : at + length] for at in range(begin + low * stride, begin + high * stride, stride)]
        return _numbered(each, bodies, len(head), tag)
    pieces: list[bytes] = []
    for i in range(low, high):
        pieces += (each[: len(head)], pack_tag(tag + i - low), each[len(head) + 8 :])
        if run.body_frames:
            pieces.append(cut_body(run.body(i), channel, frame_max))
    return b"".join(pieces)


def _numbered(each: bytes, bodies: list[bytes], at: int, tag: int) -> bytes | bytearray:
    """`each` before every one of the `bodies` but the first, which is empty; with the delivery tags from `tag` on,
    which stand at `at` in it: written octet by octet, for those together that differ in their last one only."""
    deliveries = bytearray(each).join(bodies)
    count, stride = len(bodies) - 1, len(each) + len(bodies[-1])
    low = tag & 0xFF
    deliveries[at + 7 :: stride] = (_OCTETS * ((low + count) // 256 + 1))[low : low + count]
    for begin in range(256 - low, count, 256):
        alike = min(256, count - begin)
        first, stop = at + begin * stride, at + (begin + alike) * stride
        for k, octet in enumerate(pack_tag(tag + begin)[:7]):
            deliveries[first + k : stop : stride] = bytes((octet,)) * alike
    return deliveries


def encode_content(run: Run, i: int, channel: int, frame_max: int) -> bytes:
    """Content header and body frames of message i, for the channel (basic.return, basic.get-ok). Raises IndexError,
    ValueError as `encode_deliveries`."""
    check_range(run, i, i + 1)
    check_frame_max(frame_max)
    if isinstance(run, Mixed):
        return run.content(i, channel, frame_max)
    at = run.start + i * run.stride + run.method_size
    return header_frame(run.data, at, run.header_size, channel) + cut_body(run.body(i), channel, frame_max)


def encode_ack(channel: int, tag: int, multiple: bool) -> bytes:
    """A basic.ack frame, as a confirm. Channel and tag are what the wire has space for: 16 and 64 bits."""
    return _ACK.pack(METHOD, channel, ACK_FRAME_BYTES - FRAME_OVERHEAD_BYTES, _ACK_INDEX, tag, multiple, 0xCE)


def header_frame(data: bytes, at: int, size: int, channel: int) -> bytes:
    """The content header frame of `size` bytes at data[at], for the channel."""
    return _HEAD.pack(HEADER, channel, size - FRAME_OVERHEAD_BYTES) + data[at + 7 : at + size]


def delivery_head(channel: int, consumer: bytes, names: bytes) -> bytes:
    """A basic.deliver of a message with these names, up to its tag."""
    return _HEAD.pack(METHOD, channel, 4 + len(consumer) + 9 + len(names)) + _DELIVER + consumer


def check_frame_max(frame_max: int) -> None:
    if frame_max <= FRAME_OVERHEAD_BYTES:
        raise ValueError(f"frames of {frame_max} bytes have no space for a body")


def cut_body(body: bytes, channel: int, frame_max: int) -> bytes:
    """Content body frames for `body`, none larger than `frame_max` bytes with its framing."""
    size = frame_max - FRAME_OVERHEAD_BYTES
    pieces: list[bytes] = []
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        pieces += (_HEAD.pack(BODY, channel, len(piece)), piece, b"\xce")
    return b"".join(pieces)


def scan_acks(data: bytes, pos: int, end: int) -> tuple[int, int, bool, int]:
    """The range of delivery tags that the basic.ack frames at data[pos] settle: (first, last, multiple, next_pos).

    data[pos] is the start of a complete basic.ack frame. Frames with `multiple` are taken alone; single ones as
    long as the tags follow each other on the same channel."""
    tag = first = _unpack_tag(data, pos + 11)[0]
    if data[pos + 19]:
        return first, first, True, pos + ACK_FRAME_BYTES
    head = data[pos : pos + 11]
    pos += ACK_FRAME_BYTES
    while (end - pos) >= ACK_FRAME_BYTES * ACKS_AT_ONCE_MIN:
        # Those whose tags differ in the last octet only, all at once: a consumer that is busy acks in order.
        tag += 1
        low = tag & 0xFF
        count = min(256 - low, (end - pos) // ACK_FRAME_BYTES)
        expected = bytearray((head + pack_tag(tag & _TAG_MASK) + b"\x00\xce") * count)
        expected[18::ACK_FRAME_BYTES] = _OCTETS[low : low + count]
        tag -= 1
        if data[pos : pos + ACK_FRAME_BYTES * count] != expected:
            break
        tag += count
        pos += ACK_FRAME_BYTES * count
    starts_with = data.startswith
    while pos + ACK_FRAME_BYTES <= end and starts_with(head + pack_tag((tag + 1) & _TAG_MASK) + b"\x00\xce", pos):
        tag += 1
        pos += ACK_FRAME_BYTES
    return first, tag, False, pos


_OCTETS = bytes(range(256))
_TAG_MASK = (1 << 64) - 1

# They are made of what stands above.
from amqpd.kernel.mixed import Mixed, scan_batch  # noqa: E402

__all__ = [
    "INCOMPLETE",
    "NAME",
    "Mixed",
    "Run",
    "encode_ack",
    "encode_content",
    "encode_deliveries",
    "scan_acks",
    "scan_batch",
    "scan_publishes",
]
