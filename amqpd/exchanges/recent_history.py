"""The type x-recent-history: a fanout that keeps the last messages for destinations that are bound later.

What comes in: bindings, messages. What goes out: all destinations, and in the message's `kept_by` that this exchange
keeps it, and how many.
Rules: 1. `x-recent-history-length` messages are kept, 20 if it is not given; 2. a message with the header
`x-recent-history-no-store` set to true is not.
Not here: what was kept, and giving it to new destinations (`amqpd/publishing/histories.py`).

As RabbitMQ's rabbitmq_recent_history_exchange.
"""

from __future__ import annotations

from collections.abc import Collection

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges.fanout import FanoutMatcher
from amqpd.exchanges.matcher import Destination, Reads
from amqpd.exchanges.message import Message
from amqpd.vocabulary.records import ExchangeRecord
from amqpd.wire.fieldtypes import Byte, Short, SignedInt, number_type
from amqpd.wire.values import erlang_term

LENGTH, NO_STORE = "x-recent-history-length", "x-recent-history-no-store"
LENGTH_DEFAULT = 20
# The widths that RabbitMQ takes here; the unsigned ones it does not.
_TYPES = {Byte.type_name, Short.type_name, SignedInt.type_name, "long"}


class RecentHistoryMatcher(FanoutMatcher):
    """Matches as a fanout does; its messages are kept, as many as the argument says."""

    reads = Reads.HEADERS | Reads.KEEPS

    def __init__(self, record: ExchangeRecord) -> None:
        super().__init__(record)
        self._name = record.name
        length = record.arguments.get(LENGTH)
        self._length = length if isinstance(length, int) and length > 0 else LENGTH_DEFAULT

    @classmethod
    def check_arguments(cls, record: ExchangeRecord) -> None:
        if LENGTH not in record.arguments:
            return
        length = record.arguments[LENGTH]
        is_integer = isinstance(length, int) and not isinstance(length, bool) and number_type(length) in _TYPES
        if not is_integer or length < 1:
            raise AMQPPreconditionFailed(
                f"Invalid argument {erlang_term(length)[1]}, '{LENGTH}' must be a positive integer"
            )

    def match_message(self, message: Message) -> Collection[Destination]:
        if message.headers is None or message.headers.get(NO_STORE) is not True:
            message.kept_by[self._name] = self._length
        return super().match_message(message)
