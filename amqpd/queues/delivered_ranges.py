"""Which messages of a queue may have been delivered before, where that is no single mark.

What comes in: ranges of sequence numbers. What goes out: whether a message is in one of them, and up to where that is
the same.
Rules: 1. Ranges are ascending and do not touch. 2. What the queue has passed is dropped when a range is added: what
has come back was delivered, unless the backlog knows better.
Not here: the mark that survives a restart (`Backlog.mark_delivered`), who may have had them (`amqpd.remote`).
"""

from __future__ import annotations

from bisect import bisect_right


class DeliveredRanges:
    """Ranges of messages that may have been delivered before."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    @property
    def end(self) -> int:
        """All of them are below this number."""
        return self._lasts[-1] + 1 if self._lasts else 0

    def add(self, first: int, last: int, begins: int = 0) -> None:
        """These, too. Those below `begins` are not asked for any more."""
        firsts, lasts = self._firsts, self._lasts
        gone = bisect_right(lasts, begins - 1)
        if gone:
            del firsts[:gone], lasts[:gone]
        # Those that the new one meets or touches become one with it.
        low, high = bisect_right(lasts, first - 2), bisect_right(firsts, last + 1)
        if low < high:
            first, last = min(first, firsts[low]), max(last, lasts[high - 1])
        firsts[low:high], lasts[low:high] = [first], [last]

    def at(self, seq: int) -> tuple[bool, int]:
        """Whether the message is one of them; the first one behind it of which that is not so, or that lies behind
        all of them."""
        index = bisect_right(self._lasts, seq - 1)
        if index == len(self._firsts):
            return False, 1 << 62
        first = self._firsts[index]
        return (True, self._lasts[index] + 1) if first <= seq else (False, first)

    def within(self, first: int, last: int) -> list[tuple[int, int]]:
        """Those of the messages first..last."""
        low, high = bisect_right(self._lasts, first - 1), bisect_right(self._firsts, last)
        return [
            (max(first, begin), min(last, end))
            for begin, end in zip(self._firsts[low:high], self._lasts[low:high], strict=True)
        ]
