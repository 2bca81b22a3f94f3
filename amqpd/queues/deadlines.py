"""When the messages of a segment expire.

What comes in: a deadline for each stretch of messages that came together. What goes out: the next deadline; the
stretches that are due; all of them as bytes, for the journal.
Rules: 1. 24 bytes for a stretch with a deadline of its own, nothing for messages without one. 2. Sorted only when
somebody asks, and then walked: with one TTL for all, deadlines come in order and nothing is ever sorted. 3. What is
due is told once; what cannot go yet (it is delivered) is kept as `overdue` until it comes back.
Not here: whether a message is still there, and whether it is ready (`backlog.py`), the clock (`node/node.py`).
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right, insort
from operator import gt, itemgetter

# Beyond this many that are done with, the arrays are cut.
WALKED_MAX = 1024

_first, _last = itemgetter(0), itemgetter(1)


class Deadlines:
    """The deadlines of the messages of one segment: times in milliseconds since the epoch, sequence numbers of the
    backlog."""

    __slots__ = ("_at", "_first", "_last", "_sorted", "_walked", "back", "leaving", "overdue")

    def __init__(self) -> None:
        self._at = array("q")
        self._first = array("q")
        self._last = array("q")
        self._walked = 0
        """entries before it were told as due"""
        self._sorted = True
        self.overdue: list[tuple[int, int]] = []
        """(first, last), ascending, that have expired, and that could not go"""
        self.back: list[tuple[int, int]] = []
        """of these, what can go now"""
        self.leaving: list[tuple[int, int]] = []
        """(first, last) that have expired, for the journal: they may stay some time on their way"""

    def __len__(self) -> int:
        return len(self._at) - self._walked

    def add(self, deadline_ms: int, first: int, last: int) -> None:
        """The messages first..last, which follow everything that was added before."""
        at = self._at
        if at:
            if at[-1] == deadline_ms and self._last[-1] + 1 == first and self._walked < len(at):
                self._last[-1] = last
                return
            if deadline_ms < at[-1]:
                self._sorted = False
        at.append(deadline_ms)
        self._first.append(first)
        self._last.append(last)

    def keep(self, first: int, last: int) -> None:
        """The messages first..last, which were told as due, could not go."""
        insort(self.overdue, (first, last))

    def come_back(self, first: int, last: int) -> bool:
        """The messages first..last are ready again. Whether some of them are overdue: `due` tells these once more."""
        overdue = self.overdue
        low = bisect_left(overdue, first, key=_last)
        high = bisect_right(overdue, last, lo=low, key=_first)
        if low == high:
            return False
        found, rest = overdue[low:high], list[tuple[int, int]]()
        if found[0][0] < first:
            rest.append((found[0][0], first - 1))
            found[0] = first, found[0][1]
        if found[-1][1] > last:
            rest.append((last + 1, found[-1][1]))
            found[-1] = found[-1][0], last
        overdue[low:high] = rest
        self.back += found
        return True

    def overdue_alone(self) -> Deadlines | None:
        """Without the deadlines, if there is anything else."""
        if not (self.overdue or self.back):
            return None
        kept = Deadlines()
        kept.overdue, kept.back = self.overdue, self.back
        return kept

    def next_ms(self) -> int | None:
        self._sort()
        return self._at[self._walked] if self._walked < len(self._at) else None

    def due(self, now_ms: int) -> list[tuple[int, int]]:
        """The stretches (first, last) whose deadline is `now_ms` or earlier, in the order of their deadlines; before
        them what came back. They are not told again."""
        self._sort()
        found, self.back = self.back, []
        low, high = self._walked, bisect_right(self._at, now_ms, lo=self._walked)
        if low < high:
            found = found + list(zip(self._first[low:high], self._last[low:high], strict=True))
            self._walked = high
            if high > WALKED_MAX and high * 2 > len(self._at):
                self._cut()
        return found

    @property
    def scattered(self) -> bool:
        """They fall due in another order than they came in."""
        self._sort()
        firsts = self._first[self._walked :]
        return any(map(gt, firsts, firsts[1:]))

    def by_deadline(self) -> list[tuple[int, int, int]]:
        """(deadline, first, last) of what was not told yet, ascending."""
        self._sort()
        at = self._walked
        return list(zip(self._at[at:], self._first[at:], self._last[at:], strict=True))

    def by_message(self) -> list[tuple[int, int, int]]:
        """(first, last, deadline) of what was not told yet, in the order in which they came."""
        return sorted((first, last, at) for at, first, last in self.by_deadline())

    def within(self, first: int, last: int) -> dict[int, int]:
        """The deadline of each of the messages first..last that has one; 0 of those that are overdue."""
        found = {
            seq: deadline_ms
            for at, deadline_ms in enumerate(self._at[self._walked :], self._walked)
            for seq in range(max(first, self._first[at]), min(last, self._last[at]) + 1)
        }
        for low, high in self.overdue + self.back:
            found.update(dict.fromkeys(range(max(first, low), min(last, high) + 1), 0))
        return found

    def pack(self) -> bytes:
        """Little-endian int64 triples (deadline, first, last), in no order. What is overdue or leaving has a deadline
        in the past, whichever."""
        packed = array("q")
        for first, last in self.overdue + self.back + self.leaving:
            packed.extend((0, first, last))
        walked, count = self._walked, len(self)
        triples = array("q", bytes(3 * 8 * count))
        triples[0::3], triples[1::3] = self._at[walked:], self._first[walked:]
        triples[2::3] = self._last[walked:]
        packed += triples
        if sys.byteorder == "big":
            packed.byteswap()
        return packed.tobytes()

    @classmethod
    def unpack(cls, data: bytes) -> Deadlines:
        """Raises ValueError when the bytes are no triples."""
        packed = array("q")
        packed.frombytes(data)
        if len(packed) % 3:
            raise ValueError("deadlines that are not triples")
        if sys.byteorder == "big":
            packed.byteswap()
        found = cls()
        found._at, found._first, found._last = packed[0::3], packed[1::3], packed[2::3]
        found._sorted = False
        return found

    def _cut(self) -> None:
        self._at = self._at[self._walked :]
        self._first = self._first[self._walked :]
        self._last = self._last[self._walked :]
        self._walked = 0

    def _sort(self) -> None:
        if not self._sorted:
            self._cut()
            # Stable: what has the same deadline leaves in the order in which it came.
            order = sorted(range(len(self._at)), key=self._at.__getitem__)
            self._at = array("q", map(self._at.__getitem__, order))
            self._first = array("q", map(self._first.__getitem__, order))
            self._last = array("q", map(self._last.__getitem__, order))
            self._sorted = True
