"""When a question was sent to a peer, known by its number, so that an answer says how old it is.

What comes in: questions as they are sent over one connection, the number of the last one that an answer covers. What
goes out: when that one was sent.
Rules: 1. Numbers grow. 2. A peer whose disk hangs takes questions and answers none: of `QUESTIONS_MAX` that wait
every other one is forgotten, and an answer to that counts from the one before.
Not here: what follows from it (`replication/leader_lease.py`).
"""

from __future__ import annotations

from collections import deque

QUESTIONS_MAX = 4096
"""what a lane asks in some seconds at full load"""


class OpenQuestions:
    """The questions that were sent over one connection and have no answer yet, each with the time when it was
    sent."""

    def __init__(self) -> None:
        self._number = 0
        self._sent: deque[tuple[int, float]] = deque()

    def ask(self, now_s: float) -> int:
        """The number of a question that is sent now."""
        self._number += 1
        if len(self._sent) >= QUESTIONS_MAX:
            self._sent = deque(list(self._sent)[::2])
        self._sent.append((self._number, now_s))
        return self._number

    def answered(self, number: int) -> float | None:
        """When the question with this number was sent, or one before it; None: it was answered before."""
        sent_s = None
        while self._sent and self._sent[0][0] <= number:
            sent_s = self._sent.popleft()[1]
        return sent_s
