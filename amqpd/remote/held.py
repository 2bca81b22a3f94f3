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
from collections.abc import Iterator
from typing import NamedTuple


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


class Held:
    """The deliveries that somebody holds of one subscription."""

    __slots__ = ("_ranges", "count", "sum")

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self.count = 0
        self.sum = 0
        """of the numbers"""

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def add(self, number: int, seq: int, count: int) -> None:
        """These, of which none is there yet."""
        ranges = self._ranges
        self._count(number, count, 1)
        at = len(ranges)
        if ranges and ranges[-1].number > number:
            at = bisect_right(ranges, number, key=_number)
        if at:
            before = ranges[at - 1]
            if before.last + 1 == number and before.last_seq + 1 == seq:
                ranges[at - 1] = Range(before.number, before.seq, before.size + count)
                return
        ranges.insert(at, Range(number, seq, count))

    def take(self, first: int, last: int) -> list[Range]:
        """Take out what is there of the numbers first..last, in order."""
        ranges = self._ranges
        at = max(bisect_right(ranges, first, key=_number) - 1, 0)
        end, taken, rest = at, list[Range](), list[Range]()
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
        for each in taken:
            self._count(each.number, each.size, -1)
        return taken

    def take_all(self) -> list[Range]:
        taken, self._ranges, self.count, self.sum = self._ranges, [], 0, 0
        return taken

    def take_messages(self, first_seq: int, last_seq: int) -> list[Range]:
        """Take out what is there of the messages first_seq..last_seq: looks at all ranges."""
        found = []
        for each in self._ranges:
            low, high = max(first_seq, each.seq), min(last_seq, each.last_seq)
            if low <= high:
                found.append((each.number + low - each.seq, each.number + high - each.seq))
        return [taken for first, last in found for taken in self.take(first, last)]

    def below(self, number: int) -> tuple[int, int]:
        """How many there are with this number or a lower one, and the sum of their numbers."""
        if not self._ranges or self._ranges[-1].last <= number:
            return self.count, self.sum
        parts = [each.cut(each.number, min(each.last, number)) for each in self._ranges if each.number <= number]
        return sum([each.size for each in parts]), sum([_sum(each.number, each.size) for each in parts])

    def _count(self, number: int, count: int, sign: int) -> None:
        self.count += sign * count
        self.sum += sign * _sum(number, count)


def _number(each: Range) -> int:
    return each.number


def _sum(number: int, count: int) -> int:
    return count * number + count * (count - 1) // 2
