"""The fanout exchange: a message goes to everything that is bound (AMQP 0-9-1, 3.1.3.2).

What comes in: bindings. What goes out: all their destinations, as one shared tuple.
Rules: 1. routing keys and headers are not looked at, in bindings and in messages; 2. a destination bound
several times is one destination.
Not here: anything that looks at the message (`direct.py`, `topic.py`, `headers.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from amqpd.exchanges.destinations import CountedSet
from amqpd.exchanges.matcher import Destination, Matcher, Reads, destination_of
from amqpd.exchanges.message import Message
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord


class FanoutMatcher(Matcher):
    """Matches every message to every destination."""

    reads = Reads.NOTHING

    def __init__(self, record: ExchangeRecord) -> None:
        super().__init__(record)
        self._bound: CountedSet[Destination] = CountedSet()

    def add(self, binding: BindingRecord) -> None:
        self._bound.add(destination_of(binding))

    def remove(self, binding: BindingRecord) -> None:
        self._bound.remove(destination_of(binding))

    def match_message(self, message: Message) -> Collection[Destination]:
        return self._bound.members()
