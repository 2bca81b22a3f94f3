"""Counts the deliveries of several publishers' mixed rings in one consumer's stream, and checks each one's number.

What comes in: chunks of the stream, cut anywhere. What goes out: `count`, and how many came from each publisher.
Theory: every body begins with a marker that is nowhere else (`applications.py`), so one search through the chunk
finds all stamps, whatever lies between them: some 0.5 microseconds a delivery. Rules: 1. every stamp is read; of
each publisher the numbers of this area come without gap or repetition; 2. of every chunk the first and the last
whole delivery are compared in full, with the delivery tag that the count asks for.
Not here: one publisher (`mixed.py`), messages of one size (`ledger.py`).
"""

from __future__ import annotations

import re

from bench.applications import MARKER, STAMP, ApplicationRecipe
from bench.errors import BenchError, name_of_frame
from bench.mixed import Deliveries

_STAMP_END = len(MARKER) + STAMP.size
_STAMPS = re.compile(re.escape(MARKER) + b"(.{%d})" % STAMP.size, re.DOTALL)


class MixedLedger:
    """One queue, which has the messages of one `area` of every publisher."""

    def __init__(self, exchange: str, recipes: list[ApplicationRecipe], area: int, consumer_tag: str) -> None:
        self.count = 0
        self._recipes = recipes
        self._area = area
        self._deliveries = Deliveries(exchange, consumer_tag)
        self._in_lap = recipes[0].in_lap(area)
        # By publisher: the number that is due, and in which lap.
        self._due = [0] * len(recipes)
        self._laps = [0] * len(recipes)
        self._data = bytearray()

    @property
    def next_of(self) -> dict[int, int]:
        """By publisher, how many of its messages came."""
        pairs = zip(self._laps, self._due, strict=True)
        return {publisher: lap * self._in_lap + due for publisher, (lap, due) in enumerate(pairs)}

    def feed(self, buffer: bytearray, size: int) -> int:
        """Take `buffer[:size]`. Returns `count`. Raises BenchError if a publisher's next message is not the one
        due."""
        data = self._data
        data += memoryview(buffer)[:size]
        end = self._end_of_last(data)
        if end:
            stamps = b"".join(_STAMPS.findall(data, 0, end))
            first = self._encode_due(STAMP.unpack_from(stamps))
            if not data.startswith(first):
                raise BenchError(f"delivery {self.count} is not the one due: {name_of_frame(data)}")
            self._take(stamps[: -STAMP.size])
            last = self._encode_due(STAMP.unpack(stamps[-STAMP.size :]))
            if data[end - len(last) : end] != last:
                raise BenchError(
                    f"delivery {self.count} is not the one due: {name_of_frame(data[end - len(last) :])}"
                )
            self._take(stamps[-STAMP.size :])
            del data[:end]
        return self.count

    def _take(self, stamps: bytes) -> None:
        due, mine, last = self._due, self._area, self._in_lap - 1
        for publisher, area, number in STAMP.iter_unpack(stamps):
            if area != mine or due[publisher] != number:
                raise BenchError(
                    f"message {number} of publisher {publisher}, area {area} came in area {mine}, "
                    f"due was {due[publisher]}"
                )
            if number != last:
                due[publisher] = number + 1
            else:
                due[publisher] = 0
                self._laps[publisher] += 1
        self.count += len(stamps) // STAMP.size

    def _end_of_last(self, data: bytearray) -> int:
        """Where the last whole delivery ends; 0 if there is none."""
        at = data.rfind(MARKER)
        while at >= 0:
            if at + _STAMP_END <= len(data):
                publisher, area, number = STAMP.unpack_from(data, at + len(MARKER))
                if publisher >= len(self._recipes) or area != self._area or number >= self._in_lap:
                    raise BenchError(f"a stamp of nobody: publisher {publisher}, area {area}, number {number}")
                recipe = self._recipes[publisher]
                end = at + recipe.body_bytes(recipe.position(area, number)) + 1
                if end <= len(data):
                    return end
            at = data.rfind(MARKER, 0, at)
        return 0

    def _encode_due(self, stamp: tuple[int, int, int]) -> bytes:
        """The delivery with this stamp as the next one of its publisher's lap and of the stream."""
        publisher, area, number = stamp
        recipe = self._recipes[publisher]
        return self._deliveries.encode(recipe, recipe.position(area, number), self._laps[publisher], self.count + 1)
