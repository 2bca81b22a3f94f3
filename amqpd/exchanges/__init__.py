"""Exchanges: from a routing key and headers to destinations, one file per type.

What comes in: `ExchangeRecord` and `BindingRecord` values; per message a routing key and headers, or a whole
`Message`.
What goes out: (destination type, name) pairs.
Rules: everything here is pure and synchronous; a new type is a `Matcher` class and a line in `types.py`.
Not here: the walk over several exchanges, the default exchange, alternates (`amqpd/topology/state.py`).
"""

from amqpd.exchanges.matcher import Destination, Matcher, Reads
from amqpd.exchanges.message import Message
from amqpd.exchanges.types import EXCHANGE_TYPES, check_exchange, check_type, check_types, new_matcher

__all__ = [
    "EXCHANGE_TYPES",
    "Destination",
    "Matcher",
    "Message",
    "Reads",
    "check_exchange",
    "check_type",
    "check_types",
    "new_matcher",
]
