"""Conditions of a queue in which messages wait or are refused, in the words of the pages; what holds up a consumer.

What comes in: a queue of this node; a consumer. What goes out: "no consumers", "at prefetch", "refusing", none where
all is well; what holds the consumer, with its figures.
Rules: 1. Pure, and cheap: nothing grows with the messages, and at most `CONSUMERS_MAX` consumers are looked at. 2. A
condition holds now: of the last seconds, as the rates in the queue's facts. 3. A queue of which basic.get takes
messages has somebody who consumes it.
Not here: what happened in the last minutes (`attention/watch.py`), sentences (`why/queues.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Literal

from amqpd.queues.leader import LeaderQueue
from amqpd.queues.port import QueuePort
from amqpd.session.consumers import Consumer

Held = Literal["", "prefetch", "shared", "slow", "waits"]
"""why a consumer gets no more: it gets more, its prefetch, its channel's, a client that does not read, another one"""
AT_PREFETCH: tuple[Held, ...] = ("prefetch", "shared")


@dataclass(frozen=True, slots=True)
class Consuming:
    """A consumer, as far as it counts here."""

    held: Held
    unacked: int
    prefetch: int
    name: str = ""
    """its tag, where it is, whose"""


def consuming(consumer: Consumer) -> Consuming:
    """Of one that is there."""
    channel = consumer.channel
    held: Held = ""
    if not consumer.queue.is_active(consumer):
        held = "waits"
    elif channel.released or channel.connection.outbox_full:
        held = "slow"
    elif not consumer.no_ack and consumer.prefetch and consumer.unacked >= consumer.prefetch:
        held = "prefetch"
    elif channel.prefetch_shared and consumer.shares_prefetch and channel.consumed >= channel.prefetch_shared:
        held = "shared"
    connection = channel.connection
    name = f"'{consumer.tag}' of {connection.name} ({channel.id}), user '{connection.user}'"
    return Consuming(held, consumer.unacked, consumer.prefetch, name)


NO_CONSUMERS, AT_ITS_PREFETCH, REFUSING = "no consumers", "at prefetch", "refusing"
CONSUMERS_MAX = 100


def conditions(queue: QueuePort, now_ms: int) -> list[str]:
    """Of a queue of another node there are none here: its leader says them."""
    if not isinstance(queue, LeaderQueue) or not queue.is_served:
        return []
    facts, found = queue.facts, []
    rates = facts.rates(now_ms) if queue.ready_count or facts.refused else {}
    if queue.ready_count and not queue.consumer_count and not rates["delivered"]:
        found.append(NO_CONSUMERS)
    if queue.ready_count and facts.waiting and not rates["acked"] and held_by_prefetch(queue):
        found.append(AT_ITS_PREFETCH)
    if facts.refused and rates["refused"]:
        found.append(REFUSING)
    return found


def held_by_prefetch(queue: QueuePort) -> list[Consuming]:
    """The consumers that have as many unacknowledged messages as their prefetch allows, if no other one is free."""
    some = [consuming(each) for each in islice(queue.subscribers(), CONSUMERS_MAX) if isinstance(each, Consumer)]
    return [each for each in some if each.held in AT_PREFETCH] if all(each.held for each in some) else []
