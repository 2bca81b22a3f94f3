"""What an operator takes out of a queue: messages deleted, or moved to another queue.

What comes in: stretches of ready messages, with their bodies where they are needed. What goes out: a queue without
them; the same messages in another queue.
Rules: 1. Only what is ready is touched: what a consumer has is the consumer's. 2. A message enters the other queue in
the tick in which it leaves its own: one transaction of the journal has both or neither, so a crash neither loses nor
doubles it. 3. It moves as it was published, exchange, routing key and properties included; its age and what is
counted of it (TTL, deliveries) begin again. 4. The other queue's limits hold: one that refuses is not filled further,
one that drops drops from its head.
Not here: which messages (`queues/browsing.py`), reading bodies, going step by step (`operations.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from amqpd.audit.kinds import MOVED, WITHDRAWN
from amqpd.kernel import Run
from amqpd.message.properties import PropertiesReader
from amqpd.message.rewriting import run_names
from amqpd.queues.browsing import available, runs_in
from amqpd.queues.segment import Segment

if TYPE_CHECKING:
    from amqpd.node.node import Node
    from amqpd.queues.dispatchable import Paged
    from amqpd.queues.expiry import Transfer
    from amqpd.queues.messages import Messages
    from amqpd.queues.port import QueuePort


def delete(node: Node, queue: Paged, level: Messages, first: int, last: int) -> int:
    """Of the messages first..last, in one segment, those that are ready are gone. How many that were."""
    count = withdraw(level, first, last, None, None, WITHDRAWN)
    if count:
        gone_from(node, queue, count)
    return count


class Mover:
    """Moves messages from one queue to another one. `full` says that the other one takes no more."""

    def __init__(self, node: Node, gone: Callable[[int], None], target: QueuePort) -> None:
        """`gone`: called with the number of messages that are in the other queue now."""
        self.full = False
        self._node = node
        self._gone = gone
        self._target = target
        self._capacity = 0
        # Its own: a walk through a whole queue would push out what publishers need again and again.
        self._properties = PropertiesReader()

    def move(self, level: Messages, bodies: Segment, first: int, last: int) -> int:
        """Of the messages first..last, in one row or one segment, whose bodies are in `bodies`, those that are ready
        are in the other queue now, in this order. How many that were."""
        count = 0
        for run, start, stop, seq in list(runs_in(bodies, first, last)):
            # Asking for capacity may let the other queue's consumers take, with whatever follows from that anywhere:
            # so it comes before the look at what is ready.
            part = run if stop - start == run.count else run.part(start, stop)
            self._capacity = self._target.capacity_after_dispatch(part)
            count += withdraw(level, seq, seq + stop - start - 1, bodies, self._take, MOVED)
            if self.full:
                break
        if count:
            self._node.to_dispatch.add(self._target)
            self._gone(count)
        return count

    def _take(self, run: Run, low: int, high: int) -> tuple[int, int]:
        count = min(self._capacity, high - low)
        self._capacity -= count
        self.full = count < high - low
        if not count:
            return 0, 0
        part, publication = run.part(low, low + count), None
        properties, audit = self._properties.read(part.properties), self._node.audit
        if audit.active:
            exchange, routing_key = run_names(part)
            vhost = self._target.record.vhost
            publication = audit.begin_own(vhost, exchange, routing_key, "moved", count, properties)
        self._target.publish(part, properties, publication)
        if publication is None:
            return count, 0
        audit.end(publication, part.body_size, True)
        return count, publication.first


def withdraw(
    level: Messages, first: int, last: int, bodies: Segment | None, take: Transfer | None, cause: int
) -> int:
    """What is ready of first..last, inside one row of the journal or one segment, leaves the level; by way of `take`,
    if there is one, with the bodies from `bodies`. The number of messages. What `take` did not take stays, and so
    does all behind it."""
    count, at = 0, level.store.index_of(first)
    if at == len(level.store.segments):
        return 0
    segment = level.store.segments[at]
    for part in segment.live_in(max(first, segment.first), min(last, segment.last)):
        for low, high in available(level, *part):
            while low <= high:
                taken = wanted = high - low + 1
                instead = 0
                if take is not None:
                    assert bodies is not None
                    run, start, stop = bodies.alike(low - bodies.first, high - bodies.first + 1)
                    wanted = stop - start
                    taken, instead = take(run, start, stop)
                if taken:
                    # As what expires leaves.
                    count += level.backlog.leave(low, low + taken - 1, cause, instead)
                if taken < wanted:
                    return count
                low += taken
    return count


def gone_from(node: Node, queue: Paged, count: int) -> None:
    """An operator took this number of messages out of the queue."""
    queue.withdrawn(count)
    # A basic.get that waits for a message that has gone is answered.
    node.to_dispatch.add(queue)
