"""What several disks leave out of one transaction: the same on each.

What comes in: what a disk refuses, what it is about to commit. What goes out: the transaction as it is to be written.
Rules: 1. The first disk that is about to commit decides for all. 2. What was refused before is left out by each; a
disk that has written it by then writes again. 3. A disk that refuses afterwards what others have fails: they would
differ, and count as equal.
Not here: what is refused (`entries.py`), one disk alone: that leaves out by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from amqpd.journal.errors import DiskFailure
from amqpd.journal.transaction import JournalTransaction


class JointOutcome:
    """The outcome of one transaction on several disks: what all of them leave out. Any thread may call it."""

    def __init__(self, transaction: JournalTransaction) -> None:
        self._transaction = transaction
        self._lock = threading.Lock()
        self._decided = False

    def left(self) -> JournalTransaction:
        """What is to be written, as far as that is known; it stays as it is."""
        with self._lock:
            whole = self._transaction
            left = JournalTransaction(
                whole.index,
                whole.rows,
                whole.settled,
                whole.deletes,
                whole.delivered,
                whole.counts,
                whole.dropped,
                whole.entries,
                whole.writes,
                whole.committed,
                whole.marks,
            )
            left.after, left.own, left.unusable = whole.after, whole.own, whole.unusable
            return left

    def leave_out(self, source: int, reason: str) -> None:
        """No disk writes it. Raises DiskFailure when others do."""
        with self._lock:
            if self._decided:
                raise DiskFailure(f"it does not take what other data directories have of source {source}: {reason}")
            self._transaction.leave_out(source, reason)

    def stores(self, without: Collection[int]) -> bool:
        """Whether a disk may commit what it has written without these sources; if not, it has to be written again."""
        with self._lock:
            if set(without) != set(self._transaction.unusable):
                return False
            self._decided = True
            return True
