"""The direct exchange: a message goes where a binding's key equals its routing key (AMQP 0-9-1, 3.1.3.1).

What comes in: bindings, routing keys. What goes out: the destinations of one key, from one dict look-up.
Rules: 1. keys are compared whole, byte for byte; 2. a key with no bindings left is forgotten.
Not here: the default exchange, which has no bindings at all (`amqpd/topology/routes.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from amqpd.exchanges.destinations import CountedSet
from amqpd.exchanges.matcher import Destination, Matcher, Reads, destination_of
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord


class DirectMatcher(Matcher):
    """Matches by equality of routing key and binding key."""

    reads = Reads.ROUTING_KEY
    takes_each_key = True

    def __init__(self, record: ExchangeRecord) -> None:
        super().__init__(record)
        self._keys: dict[str, CountedSet[Destination]] = {}

    def add(self, binding: BindingRecord) -> None:
        bound = self._keys.get(binding.routing_key)
        if bound is None:
            bound = self._keys[binding.routing_key] = CountedSet()
        bound.add(destination_of(binding))

    def remove(self, binding: BindingRecord) -> None:
        bound = self._keys[binding.routing_key]
        bound.remove(destination_of(binding))
        if not bound:
            del self._keys[binding.routing_key]

    def match(self, routing_key: str, headers: Mapping[str, Any] | None = None) -> Collection[Destination]:
        bound = self._keys.get(routing_key)
        return () if bound is None else bound.members()
