"""Messages that all differ: every publish of the ring has another routing key and another size.

What comes in: the number of messages in the ring. What goes out: the ring for the publisher, and the counter
that knows where each of its deliveries begins. Theory: the deliveries of one lap of the ring are known byte
for byte in length, so a position in the stream is a lap and an entry of a table of offsets. As neighbours
differ in size, a lost or repeated message shifts everything after it, and the next delivery that is looked at
is not where it should be. Rules: 1. messages are numbered within the ring, not over laps, and the ring is
never rewritten; 2. publisher and consumer derive the same messages from the same number alone.
Not here: messages of one size (`encode.py`, `count.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from bench.encode import STAMP, encode_publish
from bench.errors import BenchError, name_of_frame

BODY_BYTES_MIN, BODY_BYTES_MAX = 40, 1000
_SIZE_STEP = 383
"""Coprime to the number of sizes (961 = 31 * 31): sizes go through all of them in an order without a
pattern."""


def mixed_message(number: int) -> tuple[str, int]:
    """(routing key, body size) of message `number` of a ring; keys have `key.` and 1 to 5 words of several
    lengths."""
    sizes = BODY_BYTES_MAX - BODY_BYTES_MIN + 1
    words = [f"w{number * (word + 3) % 9973}" for word in range(number % 5)]
    return ".".join(["key", str(number), *words]), BODY_BYTES_MIN + number * _SIZE_STEP % sizes


class MixedRing:
    """Beside `PublishRing`, with the same interface; `data` does not change from lap to lap."""

    def __init__(self, exchange: str, messages: int) -> None:
        self.messages = messages
        publishes = []
        for number in range(messages):
            key, body_bytes = mixed_message(number)
            publishes.append(encode_publish(exchange, key, _body(number, body_bytes))[0])
        self.data = bytearray(b"".join(publishes))
        self._offsets = [0, *accumulate(map(len, publishes))]

    def stamp_lap(self, lap: int) -> None:
        """Nothing to do: the numbers are those of the ring."""

    def offset(self, position: int) -> int:
        return self._offsets[position]

    def whole_until(self, offset: int) -> int:
        return bisect_right(self._offsets, offset) - 1


class MixedCounter:
    """Counts the deliveries of a `MixedRing` through one queue to the consumer with tag `consumer_tag`.

    Compares the first and the last whole delivery of every chunk: tag, key, size, number and end octets."""

    def __init__(self, exchange: str, messages: int, consumer_tag: str) -> None:
        self.count = 0
        self._messages = messages
        self._head = bytes([0, 60, 0, 60, len(consumer_tag)]) + consumer_tag.encode()
        self._exchange = bytes([len(exchange)]) + exchange.encode()
        self._keys = [mixed_message(number)[0].encode() for number in range(messages)]
        self._sizes = [mixed_message(number)[1] for number in range(messages)]
        # Method, header (class, weight, size, flags) and body frame, each with 8 bytes around its payload.
        fixed = 8 + len(self._head) + 9 + len(self._exchange) + 1 + 8 + 14 + 8
        lengths = (fixed + len(key) + size for key, size in zip(self._keys, self._sizes, strict=True))
        self._offsets = [0, *accumulate(lengths)]
        self._lap = 0
        self._at = 0

    def feed(self, buffer: bytearray, size: int) -> int:
        """Take `buffer[:size]`. Returns `count`. Raises BenchError if a delivery is not the one due."""
        # The first delivery that begins in this chunk.
        began = self._lap * self._messages + bisect_left(self._offsets, self._at)
        begin = self._start_of(began) - (self._lap * self._offsets[-1] + self._at)
        self._at += size
        while self._at >= self._offsets[-1]:
            self._lap += 1
            self._at -= self._offsets[-1]
        self.count = self._lap * self._messages + bisect_right(self._offsets, self._at) - 1
        if self.count > began:
            last = begin + self._start_of(self.count - 1) - self._start_of(began)
            for at, number in ((begin, began), (last, self.count - 1)):
                self._check(buffer, at, number)
        return self.count

    def _start_of(self, number: int) -> int:
        lap, position = divmod(number, self._messages)
        return lap * self._offsets[-1] + self._offsets[position]

    def _check(self, buffer: bytearray, at: int, number: int) -> None:
        position = number % self._messages
        key, size = self._keys[position], self._sizes[position]
        method = self._head + (number + 1).to_bytes(8)
        route = self._exchange + bytes([len(key)]) + key
        method_end = at + 7 + len(method) + 1 + len(route)
        body_at = method_end + 1 + 22 + 7
        if (
            buffer[at + 7 : at + 7 + len(method)] != method
            or buffer[method_end - len(route) : method_end] != route
            or buffer[body_at : body_at + size] != _body(position, size)
            or buffer[body_at + size] != 0xCE
        ):
            raise BenchError(f"delivery {number} is not the one due: {name_of_frame(buffer[at:])}")


def _body(number: int, size: int) -> bytes:
    return STAMP.pack(number).ljust(size, b".")
