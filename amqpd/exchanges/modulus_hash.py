"""The type x-modulus-hash: the hash of the routing key, modulo the number of destinations, says where a message goes.

What comes in: bindings, messages. What goes out: one destination.
Rules: 1. destinations count in the order of their names, so the same ones give the same answers after a restart; 2. a
destination more or less moves most keys: x-consistent-hash moves few; 3. what is hashed are all
routing keys of the message together, those of CC and BCC too.
Not here: RabbitMQ's hash function: which of the destinations a key belongs to differs from it.

As in RabbitMQ's rabbitmq_sharding, since 4.3 in its core.
"""

from __future__ import annotations

from collections.abc import Collection

from amqpd.exchanges.fanout import FanoutMatcher
from amqpd.exchanges.hash_slots import digest
from amqpd.exchanges.matcher import Destination, Reads
from amqpd.exchanges.message import Message
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord


class ModulusHashMatcher(FanoutMatcher):
    """Matches each message to the one destination that the hash of its routing key selects."""

    reads = Reads.ROUTING_KEY

    def __init__(self, record: ExchangeRecord) -> None:
        super().__init__(record)
        self._sorted: tuple[Destination, ...] | None = ()

    def add(self, binding: BindingRecord) -> None:
        super().add(binding)
        self._sorted = None

    def remove(self, binding: BindingRecord) -> None:
        super().remove(binding)
        self._sorted = None

    def match_message(self, message: Message) -> Collection[Destination]:
        if self._sorted is None:
            self._sorted = tuple(sorted(self._bound.members()))
        if not self._sorted:
            return ()
        keys = b"".join(_sized(key.encode("utf-8", "surrogateescape")) for key in message.routing_keys)
        return (self._sorted[digest(keys) % len(self._sorted)],)


def _sized(key: bytes) -> bytes:
    return len(key).to_bytes(4, "big") + key
