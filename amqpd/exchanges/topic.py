"""The topic exchange: binding keys are patterns of words, `*` is one word, `#` any number (AMQP 0-9-1,
3.1.3.3).

What comes in: bindings, routing keys. What goes out: the destinations whose patterns match, from a `Sublist`.
Rules: 1. `#` stands for zero or more words, anywhere in a pattern and as often as wanted (RabbitMQ 4.3.5
allows two; here the work is bounded by the walk, so there is no such limit); 2. two bindings with one meaning
(`a.#` and `a.#.#`) are still two bindings: the destination stays until both are gone.
Not here: the trie and its cache (`sublist.py`), how patterns are read (`patterns.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from amqpd.exchanges.cache_memory import CacheMemory
from amqpd.exchanges.matcher import Destination, Matcher, Reads, destination_of
from amqpd.exchanges.message import Message
from amqpd.exchanges.sublist import Sublist
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord

# Nodes of the trie looked at in one unit of work.
VISITS_A_WORK = 8


class TopicMatcher(Matcher):
    """Matches by patterns of words, with a cache of results."""

    reads = Reads.ROUTING_KEY
    takes_each_key = True

    def __init__(self, record: ExchangeRecord) -> None:
        super().__init__(record)
        self._sublist: Sublist[Destination] = Sublist()

    def share_memory(self, memory: CacheMemory) -> None:
        self._sublist.share_memory(memory)

    def forget(self) -> None:
        self._sublist.forget_all()

    def add(self, binding: BindingRecord) -> None:
        self._sublist.insert(binding.routing_key, destination_of(binding))

    def remove(self, binding: BindingRecord) -> None:
        self._sublist.remove(binding.routing_key, destination_of(binding))

    def match(self, routing_key: str, headers: Mapping[str, Any] | None = None) -> Collection[Destination]:
        trie = self._sublist.trie
        visits = trie.visits
        found = self._sublist.match(routing_key)
        self.work += (trie.visits - visits) // VISITS_A_WORK
        return found

    def match_in_steps(self, message: Message) -> Iterator[Collection[Destination]]:
        trie = self._sublist.trie
        for key in dict.fromkeys(message.routing_keys):
            visits = trie.visits
            for found in self._sublist.match_in_steps(key):
                self.work += 1 + (trie.visits - visits) // VISITS_A_WORK
                yield found
                visits = trie.visits

    @property
    def nodes(self) -> int:
        return self._sublist.trie.nodes
