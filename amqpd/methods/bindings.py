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
from amqpd.topology.records import DestinationType, Put

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
    node = channel.node
    vhost = node.topology.vhosts[channel.connection.vhost]
    binding = plans.new_binding(vhost, source, destination, destination_type, routing_key, arguments or {})
    vhost.exchanges[source].matcher.validate(binding)
    if any(existing.key == binding.key for existing in vhost.bindings_from(source)):
        bound()
        return

    def done(_: bool) -> None:
        # An end may have been deleted while the change was on its way.
        _require_ends(channel, source, destination, destination_type)
        bound()

    ends = [("exchange", vhost.name, source), (destination_type, vhost.name, destination)]
    node.submit([Put(binding)], channel.suspend(done), ends)


def unbind_from(
    channel: Channel,
    source: str,
    destination: str,
    destination_type: DestinationType,
    routing_key: str,
    arguments: dict[str, Any] | None,
    unbound: Callable[[], None],
) -> None:
    """Removing what is not there succeeds, as in RabbitMQ since 3.2."""
    _check(channel, source, destination, destination_type, routing_key)
    node = channel.node
    vhost = node.topology.vhosts[channel.connection.vhost]
    binding = plans.new_binding(vhost, source, destination, destination_type, routing_key, arguments or {})
    if not any(existing.key == binding.key for existing in vhost.bindings_from(source)):
        unbound()
        return
    node.submit(plans.unbind(vhost, binding), channel.suspend(lambda _: unbound()))


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
            connection.user, connection.vhost, "read", source, routing_key, connection.topic_variables
        )
    if destination_type == "queue":
        queue = channel.node.queues.get((connection.vhost, destination))
        if queue is not None:
            refuse_locked(channel, queue.record)


def _require_ends(channel: Channel, source: str, destination: str, destination_type: DestinationType) -> None:
    vhost = channel.node.topology.vhosts[channel.connection.vhost]
    ends = vhost.queues if destination_type == "queue" else vhost.exchanges
    if source not in vhost.exchanges:
        raise AMQPNotFound(f"no exchange '{source}' in vhost '{vhost.name}'")
    if destination not in ends:
        raise AMQPNotFound(f"no {destination_type} '{destination}' in vhost '{vhost.name}'")
