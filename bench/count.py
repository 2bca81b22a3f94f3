"""Counts deliveries in a received stream, by stride, and checks that each came exactly once and in order.

What comes in: chunks of the stream of one consumer, cut anywhere. What goes out: `count`, complete deliveries
so far; BenchError as soon as a number is not the one that is due. Theory: all deliveries have one size, so
delivery k lies at k * stride, and byte j of all deliveries in a chunk is one strided slice. Two such columns
are compared for every delivery: the lowest byte of the delivery tag, which counts 1, 2, 3 on a channel, and
the lowest byte of the message's sequence number; the first and the last whole delivery of every chunk are
compared in full. A lost, repeated, reordered or foreign message, or any frame in between, shifts at least one
of them. Rules: 1. no loop over messages in `StrideCounter`; 2. nothing is taken as delivered before its last
byte came.
Not here: several publishers in one stream (`ledger.py`), confirms (`confirms.py`).
"""

from __future__ import annotations

from bench.encode import STAMP, STAMP_BYTES, stamp
from bench.errors import BenchError, name_of_frame
from bench.layout import Layout, learn_layout

CHUNK_BYTES = 256 * 1024
"""Received at once at most: fits a core's cache, and is a thousand deliveries of 100 bytes."""

_LOW_BYTES = bytes(range(256))


class StrideCounter:
    """One publisher's stream through one queue to one consumer on one channel.

    `stream` is the publisher's number, `first_tag` the delivery tag of the first message."""

    def __init__(self, stream: int = 0, *, first_tag: int = 1) -> None:
        self.count = 0
        self.layout: Layout | None = None
        self._stream = stream
        self._first_tag = first_tag
        self._bytes = 0
        self._learning = bytearray()
        self._parts: list[tuple[int, bytes]] = []
        # Two laps and the longest run of one chunk: any start, any length is one slice of it.
        self._pattern = _LOW_BYTES * 2

    def feed(self, buffer: bytearray, size: int) -> int:
        """Take `buffer[:size]`. Returns `count`. Raises BenchError if the stream is not what was
        published."""
        if self.layout is None:
            self._learning += buffer[:size]
            self.layout = learn_layout(self._learning)
            if self.layout is None:
                return 0
            self._parts = self.layout.constant_parts()
            learnt = self._learning
            self._learning = bytearray()
            return self._take(learnt, len(learnt))
        return self._take(buffer, size)

    def _take(self, buffer: bytearray, size: int) -> int:
        assert self.layout is not None
        stride = self.layout.stride
        started, phase = divmod(self._bytes, stride)
        self._bytes += size
        self._check_column(buffer, size, started, phase, self.layout.tag_at + 7, self._first_tag)
        self._check_column(buffer, size, started, phase, self.layout.stamp_at + STAMP_BYTES - 1, 0)
        begin = -phase % stride
        whole = (size - begin) // stride
        if whole > 0:
            number = started + (phase > 0)
            self._check_whole(buffer, begin, number)
            self._check_whole(buffer, begin + (whole - 1) * stride, number + whole - 1)
        self.count = self._bytes // stride
        return self.count

    def _check_column(self, buffer: bytearray, size: int, started: int, phase: int, at: int, base: int) -> None:
        """Byte `at` of every delivery that has it in this chunk counts up, modulo 256, with the messages."""
        stride = self.layout.stride
        column = buffer[(at - phase) % stride : size : stride]
        low = (started + (at < phase) + base) & 255
        while len(self._pattern) < 256 + len(column):
            self._pattern += _LOW_BYTES
        if column != self._pattern[low : low + len(column)]:
            wrong = next(i for i, byte in enumerate(column) if byte != (low + i) & 255)
            begin = (at - phase) % stride + wrong * stride - at
            number = started + (at < phase) + wrong
            raise BenchError(f"delivery {number} is not the one due: {name_of_frame(buffer[max(begin, 0) : size])}")

    def _check_whole(self, buffer: bytearray, begin: int, number: int) -> None:
        layout = self.layout
        assert layout is not None
        tag = int.from_bytes(buffer[begin + layout.tag_at : begin + layout.tag_at + 8])
        stamped = STAMP.unpack_from(buffer, begin + layout.stamp_at)[0]
        if tag != number + self._first_tag or stamped != stamp(self._stream, number):
            raise BenchError(f"delivery {number} has tag {tag} and stamp {stamped:#x}")
        for at, part in self._parts:
            if buffer[begin + at : begin + at + len(part)] != part:
                raise BenchError(f"delivery {number} differs from the first one at byte {at}")
