"""What a queue's arguments and its policy together ask of it.

What comes in: the arguments of its declaration (checked by then) and the definition of its effective policy. What
goes out: `QueueSettings`.
Rules: 1. Of two limits the smaller one holds; of two names or modes mostly the argument's. 2. What is not a value of
the right kind counts as absent: a policy may be older than a rule about it. 3. A queue's type decides what it knows.
Not here: whether an argument is acceptable (`arguments.py`), which policy applies (`topology/policies.py`).

Source: https://www.rabbitmq.com/docs/policies, https://www.rabbitmq.com/docs/quorum-queues#feature-matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

CLASSIC, QUORUM = "classic", "quorum"
DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX = "drop-head", "reject-publish", "reject-publish-dlx"

# Since RabbitMQ 4.0 (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
DELIVERY_LIMIT_DEFAULT = 20
# RabbitMQ's bound on x-max-priority; each level in use is a list of its own.
PRIORITY_MAX = 255
# Of a short string (AMQP 0-9-1 section 4.2.5.3).
NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of one queue, by its arguments and its policy: times in milliseconds, sizes in bytes of bodies;
    None: no limit."""

    type: str = CLASSIC
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = DROP_HEAD
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    at_least_once: bool = False
    """a dead letter stays in the queue until another one has taken it"""
    max_priority: int | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    """a message that comes back more often is dead-lettered"""
    consumer_timeout_ms: int | None = None

    @property
    def quorum(self) -> bool:
        return self.type == QUORUM


def settings_of(arguments: Mapping[str, Any], policy: Mapping[str, Any]) -> QueueSettings:
    """`policy` is keyed as in a policy's definition: `message-ttl` for the argument `x-message-ttl`."""
    if not policy and len(arguments) == ("x-queue-type" in arguments):
        return PLAIN[type_of(arguments)]  # most of very many queues

    def smaller(name: str) -> int | None:
        given = (arguments.get("x-" + name), policy.get(name))
        numbers: list[int] = [value for value in given if _is_number(value)]
        return min(numbers, default=None)

    def text(name: str) -> str | None:
        for value in (arguments.get("x-" + name), policy.get(name)):
            if isinstance(value, str):
                return value
        return None

    def name(key: str) -> str | None:
        value = text(key)
        return value if value is not None and _fits(value) else None

    kind = type_of(arguments)
    overflow = text("overflow") or DROP_HEAD
    limit = max_priority = None
    if kind == QUORUM:
        if isinstance(policy.get("overflow"), str):
            # Here, and only here, RabbitMQ lets the policy win.
            overflow = policy["overflow"]
        limit = _delivery_limit(arguments.get("x-delivery-limit"), policy.get("delivery-limit"))
    elif _is_number(arguments.get("x-max-priority")):
        max_priority = min(arguments["x-max-priority"], PRIORITY_MAX)
    at_least_once = kind == QUORUM and text("dead-letter-strategy") == "at-least-once" and overflow == REJECT_PUBLISH
    exchange = name("dead-letter-exchange")
    return QueueSettings(
        type=kind,
        message_ttl_ms=smaller("message-ttl"),
        expires_ms=smaller("expires"),
        max_length=smaller("max-length"),
        max_length_bytes=smaller("max-length-bytes"),
        overflow=overflow,
        dead_letter_exchange=exchange,
        dead_letter_routing_key=name("dead-letter-routing-key"),
        at_least_once=at_least_once and exchange is not None,
        max_priority=max_priority,
        single_active_consumer=arguments.get("x-single-active-consumer") is True,
        delivery_limit=limit,
        consumer_timeout_ms=smaller("consumer-timeout"),
    )


def _delivery_limit(argument: Any, policy: Any) -> int | None:
    """As in RabbitMQ: the smaller one, but a negative one, which is none at all, only if nothing else is said."""
    given: list[int] = [value for value in (argument, policy) if _is_number(value)]
    limit = (max(given) if min(given) < 0 else min(given)) if given else DELIVERY_LIMIT_DEFAULT
    return None if limit < 0 else limit


PLAIN = {
    CLASSIC: QueueSettings(),
    QUORUM: QueueSettings(type=QUORUM, delivery_limit=DELIVERY_LIMIT_DEFAULT),
}
"""of a queue without arguments and without a policy, by its type"""


def type_of(arguments: Mapping[str, Any]) -> str:
    return QUORUM if arguments.get("x-queue-type") == QUORUM else CLASSIC


def _fits(name: str) -> bool:
    """A method frame can hold it: an argument and a policy may be longer than any exchange's name or routing key, and
    a policy may have characters that no client could send."""
    try:
        return len(name.encode("utf-8", "surrogateescape")) <= NAME_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
