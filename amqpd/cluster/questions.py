"""When a question was sent to a peer, known by its number, so that an answer says how old it is.

What comes in: questions as they are sent over one connection, the number of the last one that an answer covers. What
goes out: when that one was sent.
Rules: 1. Numbers grow. 2. Bounded by what is on its way over one connection, which is bounded by its bytes.
Not here: what follows from it (`replication/reign.py`).
"""

from __future__ import annotations

from collections import deque


class Questions:
    """Over one connection."""

    def __init__(self) -> None:
        self._number = 0
        self._sent: deque[tuple[int, float]] = deque()

    def ask(self, now_s: float) -> int:
        """The number of a question that is sent now."""
        self._number += 1
        self._sent.append((self._number, now_s))
        return self._number

    def answered(self, number: int) -> float | None:
        """When the question with this number was sent; None: it was answered before."""
        sent_s = None
        while self._sent and self._sent[0][0] <= number:
            sent_s = self._sent.popleft()[1]
        return sent_s
