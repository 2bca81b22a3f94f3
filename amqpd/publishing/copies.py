"""What the node itself publishes to one exchange beside its clients: traces, events.

What comes in: what is to be published, in whatever form it takes the least memory until then. What goes out: messages
to the exchange, made in the ticks within the budget of queues.
Rules: 1. Nobody waits for it: what comes faster than it can be published is dropped and counted, and the log says so
now and then. 2. What takes long goes on in later ticks. 3. No copy is kept for a queue that waits for its majority,
or whose leader is another node.
Not here: what is published, and when (`firehose.py`, `amqpd/events/`), how a message is routed (`routing.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from amqpd.flow.turns import COPY_WORK
from amqpd.kernel import Run
from amqpd.publishing.offering import offer
from amqpd.publishing.ports import PublishingNode
from amqpd.publishing.routes import Route
from amqpd.publishing.routing import COPIES_A_STEP, in_steps, queue_steps
from amqpd.queues.dispatchable import LOOK_WORK, Dispatchable, Paged
from amqpd.queues.states import SERVED, QueueState
from amqpd.vocabulary.records import QueueRecord

# What waits to be published: some hundred ticks' worth of it.
PENDING_BYTES_MAX = 16 * 1024 * 1024
# What one item takes beside its messages.
PENDING_EXTRA_BYTES = 1024
# To write a message's headers again, and to copy its body, in the unit of `flow/turns.py`.
MAKE_WORK, BYTES_A_WORK = 20, 1000
# The log says that something was dropped, then again after this time if there is more.
DROPS_TOLD_MS = 60_000


class OwnPublishes(Dispatchable):
    """The messages that the node itself is to publish to one exchange, which it looks at when there are some."""

    def __init__(
        self, node: PublishingNode, vhost: str, exchange: str, name: str, reason: str, make: Callable[[Any], Run]
    ) -> None:
        """`name`: of what is dropped in the log; `reason`: in the audit log; `make`: from an item to its messages,
        addressed to the exchange."""
        self.record = QueueRecord(vhost, name, 0)
        self.state = SERVED
        self.crash_reason = None
        self.look_work = LOOK_WORK
        self.dead_letters_under_way = 0
        self._node = node
        self._exchange = exchange
        self._reason = reason
        self._make = make
        self._pending: deque[tuple[Any, str, int, int]] = deque()
        """(item, routing key, messages, bytes)"""
        self._steps: Iterator[None] | None = None
        self._told_ms = -DROPS_TOLD_MS
        self._told = 0
        """of what was dropped, that the log knows"""
        self.pending_bytes = 0
        self.published = 0
        """messages"""
        self.dropped = 0

    def add(self, item: Any, key: str, count: int, nbytes: int) -> None:
        """This many messages, to be published with the routing key; `nbytes` is what the item takes in memory."""
        nbytes += PENDING_EXTRA_BYTES
        if not self.is_served or self.pending_bytes + nbytes > PENDING_BYTES_MAX:
            self.drop(count)
            return
        self._pending.append((item, key, count, nbytes))
        self.pending_bytes += nbytes
        self._node.to_dispatch.add(self)

    def drop(self, count: int) -> None:
        """This many messages are not published, or not to all queues that they reach."""
        self.dropped += count
        now_ms = self._node.now_ms
        if now_ms - self._told_ms >= DROPS_TOLD_MS:
            more, self._told, self._told_ms = self.dropped - self._told, self.dropped, now_ms
            self._node.log(f"{self.record.name}_dropped", vhost=self.record.vhost, messages=more)

    def end(self) -> None:
        """What waits to be published is given up."""
        self.enter(QueueState.DELETED)
        self._node.to_dispatch.forget(self)

    @property
    def paged(self) -> Paged | None:
        return None

    def dispatch(self) -> None:
        node, pending = self._node, self._pending
        while node.work_left > 0:
            if self._steps is None:
                if not pending:
                    return
                item, key, count, nbytes = pending.popleft()
                self.pending_bytes -= nbytes
                self.published += count
                self._steps = self._publish(item, key)
            node.dispatching.source = self
            try:
                for _ in self._steps:
                    if node.work_left <= 0:
                        break
                else:
                    self._steps = None
            finally:
                node.dispatching.source = None
            if self.dead_letters_under_way:
                break  # what its copies began goes on first
        if pending or self._steps is not None:
            node.to_dispatch.add(self)

    def _publish(self, item: Any, key: str) -> Iterator[None]:
        """In steps, each of which charges what it does."""
        node, vhost, exchange, publication = self._node, self.record.vhost, self._exchange, None
        contents = node.topology.vhosts.get(vhost)
        if contents is None or exchange not in contents.exchanges:
            return
        run = self._make(item)
        node.work_left -= MAKE_WORK + run.nbytes // BYTES_A_WORK
        properties = node.properties.read(run.properties)
        if node.audit.active:
            publication = node.audit.begin_own(vhost, exchange, key, self._reason, run.count, properties)
        steps = queue_steps(
            node,
            vhost,
            Route(node.routes.entrance(vhost, exchange), key, False),
            (key,),
            run,
            properties,
            False,
        )
        queues = yield from in_steps(node, steps)
        for begin in range(0, len(queues), COPIES_A_STEP):
            step = queues[begin : begin + COPIES_A_STEP]
            node.work_left -= COPY_WORK * len(step)
            # No client waits because of a copy: it is left out rather than kept for a queue without its majority.
            open_ = [queue for queue in step if not queue.is_deleted and not queue.lane.lagging]
            if len(open_) < len(step) and any(queue.lane.lagging for queue in step):
                self.drop(run.count)
            offer(node, open_, run, properties, publication)
            yield
        if publication is not None:
            node.audit.end(publication, run.body_size, bool(queues))
