"""Ranges of one queue's sequence numbers, found by where they are.

What comes in: ranges, which do not overlap if they have a value. What goes out: what meets a range.
Rules: a look takes as long as what it finds, and not longer the more there is.
Not here: what they are for (`withheld.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Places(Generic[Value]):
    """Ranges of sequence numbers, each with a value."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._found: dict[int, tuple[int, Value]] = {}
        """first -> last, value"""

    def add(self, first: int, last: int, value: Value) -> None:
        self._found[first] = last, value
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)  # they come in order mostly
        else:
            self._firsts.insert(bisect_left(self._firsts, first), first)

    def remove(self, first: int) -> None:
        """The range that begins there."""
        del self._found[first], self._firsts[bisect_left(self._firsts, first)]

    def within(self, first: int, last: int) -> list[Value]:
        """Those of the ranges that have something of first..last."""
        firsts, found = self._firsts, self._found
        values: list[Value] = []
        at = bisect_left(firsts, first)
        if at and found[firsts[at - 1]][0] >= first:
            at -= 1
        while at < len(firsts) and firsts[at] <= last:
            values.append(found[firsts[at]][1])
            at += 1
        return values


class Merged:
    """Ranges of sequence numbers, merged where they touch."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, first: int, last: int) -> None:
        firsts, lasts = self._firsts, self._lasts
        # Those from `begin` to before `end` touch it.
        begin, end = bisect_left(lasts, first - 1), bisect_left(firsts, last + 2)
        if begin < end:
            first, last = min(first, firsts[begin]), max(last, lasts[end - 1])
        firsts[begin:end], lasts[begin:end] = [first], [last]

    def meets(self, first: int, last: int) -> bool:
        """Something of first..last is in one of them."""
        at = bisect_left(self._lasts, first)
        return at < len(self._lasts) and self._firsts[at] <= last
