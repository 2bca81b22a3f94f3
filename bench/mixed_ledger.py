"""Counts the deliveries of several publishers' mixed rings in one consumer's stream, and checks each one's number.

What comes in: chunks of the stream, cut anywhere. What goes out: `count`, and how many came from each publisher.
Theory: every body begins with a marker that is nowhere else (`applications.py`), so one split of the chunk finds all
stamps, whatever lies between them: some 0.2 microseconds a delivery. Rules: 1. every stamp is read; of each publisher
the numbers of this area come without gap or repetition; 2. of every chunk the first and the last whole delivery are
compared in full, with the delivery tag that the count asks for.
Not here: one publisher (`mixed.py`), messages of one size (`ledger.py`).
"""

from __future__ import annotations

from bench.applications import MARKER, STAMP, ApplicationRecipe
from bench.errors import BenchError, name_of_frame
from bench.mixed import Deliveries

_STAMP_END = len(MARKER) + STAMP.size


class MixedLedger:
    """One queue, which has the messages of one `area` of every publisher."""

    def __init__(self, exchange: str, recipes: list[ApplicationRecipe], area: int, consumer_tag: str) -> None:
        self.count = 0
        self._recipes = recipes
        self._area = area
        self._deliveries = Deliveries(exchange, consumer_tag)
        self._in_lap = recipes[0].in_lap(area)
        self._due = [0] * len(recipes)
        """by publisher: the lap above 16 bits of the number in the lap"""
        self._rest = bytearray()

    @property
    def next_of(self) -> dict[int, int]:
        """By publisher, how many of its messages came."""
        return {publisher: (due >> 16) * self._in_lap + (due & 0xFFFF) for publisher, due in enumerate(self._due)}

    def feed(self, buffer: bytearray, size: int) -> int:
        """Take `buffer[:size]`. Returns `count`. Raises BenchError if a publisher's next message is not the one
        due."""
        data = self._rest + buffer[:size]
        end = self._end_of_last(data)
        if not end:
            self._rest = data
            return self.count
        self._rest = data[end:]
        pieces = data[:end].split(MARKER)
        stamps = [STAMP.unpack_from(piece) for piece in pieces[1:]]
        due, mine, last = self._due, self._area, self._in_lap - 1
        for publisher, area, lap, number in stamps:
            at = lap << 16 | number
            if area != mine or due[publisher] != at:
                raise BenchError(
                    f"message {number} of lap {lap}, publisher {publisher}, area {area} came in area {mine}, "
                    f"due was {due[publisher] & 0xFFFF} of lap {due[publisher] >> 16}"
                )
            due[publisher] = at + 1 if number != last else (lap + 1) << 16
        first = self._encode(stamps[0], self.count + 1)
        self.count += len(stamps)
        latest = self._encode(stamps[-1], self.count)
        if not data.startswith(first) or data[end - len(latest) : end] != latest:
            raise BenchError(f"deliveries to number {self.count} are not those due: {name_of_frame(data)}")
        return self.count

    def _end_of_last(self, data: bytearray) -> int:
        """Where the last whole delivery ends; 0 if there is none."""
        at = data.rfind(MARKER)
        while at >= 0:
            if at + _STAMP_END <= len(data):
                publisher, area, _, number = STAMP.unpack_from(data, at + len(MARKER))
                if publisher >= len(self._recipes) or area != self._area or number >= self._in_lap:
                    raise BenchError(f"a stamp of nobody: publisher {publisher}, area {area}, number {number}")
                recipe = self._recipes[publisher]
                end = at + recipe.body_bytes(recipe.position(area, number)) + 1
                if end <= len(data):
                    return end
            at = data.rfind(MARKER, 0, at)
        return 0

    def _encode(self, stamp: tuple[int, int, int, int], delivery_tag: int) -> bytes:
        publisher, area, lap, number = stamp
        recipe = self._recipes[publisher]
        return self._deliveries.encode(recipe, recipe.position(area, number), lap, delivery_tag)
