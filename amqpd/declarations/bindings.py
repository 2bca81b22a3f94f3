"""Binding and unbinding, the same for queues and exchanges as destinations (sections 1.6 and 1.7).

What comes in: who asks, the binding as it is wanted, and what to do when it is done. What goes out: a change.
Rules: write permission on the destination, read permission on the source, as RabbitMQ's access control has it.
Not here: the answers (`amqpd/methods/`).
"""

from __future__ import annotations

from collections.abc import Callable

from pamqp.exceptions import AMQPNotFound

from amqpd.declarations.asker import Asker
from amqpd.declarations.names import refuse_default_exchange, refuse_locked
from amqpd.topology import plans
from amqpd.vocabulary.records import BindingRecord


def bind_to(asker: Asker, wanted: BindingRecord, bound: Callable[[bool], None]) -> None:
    """`bound` is told whether the binding is new. Raises AMQPNotFound, AMQPAccessRefused, AMQPResourceLocked."""
    _check(asker, wanted)
    node, vhost = asker.node, asker.node.topology.vhosts[asker.vhost]
    ends = vhost.queues if wanted.destination_type == "queue" else vhost.exchanges
    if wanted.source not in vhost.exchanges:
        raise AMQPNotFound(f"no exchange '{wanted.source}' in vhost '{vhost.name}'")
    if wanted.destination not in ends:
        raise AMQPNotFound(f"no {wanted.destination_type} '{wanted.destination}' in vhost '{vhost.name}'")
    _refuse_locked(asker, wanted)
    binding = plans.new_binding(vhost, wanted)
    if plans.find_binding(vhost, wanted) is not None:
        asker.once_known(lambda: bound(False))
        return

    def done(made: bool) -> None:
        if made:
            bound(True)
        else:
            # An end was deleted while the binding was on its way; another one may have its name by now.
            bind_to(asker, wanted, bound)

    node.changes.bind(binding, asker.suspend(done), asker.by)


def unbind_from(asker: Asker, wanted: BindingRecord, unbound: Callable[[bool], None]) -> None:
    """`unbound` is told whether it was there. Removing what is not there succeeds, also when an end is not there, as
    in RabbitMQ since 3.2."""
    _check(asker, wanted)
    binding = plans.find_binding(asker.node.topology.vhosts[asker.vhost], wanted)
    if binding is None:
        asker.once_known(lambda: unbound(False))
    else:
        _refuse_locked(asker, wanted)
        asker.node.changes.remove(binding, asker.suspend(lambda _: unbound(True)), by=asker.by)


def _check(asker: Asker, wanted: BindingRecord) -> None:
    refuse_default_exchange(wanted.source)
    if wanted.destination_type == "exchange":
        refuse_default_exchange(wanted.destination)
    asker.require("write", wanted.destination_type, wanted.destination)
    asker.require("read", "exchange", wanted.source)
    state = asker.node.topology.vhosts[asker.vhost].exchanges.get(wanted.source)
    if state is not None and state.record.type == "topic":
        asker.require_topic("read", wanted.source, wanted.routing_key)


def _refuse_locked(asker: Asker, wanted: BindingRecord) -> None:
    """A queue that another connection has for itself: the last check, as in RabbitMQ."""
    if wanted.destination_type == "queue" and (queue := asker.queue(wanted.destination)) is not None:
        refuse_locked(asker, queue.record)
