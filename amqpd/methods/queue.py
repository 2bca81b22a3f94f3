"""queue.declare, bind, unbind, purge, delete (section 1.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pamqp import commands
from pamqp.exceptions import AMQPAccessRefused, AMQPPreconditionFailed

from amqpd.methods.bindings import bind_to, unbind_from
from amqpd.methods.names import (
    existing_queue,
    last_queue,
    locked,
    refuse_locked,
    refuse_reserved,
    require_equal,
    require_equal_arguments,
    strip,
)
from amqpd.topology.records import Arguments, Put, QueueRecord
from amqpd.wire import declare_ok_frame

if TYPE_CHECKING:
    from amqpd.channels import Channel
    from amqpd.node import Handlers
    from amqpd.queues.queue import Queue

# The arguments that RabbitMQ compares (rabbit_amqqueue:check_queue_type_args and its queue types).
EQUIVALENCE_ARGUMENTS = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-type",
    "x-single-active-consumer",
    "x-delivery-limit",
)


def declare(channel: Channel, method: commands.Queue.Declare) -> None:
    connection, node = channel.connection, channel.node
    name = strip(method.queue)
    if method.passive:
        _declare_passive(channel, method, name)
        return
    generated = not name
    if generated:
        name = "amq.gen-" + node.token()
    node.access.require(connection.user, connection.vhost, "configure", "queue", name)
    exclusive = bool(method.exclusive)
    record = QueueRecord(
        connection.vhost,
        name,
        node.new_queue_id(),
        # An exclusive queue does not outlive its connection: transient whatever it says, as in RabbitMQ.
        durable=bool(method.durable) and not exclusive,
        auto_delete=bool(method.auto_delete),
        exclusive=exclusive,
        owner=connection.id if exclusive else None,
        arguments=method.arguments or {},
    )
    existing = node.queues.get((connection.vhost, name))
    if existing is not None:
        _require_equivalent(record, existing.record)
        _declared(channel, method, existing)
        return
    if not generated:
        refuse_reserved("queue", name)

    def declared(created: bool) -> None:
        queue = node.queues.get((connection.vhost, name))
        if queue is None or not created:
            declare(channel, method)  # somebody was faster
        else:
            _declared(channel, method, queue)

    node.submit([Put(record, create=True)], channel.suspend(declared))


def _declare_passive(channel: Channel, method: commands.Queue.Declare, name: str) -> None:
    """Tells whether it exists; compares nothing (BEHAVIOUR 1: KEDA relies on it)."""
    connection, access = channel.connection, channel.node.access
    for kind in ("configure", "write", "read"):
        try:
            access.require(connection.user, connection.vhost, kind, "queue", name)
            break
        except AMQPAccessRefused as error:
            refused = error
    else:
        raise refused
    _declared(channel, method, existing_queue(channel, name))


def _declared(channel: Channel, method: commands.Queue.Declare, queue: Queue) -> None:
    channel.last_queue = queue.record.name
    if not method.nowait:
        channel.connection.write(
            declare_ok_frame(channel.id, queue.record.name, queue.backlog.ready, len(queue.consumers))
        )


def _require_equivalent(received: QueueRecord, current: QueueRecord) -> None:
    resource = f"queue '{current.name}' in vhost '{current.vhost}'"
    if received.owner != current.owner:
        raise locked(current)  # whatever else differs, as RabbitMQ has it
    require_equal(resource, "durable", received.durable, current.durable)
    require_equal(resource, "auto_delete", received.auto_delete, current.auto_delete)
    require_equal_arguments(
        resource, EQUIVALENCE_ARGUMENTS, _with_type(received.arguments), _with_type(current.arguments)
    )


def _with_type(arguments: Arguments) -> dict[str, Any]:
    """A queue without a type is a classic one."""
    return {"x-queue-type": "classic", **arguments}


def bind(channel: Channel, method: commands.Queue.Bind) -> None:
    def bound() -> None:
        if not method.nowait:
            channel.send(commands.Queue.BindOk())

    name, key = last_queue(channel, method.queue), method.routing_key or ""
    if not method.queue and not key:
        key = name
    bind_to(channel, strip(method.exchange), name, "queue", key, method.arguments, bound)


def unbind(channel: Channel, method: commands.Queue.Unbind) -> None:
    name, key = last_queue(channel, method.queue), method.routing_key or ""
    if not method.queue and not key:
        key = name

    def unbound() -> None:
        channel.send(commands.Queue.UnbindOk())

    unbind_from(channel, strip(method.exchange), name, "queue", key, method.arguments, unbound)


def purge(channel: Channel, method: commands.Queue.Purge) -> None:
    connection = channel.connection
    name = last_queue(channel, method.queue)
    channel.node.access.require(connection.user, connection.vhost, "read", "queue", name)
    count = existing_queue(channel, name).purge()
    if not method.nowait:
        channel.send(commands.Queue.PurgeOk(message_count=count))


def delete(channel: Channel, method: commands.Queue.Delete) -> None:
    connection, node = channel.connection, channel.node
    name = last_queue(channel, method.queue)
    node.access.require(connection.user, connection.vhost, "configure", "queue", name)
    queue = node.queues.get((connection.vhost, name))

    def deleted(count: int) -> None:
        if not method.nowait:
            channel.send(commands.Queue.DeleteOk(message_count=count))

    if queue is None:
        deleted(0)  # deleting what is not there succeeds, in RabbitMQ since 3.2
        return
    refuse_locked(channel, queue.record)

    def obstacle() -> str | None:
        if method.if_unused and queue.consumers:
            return "in use"
        return "not empty" if method.if_empty and queue.backlog.ready else None

    def done(gone: bool) -> None:
        if not gone:
            raise AMQPPreconditionFailed(f"queue '{name}' in vhost '{connection.vhost}' {obstacle() or 'in use'}")
        deleted(queue.backlog.ready)

    if obstacle() is not None:
        done(False)
    else:
        node.remove(queue.record, channel.suspend(done), lambda: obstacle() is None)


METHODS: Handlers = {
    commands.Queue.Declare: declare,
    commands.Queue.Bind: bind,
    commands.Queue.Unbind: unbind,
    commands.Queue.Purge: purge,
    commands.Queue.Delete: delete,
}
