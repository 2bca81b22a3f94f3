"""What gathers for the next commit and is settled before it begins: it needs no write, and nobody waits for one.

What comes in: which queues have entries that gather, which of those are settled, and by whom. What goes out: queues
of which nothing that gathers is left.
Rules: 1. A queue is known by its id, and is settled when all of its persistent entries of the transaction that
gathers are. 2. Only what a consumer settled counts. What goes on to another queue (a dead letter, a delayed or moved
message), and what an AMQP transaction settles, is in one commit with what becomes of it. 3. It is looked at once for
each tick, after the dispatch; what is unsettled again by then is not settled.
Not here: whose confirms wait for it (`session/durability.py`), the entries (`buffer.py`).
"""

from __future__ import annotations

# More than there are entries: it does not come down to zero.
_NEVER = 1 << 60


class UnwrittenQueues:
    """The queues of one journal that have persistent entries in the transaction which gathers now."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        """queues that persistent messages came into since the end of the last tick or the last publish"""
        self.apart = True
        """nothing that gathers belongs together with something else that does"""
        self.gone_on: set[int] = set()
        """queues of which something is settled by this transaction that went elsewhere, or was not a consumer's"""
        self._left: dict[int, int] = {}
        """queue_id -> entries with something left"""
        self._settled: list[int] = []
        """queues of which the last one was settled since the end of the last tick"""

    @property
    def is_left(self) -> bool:
        """Something has to be written."""
        return bool(self._left)

    def left(self, queue_id: int) -> bool:
        """Something of the queue has to be written."""
        return queue_id in self._left

    def append(self, queue_id: int) -> None:
        """An entry of the queue gathers now."""
        self._left[queue_id] = self._left.get(queue_id, 0) + 1

    def came(self, queue_id: int) -> None:
        """Persistent messages came into one of the queue's entries."""
        entered = self.entered
        if not entered or entered[-1] != queue_id:
            entered.append(queue_id)

    def settled(self, queue_id: int) -> None:
        """All of an entry that gathers is."""
        left = self._left.get(queue_id, 0) - 1
        if left > 0:
            self._left[queue_id] = left
        elif left == 0:
            del self._left[queue_id]
            self._settled.append(queue_id)

    def goes_on(self, queue_id: int) -> None:
        """Something of the queue is about to be settled because it goes elsewhere, or not by a consumer."""
        self.gone_on.add(queue_id)
        if queue_id in self._left:
            self._left[queue_id] = _NEVER

    def together(self) -> None:
        """Something that gathers is to be stored with all the rest, or not at all."""
        self.apart = False

    def forget(self, queue_ids: set[int]) -> None:
        """These queues are not written here any more."""
        for queue_id in queue_ids:
            self._left.pop(queue_id, None)
        self._settled = [queue_id for queue_id in self._settled if queue_id not in queue_ids]

    def take(self) -> None:
        """The next transaction begins."""
        self._left, self._settled, self.entered, self.apart = {}, [], [], True
        if self.gone_on:
            self.gone_on = set()

    def look(self) -> list[int]:
        """The end of a tick: the queues that were settled since the last one, and are now."""
        settled, self._settled = self._settled, []
        if self.entered:
            self.entered = []
        if not self.apart:
            return []
        left = self._left
        return [queue_id for queue_id in settled if queue_id not in left]

    @property
    def news(self) -> bool:
        """`look` has something to say, or to forget."""
        return bool(self._settled or self.entered)
