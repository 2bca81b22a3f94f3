"""Which rows and records are discarded: they are on the disk, and do not exist for anybody.

What comes in: discards; ranges in ascending order. What goes out: the discards that a range belongs to.
Rules: one sweep over both lists.
Not here: what a discard is (`discards.py`), who leaves out what is discarded (`recovery.py`, `state_reading.py`).
"""

from __future__ import annotations

from collections import defaultdict

from amqpd.journal.sqlite.discards import Discard
from amqpd.peers.entry import Position


class Gone:
    """The discarded ranges of a journal, asked in ascending order of (queue_id, first_seq): one sweep over both
    lists."""

    def __init__(self, discards: list[Discard]) -> None:
        self._waiting: dict[int, list[Discard]] = defaultdict(list)
        for discard in sorted(discards, key=lambda discard: -discard.first_seq):
            self._waiting[discard.queue_id].append(discard)
        self._queue_id: int | None = None
        self._open: list[Discard] = []

    def by(self, queue_id: int, first_seq: int, last_seq: int, position: Position) -> list[Discard]:
        """The discards that the range belongs to."""
        if queue_id not in self._waiting:
            return []
        if queue_id != self._queue_id:
            self._queue_id, self._open = queue_id, []
        waiting = self._waiting[queue_id]
        while waiting and waiting[-1].first_seq <= first_seq:
            self._open.append(waiting.pop())
        self._open = [discard for discard in self._open if discard.last_seq >= first_seq]
        return [discard for discard in self._open if last_seq <= discard.last_seq and position <= discard.position]
