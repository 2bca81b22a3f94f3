"""queue.declare, bind, unbind, purge, delete (section 1.7)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pamqp import commands
from pamqp.exceptions import AMQPAccessRefused, AMQPNotFound, AMQPNotImplemented, AMQPPreconditionFailed

from amqpd.message.properties import REPLY_TO
from amqpd.methods.bindings import bind_to, unbind_from
from amqpd.methods.names import (
    dispatched,
    existing_queue,
    last_queue,
    locked,
    refuse_crashed,
    refuse_locked,
    refuse_reserved,
    require_equal,
    require_equal_arguments,
    strip,
)
from amqpd.node.quarantine import crashed
from amqpd.queues.arguments import (
    DECLARE_ARGUMENTS,
    check_dead_letter_exchange,
    check_declaration,
    described_queue,
    refuse_server_named,
    with_default_type,
)
from amqpd.queues.settings import type_of
from amqpd.vocabulary.records import Arguments, QueueRecord
from amqpd.wire.frames import declare_ok_frame, delete_ok_frame

if TYPE_CHECKING:
    from amqpd.channels import Channel
    from amqpd.node.node import Handlers
    from amqpd.queues.queue import Queue


def declare(channel: Channel, method: commands.Queue.Declare) -> None:
    connection, node = channel.connection, channel.node
    name = strip(method.queue)
    if name.startswith(REPLY_TO):
        _declare_replies(channel, method, name)
        return
    if method.passive:
        _declare_passive(channel, method, name)
        return
    exclusive = bool(method.exclusive)
    # An exclusive queue does not outlive its connection: transient whatever it says, as in RabbitMQ.
    durable = bool(method.durable) and not exclusive
    arguments = with_default_type(
        method.arguments or {},
        node.topology.vhost_records[connection.vhost].metadata.get("default_queue_type"),
        durable,
        exclusive,
        bool(method.auto_delete),
    )
    if not name:
        refuse_server_named(arguments)
        name = "amq.gen-" + node.token()
    else:
        # Even of a queue that is there: only a passive declaration may name one that the broker named.
        refuse_reserved("queue", name)
    node.access.require(connection.user, connection.vhost, "configure", "queue", name)
    record = QueueRecord(
        connection.vhost,
        name,
        node.new_queue_id(),
        durable=durable,
        auto_delete=bool(method.auto_delete),
        exclusive=exclusive,
        owner=connection.id if exclusive else None,
        owner_node=node.identity.id if exclusive else None,
        arguments=arguments,
    )
    existing = node.queues.get((connection.vhost, name))
    if existing is not None:
        _require_equivalent(record, existing.record)
        refuse_crashed(existing)
        _declared(channel, method, existing)
        return
    _check_new(channel, record)

    def declared(created: bool) -> None:
        queue = node.queues.get((connection.vhost, name))
        if queue is None or not created:
            declare(channel, method)  # somebody was faster
        else:
            _declared(channel, method, queue)

    node.census.declare_queue(record, channel.suspend(declared), partial(node.submit, by=connection))


def _check_new(channel: Channel, record: QueueRecord) -> None:
    """Who names a dead letter exchange must be able to read here and write there, or it would be a way around
    permissions (https://www.rabbitmq.com/docs/dlx#security). RabbitMQ looks at that first."""
    dead_letter_exchange = check_dead_letter_exchange(record)
    if dead_letter_exchange is not None:
        access, user = channel.node.access, channel.connection.user
        access.require(user, record.vhost, "read", "queue", record.name)
        access.require(user, record.vhost, "write", "exchange", dead_letter_exchange)
    check_declaration(record)


def _declare_passive(channel: Channel, method: commands.Queue.Declare, name: str) -> None:
    """Tells whether it exists; compares nothing: KEDA relies on that."""
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


def _declare_replies(channel: Channel, method: commands.Queue.Declare, name: str) -> None:
    """Tells whether the requester is still there, and needs no permission. It is passive whatever it says, and the
    pseudo-queue itself is always there (rabbit_channel.erl)."""
    connection = channel.connection
    if name != REPLY_TO and channel.node.replies.find(connection.vhost, name) is None:
        raise AMQPNotFound(f"no queue '{name}' in vhost '{connection.vhost}'")
    channel.last_queue = name
    if not method.nowait:
        connection.write(declare_ok_frame(channel.id, name, 0, 1))


def _declared(channel: Channel, method: commands.Queue.Declare, queue: Queue) -> None:
    channel.last_queue = queue.record.name
    queue.used()
    dispatched(channel, queue)
    if not method.nowait:
        channel.connection.write(
            declare_ok_frame(channel.id, queue.record.name, queue.backlog.ready, len(queue.consumers))
        )


def _require_equivalent(received: QueueRecord, current: QueueRecord) -> None:
    resource = described_queue(current)
    if (received.owner, received.owner_node) != (current.owner, current.owner_node):
        raise locked(current)  # whatever else differs, as RabbitMQ has it
    require_equal(resource, "durable", received.durable, current.durable)
    require_equal(resource, "auto_delete", received.auto_delete, current.auto_delete)
    names = DECLARE_ARGUMENTS[type_of(current.arguments)]
    require_equal_arguments(resource, names, _with_type(received.arguments), _with_type(current.arguments))


def _with_type(arguments: Arguments) -> dict[str, Any]:
    """A queue without a type is a classic one, and RabbitMQ 4 compares it so."""
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
    queue = existing_queue(channel, name)
    dispatched(channel, queue)
    connection.intake.carry_out(channel, _purging(channel, queue, method.nowait), connection.current)


def _purging(channel: Channel, queue: Queue, nowait: bool) -> Iterator[None]:
    """As steps for `Intake.carry_out`."""
    node, connection, count = channel.node, channel.connection, 0
    try:
        for gone, work in queue.purging():
            count += gone
            node.turns.charge(connection, work)
            yield
    except Exception as error:
        node.quarantine(queue, error)
        raise crashed(queue.record) from error
    node.acts.purged(connection, queue.record.name, count)
    if not (nowait or channel.released):
        channel.send(commands.Queue.PurgeOk(message_count=count))


def delete(channel: Channel, method: commands.Queue.Delete) -> None:
    connection, node = channel.connection, channel.node
    name = last_queue(channel, method.queue)
    node.access.require(connection.user, connection.vhost, "configure", "queue", name)
    queue = node.queues.get((connection.vhost, name))

    def deleted(count: int) -> None:
        if not method.nowait:
            connection.write(delete_ok_frame(channel.id, count))

    if queue is None:
        deleted(0)  # deleting what is not there succeeds, in RabbitMQ since 3.2
        return
    refuse_locked(channel, queue.record)
    node.dispatch(queue)  # one that is out of service, or goes out of it now, can be deleted
    if queue.settings.quorum:
        _refuse_conditions(method, queue.record)

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
        node.remove(queue.record, channel.suspend(done), lambda: obstacle() is None, connection)


def _refuse_conditions(method: commands.Queue.Delete, record: QueueRecord) -> None:
    """https://www.rabbitmq.com/docs/specification: quorum queues are deleted whatever is in them."""
    for flag, asked in (("if-unused", method.if_unused), ("if-empty", method.if_empty)):
        if asked:
            raise AMQPNotImplemented(
                f"cannot delete {described_queue(record)}. queue.delete operations with {flag} flag set are not "
                "supported by quorum queues"
            )


METHODS: Handlers = {
    commands.Queue.Declare: declare,
    commands.Queue.Bind: bind,
    commands.Queue.Unbind: unbind,
    commands.Queue.Purge: purge,
    commands.Queue.Delete: delete,
}
