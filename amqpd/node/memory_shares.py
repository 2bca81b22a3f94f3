"""How much of its messages each queue may keep in memory.

What comes in: the limits, and how much the queues hold. What goes out: a number of bytes for each queue.
Rules: a queue has its limit; when large ones fill what there is for all, each of them has an equal share of it, and
small ones are left alone.
Not here: what happens beyond it (`limiting/congestion.py`, `queues/paging.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from amqpd.vocabulary.limits import Limits

if TYPE_CHECKING:
    from amqpd.queues.port import QueuePort

# What a large queue may have is worked out again with each tick while there are so few queues, else with each
# measurement (`congestion.MEASURE_S`): it looks at all of them, 10 ms for 100,000.
QUEUES_EACH_TICK_MAX = 200


class MemoryShares:
    """Divides the memory for messages between the queues, with each tick or measurement."""

    def __init__(self, limits: Limits, queues: Mapping[tuple[str, str], QueuePort]) -> None:
        self._limits = limits
        self._queues = queues
        self.queues_each_tick_max = QUEUES_EACH_TICK_MAX
        self.share: int | None = None
        """of a large queue; worked out again when a tick or a measurement sets it to None"""

    def of(self, held: int) -> int:
        """Of a queue that holds this many bytes; in bytes."""
        limits = self._limits
        if (
            held <= limits.small_queue_bytes
            or len(self._queues) * limits.queue_memory_bytes <= limits.backlog_memory_bytes
        ):
            return limits.queue_memory_bytes
        if self.share is None:
            large = sum(each.memory_bytes > limits.small_queue_bytes for each in self._queues.values())
            share = max(limits.small_queue_bytes, limits.backlog_memory_bytes // max(1, large))
            self.share = min(limits.queue_memory_bytes, share)
        return self.share
