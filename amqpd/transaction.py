"""An AMQP transaction: what a channel in tx mode holds back until tx.commit.

What comes in: accepted publishes and settled deliveries. What goes out: the same, all at once, or nothing.
Rules: 1. Publishes take effect in order, then acknowledgements and rejections; between two ticks, so the journal
writes them as one. 2. After a rollback the deliveries are unacked again, not requeued.
3. Who publishes bounds `nbytes` (`publishing.py`).
Not here: tx.select, commit, rollback as methods (`methods/modes.py`).

Source: AMQP 0-9-1 section 1.9; https://www.rabbitmq.com/docs/semantics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from amqpd.kernel import Run
from amqpd.properties import Properties
from amqpd.unacked import Delivered

if TYPE_CHECKING:
    from amqpd.queues.queue import Queue
    from amqpd.replies import ReplyConsumer
    from amqpd.routing import Route


# What a run costs in memory beside its bytes, and each queue that it was routed to.
RUN_BYTES, QUEUE_BYTES = 256, 8


class Routed(NamedTuple):
    """A publish that is checked and routed: what `publishing.accept` takes beside the channel, in this order."""

    run: Run
    queues: tuple[Queue, ...]
    properties: Properties
    route: Route
    replies: tuple[ReplyConsumer, ...] = ()
    delay_ms: int = 0


class Transaction:
    def __init__(self) -> None:
        self.nbytes = 0
        """what the publishes take in memory, about"""
        self.publishes: list[Routed] = []
        self.settled: list[tuple[list[Delivered], bool | None]] = []

    def publish(self, routed: Routed) -> None:
        """Keep it for the commit."""
        self.publishes.append(routed)
        self.nbytes += routed.run.nbytes + RUN_BYTES + QUEUE_BYTES * len(routed.queues)

    def settle(self, entries: list[Delivered], requeue: bool | None) -> None:
        self.settled.append((entries, requeue))

    def settled_entries(self) -> list[Delivered]:
        return [entry for entries, _ in self.settled for entry in entries]
