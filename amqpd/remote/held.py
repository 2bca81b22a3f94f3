"""Deliveries that are held, as ranges: what a subscription has, at either end.

What comes in: deliveries in the order of their numbers; ranges that are settled, claimed or given back. What goes
out: the ranges that were there.
Rules: 1. A range has numbers and sequence numbers that follow each other, so a batch costs one of them. 2. Ranges are
in the order of their numbers and do not overlap. 3. What is not there is passed over, not reported: a settle acts on
what is held under that number, and on nothing else (rule 21 of docs/decisions/remote-protocol.md).
Not here: who holds them (`subscription.py` at the edge, `subscriber.py` at the leader).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

# Finding it takes longer than moving half of it.
BLOCK_RANGES_MAX = 512


class Range(NamedTuple):
    """`size` deliveries, with numbers from `number` on, of messages with sequence numbers from `seq` on."""

    number: int
    seq: int
    size: int

    @property
    def last(self) -> int:
        return self.number + self.size - 1

    @property
    def last_seq(self) -> int:
        return self.seq + self.size - 1

    def cut(self, first: int, last: int) -> Range:
        """Its deliveries first..last, by number."""
        return Range(first, self.seq + first - self.number, last - first + 1)


NO_RANGE = Range(0, 0, 0)


class Held:
    """The deliveries that somebody holds of one subscription."""

    __slots__ = ("_blocks", "count", "sum")

    def __init__(self) -> None:
        self._blocks: list[list[Range]] = [[]]
        """none is empty, except an only one"""
        self.count = 0
        self.sum = 0
        """of the numbers"""

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[Range]:
        return chain.from_iterable(self._blocks)

    def __len__(self) -> int:
        """How many ranges there are."""
        return sum(map(len, self._blocks))

    def add(self, number: int, seq: int, count: int) -> None:
        """These, of which none is there yet."""
        self._count(number, count, 1)
        blocks = self._blocks
        at, block = len(blocks) - 1, blocks[-1]
        index = len(block)
        if block and block[-1].number > number:
            at = self._block_of(number)
            block = blocks[at]
            index = bisect_right(block, number, key=_number)
        if index:
            before = block[index - 1]
            if before.last + 1 == number and before.last_seq + 1 == seq:
                block[index - 1] = Range(before.number, before.seq, before.size + count)
                return
        if index == len(block) >= BLOCK_RANGES_MAX:
            blocks.insert(at + 1, [Range(number, seq, count)])
            return
        block.insert(index, Range(number, seq, count))
        self._split(at)

    def take(self, first: int, last: int) -> list[Range]:
        """Take out what is there of the numbers first..last, in order."""
        if not self.count:
            return []
        blocks, taken = self._blocks, list[Range]()
        begin = at = self._block_of(first)
        while at < len(blocks) and blocks[at][0].number <= last:
            self._take_of(blocks[at], first, last, taken)
            at += 1
        left = [block for block in blocks[begin:at] if block]
        if len(left) < at - begin:
            blocks[begin:at] = left
        elif at == begin + 1:
            self._split(begin)
        if not blocks:
            blocks.append([])
        for each in taken:
            self._count(each.number, each.size, -1)
        return taken

    @staticmethod
    def _take_of(ranges: list[Range], first: int, last: int, taken: list[Range]) -> None:
        """Out of one block."""
        at = max(bisect_right(ranges, first, key=_number) - 1, 0)
        end, rest = at, list[Range]()
        while end < len(ranges) and ranges[end].number <= last:
            each = ranges[end]
            low, high = max(first, each.number), min(last, each.last)
            if low > high:
                rest.append(each)
            else:
                taken.append(each.cut(low, high))
                if low > each.number:
                    rest.append(each.cut(each.number, low - 1))
                if high < each.last:
                    rest.append(each.cut(high + 1, each.last))
            end += 1
        ranges[at:end] = rest

    def take_all(self) -> list[Range]:
        taken = list(self)
        self._blocks, self.count, self.sum = [[]], 0, 0
        return taken

    def take_messages(self, spans: Sequence[tuple[int, int]]) -> list[Range]:
        """Take out what is there of these messages: (first, last) sequence numbers, ascending, none in two of them.
        Looks at all ranges once."""
        found = []
        for each in self:
            at = max(bisect_right(spans, each.seq, key=_first) - 1, 0)
            while at < len(spans) and spans[at][0] <= each.last_seq:
                low, high = max(spans[at][0], each.seq), min(spans[at][1], each.last_seq)
                if low <= high:
                    found.append((each.number + low - each.seq, each.number + high - each.seq))
                at += 1
        return [taken for first, last in found for taken in self.take(first, last)]

    def below(self, number: int) -> tuple[int, int]:
        """How many there are with this number or a lower one, and the sum of their numbers."""
        last = self._blocks[-1]
        if not last or last[-1].last <= number:
            return self.count, self.sum
        parts = [each.cut(each.number, min(each.last, number)) for each in self if each.number <= number]
        return sum([each.size for each in parts]), sum([_sum(each.number, each.size) for each in parts])

    def _block_of(self, number: int) -> int:
        """The block in which a range with this number would be, of several or one that is not empty."""
        return max(bisect_right(self._blocks, number, key=_first_number) - 1, 0) if len(self._blocks) > 1 else 0

    def _split(self, at: int) -> None:
        """The block in two, if it has too many ranges."""
        block = self._blocks[at]
        if len(block) > 2 * BLOCK_RANGES_MAX:
            self._blocks.insert(at + 1, block[BLOCK_RANGES_MAX:])
            del block[BLOCK_RANGES_MAX:]

    def _count(self, number: int, count: int, sign: int) -> None:
        self.count += sign * count
        self.sum += sign * _sum(number, count)


def _number(each: Range) -> int:
    return each.number


def _first_number(block: list[Range]) -> int:
    return block[0].number


def _first(span: tuple[int, int]) -> int:
    return span[0]


def _sum(number: int, count: int) -> int:
    return count * number + count * (count - 1) // 2
