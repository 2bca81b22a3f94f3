"""What every exchange type is to the rest of the broker: a matcher.

What comes in: bindings, and then for each message its routing key and headers, or all of a `Message`. What goes
out: destinations.
Rules: 1. a matcher knows the bindings of one exchange and nothing of other exchanges, queues or messages;
2. each destination comes out at most once per match; 3. `reads` says what of a message decides the result, so
that callers know what they may key a route cache by. A type that needs more of a message than one routing key
and headers (its properties, chance) has its own `match_message`; the others are not touched by that.
Not here: the types by name (`types.py`), walking from exchange to exchange (`amqpd/topology/state.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from enum import Flag, auto
from typing import Any

from amqpd.exchanges.cache_memory import CacheMemory
from amqpd.exchanges.message import Message
from amqpd.vocabulary.records import BindingRecord, DestinationType, ExchangeRecord, QueueRecord

Destination = tuple[DestinationType, str]


class Reads(Flag):
    """The parts of a message on which a match depends."""

    NOTHING = 0
    ROUTING_KEY = auto()
    HEADERS = auto()
    PROPERTIES = auto()
    CHANCE = auto()
    """the result is drawn again for each message"""
    KEEPS = auto()
    """the exchange keeps the message, see `Message.kept_by`"""


class Matcher(ABC):
    """The bindings of one exchange. Made by `types.new_matcher`."""

    reads: Reads
    takes_each_key = False
    """a message with several routing keys goes where each of them would take it"""

    def __init__(self, record: ExchangeRecord) -> None:
        """`record.arguments` may set up a type; the four of the specification have nothing to set up. What
        `check_arguments` would refuse is taken somehow: it is stored already."""
        self.work = 0
        """what matching has taken so far beside a look-up and its results, in the unit of `flow/turns.py`"""

    @classmethod  # noqa: B027 - most types take everything
    def check_arguments(cls, record: ExchangeRecord) -> None:
        """Called before a new exchange is stored; raises pamqp's AMQPPreconditionFailed when it cannot be one of this
        type."""

    def validate(  # noqa: B027 - most types take everything
        self, binding: BindingRecord, queue: QueueRecord | None = None
    ) -> None:
        """Called before a new binding is stored, with the queue that is its destination, if it is one; raises pamqp's
        AMQPPreconditionFailed when this type cannot take it. Bindings that are already stored are not asked about
        again: `add` takes whatever there is."""

    def share_memory(self, memory: CacheMemory) -> None:  # noqa: B027 - most types remember nothing
        """What the matcher remembers of messages is charged there from now on."""

    def forget(self) -> None:  # noqa: B027
        """The exchange is gone: give back what was remembered of messages."""

    @abstractmethod
    def add(self, binding: BindingRecord) -> None:
        """The caller never adds two bindings of one `key`."""

    @abstractmethod
    def remove(self, binding: BindingRecord) -> None:
        """Takes back an `add` of an equal binding. Raises KeyError, and changes nothing, if there was
        none."""

    def match(self, routing_key: str, headers: Mapping[str, Any] | None = None) -> Collection[Destination]:
        """The destinations of one message, each once, in an order that depends on the bindings and the
        arguments only. `headers` is the message's headers table, or None when it has none. A type has this method
        or `match_message` of its own."""
        return self.match_message(Message((routing_key,), headers))

    def match_message(self, message: Message) -> Collection[Destination]:
        """As `match`, for all routing keys of the message together."""
        keys = message.routing_keys
        if len(keys) == 1 or not self.reads & Reads.ROUTING_KEY:
            return self.match(keys[0], message.headers)
        return dict.fromkeys(found for key in keys for found in self.match(key, message.headers))

    def match_in_steps(self, message: Message) -> Iterator[Collection[Destination]]:
        """As `match_message`, in parts that may have the same destinations. Bindings may change between two steps."""
        keys = message.routing_keys
        if len(keys) == 1 or not self.takes_each_key:
            yield self.match_message(message)
        else:
            for key in dict.fromkeys(keys):
                self.work += 1
                yield self.match(key, message.headers)

    @property
    def nodes(self) -> int:
        """What a match may have to look at beside the bindings."""
        return 0


def destination_of(binding: BindingRecord) -> Destination:
    return (binding.destination_type, binding.destination)
