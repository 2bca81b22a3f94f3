"""Which queue has to be looked at when, though nothing comes in.

What comes in: queues, each with a time; the time that it is. What goes out: the next time; the queues whose time has
come.
Rules: a queue has one time at most, its earliest; a time that is too early costs a look, one too late is never there.
Not here: why (`queues/removal.py`), what sleeps until then (`pump.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amqpd.queues.dispatchable import Paged


# What is passed over leaves the heap when there is as much of it as of the rest, and this many besides: a time that
# was overtaken may lie years ahead, and holds on to a queue that is gone.
PASSED_OVER_MAX = 256


class Wakes:
    """The times at which queues have to be looked at, though nothing comes in: milliseconds since the epoch."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Paged]] = []
        """what is not the queue's `wake_ms` any more is passed over"""
        self._number = 0
        self._length_max = PASSED_OVER_MAX

    def ask(self, queue: Paged, at_ms: int) -> None:
        if queue.wake_ms is None or at_ms < queue.wake_ms:
            queue.wake_ms = at_ms
            self._number += 1
            heappush(self.heap, (at_ms, self._number, queue))
            if len(self.heap) > self._length_max:
                self._compact()

    @property
    def next_ms(self) -> int | None:
        heap = self.heap
        while heap and heap[0][2].wake_ms != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_ms: int) -> Iterator[Paged]:
        """The queues whose time has come; they have to ask again."""
        while (at_ms := self.next_ms) is not None and at_ms <= now_ms:
            queue = heappop(self.heap)[2]
            queue.wake_ms = None
            yield queue

    def _compact(self) -> None:
        live = {entry[2]: entry for entry in self.heap if entry[2].wake_ms == entry[0] and not entry[2].is_deleted}
        self.heap = list(live.values())
        heapify(self.heap)
        self._length_max = 2 * len(self.heap) + PASSED_OVER_MAX
