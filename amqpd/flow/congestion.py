"""Queues that hold more in memory than they may: how much that is, and whether their publishers wait or their backlog
goes to disk.

What comes in: how much the queues hold, and the limits; a call each tenth of a second. What goes out: how many bytes
a queue may hold; whether to let messages leave memory now, and whether its publishers should wait.
Rules: 1. A queue that drains fast enough to be rid of its surplus soon slows its publishers down: writing messages to
the disk and reading them back at once would cost both sides many times more. 2. A queue that does not, because it has
no consumers or slow ones, takes everything, and its backlog goes to disk. 3. Nobody waits longer than one measurement
without the queue having drained meanwhile, so a client that publishes and consumes on one connection cannot lock
itself up. 4. Where the copies of a queue's source are too far behind, its publishers wait too, and no others. 5. A
queue has its limit; when large ones fill what there is for all, each of them has an equal share of it, and small ones
are left alone.
Not here: what leaves memory, and how (`queues/backlog.py`); waiting itself (`session/intake.py`).

Source for the idea: RabbitMQ's credit flow, https://www.rabbitmq.com/docs/flow-control.
"""

from __future__ import annotations

from collections.abc import Mapping

from amqpd.queues.dispatchable import Dispatchable, Paged
from amqpd.queues.port import QueuePort
from amqpd.vocabulary.limits import Limits

# How often `measure` is called: long against a tick and a client's round trip, short for a person.
MEASURE_S = 0.1
# A queue drains when it would be rid of its limit in this number of measurements, two seconds.
MEASUREMENTS_TO_DRAIN = 20
# What was measured is remembered this long after a queue was last over its limit: one with slow consumers, which
# goes over it again and again, must not stop its publishers again each time.
CALM_MEASUREMENTS = 20
# A queue that drains may hold this many times its limit, for what is on the way when its publishers are stopped.
HARD_LIMIT = 2


class _Crowd:
    __slots__ = ("calm", "drains", "limit", "queue", "released")

    def __init__(self, queue: Paged, limit: int) -> None:
        self.queue = queue
        self.limit = limit
        self.released = queue.released_bytes
        self.drains = queue.is_consumed
        """at first, a queue with consumers has one measurement to show how fast they are"""
        self.calm = 0
        """measurements since the queue was last over its limit"""


class Congestion:
    """The queues that are over their limit, and whether their publishers wait."""

    def __init__(self) -> None:
        self.queues: dict[Dispatchable, _Crowd] = {}
        self.leaders_lag = False
        """leaders at other nodes have not decided enough of what was published for them (`Lane.lagging`)"""

    def update(self, queue: Paged, held: int, limit: int) -> bool:
        """Look at the queue, which holds `held` bytes, at the end of a tick that concerned it: True when messages
        should leave memory."""
        crowd = self.queues.get(queue)
        if held <= limit:
            if crowd is not None:
                crowd.calm = max(1, crowd.calm)
            return False
        if crowd is None:
            crowd = self.queues[queue] = _Crowd(queue, limit)
        crowd.limit = limit
        crowd.calm = 0
        return not crowd.drains or held > HARD_LIMIT * limit

    def emptied(self, queue: Dispatchable) -> None:
        """As `update`, of one that holds nothing."""
        crowd = self.queues.get(queue)
        if crowd is not None:
            crowd.calm = max(1, crowd.calm)

    def slows(self, queue: QueuePort) -> bool:
        """Whether publishers of the queue should wait."""
        if queue.lane.lagging:
            return True
        crowd = self.queues.get(queue)
        return crowd is not None and crowd.drains and not crowd.calm

    def measure(self) -> list[Dispatchable]:
        """A tenth of a second has passed: the queues that must be looked at again."""
        for queue, crowd in list(self.queues.items()):
            released = crowd.queue.released_bytes
            crowd.drains = (released - crowd.released) * MEASUREMENTS_TO_DRAIN > crowd.limit
            crowd.released = released
            if crowd.calm:
                crowd.calm += 1
                if crowd.calm > CALM_MEASUREMENTS:
                    del self.queues[queue]
        return list(self.queues)

    def forget(self, queue: Dispatchable) -> None:
        self.queues.pop(queue, None)


# What a large queue may have is worked out again with each tick while there are so few queues, else with each
# measurement (`MEASURE_S`): it looks at all of them, 10 ms for 100,000.
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
