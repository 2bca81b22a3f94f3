"""Whole numbers in ascending order, of which one is added or removed without moving all the others.

What comes in: numbers, each once. What goes out: the smallest, the nearest, all in order.
Rules: 1. The numbers stand in blocks, each sorted and bounded, so that an insertion or a removal moves part of one
block and one entry for a block: a sorted list moves everything behind the place, and clients choose how much that is.
2. No block is empty.
Not here: what the numbers stand for (`stretches.py`, `expiry.py`, `turns.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

# A block is cut in two at this length: moving half of it takes less time than finding it.
BLOCK_KEYS_MAX = 1024
# What nothing was added to yet: each queue has some of these, and most never need a list. Nobody changes them.
_NO_BLOCKS: list[list[int]] = []
_NO_NUMBERS: list[int] = []


class SortedKeys:
    """A sorted list in blocks: adding and removing take the time of one block."""

    def __init__(self) -> None:
        self._blocks: list[list[int]] = _NO_BLOCKS
        self._lasts: list[int] = _NO_NUMBERS
        """the last number of each block"""

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __iter__(self) -> Iterator[int]:
        for block in self._blocks:
            yield from block

    @property
    def first(self) -> int:
        """The smallest; there must be one."""
        return self._blocks[0][0]

    def add(self, key: int) -> None:
        """The number must not be there."""
        blocks, lasts = self._blocks, self._lasts
        if not blocks:
            self._blocks, self._lasts = [[key]], [key]
            return
        index = len(blocks) - 1
        if key > lasts[index]:
            blocks[index].append(key)
            lasts[index] = key
        else:
            index = bisect_left(lasts, key)
            block = blocks[index]
            block.insert(bisect_left(block, key), key)
        if len(blocks[index]) > BLOCK_KEYS_MAX:
            self._cut(index)

    def _cut(self, index: int) -> None:
        block = self._blocks[index]
        # What only grows at its end, as most do, fills its blocks.
        half = len(block) // 2 if index < len(self._blocks) - 1 else BLOCK_KEYS_MAX
        self._blocks.insert(index + 1, block[half:])
        del block[half:]
        self._lasts.insert(index, block[-1])

    def remove(self, key: int) -> None:
        """The number must be there."""
        index = bisect_left(self._lasts, key)
        block = self._blocks[index]
        at = bisect_left(block, key)
        if block[at] != key:
            raise KeyError(key)
        del block[at]
        if not block:
            del self._blocks[index]
            del self._lasts[index]
        elif at == len(block):
            self._lasts[index] = block[-1]

    def at_or_below(self, key: int) -> int | None:
        """The largest number that is not above `key`."""
        blocks = self._blocks
        index = bisect_left(self._lasts, key)
        if index < len(blocks):
            at = bisect_right(blocks[index], key)
            if at:
                return blocks[index][at - 1]
        return self._lasts[index - 1] if index else None

    def between(self, low: int, high: int) -> list[int]:
        """The numbers low..high, ascending."""
        blocks, found = self._blocks, []
        index = bisect_left(self._lasts, low)
        while index < len(blocks) and blocks[index][0] <= high:
            block = blocks[index]
            start, stop = bisect_left(block, low), bisect_right(block, high)
            found += block[start:stop]
            index += 1
        return found
