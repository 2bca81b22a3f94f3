"""Binding and unbinding, the same for queues and exchanges as destinations (sections 1.6 and 1.7).

What comes in: who asks, the two ends, the key, and what to do when it is done. What goes out: a change.
Rules: write permission on the destination, read permission on the source, as RabbitMQ's access control has it.
Not here: the answers (`amqpd/methods/`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pamqp.exceptions import AMQPNotFound

from amqpd.declarations.asker import Asker
from amqpd.declarations.names import refuse_default_exchange, refuse_locked
from amqpd.topology import plans
from amqpd.vocabulary.records import DestinationType


def bind_to(
    asker: Asker,
    source: str,
    destination: str,
    destination_type: DestinationType,
    routing_key: str,
    arguments: dict[str, Any] | None,
    bound: Callable[[bool], None],
) -> None:
    """`bound` is told whether the binding is new. Raises AMQPNotFound, AMQPAccessRefused, AMQPResourceLocked."""
    _check(asker, source, destination, destination_type, routing_key)
    _require_ends(asker, source, destination, destination_type)
    _refuse_locked(asker, destination, destination_type)
    node = asker.node
    vhost = node.topology.vhosts[asker.vhost]
    binding = plans.new_binding(vhost, source, destination, destination_type, routing_key, arguments)
    if plans.find_binding(vhost, source, destination, destination_type, routing_key, arguments) is not None:
        bound(False)
        return

    def done(made: bool) -> None:
        if made:
            bound(True)
        else:
            # An end was deleted while the binding was on its way; another one may have its name by now.
            bind_to(asker, source, destination, destination_type, routing_key, arguments, bound)

    node.changes.bind(binding, asker.suspend(done), asker.by)


def unbind_from(
    asker: Asker,
    source: str,
    destination: str,
    destination_type: DestinationType,
    routing_key: str,
    arguments: dict[str, Any] | None,
    unbound: Callable[[bool], None],
) -> None:
    """`unbound` is told whether it was there. Removing what is not there succeeds, also when an end is not there, as
    in RabbitMQ since 3.2."""
    _check(asker, source, destination, destination_type, routing_key)
    vhost = asker.node.topology.vhosts[asker.vhost]
    binding = plans.find_binding(vhost, source, destination, destination_type, routing_key, arguments)
    if binding is None:
        unbound(False)
    else:
        _refuse_locked(asker, destination, destination_type)
        asker.node.changes.remove(binding, asker.suspend(lambda _: unbound(True)), by=asker.by)


def _check(asker: Asker, source: str, destination: str, destination_type: DestinationType, routing_key: str) -> None:
    refuse_default_exchange(source)
    if destination_type == "exchange":
        refuse_default_exchange(destination)
    asker.require("write", destination_type, destination)
    asker.require("read", "exchange", source)
    state = asker.node.topology.vhosts[asker.vhost].exchanges.get(source)
    if state is not None and state.record.type == "topic":
        asker.require_topic("read", source, routing_key)


def _refuse_locked(asker: Asker, destination: str, destination_type: DestinationType) -> None:
    """A queue that another connection has for itself: the last check, as in RabbitMQ."""
    if destination_type == "queue":
        queue = asker.queue(destination)
        if queue is not None:
            refuse_locked(asker, queue.record)


def _require_ends(asker: Asker, source: str, destination: str, destination_type: DestinationType) -> None:
    vhost = asker.node.topology.vhosts[asker.vhost]
    ends = vhost.queues if destination_type == "queue" else vhost.exchanges
    if source not in vhost.exchanges:
        raise AMQPNotFound(f"no exchange '{source}' in vhost '{vhost.name}'")
    if destination not in ends:
        raise AMQPNotFound(f"no {destination_type} '{destination}' in vhost '{vhost.name}'")
