"""The topic exchange: binding keys are patterns of words, `*` is one word, `#` any number (AMQP 0-9-1,
3.1.3.3).

What comes in: bindings, routing keys. What goes out: the destinations whose patterns match, from a `Sublist`.
Rules: 1. `#` stands for zero or more words, anywhere in a pattern and as often as wanted (RabbitMQ 4.3.5
allows two; here the work is bounded by the walk, so there is no such limit); 2. two bindings with one meaning
(`a.#` and `a.#.#`) are still two bindings: the destination stays until both are gone.
Not here: the trie and its cache (`sublist.py`), how patterns are read (`patterns.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from amqpd.exchanges.matcher import Destination, Matcher, MatchStatistics, Reads, destination_of
from amqpd.exchanges.sublist import Sublist
from amqpd.topology.records import BindingRecord, ExchangeRecord


class TopicMatcher(Matcher):
    reads = Reads.ROUTING_KEY

    def __init__(self, record: ExchangeRecord) -> None:
        super().__init__(record)
        self._sublist: Sublist[Destination] = Sublist()

    def add(self, binding: BindingRecord) -> None:
        self._sublist.insert(binding.routing_key, destination_of(binding))

    def remove(self, binding: BindingRecord) -> None:
        self._sublist.remove(binding.routing_key, destination_of(binding))

    def match(self, routing_key: str, headers: Mapping[str, Any] | None = None) -> Collection[Destination]:
        return self._sublist.match(routing_key)

    def statistics(self) -> MatchStatistics:
        return self._sublist.statistics()
