"""The type x-random: each message goes to one of the destinations, drawn at random.

What comes in: bindings, messages with their chance. What goes out: one destination.
Rules: 1. routing keys and headers are not looked at, in bindings and in messages; 2. a destination bound several
times is drawn no more often than another.
Not here: where chance comes from (`node.Services`).

As RabbitMQ's rabbitmq_random_exchange.
"""

from __future__ import annotations

from collections.abc import Collection

from amqpd.exchanges.fanout import FanoutMatcher
from amqpd.exchanges.matcher import Destination, Reads
from amqpd.exchanges.message import Message


class RandomMatcher(FanoutMatcher):
    """Matches each message to one destination, drawn at random."""

    reads = Reads.CHANCE

    def match_message(self, message: Message) -> Collection[Destination]:
        bound = self._bound.members()
        if len(bound) < 2:
            return bound
        return (bound[int(message.chance() * len(bound))],)
