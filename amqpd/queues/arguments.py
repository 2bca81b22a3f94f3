"""What a client may say of a queue, or of a consumer of it: the checks of argument tables.

What comes in: the record that a declaration wants, or the arguments of a consumer. What goes out: nothing, or the
error.
Rules: 1. The texts and the order of the checks are RabbitMQ 4.2's, with its Erlang spelling of a reason: libraries
and tests compare them. 4.3 took back what we still have (x-queue-mode and x-queue-version 1, consumer timeouts of
classic queues). 2. `x-consumer-timeout` is known to both queue types. 3. What no queue type knows is accepted and
means nothing.
Not here: single values (`argument_values.py`), what the arguments do (`settings.py`), permissions and redeclaration
(`methods/queue.py`).

Source: https://www.rabbitmq.com/docs/queues#optional-arguments; RabbitMQ's rabbit_amqqueue (check_declare_arguments,
check_consume_arguments) and the capabilities of its queue types.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pamqp.exceptions import AMQPNotFound, AMQPPreconditionFailed

from amqpd.queues.argument_values import (
    CONSUME_CHECKS,
    DECLARE_CHECKS,
    Check,
    check_queue_type,
    is_text,
    says_no_type,
    text_of,
    type_name,
)
from amqpd.queues.settings import CLASSIC, QUORUM, type_of
from amqpd.vocabulary.records import Arguments, QueueRecord
from amqpd.wire.values import field_type

# What each type knows, in the order in which a redeclaration is compared.
DECLARE_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    CLASSIC: (
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-priority",
        "x-overflow",
        "x-queue-mode",
        "x-queue-version",
        "x-single-active-consumer",
        "x-queue-type",
        "x-queue-master-locator",
        "x-queue-leader-locator",
        "x-consumer-timeout",
    ),
    QUORUM: (
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-overflow",
        "x-single-active-consumer",
        "x-queue-type",
        "x-quorum-initial-group-size",
        "x-delivery-limit",
        "x-message-ttl",
        "x-queue-leader-locator",
        "x-consumer-timeout",
    ),
}

_STREAM_DECLARE = (
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
    "x-initial-cluster-size",
)
_STREAM_CONSUME = ("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered")
# RabbitMQ's texts name the Erlang module of the type.
_MODULES = {CLASSIC: "rabbit_classic_queue", QUORUM: "rabbit_quorum_queue", "stream": "rabbit_stream_queue"}


def check_declaration(record: QueueRecord) -> None:
    """Raises AMQPPreconditionFailed for what a new queue cannot be. `x-dead-letter-exchange` is looked at before,
    with the permissions (`check_dead_letter_exchange`)."""
    arguments = record.arguments
    if "x-queue-type" in arguments:
        _check_value(record, "x-queue-type", check_queue_type, arguments)
    kind = type_of(arguments)
    known = DECLARE_ARGUMENTS[kind]
    for name, check in DECLARE_CHECKS.items():
        if name in known and name in arguments:
            _check_value(record, name, check, arguments)
    everything = {*DECLARE_ARGUMENTS[CLASSIC], *DECLARE_ARGUMENTS[QUORUM], *_STREAM_DECLARE}
    _refuse_foreign(record, kind, arguments, everything.difference(known))
    if kind == QUORUM:
        for wrong, name in (
            (record.auto_delete, "auto-delete"),
            (record.exclusive, "exclusive-owner"),
            (not record.durable, "non-durable"),
        ):
            if wrong:
                raise AMQPPreconditionFailed(f"invalid property '{name}' for {described_queue(record)}")


def check_consumer(record: QueueRecord, arguments: Arguments) -> None:
    """Raises AMQPPreconditionFailed for what a consumer of the queue cannot ask for."""
    for name, check in CONSUME_CHECKS.items():
        if name in arguments:
            _check_value(record, name, check, arguments)
    _refuse_foreign(record, type_of(record.arguments), arguments, _STREAM_CONSUME)


def check_dead_letter_exchange(record: QueueRecord) -> str | None:
    """The name of the dead letter exchange, if the record has one. Raises AMQPPreconditionFailed."""
    name = "x-dead-letter-exchange"
    if name not in record.arguments:
        return None
    value = record.arguments[name]
    if not is_text(value):
        raise AMQPPreconditionFailed(
            f"invalid type '{field_type(value)}' for arg '{name}' in {described_queue(record)}"
        )
    return text_of(value)


def refuse_server_named(arguments: Arguments) -> None:
    """Only classic queues may have a name that the broker chooses. Raises AMQPPreconditionFailed."""
    module = _MODULES.get(type_name(arguments), _MODULES[CLASSIC])
    if module != _MODULES[CLASSIC]:
        raise AMQPPreconditionFailed(f"Cannot declare a server-named queue for type {module}")


def with_default_type(
    arguments: Arguments, default: Any, durable: bool, exclusive: bool, auto_delete: bool
) -> Arguments:
    """The arguments of a queue in a virtual host with this default type (its metadata may have one). As in RabbitMQ 4
    a queue that says nothing of its type gets it, unless it is one that only a classic queue can be."""
    if not isinstance(default, str) or default in ("", "undefined", CLASSIC) or not says_no_type(arguments):
        return arguments
    return arguments if exclusive or auto_delete or not durable else {**arguments, "x-queue-type": default}


def described_queue(record: QueueRecord) -> str:
    return f"queue '{record.name}' in vhost '{record.vhost}'"


def crashed(record: QueueRecord) -> AMQPNotFound:
    """For a client that names a queue which is out of service (`amqpd/node/quarantine.py`)."""
    return AMQPNotFound(f"{described_queue(record)} has crashed and failed to restart")


def _check_value(record: QueueRecord, name: str, check: Check, arguments: Arguments) -> None:
    reason = check(arguments[name], arguments)
    if reason is not None:
        raise AMQPPreconditionFailed(f"invalid arg '{name}' for {described_queue(record)}: {reason}")


def _refuse_foreign(record: QueueRecord, kind: str, arguments: Arguments, foreign: Collection[str]) -> None:
    for name in arguments:
        if name in foreign:
            raise AMQPPreconditionFailed(
                f"invalid arg '{name}' for {described_queue(record)} of queue type {_MODULES[kind]}"
            )
