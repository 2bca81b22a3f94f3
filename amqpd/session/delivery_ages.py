"""How old the deliveries of a channel are that nobody has acknowledged.

What comes in: the next delivery tag and the time, about once a second. What goes out: the timeout that the oldest
unacknowledged delivery has outlived, if it has.
Rules: 1. No time is kept for a message: a checkpoint says that all tags below one had gone out at a time. So an age
is never too large, and nobody is closed too early; it is too small by up to a second and the 64th part of the timeout
(RabbitMQ looks once a minute). 2. Checkpoints are bounded. 3. Only the oldest delivery is looked at, by its own
timeout, as RabbitMQ does: a younger one of a queue with a shorter timeout waits for it. 4. What basic.get delivered
counts too.
Not here: the ledger (`unacked.py`), what happens to the channel (`channels.py`).

Source: https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout. This is what RabbitMQ did until 4.2, for all
queues and by the channel (rabbit_channel:evaluate_consumer_timeout); since 4.3 only quorum queues have timeouts, with
the same end for the channel.
"""

from __future__ import annotations

from amqpd.queues.port import QueuePort
from amqpd.session.credit import Subscription
from amqpd.session.unacked import Delivered

# Checkpoints in the length of a timeout: it is exact to half a minute when it is RabbitMQ's 30 minutes.
CHECKPOINTS_PER_TIMEOUT = 64
# Of all: what is more is older than two timeouts.
CHECKPOINTS_MAX = 2 * CHECKPOINTS_PER_TIMEOUT
# Between two checkpoints while the oldest delivery has no timeout: one behind it may have.
NO_TIMEOUT_INTERVAL_S = 60.0


class DeliveryAges:
    """Checkpoints of tags and times, from which the age of the oldest delivery follows."""

    __slots__ = ("_checkpoints",)

    def __init__(self) -> None:
        # No deque: an empty one takes twelve times as much, and there is one of these for each channel.
        self._checkpoints: list[tuple[int, float]] = []
        """(tag, time): every tag below it was delivered at that time or before; both only grow"""

    def overdue_ms(self, oldest: Delivered, next_tag: int, timeout_s: float, now: float) -> int | None:
        """The timeout, in milliseconds, that the oldest unacknowledged delivery has outlived; None when it has not.
        `timeout_s` is for queues that have none of their own; 0 for none."""
        checkpoints = self._checkpoints
        while checkpoints and checkpoints[0][0] <= oldest.tag:
            del checkpoints[0]
        limit_ms = timeout_ms(oldest.consumer, oldest.queue, timeout_s)
        interval_s = NO_TIMEOUT_INTERVAL_S if limit_ms is None else limit_ms / 1000 / CHECKPOINTS_PER_TIMEOUT
        if not checkpoints or (checkpoints[-1][0] < next_tag and now - checkpoints[-1][1] >= interval_s):
            checkpoints.append((next_tag, now))
            del checkpoints[:-CHECKPOINTS_MAX]
        if limit_ms is None or (now - checkpoints[0][1]) * 1000 <= limit_ms:
            return None
        return limit_ms


def timed_out(channel_id: int, timeout_ms: int) -> str:
    """RabbitMQ's words; its clients' documentation has them."""
    return (
        f"delivery acknowledgement on channel {channel_id} timed out. Timeout value used: {timeout_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )


def timeout_ms(consumer: Subscription | None, queue: QueuePort, default_s: float) -> int | None:
    """That of the consumer, else of the queue, else of the broker (`default_s`, 0 for none)."""
    if consumer is not None and consumer.ack_timeout_ms is not None:
        return consumer.ack_timeout_ms
    of_queue = queue.consumer_timeout_ms
    if of_queue is not None:
        return of_queue
    return round(default_s * 1000) if default_s else None
