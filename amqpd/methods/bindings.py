"""Binding and unbinding, the same for queues and exchanges as destinations (sections 1.6 and 1.7).

What comes in: the channel, the two ends, the key, and what to do when it is done. What goes out: a change.
Rules: write permission on the destination, read permission on the source, as RabbitMQ's access control has it.
Not here: the answers (`queue.py`, `exchange.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pamqp.exceptions import AMQPNotFound

from amqpd.methods.names import refuse_default_exchange, refuse_locked
from amqpd.topology import plans
from amqpd.vocabulary.records import DestinationType

if TYPE_CHECKING:
    from amqpd.channels import Channel


def bind_to(
    channel: Channel,
    source: str,
    destination: str,
    destination_type: DestinationType,
    routing_key: str,
    arguments: dict[str, Any] | None,
    bound: Callable[[], None],
) -> None:
    _check(channel, source, destination, destination_type, routing_key)
    _require_ends(channel, source, destination, destination_type)
    _refuse_locked(channel, destination, destination_type)
    node = channel.node
    vhost = node.topology.vhosts[channel.connection.vhost]
    binding = plans.new_binding(vhost, source, destination, destination_type, routing_key, arguments)
    if plans.find_binding(vhost, source, destination, destination_type, routing_key, arguments) is not None:
        bound()
        return

    def done(made: bool) -> None:
        if made:
            bound()
        else:
            # An end was deleted while the binding was on its way; another one may have its name by now.
            bind_to(channel, source, destination, destination_type, routing_key, arguments, bound)

    node.bind(binding, channel.suspend(done), channel.connection)


def unbind_from(
    channel: Channel,
    source: str,
    destination: str,
    destination_type: DestinationType,
    routing_key: str,
    arguments: dict[str, Any] | None,
    unbound: Callable[[], None],
) -> None:
    """Removing what is not there succeeds, also when an end is not there, as in RabbitMQ since 3.2."""
    _check(channel, source, destination, destination_type, routing_key)
    vhost = channel.node.topology.vhosts[channel.connection.vhost]
    binding = plans.find_binding(vhost, source, destination, destination_type, routing_key, arguments)
    if binding is None:
        unbound()
    else:
        _refuse_locked(channel, destination, destination_type)
        channel.node.remove(binding, channel.suspend(lambda _: unbound()), by=channel.connection)


def _check(
    channel: Channel, source: str, destination: str, destination_type: DestinationType, routing_key: str
) -> None:
    connection, access = channel.connection, channel.node.access
    refuse_default_exchange(source)
    if destination_type == "exchange":
        refuse_default_exchange(destination)
    access.require(connection.user, connection.vhost, "write", destination_type, destination)
    access.require(connection.user, connection.vhost, "read", "exchange", source)
    state = channel.node.topology.vhosts[connection.vhost].exchanges.get(source)
    if state is not None and state.record.type == "topic":
        access.require_topic(
            connection.user,
            connection.vhost,
            "read",
            source,
            routing_key,
            {"username": connection.user, "vhost": connection.vhost},
        )


def _refuse_locked(channel: Channel, destination: str, destination_type: DestinationType) -> None:
    """A queue that another connection has for itself: the last check, as in RabbitMQ."""
    if destination_type == "queue":
        queue = channel.node.queues.get((channel.connection.vhost, destination))
        if queue is not None:
            refuse_locked(channel, queue.record)


def _require_ends(channel: Channel, source: str, destination: str, destination_type: DestinationType) -> None:
    vhost = channel.node.topology.vhosts[channel.connection.vhost]
    ends = vhost.queues if destination_type == "queue" else vhost.exchanges
    if source not in vhost.exchanges:
        raise AMQPNotFound(f"no exchange '{source}' in vhost '{vhost.name}'")
    if destination not in ends:
        raise AMQPNotFound(f"no {destination_type} '{destination}' in vhost '{vhost.name}'")
