"""queue.declare, bind, unbind, purge, delete (section 1.7)."""

from __future__ import annotations

from collections.abc import Iterator

from pamqp import commands
from pamqp.exceptions import AMQPNotFound, AMQPSoftError

from amqpd.channels import Channel
from amqpd.declarations.asker import RoundTrip
from amqpd.declarations.bindings import bind_to, unbind_from
from amqpd.declarations.names import dispatched, existing_queue, strip
from amqpd.declarations.queues import WantedQueue, declare_queue, delete_queue, passive_queue
from amqpd.message.properties import REPLY_TO
from amqpd.methods.channel_asker import asker, last_queue
from amqpd.node.node import Handlers
from amqpd.queues.arguments import crashed
from amqpd.queues.port import DeclareCounts, QueuePort
from amqpd.vocabulary.records import BindingRecord
from amqpd.wire.frames import declare_ok_frame, delete_ok_frame


def declare(channel: Channel, method: commands.Queue.Declare) -> None:
    name = strip(method.queue)
    if name.startswith(REPLY_TO):
        _declare_replies(channel, method, name)
        return
    if method.passive:
        passive_queue(asker(channel), name)
        asker(channel).once_known(lambda: _declared(channel, method, passive_queue(asker(channel), name)))
        return
    wanted = WantedQueue(
        name, bool(method.durable), bool(method.exclusive), bool(method.auto_delete), method.arguments or {}
    )
    declare_queue(asker(channel), wanted, lambda queue, new: _declared(channel, method, queue, new))


def _declare_replies(channel: Channel, method: commands.Queue.Declare, name: str) -> None:
    """Tells whether the requester is still there, and needs no permission. It is passive whatever it says, and the
    pseudo-queue itself is always there (rabbit_channel.erl)."""
    connection = channel.connection
    if name != REPLY_TO and channel.node.replies.find(connection.vhost, name) is None:
        raise AMQPNotFound(f"no queue '{name}' in vhost '{connection.vhost}'")
    channel.last_queue = name
    if not method.nowait:
        connection.write(declare_ok_frame(channel.id, name, 0, 1))


def _declared(channel: Channel, method: commands.Queue.Declare, queue: QueuePort, new: bool = False) -> None:
    channel.last_queue = queue.record.name
    if not (new and queue.is_away):  # its leader is another node, as it was asked for (x-queue-leader-locator)
        queue.used()
        dispatched(channel.node, queue)

    def answered(counts: DeclareCounts | AMQPSoftError) -> None:
        if isinstance(counts, AMQPSoftError):
            raise counts
        channel.connection.write(declare_ok_frame(channel.id, queue.record.name, counts.ready, counts.consumers))

    if not method.nowait:
        asker(channel).ask(queue, queue.count, answered)


def bind(channel: Channel, method: commands.Queue.Bind) -> None:
    def bound(_: bool) -> None:
        if not method.nowait:
            channel.send(commands.Queue.BindOk())

    bind_to(asker(channel), _binding(channel, method), bound)


def unbind(channel: Channel, method: commands.Queue.Unbind) -> None:
    def unbound(_: bool) -> None:
        channel.send(commands.Queue.UnbindOk())

    unbind_from(asker(channel), _binding(channel, method), unbound)


def _binding(channel: Channel, method: commands.Queue.Bind | commands.Queue.Unbind) -> BindingRecord:
    name, key = last_queue(channel, method.queue), method.routing_key or ""
    if not method.queue and not key:
        key = name
    ends, arguments = (strip(method.exchange), name), method.arguments or {}
    return BindingRecord(channel.connection.vhost, *ends, "queue", key, arguments=arguments)


def purge(channel: Channel, method: commands.Queue.Purge) -> None:
    connection = channel.connection
    name = last_queue(channel, method.queue)
    channel.node.access.require(connection.user, connection.vhost, "read", "queue", name)
    queue = existing_queue(asker(channel), name)
    dispatched(channel.node, queue)
    connection.intake.carry_out(channel, _purging(channel, queue, method.nowait), connection.current)


def _purging(channel: Channel, queue: QueuePort, nowait: bool) -> Iterator[None]:
    """As steps for `Intake.carry_out`."""
    node, connection, trip = channel.node, channel.connection, RoundTrip()

    def purged(count: int | AMQPSoftError) -> None:
        if not isinstance(count, AMQPSoftError):
            # Also when nobody waits for it any more.
            node.acts.purged(connection, connection.vhost, queue.record.name, count)
        trip.answer(count)

    def answered(count: int | AMQPSoftError) -> None:
        if isinstance(count, AMQPSoftError):
            raise count
        if not (nowait or channel.released):
            channel.send(commands.Queue.PurgeOk(message_count=count))

    try:
        for work in queue.purging(purged):
            node.turns.charge(connection, work)
            yield
    except Exception as error:
        node.quarantine(queue, error)
        raise crashed(queue.record) from error
    trip.then(channel.suspend, answered)


def delete(channel: Channel, method: commands.Queue.Delete) -> None:
    def deleted(count: int | None) -> None:
        if not method.nowait:
            # Deleting what is not there succeeds, in RabbitMQ since 3.2.
            channel.connection.write(delete_ok_frame(channel.id, count or 0))

    delete_queue(
        asker(channel),
        last_queue(channel, method.queue),
        if_unused=bool(method.if_unused),
        if_empty=bool(method.if_empty),
        deleted=deleted,
    )


METHODS: Handlers = {
    commands.Queue.Declare: declare,
    commands.Queue.Bind: bind,
    commands.Queue.Unbind: unbind,
    commands.Queue.Purge: purge,
    commands.Queue.Delete: delete,
}
