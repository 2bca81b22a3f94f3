"""Which sequence numbers may be given: those below a reservation that is committed.

What comes in: numbers as queues give them. What goes out: how far the next transaction is to reserve.
Rules: 1. A number is given only below `reserved`, which is committed, and the next reign begins there: so none is
given twice, not even one that was in no transaction. 2. The reservation is extended ahead, in large steps, as a part
of ordinary transactions: no message waits for it, and none pays for it. 3. One reservation for all queues of a
source.
Not here: the record of it (`source.reserved` in `sqlite/schema.py`), how publishers wait when it runs short
(`Node.journal_full`).
"""

from __future__ import annotations

NUMBERS_STEP = 1 << 22
"""4 million, of each queue. Half of it is left when more is asked for: the fastest queue takes 0.4 s for that, some
hundred transactions. Larger steps make larger numbers, which take more bytes on the disk."""


class Numbers:
    """Of one source, in one reign."""

    def __init__(self, begins: int, reserved: int) -> None:
        """`begins`: numbers below may have been given in earlier reigns; `reserved`: as it is committed."""
        self.begins = begins
        self.reserved = reserved
        """numbers below it may be given"""
        self.ask_above = max(begins, reserved - NUMBERS_STEP // 2)
        """a queue whose next number is above it calls `ask`"""
        self.wanted = reserved <= begins
        """the next transaction is to reserve more"""
        self._asked = max(begins, reserved) + NUMBERS_STEP
        self._index = 0
        """of the transaction that has it and is not committed; 0: there is none"""
        self._highest = begins

    @property
    def short(self) -> bool:
        """Little is left, and more is not committed yet: publishers wait. What is left is more than one turn
        brings."""
        return self._highest > self.reserved - NUMBERS_STEP // 4

    def ask(self, next_seq: int) -> None:
        """This is the next number of a queue."""
        self._highest = max(self._highest, next_seq)
        if not self.wanted and not self._index:
            self._asked = max(self.reserved, next_seq) + NUMBERS_STEP
            self.wanted = True

    def take(self, index: int) -> int:
        """What the transaction reserves; 0: nothing new."""
        if not self.wanted:
            return 0
        self.wanted, self._index = False, index
        return self._asked

    def committed(self, index: int) -> None:
        """The transactions up to this one are."""
        if self._index and self._index <= index:
            self._index = 0
            self.reserved = self._asked
            self.ask_above = self.reserved - NUMBERS_STEP // 2
