"""The exchange types by name.

What comes in: an exchange's record. What goes out: an empty matcher of its type.
Rules: 1. a type is one class in one file, and one line here; 2. names are compared exactly, as RabbitMQ does.
Not here: what matchers do (`matcher.py`), the predeclared exchanges (`amqpd/topology/plans.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges.direct import DirectMatcher
from amqpd.exchanges.fanout import FanoutMatcher
from amqpd.exchanges.headers import HeadersMatcher
from amqpd.exchanges.matcher import Matcher
from amqpd.exchanges.topic import TopicMatcher
from amqpd.topology.records import ExchangeRecord

EXCHANGE_TYPES: Mapping[str, type[Matcher]] = MappingProxyType(
    {
        "direct": DirectMatcher,
        "fanout": FanoutMatcher,
        "headers": HeadersMatcher,
        "topic": TopicMatcher,
    }
)


def check_type(name: str) -> type[Matcher]:
    """Raises AMQPPreconditionFailed for a type that does not exist (406 as in RabbitMQ 4.x,
    rabbit_exchange.erl)."""
    matcher = EXCHANGE_TYPES.get(name)
    if matcher is None:
        raise AMQPPreconditionFailed(f"unknown exchange type '{name}'")
    return matcher


def new_matcher(record: ExchangeRecord) -> Matcher:
    """An empty matcher for this exchange. Raises AMQPPreconditionFailed, see `check_type`."""
    return check_type(record.type)(record)
