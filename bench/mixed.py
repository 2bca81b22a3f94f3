"""Messages that all differ: a ring of them for the publisher, and the counter of their deliveries.

What comes in: a recipe, which knows every message from its place in the ring and the lap. What goes out: the ring,
and the counter that knows where each of its deliveries begins. Theory: the deliveries of one lap of the ring are
known byte for byte in length, so a position in the stream is a lap and an entry of a table of offsets. As
neighbours differ in size, a lost or repeated message shifts everything after it, and the next delivery that is
looked at is not where it should be. Rules: 1. a message has one length in all laps; what else of it changes from
lap to lap is for the recipe to write into the ring; 2. publisher and consumer derive the same messages from the
recipe's arguments.
Not here: what the messages are (`recipes.py`), messages of one size (`encode.py`, `count.py`), several publishers in
one stream (`mixed_ledger.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from pamqp import commands

from bench.encode import encode_frames
from bench.errors import BenchError, name_of_frame
from bench.recipes import Recipe

SEND_BYTES_MAX = 256 * 1024
"""One send call: a ring is some megabytes, and a slow broker would keep the publisher in one call for a second."""


class MixedRing:
    """Beside `PublishRing`, with the same interface."""

    send_bytes_max = SEND_BYTES_MAX

    def __init__(self, exchange: str, recipe: Recipe) -> None:
        self.messages = recipe.messages
        publishes = [
            encode_frames(_publish(exchange, recipe.key(number)), recipe.header(number, 0), recipe.body(number, 0))
            for number in range(recipe.messages)
        ]
        self.data = bytearray(b"".join(publishes))
        self._offsets = [0, *accumulate(map(len, publishes))]
        self._recipe = recipe

    def stamp_lap(self, lap: int) -> None:
        """Write what changes from lap to lap. The whole ring must have been sent."""
        self._recipe.stamp_lap(self.data, self._offsets, lap)

    def offset(self, position: int) -> int:
        return self._offsets[position]

    def whole_until(self, offset: int) -> int:
        return bisect_right(self._offsets, offset) - 1


class MixedCounter:
    """Counts the deliveries of a `MixedRing` through one queue to the consumer with tag `consumer_tag`.

    Compares the first and the last whole delivery of every chunk: tag, key, header, body and end octets."""

    def __init__(self, exchange: str, recipe: Recipe, consumer_tag: str) -> None:
        self.count = 0
        self._messages = recipe.messages
        self._recipe = recipe
        self._deliveries = Deliveries(exchange, consumer_tag)
        fixed = self._deliveries.fixed_bytes
        lengths = (fixed + recipe.content_bytes(number) for number in range(recipe.messages))
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
        lap, position = divmod(number, self._messages)
        due = self._deliveries.encode(self._recipe, position, lap, number + 1)
        if buffer[at : at + len(due)] != due:
            raise BenchError(f"delivery {number} is not the one due: {name_of_frame(buffer[at:])}")


class Deliveries:
    """What a broker makes of publishes for the consumer `consumer_tag` on channel 1 (`basic.deliver`: AMQP 0-9-1,
    1.8.3.14)."""

    def __init__(self, exchange: str, consumer_tag: str) -> None:
        self._head = bytes([0, 60, 0, 60, len(consumer_tag)]) + consumer_tag.encode()
        self._exchange = bytes([len(exchange)]) + exchange.encode()

    @property
    def fixed_bytes(self) -> int:
        """Of one delivery, without key, content header and body: a frame has 8 bytes around its payload."""
        return 8 + len(self._head) + 9 + len(self._exchange) + 1 + 8 + 8

    def encode(self, recipe: Recipe, position: int, lap: int, delivery_tag: int) -> bytes:
        key = recipe.key(position).encode()
        method = self._head + delivery_tag.to_bytes(8) + b"\0" + self._exchange + bytes([len(key)]) + key
        return encode_frames(method, recipe.header(position, lap), recipe.body(position, lap))


def _publish(exchange: str, key: str) -> bytes:
    """The payload of its method frame."""
    return bytes([0, 60, 0, 40]) + commands.Basic.Publish(exchange=exchange, routing_key=key).marshal()
