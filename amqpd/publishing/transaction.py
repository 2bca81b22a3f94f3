"""An AMQP transaction: what a channel in tx mode holds back until tx.commit.

What comes in: accepted publishes and settled deliveries. What goes out: the same, all at once, or nothing.
Rules: 1. Publishes take effect in order, then acknowledgements and rejections; between two ticks, so the journal
writes them as one. 2. After a rollback the deliveries are unacked again, not requeued. 3. All that a transaction
holds counts, in bytes: acknowledgements of neighbours are one entry, others each their own. The transactions of a
connection together are bounded here, those of the node in `flow/unfinished.py`. 4. `end` gives the bytes back,
whatever became of it.
Not here: tx.select, commit, rollback as methods (`methods/modes.py`).

Source: AMQP 0-9-1 section 1.9; https://www.rabbitmq.com/docs/semantics.
"""

from __future__ import annotations

from typing import NamedTuple

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.publishing.replies import ReplyConsumer
from amqpd.publishing.routes import Route
from amqpd.queues.port import QueuePort
from amqpd.session.held_back import HeldBack
from amqpd.session.ports import ChannelBase
from amqpd.session.unacked import Delivered

# What the transactions of one connection may hold back, or one message of the largest size: it is in memory until the
# commit.
TX_BYTES_MAX = 64 * 1024 * 1024
# Runs times queues of one transaction: what is begun is carried out to its end, some tenths of a second, also when
# the client is gone. Whether the journal waits for it is another question (`session/holds.py`).
COPIES_MAX = 250_000
# What a message takes beside its body.
MESSAGE_EXTRA_BYTES = 1024 * 1024
# What a run costs in memory beside its bytes, and each queue that it was routed to.
RUN_BYTES, QUEUE_BYTES = 512, 8
# What a stretch of settled deliveries costs.
SETTLED_BYTES = 128


class Routed(NamedTuple):
    """A publish that is checked and routed: what `acceptance.accept` takes beside the channel, in this order."""

    run: Run
    queues: tuple[QueuePort, ...]
    properties: Properties
    route: Route
    replies: tuple[ReplyConsumer, ...] = ()
    delay_ms: int = 0


class HeldPublish(NamedTuple):
    """A publish that a transaction holds back: as `Routed`, without the properties, since these, decoded, may be
    many times as large as their bytes, which count."""

    run: Run
    queues: tuple[QueuePort, ...]
    route: Route
    replies: tuple[ReplyConsumer, ...]
    delay_ms: int


class ChannelTransaction(HeldBack):
    """The publishes and settlements of a channel in tx mode since the last commit or rollback."""

    def __init__(self, channel: ChannelBase) -> None:
        super().__init__()
        self._channel = channel
        self.nbytes = 0
        """what it holds, about"""
        self.copies = 0
        self.publishes: list[HeldPublish] = []

    @property
    def messages(self) -> int:
        return sum(each.run.count for each in self.publishes)

    def publish(self, routed: Routed) -> None:
        """Keep it for the commit. Raises AMQPPreconditionFailed when that is too much."""
        run, queues, _, route, replies, delay_ms = routed
        self.copies += len(queues)
        if self.copies > COPIES_MAX:
            raise AMQPPreconditionFailed(f"transaction of {self.copies} copies into queues is too large")
        self.publishes.append(HeldPublish(run, queues, route, replies, delay_ms))
        self._charge(run.nbytes + RUN_BYTES + QUEUE_BYTES * len(queues))

    def settle(self, entries: list[Delivered], requeue: bool | None) -> None:
        """Keep it for the commit: acknowledged (None), or rejected, to be requeued or not. Raises as `publish`."""
        if not entries:
            return
        if not self.settled or self.settled[-1][1] is not requeue:
            self.settled.append(([], requeue))
        kept = self.settled[-1][0]
        before = len(kept)
        for entry in entries:
            joined = kept[-1].joined(entry) if kept else None
            if joined is None:
                kept.append(entry)
            else:
                kept[-1] = joined
        self._charge((len(kept) - before) * SETTLED_BYTES)

    def settled_entries(self) -> list[Delivered]:
        return [entry for entries, _ in self.settled for entry in entries]

    def end(self) -> None:
        channel, nbytes = self._channel, self.nbytes
        self.nbytes = 0
        channel.connection.transaction_bytes -= nbytes
        channel.shared.client_counters.unfinished.release(channel, nbytes)

    def give_up(self) -> None:
        self.publishes.clear()
        self.end()

    def _charge(self, nbytes: int) -> None:
        if not nbytes:
            return
        channel = self._channel
        connection = channel.connection
        self.nbytes += nbytes
        connection.transaction_bytes += nbytes
        channel.shared.client_counters.unfinished.charge(channel, nbytes)
        most = max(TX_BYTES_MAX, channel.shared.limits.message_bytes_max + MESSAGE_EXTRA_BYTES)
        if connection.transaction_bytes > most:
            others = connection.transaction_bytes - self.nbytes
            beside = f", beside {others} in others of this connection" if others else ""
            raise AMQPPreconditionFailed(f"transaction of {self.nbytes} bytes{beside} is too large")
