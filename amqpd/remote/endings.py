"""Why a subscription is none: what its leader says of it, and what its client is told.

What comes in: what a queue answers at its leader; what the leader has said. What goes out: the reason for the edge;
the error for a client that has asked, the same one as where its queue is led.
Rules: 1. A basic.consume or basic.get that is refused is answered with the error; a consumer that is lost later is
cancelled (rule 28 of docs/decisions/remote-protocol.md). 2. Texts are made at the edge, of its own record of the
queue: nothing that a leader writes is shown to a client, except numbers.
Not here: what a queue refuses (`amqpd.queues`), who is told (`edge.py`, `leader.py`).
"""

from __future__ import annotations

from pamqp.exceptions import AMQPAccessRefused, AMQPNotFound, AMQPSoftError

from amqpd.queues.arguments import crashed, described_queue
from amqpd.queues.damage import QueueFenced
from amqpd.remote.messages import EndReason, SubscriptionEnded
from amqpd.vocabulary.records import QueueRecord


def ended_by(subscription: int, refusal: AMQPSoftError) -> SubscriptionEnded:
    """For the edge of the subscription that its queue refuses so."""
    if isinstance(refusal, QueueFenced):
        return SubscriptionEnded(subscription, EndReason.DAMAGED, *refusal.ids)
    if isinstance(refusal, AMQPAccessRefused):
        return SubscriptionEnded(subscription, EndReason.EXCLUSIVE_USE)
    return SubscriptionEnded(subscription, EndReason.OUT_OF_SERVICE)


def refusal_of(record: QueueRecord, ended: SubscriptionEnded) -> AMQPSoftError:
    """For the client of the subscription, whose queue this is."""
    if ended.reason is EndReason.DAMAGED:
        return QueueFenced(record, (ended.first, ended.last), told=False)
    if ended.reason is EndReason.EXCLUSIVE_USE:
        return AMQPAccessRefused(f"{described_queue(record)} in exclusive use")
    if ended.reason is EndReason.OUT_OF_SERVICE:
        return crashed(record)
    return AMQPNotFound(f"no {described_queue(record)}")
