"""The exchange types by name.

What comes in: an exchange's record. What goes out: an empty matcher of its type; or what is wrong with it.
Rules: 1. a type is one class in one file, and one line here; 2. names are compared exactly, as RabbitMQ does; 3.
`check_exchange` is for what a client declares: what is stored already only needs a type that exists.
Not here: what matchers do (`matcher.py`), the predeclared exchanges (`amqpd/topology/plans.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges.consistent_hash import ConsistentHashMatcher
from amqpd.exchanges.delayed_message import DELAYED_MESSAGE, DelayedMessageMatcher, routed_as
from amqpd.exchanges.direct import DirectMatcher
from amqpd.exchanges.fanout import FanoutMatcher
from amqpd.exchanges.headers import HeadersMatcher
from amqpd.exchanges.local_random import LocalRandomMatcher
from amqpd.exchanges.matcher import Matcher
from amqpd.exchanges.modulus_hash import ModulusHashMatcher
from amqpd.exchanges.random import RandomMatcher
from amqpd.exchanges.recent_history import RecentHistoryMatcher
from amqpd.exchanges.topic import TopicMatcher
from amqpd.vocabulary.records import ExchangeRecord

EXCHANGE_TYPES: Mapping[str, type[Matcher]] = MappingProxyType(
    {
        "direct": DirectMatcher,
        "fanout": FanoutMatcher,
        "headers": HeadersMatcher,
        "topic": TopicMatcher,
        "x-consistent-hash": ConsistentHashMatcher,
        "x-delayed-message": DelayedMessageMatcher,
        "x-local-random": LocalRandomMatcher,
        "x-modulus-hash": ModulusHashMatcher,
        "x-random": RandomMatcher,
        "x-recent-history": RecentHistoryMatcher,
    }
)


def check_type(name: str) -> type[Matcher]:
    """Raises AMQPPreconditionFailed for a type that does not exist (406 as in RabbitMQ 4.x,
    rabbit_exchange.erl)."""
    matcher = EXCHANGE_TYPES.get(name)
    if matcher is None:
        raise AMQPPreconditionFailed(f"unknown exchange type '{name}'")
    return matcher


def check_types(record: ExchangeRecord) -> None:
    """The type, and the one that it routes as. Raises AMQPPreconditionFailed."""
    check_type(record.type)
    if record.type == DELAYED_MESSAGE:
        check_type(routed_as(record).type)


def check_exchange(record: ExchangeRecord) -> None:
    """Type and arguments, of an exchange that a client wants to have. Raises AMQPPreconditionFailed with RabbitMQ's
    words."""
    check_types(record)
    check_type(record.type).check_arguments(record)
    if record.type == DELAYED_MESSAGE:
        inner = routed_as(record)
        check_type(inner.type).check_arguments(inner)


def new_matcher(record: ExchangeRecord) -> Matcher:
    """An empty matcher for this exchange. Raises AMQPPreconditionFailed, see `check_types`."""
    kind = check_type(record.type)
    if kind is DelayedMessageMatcher:
        return DelayedMessageMatcher(record, new_matcher)
    return kind(record)
