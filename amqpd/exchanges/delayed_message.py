"""The type x-delayed-message: routes as the type named in `x-delayed-type`.

What comes in and goes out: what that type takes and gives.
Rules: 1. the argument is required, and names another type that exists.
Not here: the delay: the header x-delay works the same on every exchange (`amqpd/message/delays.py`).

As the plugin rabbitmq_delayed_message_exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges.cache_memory import CacheMemory
from amqpd.exchanges.matcher import Destination, Matcher
from amqpd.exchanges.message import Message
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord, QueueRecord

DELAYED_MESSAGE = "x-delayed-message"
DELAYED_TYPE = "x-delayed-type"


class DelayedMessageMatcher(Matcher):
    """Matches as the type named in `x-delayed-type` does."""

    def __init__(self, record: ExchangeRecord, new_matcher: Callable[[ExchangeRecord], Matcher]) -> None:
        """Raises AMQPPreconditionFailed when there is no such type."""
        super().__init__(record)
        self._inner = new_matcher(routed_as(record))
        self.reads = self._inner.reads

    def share_memory(self, memory: CacheMemory) -> None:
        self._inner.share_memory(memory)

    def forget(self) -> None:
        self._inner.forget()

    def validate(self, binding: BindingRecord, queue: QueueRecord | None = None) -> None:
        self._inner.validate(binding, queue)

    def add(self, binding: BindingRecord) -> None:
        self._inner.add(binding)

    def remove(self, binding: BindingRecord) -> None:
        self._inner.remove(binding)

    def match_message(self, message: Message) -> Collection[Destination]:
        return self._inner.match_message(message)

    def match_in_steps(self, message: Message) -> Iterator[Collection[Destination]]:
        for found in self._inner.match_in_steps(message):
            self.work = self._inner.work
            yield found
        self.work = self._inner.work

    @property
    def nodes(self) -> int:
        return self._inner.nodes


def routed_as(record: ExchangeRecord) -> ExchangeRecord:
    """The exchange as if it were of the type in its argument. Raises AMQPPreconditionFailed when that names none."""
    type_name = record.arguments.get(DELAYED_TYPE)
    if not isinstance(type_name, str):
        raise AMQPPreconditionFailed("Invalid argument, 'x-delayed-type' must be an existing exchange type")
    if type_name == DELAYED_MESSAGE:
        raise AMQPPreconditionFailed("Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'")
    return replace(record, type=type_name)
