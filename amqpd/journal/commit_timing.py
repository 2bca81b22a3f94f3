"""When a commit begins, where the one who begins it has nothing else to do: at once, or after what comes next.

What comes in: the buffer, the time, whether something came while a commit was put off. What goes out: until when to
wait.
Rules: 1. A commit that nobody waits for is put off until nothing comes. 2. Where consumers lately settled messages
before they were written, a commit is put off for a moment (`patience.py`). 3. If much less waits for this commit than
did for the last ones, those clients have just had their confirms, and their next messages are one commit with this
one: it is put off for them, for less than a sync takes.
Not here: what is committed (`buffer.py`), and by which thread (`writer.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.patience import Patience

# Some part of what a disk takes.
GATHER_S: Final = 0.0002


class CommitTiming:
    """Decides when the next commit of one buffer begins. Times are seconds of the clock `now_s`."""

    def __init__(self, journal: JournalBuffer, settle_s: float, now_s: Callable[[], float]) -> None:
        """`settle_s`: how long a consumer is given to settle what would be written; 0: commits begin at once."""
        self._journal = journal
        self._settle_s = settle_s
        self._now_s = now_s
        self._patience = Patience()
        self._tried = 0
        """the transaction that is put off by rule 2; 0: none is"""
        self._tried_until = 0.0
        self._gathers = 0
        """the same by rule 3"""
        self._gathers_until = 0.0

    def wait_until(self) -> float:
        """The commit of what gathers begins if nothing comes before this time; infinite: nobody waits for one."""
        journal, index = self._journal, self._journal.index
        if self._tried and (self._tried != index or not journal.urgent):
            if self._tried == index:
                self._patience.tried(True)
            self._tried = 0
        if not (journal.pending and journal.urgent):
            return math.inf
        if not self._settle_s:
            return 0.0
        if self._tried or self._patience.tries_next():
            if not self._tried:
                self._tried, self._tried_until = index, self._now_s() + self._settle_s
            return self._tried_until
        if 2 * journal.came >= journal.came_before:
            return 0.0
        if self._gathers != index:
            self._gathers, self._gathers_until = index, self._now_s() + GATHER_S
        return self._gathers_until

    def nothing_came(self) -> None:
        """Before the time that `wait_until` said."""
        if self._tried:
            self._tried = 0
            self._patience.tried(False)
