"""Which sequence numbers the leader of a replicated source may give: those below a reservation that is committed.

What comes in: numbers as queues give them. What goes out: how far the source's next entry is to reserve.
Rules: 1. A number is given only below `reserved`, which is committed, and the next epoch begins there: so none is
given twice, not even one that was in no entry. 2. The reservation is extended ahead, in large steps, as a part of
ordinary entries: no message waits for it, and none pays for it. 3. One reservation for all queues of a source. A
queue looks at it once for each segment. 4. The local source has one writer for ever and reserves nothing
(docs/decisions/undo-and-commit.md). Where clients of other nodes use its queues, they may name messages that an
earlier process has given them and not stored: then its numbers begin with the time of the start.
Not here: the record of it (`source.reserved` in `sqlite/schema.py`); how publishers wait when it runs short
(`JournalBuffer.full`).
"""

from __future__ import annotations

NUMBERS_STEP = 1 << 22
"""4 million, of each queue. Half of it is left when more is asked for: the fastest queue takes 0.4 s for that, some
hundred entries. Larger steps make larger numbers, which take more bytes on the disk."""

ORIGIN_MS = 1_577_836_800_000
"""2020"""
MS_BITS = 14
"""a queue takes less than 16 million messages a second, for as long as it lives"""


def first_after_start(now_ms: int) -> int:
    """The first number that a queue of the local source gives after a start at this time, in milliseconds since the
    epoch: above all that were given before, stored or not. The broker's clock does not go back over a start
    (`amqpd/process/clock.py`). It has less than the 55 bits of `queues/store.py` until 2089."""
    return max(now_ms - ORIGIN_MS, 1) << MS_BITS


class Numbers:
    """The sequence numbers that one source's leader may give in one epoch."""

    def __init__(self, begins: int, reserved: int) -> None:
        """`begins`: numbers below may have been given in earlier epochs; `reserved`: as it is committed."""
        self.begins = begins
        self.reserved = reserved
        """numbers below it may be given"""
        self.wanted = reserved <= begins
        """the next entry is to reserve more"""
        self._asked = max(begins, reserved) + NUMBERS_STEP
        self._index = 0
        """of the entry that has it and is not committed; 0: there is none"""
        self._highest = begins

    @property
    def short(self) -> bool:
        """Little is left, and more is not committed yet: publishers wait. What is left is more than one turn
        brings."""
        return self._highest > self.reserved - NUMBERS_STEP // 4

    def used(self, next_seq: int) -> None:
        """A queue goes on with this number."""
        if next_seq > self._highest:
            self._highest = next_seq
            self._ask()

    def take(self, index: int) -> int:
        """What the entry with this index reserves; 0: nothing new."""
        if not self.wanted:
            return 0
        self.wanted, self._index = False, index
        return self._asked

    def renew(self) -> None:
        """The next entry is to have a reservation, if only the one that there is."""
        self.wanted = True

    def committed(self, index: int) -> None:
        """The entries up to this one are. Asks again if that is not enough for what was used meanwhile: while
        publishers wait, no queue says anything more."""
        if self._index and self._index <= index:
            self._index = 0
            self.reserved = self._asked
            self._ask()

    def _ask(self) -> None:
        """For more if half is used, also where the next entry was to have a reservation that is not enough any more.
        While one is on its way it is waited for."""
        if not self._index and self._highest > self.reserved - NUMBERS_STEP // 2:
            self._asked = max(self.reserved, self._highest) + NUMBERS_STEP
            self.wanted = True
