"""basic.qos, consume, cancel, get, ack, nack, reject, recover (section 1.8)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct

from pamqp import commands
from pamqp.exceptions import AMQPNotAllowed, AMQPNotImplemented, AMQPPreconditionFailed, AMQPSoftError

from amqpd.audit.kinds import REDELIVERED, WITH_ACKED
from amqpd.audit.party import consuming
from amqpd.channels import Channel
from amqpd.declarations.names import dispatched, existing_queue, refuse_crashed
from amqpd.kernel import content_pieces
from amqpd.message.properties import REPLY_TO
from amqpd.methods.channel_asker import asker, last_queue
from amqpd.node.node import Handlers
from amqpd.queues.arguments import check_consumer, described_queue
from amqpd.queues.levels import SEQ_MASK
from amqpd.queues.port import Got
from amqpd.session.consumers import Consumer
from amqpd.session.steps import recovering
from amqpd.tracing.tracer import SentRange
from amqpd.vocabulary.records import Arguments

# Consumers of one channel; RabbitMQ has such a bound (consumer_max_per_channel), but none by default. Each costs half
# a kilobyte and a look in every dispatch of its queue: a client with more has forgotten to cancel them.
CONSUMERS_MAX = 10_000

_TAG_REDELIVERED = Struct(">QB")
_HEAD = Struct(">BHI")
_COUNT = Struct(">I")


def qos(channel: Channel, method: commands.Basic.Qos) -> None:
    """Per consumer for those to come, or shared by the channel (https://www.rabbitmq.com/docs/consumer-prefetch).

    Both hold when the shared one is set last. Setting the other lifts it, as in RabbitMQ (seen with 3.10.8)."""
    if method.prefetch_size:
        raise AMQPNotImplemented(f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.prefetch_shared = method.prefetch_count or 0
    else:
        channel.prefetch = method.prefetch_count or 0
        channel.prefetch_shared = 0
    channel.prefetch_changed()
    channel.send(commands.Basic.QosOk())


def consume(channel: Channel, method: commands.Basic.Consume) -> None:
    connection, node = channel.connection, channel.node
    name = last_queue(channel, method.queue)
    if name == REPLY_TO:
        _consume_replies(channel, method)
        return
    node.access.require(connection.user, connection.vhost, "read", "queue", name)
    asking = asker(channel)
    queue = existing_queue(asking, name)
    tag = _new_tag(channel, method)
    arguments: Arguments = method.arguments or {}
    check_consumer(queue.record, arguments)
    if (queue.quorum or queue.is_remote) and channel.prefetch_shared:
        # Quorum queues do not have it (https://www.rabbitmq.com/docs/quorum-queues#feature-matrix). With classic ones
        # of other nodes it would be divided among leaders, who do not say yet when they want some of it.
        raise AMQPNotImplemented(f"{described_queue(queue.record)} does not support global qos")
    consumer = Consumer(
        channel,
        queue,
        tag,
        bool(method.no_ack),
        bool(method.exclusive) and not queue.quorum,  # they ignore that a consumer wants to be alone
        arguments.get("x-priority", 0),
        arguments.get("x-consumer-timeout"),
    )

    def answered(refusal: AMQPSoftError | None) -> None:
        channel.joining = None
        if refusal is not None:
            raise refusal
        channel.consumers[tag] = consumer
        node.to_dispatch.add(queue)
        node.client_counters.consumer_added(connection.vhost)
        node.events.consumer_added(channel, consumer, arguments)
        if not method.nowait:
            channel.send(commands.Basic.ConsumeOk(consumer_tag=tag))

    if not asking.ask(queue, partial(queue.consume, consumer), answered):
        channel.joining = consumer


def _new_tag(channel: Channel, method: commands.Basic.Consume) -> str:
    tag = method.consumer_tag or "amq.ctag-" + channel.node.token()
    replies = channel.reply_consumer
    if tag in channel.consumers or (replies is not None and replies.tag == tag):
        raise AMQPNotAllowed(f"attempt to reuse consumer tag '{tag}'")
    if len(channel.consumers) >= CONSUMERS_MAX:
        raise AMQPNotAllowed(f"reached maximum ({CONSUMERS_MAX}) of consumers per channel")
    return tag


def _consume_replies(channel: Channel, method: commands.Basic.Consume) -> None:
    """Direct reply-to: nobody needs a permission for it (https://www.rabbitmq.com/docs/direct-reply-to)."""
    tag = _new_tag(channel, method)
    if not method.no_ack:
        raise AMQPPreconditionFailed("reply consumer cannot acknowledge")
    if channel.reply_consumer is not None:
        raise AMQPPreconditionFailed("reply consumer already set")
    channel.reply_consumer = channel.node.replies.open(channel, tag)
    if not method.nowait:
        channel.send(commands.Basic.ConsumeOk(consumer_tag=tag))


def cancel(channel: Channel, method: commands.Basic.Cancel) -> None:
    tag = method.consumer_tag or ""
    consumer = channel.consumers.get(tag)
    if consumer is not None and consumer.queue in channel.node.to_dispatch and consumer.credit() > 0:
        # What came before the cancel has its effect: the acknowledgements right before it made space.
        channel.node.dispatch(consumer.queue)
        consumer = channel.consumers.get(tag)

    def answered(_: None) -> None:
        channel.send(commands.Basic.CancelOk(consumer_tag=method.consumer_tag))

    if consumer is not None:
        if method.nowait:
            channel.remove_consumer(consumer)
        else:
            asker(channel).ask(consumer.queue, partial(channel.remove_consumer, consumer), answered)
        return
    if channel.reply_consumer is not None and channel.reply_consumer.tag == tag:
        channel.remove_reply_consumer()
    if not method.nowait:
        answered(None)


def cancel_ok(channel: Channel, method: commands.Basic.CancelOk) -> None:
    """The answer to a consumer cancel notification; it was sent with nowait, so nothing waits for it."""


def get(channel: Channel, method: commands.Basic.Get) -> None:
    connection, node = channel.connection, channel.node
    name = last_queue(channel, method.queue)
    node.access.require(connection.user, connection.vhost, "read", "queue", name)
    asking = asker(channel)
    queue = existing_queue(asking, name)
    no_ack = bool(method.no_ack)
    if queue.consumer_count:
        # What was published before is theirs, as far as they have credit; it may have come in the same tick.
        dispatched(node, queue)

    def answered(got: Got | AMQPSoftError | None) -> None:
        if got is None:
            refuse_crashed(node, queue)
            channel.send(commands.Basic.GetEmpty())
            return
        if isinstance(got, AMQPSoftError):
            raise got
        (run, low, _, seq, redelivered), ready, book = got
        tag = channel.next_tag
        channel.next_tag += 1
        if not no_ack:
            channel.unacked.add(tag, 1, seq, queue, None)
        if channel.watched:
            node.trace(channel, queue, SentRange(run, low, low + 1, redelivered, tag, "get", no_ack))
        payload = b"\x00\x3c\x00\x47" + _TAG_REDELIVERED.pack(tag, redelivered) + run.names_of(low)
        payload += _COUNT.pack(ready)
        connection.write(_HEAD.pack(1, channel.id, len(payload)) + payload + b"\xce")
        connection.write_pieces(content_pieces(run, low, channel.id, connection.frame_max))
        if book is not None:
            if channel.getting is None:
                channel.getting = consuming(connection, "")
            flags = (REDELIVERED if redelivered else 0) | (WITH_ACKED if no_ack else 0)
            book.delivered(seq & SEQ_MASK, 1, flags, channel.getting, channel.id, run.body_bytes // run.count)

    asking.ask(queue, partial(queue.get, no_ack), answered)
    node.to_dispatch.add(queue)


def ack(channel: Channel, method: commands.Basic.Ack) -> None:
    tag = method.delivery_tag or 0
    channel.settle(tag, tag, bool(method.multiple), None)


def nack(channel: Channel, method: commands.Basic.Nack) -> None:
    """https://www.rabbitmq.com/docs/nack"""
    tag = method.delivery_tag or 0
    channel.settle(tag, tag, bool(method.multiple), bool(method.requeue))


def reject(channel: Channel, method: commands.Basic.Reject) -> None:
    tag = method.delivery_tag or 0
    channel.settle(tag, tag, False, bool(method.requeue))


def recover(channel: Channel, method: commands.Basic.Recover) -> None:
    _recover(channel, bool(method.requeue), lambda: channel.send(commands.Basic.RecoverOk()))


def recover_async(channel: Channel, method: commands.Basic.RecoverAsync) -> None:
    _recover(channel, bool(method.requeue), lambda: None)


def _recover(channel: Channel, requeue: bool, done: Callable[[], None]) -> None:
    if not requeue:
        # Redelivery to the very same consumer: RabbitMQ does not have it either.
        raise AMQPNotImplemented("requeue=false")
    channel.connection.intake.begin(recovering(channel, done))


METHODS: Handlers = {
    commands.Basic.Qos: qos,
    commands.Basic.Consume: consume,
    commands.Basic.Cancel: cancel,
    commands.Basic.CancelOk: cancel_ok,
    commands.Basic.Get: get,
    commands.Basic.Ack: ack,
    commands.Basic.Nack: nack,
    commands.Basic.Reject: reject,
    commands.Basic.Recover: recover,
    commands.Basic.RecoverAsync: recover_async,
}
