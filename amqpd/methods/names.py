"""Names and equivalence: the checks that exchange and queue methods share.

What comes in: names and arguments as the client gave them. What goes out: cleaned names, or the error.
Rules: texts are RabbitMQ's, because libraries and tests compare them.
Not here: permissions (`security/access.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pamqp.exceptions import AMQPAccessRefused, AMQPNotFound, AMQPPreconditionFailed, AMQPResourceLocked

from amqpd.exchanges.values import NestedTooDeep, erlang_term
from amqpd.topology.records import QueueRecord

if TYPE_CHECKING:
    from amqpd.channels import Channel
    from amqpd.queues.queue import Queue


def strip(name: str | None) -> str:
    """Without CR and LF, as RabbitMQ stores names."""
    return (name or "").replace("\r", "").replace("\n", "")


def refuse_reserved(kind: str, name: str) -> None:
    if name.startswith("amq."):
        raise AMQPAccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def refuse_default_exchange(name: str) -> None:
    if not name:
        raise AMQPAccessRefused("operation not permitted on the default exchange")


def last_queue(channel: Channel, name: str | None) -> str:
    """The queue meant by `name`: an empty one is the last that was declared on the channel (section 1.7.2.3)."""
    name = strip(name)
    if name:
        return name
    if channel.last_queue is None:
        raise AMQPNotFound("no previously declared queue")
    return channel.last_queue


def existing_queue(channel: Channel, name: str) -> Queue:
    """The queue, which this connection may use. Raises AMQPNotFound, AMQPResourceLocked."""
    vhost = channel.connection.vhost
    queue = channel.node.queues.get((vhost, name))
    if queue is None:
        raise AMQPNotFound(f"no queue '{name}' in vhost '{vhost}'")
    refuse_locked(channel, queue.record)
    return queue


def refuse_locked(channel: Channel, record: QueueRecord) -> None:
    if record.exclusive and record.owner != channel.connection.id:
        raise locked(record)


def locked(record: QueueRecord) -> AMQPResourceLocked:
    # AMQP gives a reply text 255 bytes, and RabbitMQ's has the same words.
    return AMQPResourceLocked(
        f"cannot obtain exclusive access to locked queue '{record.name}' in vhost '{record.vhost}'. It could be "
        "originally declared on another connection or the exclusive property value does not match that of the "
        "original declaration."
    )


def require_equal(resource: str, argument: str, received: Any, current: Any) -> None:
    """Raises AMQPPreconditionFailed when a redeclaration differs in one argument."""
    if received != current:
        raise AMQPPreconditionFailed(
            f"inequivalent arg '{argument}' for {resource}: received {described(received)} but current is "
            f"{described(current)}"
        )


def described(value: Any) -> str:
    """A value the way RabbitMQ's texts show it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"'{str(value).lower()}'"
    return f"'{value}'"


def _described_argument(arguments: Mapping[str, Any], name: str, with_type: bool) -> str:
    """An argument's value in RabbitMQ's way, with its field type or without."""
    if name not in arguments:
        return "none"
    value = arguments[name]
    try:
        type_name, plain = erlang_term(value)
    except NestedTooDeep:
        type_name, plain = "table", "..."
    shown = value if isinstance(value, str) else plain
    return f"the value '{shown}' of type '{type_name}'" if with_type else f"'{shown}'"


def require_equal_arguments(resource: str, names: tuple[str, ...], received: Any, current: Any) -> None:
    """The arguments that matter for equivalence are `names`; the others may differ (rabbitmq-server issue 12346).
    Values are compared without their types, and types are told only where one side has none (seen with 3.10.8)."""
    received, current = received or {}, current or {}
    for name in names:
        if not _equal(received, current, name):
            with_type = name not in received or name not in current
            raise AMQPPreconditionFailed(
                f"inequivalent arg '{name}' for {resource}: received "
                f"{_described_argument(received, name, with_type)} but current is "
                f"{_described_argument(current, name, with_type)}"
            )


def _equal(received: Mapping[str, Any], current: Mapping[str, Any], name: str) -> bool:
    if name not in received or name not in current:
        # A queue without a type is a classic one.
        is_default = name == "x-queue-type" and received.get(name, "classic") == current.get(name, "classic")
        return is_default or (name not in received and name not in current)
    one, other = received[name], current[name]
    # 1 and True are two values.
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
