"""The type x-consistent-hash: messages with one hash key go to one destination, and the keys are spread by weight.

What comes in: bindings whose routing key is a weight, in digits; messages. What goes out: one destination each.
Rules: 1. What is hashed is the routing key, or with `hash-header` that header, or with `hash-property` the message
id, the correlation id or the timestamp; messages without it go all to one destination. 2. A destination that is
bound with several weights has the largest of them. 3. A binding that comes or goes moves the keys that it must, and
no other.
Not here: the hashing (`hash_slots.py`).

Arguments and texts are those of RabbitMQ's rabbitmq_consistent_hash_exchange; which destination a key belongs to is
not.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges.cache_memory import CacheMemory
from amqpd.exchanges.hash_slots import HashSlots, digest
from amqpd.exchanges.matcher import Destination, Matcher, Reads, destination_of
from amqpd.exchanges.message import Message
from amqpd.message.propertylist import CORRELATION_ID, MESSAGE_ID, TIMESTAMP
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord, QueueRecord
from amqpd.wire.values import NestedTooDeep, canonical, erlang_term, field_type

HASH_HEADER, HASH_PROPERTY = "hash-header", "hash-property"
PROPERTIES = {"correlation_id": CORRELATION_ID, "message_id": MESSAGE_ID, "timestamp": TIMESTAMP}
# RabbitMQ's bound since 4.3, so that what is declared here can be declared there. What is stored already is kept.
WEIGHT_MAX = 10_000
# What Erlang's list_to_integer takes.
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_ABSENT = digest(b"")


class ConsistentHashMatcher(Matcher):
    """Matches messages by the hash of a routing key, header or property; a binding's key is its weight."""

    reads = Reads.ROUTING_KEY

    def __init__(self, record: ExchangeRecord) -> None:
        super().__init__(record)
        self._header = record.arguments.get(HASH_HEADER)
        self._property = PROPERTIES.get(record.arguments.get(HASH_PROPERTY, ""))
        if self._header is not None:
            self.reads = Reads.HEADERS
        elif self._property is not None:
            self.reads = Reads.PROPERTIES
        self._weights: dict[Destination, dict[int, int]] = {}
        """how many bindings there are with each weight"""
        self._slots: HashSlots[Destination] = HashSlots(_name)

    def share_memory(self, memory: CacheMemory) -> None:
        self._slots.share_memory(memory)

    def forget(self) -> None:
        self._slots.forget_all()

    @classmethod
    def check_arguments(cls, record: ExchangeRecord) -> None:
        given = {name: record.arguments[name] for name in (HASH_HEADER, HASH_PROPERTY) if name in record.arguments}
        for name, value in given.items():
            if not isinstance(value, str):
                raise AMQPPreconditionFailed(
                    f"invalid type '{field_type(value)}' for arg '{name}' in exchange '{record.name}' in vhost "
                    f"'{record.vhost}'"
                )
        if len(given) == 2:
            raise AMQPPreconditionFailed("hash-header and hash-property are mutually exclusive")
        if HASH_PROPERTY in given and given[HASH_PROPERTY] not in PROPERTIES:
            raise AMQPPreconditionFailed(f"Unsupported property: {given[HASH_PROPERTY]}")

    def validate(self, binding: BindingRecord, queue: QueueRecord | None = None) -> None:
        if not _INTEGER.fullmatch(binding.routing_key):
            shown = erlang_term(binding.routing_key)[1]
            raise AMQPPreconditionFailed(f"The binding key must be an integer: {shown}")
        weight = int(binding.routing_key)
        if weight < 1:
            raise AMQPPreconditionFailed("The binding key must be greater than 0")
        if weight > WEIGHT_MAX:
            raise AMQPPreconditionFailed(f"The binding key must not be greater than {WEIGHT_MAX}")

    def add(self, binding: BindingRecord) -> None:
        destination, weight = destination_of(binding), _weight(binding)
        weights = self._weights.setdefault(destination, {})
        weights[weight] = weights.get(weight, 0) + 1
        self._slots.set(destination, max(weights))

    def remove(self, binding: BindingRecord) -> None:
        destination, weight = destination_of(binding), _weight(binding)
        weights = self._weights[destination]
        if weights[weight] > 1:
            weights[weight] -= 1
        else:
            del weights[weight]
        self._slots.set(destination, max(weights, default=0))
        if not weights:
            del self._weights[destination]

    def match_message(self, message: Message) -> Collection[Destination]:
        found = self._slots.pick(self._key(message))
        self.work = self._slots.raced
        return () if found is None else (found,)

    def _key(self, message: Message) -> int:
        if self._header is not None:
            headers = message.headers
            if headers is None or self._header not in headers:
                return _ABSENT
            return _digest_of(headers[self._header])
        if self._property is not None:
            value = message.property(self._property)
            return _ABSENT if value is None else digest(value)
        return digest(message.routing_keys[0].encode("utf-8", "surrogateescape"))


def _weight(binding: BindingRecord) -> int:
    """At least 1, also for what `validate` would refuse: it is stored already."""
    return max(1, int(binding.routing_key)) if _INTEGER.fullmatch(binding.routing_key) else 1


def _name(destination: Destination) -> bytes:
    kind, name = destination
    return f"{kind}/{name}".encode("utf-8", "surrogateescape")


def _digest_of(value: Any) -> int:
    """Equal for equal values of one type. What is nested too deep to be compared goes the way of what is absent."""
    try:
        return digest(ascii(canonical(value)).encode())
    except NestedTooDeep:
        return _ABSENT
