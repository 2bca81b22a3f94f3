"""A channel: methods in order, delivery tags, prefetch, confirms, transactions.

What comes in: runs of publishes and ranges of acks from the kernel's fast path, other frames one by one; messages
from queues. What goes out: frames, into the connection's outbox; changes, to the node.
Rules: 1. Everything a client does on a channel happens in the order sent: while a change waits for the metadata store
the channel is *suspended* and holds its later frames; other channels go on. 2. A soft error closes the channel, and
only it; then everything up to channel.close-ok is thrown away. 3. Confirms go out in tag order, each once, at the end
of a tick, and none before the journal's number covers it: refusals first, one by one, then one basic.ack for all that
is safe.
Not here: what a publish does (`publishing/publish.py`) and each other method (`methods/`), consumers
(`session/consumers.py`), the connection's methods (`connection.py`).

Source: AMQP 0-9-1 sections 1.5 to 1.9 of the reference; https://www.rabbitmq.com/docs/confirms.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pamqp import base, commands
from pamqp.exceptions import (
    AMQPAccessRefused,
    AMQPCommandInvalid,
    AMQPFrameError,
    AMQPPreconditionFailed,
    AMQPSoftError,
    AMQPUnexpectedFrame,
)

from amqpd.audit.party import Party
from amqpd.declarations.names import NotLedHere
from amqpd.flow.leader_moves import WAIT_MS
from amqpd.kernel import Mixed, Run, encode_ack
from amqpd.message.content import CONTENT_BYTES, Content
from amqpd.node.node import Node
from amqpd.publishing import batches
from amqpd.publishing import publish as publishing
from amqpd.publishing.ports import PublishingChannel
from amqpd.publishing.replies import ReplyConsumer
from amqpd.publishing.routes import RouteCache
from amqpd.queues.damage import QueueFenced
from amqpd.queues.port import unheard
from amqpd.session.confirms import Confirms
from amqpd.session.credit import CreditQueue, Subscription
from amqpd.session.delivery_ages import DeliveryAges, timed_out
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.session.settling import conclude
from amqpd.session.steps import ENTRIES_MAX, closing, settling
from amqpd.session.unacked import Unacked
from amqpd.vocabulary.client import UnfinishedKind
from amqpd.vocabulary.states import ConnectionState
from amqpd.wire.frames import method_frame, nack_frame, read_method, reply_text

# What a held frame costs in memory beside its payload.
HELD_FRAME_BYTES = 128
# RabbitMQ's bound on any body, whatever the configuration says (rabbit_command_assembler).
BODY_BYTES_MAX = 512 * 1024 * 1024

_PUBLISH_ID = b"\x00\x3c\x00\x28"
_CLOSE_ID, _CLOSE_OK_ID = b"\x00\x14\x00\x28", b"\x00\x14\x00\x29"
_NO_METHOD = b"\x00\x00\x00\x00"


class Channel(PublishingChannel):
    """The state machine of one channel."""

    def __init__(self, node: Node, connection: ConnectionBase, routes: RouteCache, channel_id: int) -> None:
        """`routes`: what the connection remembers of its publishes."""
        super().__init__()
        self.connection = connection
        self.client = connection
        self.node = node
        self.shared = node
        self.id = channel_id
        self.closing = False
        self.released = False
        self.suspended = False
        self.held: deque[tuple[int, bytes]] | None = None
        self.held_bytes = 0
        self._notices: list[base.Frame] = []
        """what is told behind the answer that a suspended channel waits for"""
        self.content: Content | None = None
        self.plain = True
        self.last_queue: str | None = None
        self.prefetch = 0
        self.prefetch_shared = 0
        self.traced = connection.vhost in node.firehose.taps
        self.watched = self.traced or node.tracer is not None
        """somebody is to know of its deliveries"""
        self.traced_publish = None
        self.deliveries = None
        self.routes = routes
        self.consumers: dict[str, Subscription] = {}
        self.joining: Subscription | None = None
        self.reply_consumer: ReplyConsumer | None = None
        self.next_tag = 1
        self.published = 0
        self.unacked = Unacked()
        self._ages = DeliveryAges()
        self.consumed = 0
        self.shared_queue = CreditQueue(self._shares_prefetch)
        self.getting: Party | None = None
        """in the audit log, who gets messages by basic.get"""
        self.tx = None
        self.ledger_bytes = 0
        self._current = b"\x00\x00\x00\x00"
        """class and method id of the last method, for an error in its continuation"""
        self._current_bytes = 0
        """of its frame's payload: what the store is asked for takes as much, and more, until it answers"""

    # Frames, one by one

    def frame(self, kind: int, payload: bytes) -> None:
        if self.suspended or self.connection.choked:
            if self.held is None:
                self.held = deque()
            self.held.append((kind, payload))
            self._hold(HELD_FRAME_BYTES + len(payload))
            return
        try:
            self._handle(kind, payload)
        except AMQPSoftError as error:
            self.fail(error, payload if kind == 1 else _PUBLISH_ID)
        self._set_plain()

    def _hold(self, nbytes: int) -> None:
        """So much more waits in the channel, or less."""
        self.held_bytes += nbytes
        self.connection.intake.held_bytes += nbytes

    def _handle(self, kind: int, payload: bytes) -> None:
        if self.closing:
            self._handle_closing(kind, payload)
            return
        if self.content is not None:
            self._add_content(kind, payload)
            return
        if kind != 1:
            raise AMQPUnexpectedFrame("expected method frame, got non method frame instead")
        if payload[:4] == _PUBLISH_ID:
            self.content = Content(self.id, payload)
            self.connection.publishing = True
            return
        self._current, self._current_bytes = payload[:4], len(payload)
        method = read_method(payload)
        handler = self.node.methods.get(type(method))
        if handler is None:
            raise AMQPCommandInvalid("unimplemented method")  # only brokers send it, or it is the connection's
        try:
            handler(self, method)
        except NotLedHere as error:
            if not self.node.leader_moves.is_moving(error.source):
                raise
            steps = self._once_led(partial(handler, self, method), error.source)
            self.connection.intake.carry_out(self, steps, payload[:4])

    def _once_led(self, step: Callable[[], None], source: int) -> Iterator[None]:
        """The step, when it is decided who leads the source of its queue."""
        yield from self.node.leader_moves.wait(self.connection, source, self.node.now_ms + WAIT_MS)
        if not (self.closing or self.closed or self.connection.ended):
            step()
            self._set_plain()

    def _handle_closing(self, kind: int, payload: bytes) -> None:
        """A close that crossed ours is answered, but only close-ok ends the channel (section 1.5.2.5)."""
        if kind == 1 and payload[:4] == _CLOSE_ID:
            self.send(commands.Channel.CloseOk())
        elif kind == 1 and payload[:4] == _CLOSE_OK_ID:
            self.connection.forget_channel(self)

    def _add_content(self, kind: int, payload: bytes) -> None:
        content = self.content
        assert content is not None
        nbytes = len(payload) if content.charged else CONTENT_BYTES + len(payload)
        content.charged += nbytes
        self.node.client_counters.unfinished.charge(self, nbytes)
        complete = content.add(kind, payload)
        if content.body_size > BODY_BYTES_MAX:
            raise AMQPFrameError(f"body size {content.body_size} is larger than the limit {BODY_BYTES_MAX}")
        publishing.check_size(self, content.body_size)
        if complete:
            self.end_content()
            publishing.publish(self.node, self, content.run())

    def _set_plain(self) -> None:
        stops = self.closing or self.suspended or self.closed or self.content is not None
        self.plain = not stops and self.connection.state is ConnectionState.RUNNING

    def suspend(self, continuation: Callable[..., None]) -> Callable[..., Any]:
        """Hold later frames until the returned function is called: it runs the continuation, then the held frames.
        A channel that was closed meanwhile, or is being closed, runs nothing: False."""
        self.suspended, self.plain = True, False
        waiting_bytes = HELD_FRAME_BYTES + self._current_bytes
        self._hold(waiting_bytes)

        def resume(*results: Any) -> bool:
            if self.closed:
                return False
            self._hold(-waiting_bytes)
            if self.closing or self.released:
                return False
            self.suspended = False
            self.connection.guard(lambda: self._continue(continuation, results))
            return True

        return resume

    def _continue(self, continuation: Callable[..., None], results: tuple[Any, ...]) -> None:
        connection = self.connection
        connection.current = self._current
        try:
            continuation(*results)
        except AMQPSoftError as error:
            self.fail(error, self._current)
        self._set_plain()
        if self._notices:
            notices, self._notices = self._notices, []
            if not self.suspended and not self.closing and not self.closed:
                for notice in notices:
                    self.send(notice)
            elif self.suspended:
                self._notices = notices
        self.go_on()
        connection.channel_went_on()

    def go_on(self) -> None:
        """Take the frames that were held, until it is suspended again or the client does not take the answers."""
        connection, held = self.connection, self.held
        # Behind channel.close the number may be open again: what is left is for that channel.
        while held and not self.suspended and connection.state is ConnectionState.RUNNING:
            if (connection.choked or connection.intake.throttled) and not self.closed:
                self._stop()
                return
            kind, payload = held[0]
            if self.node.alarms.kinds and not self.closed and connection.intake.stops(kind, self.id, payload[:4]):
                self._stop()
                return
            held.popleft()
            if not self.closed:
                self._hold(-HELD_FRAME_BYTES - len(payload))
            connection.frame(kind, self.id, payload)

    def _stop(self) -> None:
        """The connection's next turn goes on here."""
        intake = self.connection.intake
        if intake.stopped is None:
            intake.stopped = OrderedDict()
        intake.stopped[self] = None

    def send(self, method: base.Frame) -> None:
        self.connection.write(method_frame(self.id, method))

    def notify(self, method: base.Frame) -> None:
        """Tell what was not asked for: not before the answer that the client waits for, since it may be the cause
        (clients take the cancel of their own consumer before queue.delete-ok for somebody else's doing)."""
        if self.suspended:
            self._notices.append(method)
        else:
            self.send(method)

    def fail(self, error: AMQPSoftError, method_id: bytes) -> None:
        """Close the channel for the error (section 1.5.2.5), unless it is being closed: what has begun before goes on
        behind that, and may fail too."""
        if self.closing or self.closed:
            return
        self.node.durability.flush(self)
        text = reply_text(error)
        if not (isinstance(error, QueueFenced) and error.told):
            self.node.log("channel_error", connection=self.connection.name, channel=self.id, reply=text)
        if isinstance(error, AMQPAccessRefused):
            self.node.acts.refused(self.connection, text)
        self.closing = True
        self._end_publish(text)
        self.end_unfinished()
        self.connection.channels_closing += 1
        # The step that failed may have meant to wait; or it waits, and is closed for something else.
        waited, self.suspended, self.plain = self.suspended, False, False
        close = commands.Channel.Close(
            reply_code=error.value,  # type: ignore[attr-defined]  # each of pamqp's classes has it
            reply_text=text,
            class_id=int.from_bytes(method_id[:2], "big"),
            method_id=int.from_bytes(method_id[2:4], "big"),
        )
        self.connection.intake.begin(closing(self, partial(self._closed_with, close, waited)))

    def _closed_with(self, close: base.Frame, waited: bool) -> None:
        """What was held meanwhile is thrown away as what comes is, so that the client's close-ok is read."""
        self.send(close)
        if waited:
            self.go_on()
            self.connection.channel_went_on()

    @property
    def unfinished_kind(self) -> UnfinishedKind:
        if self.tx is not None:
            return UnfinishedKind.TRANSACTION
        return UnfinishedKind.LEDGER if self.content is None else UnfinishedKind.MESSAGE

    @property
    def waits(self) -> bool:
        return self.suspended or self.connection.intake.parked

    def refuse_unfinished(self, error: AMQPSoftError) -> None:
        self.fail(error, _NO_METHOD if self.content is None else _PUBLISH_ID)

    def end_unfinished(self) -> None:
        """The channel is about to go: what is charged to it counts no more, however long its release takes."""
        self.end_content()
        self._end_publish("channel closed")
        self._charge_ledger(0)
        if self.tx is not None:
            self.tx.give_up()

    def _end_publish(self, text: str) -> None:
        """If one is under way, the tracer is told how it ended."""
        publishing = self.traced_publish
        if publishing is not None and not publishing.ended and self.node.tracer is not None:
            self.node.tracer.failed(publishing, text)
            self.traced_publish = None

    def end_content(self) -> None:
        """It is complete, or given up."""
        if self.content is not None:
            self.node.client_counters.unfinished.release(self, self.content.charged)
            self.content = None

    def remove_consumer(self, consumer: Subscription, answer: Callable[[None], object] = unheard) -> None:
        if self.consumers.pop(consumer.tag, None) is not None:
            self.node.client_counters.consumer_gone(self.connection.vhost)
            self.node.events.consumer_removed(self, consumer)
        asked = False
        try:
            consumer.end(answer)
            asked = True
            self.node.consumer_gone(consumer.queue, self.connection)
        except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
            self.node.quarantine(consumer.queue, error)
            if not asked:
                answer(None)  # the queue will not

    def remove_reply_consumer(self) -> None:
        if self.reply_consumer is not None:
            self.node.replies.close(self.reply_consumer)
            self.reply_consumer = None

    # Publishing

    def publish(self, run: Run) -> None:
        try:
            publishing.publish(self.node, self, run)
        except AMQPSoftError as error:
            self.fail(error, _PUBLISH_ID)

    @property
    def takes_batches(self) -> bool:
        node = self.node
        return self.tx is None and not (self.traced or node.audit.active or node.quotas.active)

    def publish_batch(self, batch: Mixed) -> bool:
        return batches.publish_batch(self.node, self, batch)

    def flush_confirms(self) -> None:
        if self.confirms is not None and not (self.closing or self.closed):
            _write_confirms(self, self.confirms)

    # Settling

    def ack(self, first: int, last: int, multiple: bool) -> None:
        try:
            self.settle(first, last, multiple, None)
        except AMQPSoftError as error:
            self.fail(error, b"\x00\x3c\x00\x50")

    def settle(self, first: int, last: int, multiple: bool, requeue: bool | None) -> None:
        """Delivery tags first..last, or all up to `last` with `multiple`: `requeue` is None for an acknowledgement,
        else whether what is rejected goes back. Raises AMQPPreconditionFailed for an unknown tag."""
        unacked = self.unacked
        if unacked.count > ENTRIES_MAX and (multiple or last - first >= ENTRIES_MAX):
            self.connection.intake.begin(settling(self, first, last, multiple, requeue, self.connection.current))
            return
        if multiple:
            entries, unknown = unacked.settle_through(last)
        else:
            entries, unknown = unacked.settle(first, last)
        conclude(self, entries, requeue)
        if unknown is not None:
            raise AMQPPreconditionFailed(f"unknown delivery tag {unknown}")

    def on_timer(self, now: float) -> None:
        """About once a second: a delivery that was not acknowledged in time closes the channel. What the ledger takes
        is charged here and not at each acknowledgement: a second of them is little against the bound."""
        # What is suspended has something under way that would go on behind channel.close; the next second comes.
        if self.suspended or self.released:
            return
        try:
            self._charge_ledger(self.unacked.nbytes)
        except AMQPSoftError as error:
            self.fail(error, _NO_METHOD)
        oldest = self.unacked.oldest
        if oldest is None:
            return
        overdue_ms = self._ages.overdue_ms(oldest, self.next_tag, self.node.limits.consumer_timeout_s, now)
        if overdue_ms is not None:
            self.fail(AMQPPreconditionFailed(timed_out(self.id, overdue_ms)), _NO_METHOD)

    def _charge_ledger(self, nbytes: int) -> None:
        change, self.ledger_bytes = nbytes - self.ledger_bytes, nbytes
        if change > 0:
            self.node.client_counters.unfinished.charge(self, change)
        elif change:
            self.node.client_counters.unfinished.release(self, -change)

    # Credit of its consumers

    def _shares_prefetch(self) -> bool:
        """There is space in what its consumers share."""
        return not self.prefetch_shared or self.consumed < self.prefetch_shared

    def prefetch_changed(self) -> None:
        """There may be more space than before."""
        if self.shared_queue:
            self.node.waking.add(self.shared_queue)


def _write_confirms(channel: ChannelBase, confirms: Confirms) -> None:
    """The client is told what became of its publishes."""
    connection, audit = channel.connection, channel.shared.audit
    if confirms.unsaid:
        if confirms.recorded is not None:
            for first, last in confirms.unsaid:
                audit.refused(confirms, channel.id, first, last)
        for tag in confirms.refused():
            connection.write(nack_frame(channel.id, tag))
    count = confirms.due()
    if count > 0:
        tags = confirms.singly(count) if count > 1 else None
        if tags:
            connection.write(b"".join([encode_ack(channel.id, tag, False) for tag in tags]))
        else:
            connection.write(encode_ack(channel.id, confirms.confirmed, count > 1))
        if confirms.recorded is not None:
            audit.confirmed(confirms, channel.id, confirms.confirmed)
