"""Consumers that get no more messages: whether one is held up, and by what.

What comes in: a consumer. What goes out: what holds it, with its figures.
Not here: sentences (`why/queues.py`), what a queue's state is called (`conditions.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    if not consumer.is_active:
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
