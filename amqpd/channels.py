"""A channel: methods in order, delivery tags, prefetch, confirms, transactions.

What comes in: runs of publishes and ranges of acks from the kernel's fast path, other frames one by one; messages
from queues. What goes out: frames, into the connection's outbox; changes, to the node.
Rules: 1. Everything a client does on a channel happens in the order sent: while a change waits for the metadata
store the channel is *suspended* and holds its later frames; other channels go on. 2. A soft error closes the channel,
and only it; then everything up to channel.close-ok is thrown away. 3. Confirms go out in tag order, each once, at the
end of a tick, and none before the journal's number covers it.
Not here: what a publish does (`publishing.py`) and each other method (`methods/`), consumers (`consumers.py`), the
connection's methods (`connection.py`).

Source: AMQP 0-9-1 sections 1.5 to 1.9 of the reference; https://www.rabbitmq.com/docs/confirms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pamqp import base, commands
from pamqp.exceptions import (
    AMQPAccessRefused,
    AMQPCommandInvalid,
    AMQPFrameError,
    AMQPPreconditionFailed,
    AMQPSoftError,
    AMQPUnexpectedFrame,
)

from amqpd import publishing
from amqpd.audit.recorder import ChannelConfirms, Party
from amqpd.confirms import Confirms
from amqpd.consumers import Consumer
from amqpd.content import Content
from amqpd.delivery_ages import DeliveryAges, timed_out
from amqpd.kernel import Run
from amqpd.states import State
from amqpd.transaction import Transaction
from amqpd.unacked import Delivered, Unacked
from amqpd.wire import ack_frame, method_frame, nack_frame, read_method, reply_text

if TYPE_CHECKING:
    from amqpd.connection import Connection
    from amqpd.node import Node
    from amqpd.replies import ReplyConsumer

# What a held frame costs in memory beside its payload.
HELD_FRAME_BYTES = 128
# RabbitMQ's bound on any body, whatever the configuration says (rabbit_command_assembler).
BODY_BYTES_MAX = 512 * 1024 * 1024

_PUBLISH_ID = b"\x00\x3c\x00\x28"
_CLOSE_ID, _CLOSE_OK_ID = b"\x00\x14\x00\x28", b"\x00\x14\x00\x29"
_NO_METHOD = b"\x00\x00\x00\x00"


class Channel:
    def __init__(self, connection: Connection, channel_id: int) -> None:
        self.connection = connection
        self.node: Node = connection.node
        self.id = channel_id
        self.closing = False
        """channel.close was sent; everything but its answer is thrown away"""
        self.closed = False
        self.suspended = False
        self.held: deque[tuple[int, bytes]] = deque()
        self.held_bytes = 0
        self.content: Content | None = None
        self.plain = True
        """the kernel's fast path may be used: not closing, not suspended, no content begun"""
        self.flow_active = True
        self.last_queue: str | None = None
        self.prefetch = 0
        """of consumers to come"""
        self.prefetch_shared = 0
        """of all consumers of the channel together"""
        self.consumers: dict[str, Consumer] = {}
        self.reply_consumer: ReplyConsumer | None = None
        self.next_tag = 1
        self.unacked = Unacked()
        self._ages = DeliveryAges()
        self.consumed = 0
        """unacked deliveries to consumers: what prefetch_shared limits; basic.get is not limited"""
        self.confirms: Confirms | None = None
        self.recorded: ChannelConfirms | None = None
        """what the audit log needs to name what is confirmed"""
        self.getting: Party | None = None
        """in the audit log, who gets messages by basic.get"""
        self.tx: Transaction | None = None
        self._current = b"\x00\x00\x00\x00"
        """class and method id of the last method, for an error in its continuation"""

    # Frames, one by one

    def frame(self, kind: int, payload: bytes) -> None:
        """One frame of this channel. Soft errors end here; hard ones are the connection's."""
        if self.suspended or self.connection.choked:
            self.held.append((kind, payload))
            self.held_bytes += HELD_FRAME_BYTES + len(payload)
            self.connection.intake.held_bytes += HELD_FRAME_BYTES + len(payload)
            return
        try:
            self._handle(kind, payload)
        except AMQPSoftError as error:
            self.fail(error, payload if kind == 1 else _PUBLISH_ID)
        self._set_plain()

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
            if self.node.alarms:
                # Here and not only when it is complete: what has come of a body takes memory too.
                self.connection.intake.block()
            return
        self._current = payload[:4]
        method = read_method(payload)
        handler = self.node.methods.get(type(method))
        if handler is None:
            # One that only brokers send, or of the connection.
            raise AMQPCommandInvalid("unimplemented method")
        self.node.acting = self.connection
        handler(self, method)
        self.node.acting = None

    def _handle_closing(self, kind: int, payload: bytes) -> None:
        """A client's close that crossed ours is answered, but only its close-ok ends the channel: both sides send
        both (section 1.5.2.5)."""
        if kind == 1 and payload[:4] == _CLOSE_ID:
            self.send(commands.Channel.CloseOk())
        elif kind == 1 and payload[:4] == _CLOSE_OK_ID:
            self.connection.forget_channel(self)

    def _add_content(self, kind: int, payload: bytes) -> None:
        content = self.content
        assert content is not None
        complete = content.add(kind, payload)
        if content.body_size > BODY_BYTES_MAX:
            raise AMQPFrameError(f"body size {content.body_size} is larger than the limit {BODY_BYTES_MAX}")
        publishing.check_size(self, content.body_size)
        if complete:
            self.content = None
            publishing.publish(self, content.run())

    def _set_plain(self) -> None:
        self.plain = not (self.closing or self.suspended or self.closed or self.content is not None)

    def suspend(self, continuation: Callable[..., None]) -> Callable[..., None]:
        """Hold later frames until the returned function is called: it runs the continuation, with its arguments, then
        the held frames. A channel that was closed meanwhile runs nothing."""
        self.suspended, self.plain = True, False

        def resume(*results: Any) -> None:
            if not self.closed:
                self.suspended = False
                self.connection.guard(lambda: self._continue(continuation, results))

        return resume

    def _continue(self, continuation: Callable[..., None], results: tuple[Any, ...]) -> None:
        connection = self.connection
        connection.current = self._current
        self.node.acting = connection
        try:
            continuation(*results)
        except AMQPSoftError as error:
            self.fail(error, self._current)
        self.node.acting = None
        self._set_plain()
        self.go_on()
        connection.channel_went_on()

    def go_on(self) -> None:
        """Take the frames that were held, as far as the channel is not suspended again and the client takes the
        answers."""
        connection, held = self.connection, self.held
        # Behind channel.close the number may be opened again: what is left then is for that channel.
        while held and not self.suspended and connection.state is State.RUNNING:
            if connection.choked and not self.closed:
                return
            kind, payload = held.popleft()
            if not self.closed:
                self.held_bytes -= HELD_FRAME_BYTES + len(payload)
                connection.intake.held_bytes -= HELD_FRAME_BYTES + len(payload)
            connection.frame(kind, self.id, payload)

    def send(self, method: base.Frame) -> None:
        self.connection.write(method_frame(self.id, method))

    def fail(self, error: AMQPSoftError, method_id: bytes) -> None:
        """Close the channel for the error (section 1.5.2.5)."""
        self.node.flush_confirms(self)
        text = reply_text(error)
        self.node.log("channel_error", connection=self.connection.name, channel=self.id, reply=text)
        if isinstance(error, AMQPAccessRefused):
            self.node.acts.refused(self.connection, text)
        self.release()
        self.closing = True
        # The step that failed may have meant to wait.
        self.suspended = False
        self.plain = False
        self.content = None
        self.send(
            commands.Channel.Close(
                reply_code=error.value,  # type: ignore[attr-defined]  # each of pamqp's classes has it
                reply_text=text,
                class_id=int.from_bytes(method_id[:2], "big"),
                method_id=int.from_bytes(method_id[2:4], "big"),
            )
        )

    def release(self) -> None:
        """Give back what the channel has of others': consumers, unacked messages. Once, however it ends."""
        for consumer in list(self.consumers.values()):
            self.remove_consumer(consumer)
        self.remove_reply_consumer()
        if self.tx is not None:
            self.unacked.restore(self.tx.settled_entries())
            self.tx = None
        entries, _ = self.unacked.settle_through(0)
        self.requeue(entries)

    def remove_consumer(self, consumer: Consumer) -> None:
        self.consumers.pop(consumer.tag, None)
        consumer.queue.cancel(consumer)
        self.node.consumer_gone(consumer.queue)

    def remove_reply_consumer(self) -> None:
        if self.reply_consumer is not None:
            self.node.replies.close(self.reply_consumer)
            self.reply_consumer = None

    # Publishing

    def publish(self, run: Run) -> None:
        """A run from the kernel. Only while `plain`."""
        try:
            publishing.publish(self, run)
        except AMQPSoftError as error:
            self.fail(error, _PUBLISH_ID)

    def flush_confirms(self) -> None:
        confirms = self.confirms
        if confirms is None or self.closing or self.closed:
            return
        if confirms.unsaid:
            if self.recorded is not None:
                for first, last in confirms.unsaid:
                    self.node.audit.refused(self, first, last)
            for tag in confirms.refused():
                self.connection.write(nack_frame(self.id, tag))
        count = confirms.due()
        if count > 0:
            self.connection.write(ack_frame(self.id, confirms.confirmed, count > 1))
            if self.recorded is not None:
                self.node.audit.confirmed(self, confirms.confirmed)

    # Settling

    def ack(self, first: int, last: int, multiple: bool) -> None:
        """A range of basic.ack from the kernel. Only while `plain`."""
        try:
            self.settle(first, last, multiple, None)
        except AMQPSoftError as error:
            self.fail(error, b"\x00\x3c\x00\x50")

    def settle(self, first: int, last: int, multiple: bool, requeue: bool | None) -> None:
        """Delivery tags first..last, or all up to `last` with `multiple`: `requeue` is None for an acknowledgement,
        else whether what is rejected goes back. Raises AMQPPreconditionFailed for an unknown tag."""
        if multiple:
            entries, unknown = self.unacked.settle_through(last)
        else:
            entries, unknown = self.unacked.settle(first, last)
        if self.tx is not None:
            self.tx.settle(entries, requeue)
        else:
            self.let_go(entries, requeue)
        if unknown is not None:
            raise AMQPPreconditionFailed(f"unknown delivery tag {unknown}")

    def let_go(self, entries: list[Delivered], requeue: bool | None) -> None:
        """What the client says of the messages: acknowledged (None), or rejected, to be requeued or not."""
        if requeue:
            self.requeue(entries)
            return
        for entry in entries:
            if requeue is None:
                entry.queue.settle(entry.seq, entry.seq + entry.size - 1)
            else:
                entry.queue.reject(entry.seq, entry.seq + entry.size - 1)
                self.node.dirty[entry.queue] = None
            self._give_credit(entry)

    def requeue(self, entries: list[Delivered]) -> None:
        for entry in entries:
            entry.queue.requeue(entry.seq, entry.seq + entry.size - 1)
            self.node.dirty[entry.queue] = None
            self._give_credit(entry)

    def _give_credit(self, entry: Delivered) -> None:
        consumer = entry.consumer
        if consumer is None:
            return
        consumer.unacked -= entry.size
        self.consumed -= entry.size
        if self.prefetch_shared:
            self.wake_consumers()
        else:
            self.node.dirty[consumer.queue] = None

    def on_timer(self, now: float) -> None:
        """About once a second: a delivery that was not acknowledged in time closes the channel."""
        oldest = self.unacked.oldest
        if oldest is None:
            return
        overdue_ms = self._ages.overdue_ms(oldest, self.next_tag, self.node.limits.consumer_timeout_s, now)
        # What is suspended has something under way that would go on behind channel.close; the next second comes.
        if overdue_ms is not None and not self.suspended:
            self.fail(AMQPPreconditionFailed(timed_out(self.id, overdue_ms)), _NO_METHOD)

    def wake_consumers(self) -> None:
        """Their credit may have grown: let their queues look."""
        dirty = self.node.dirty
        for consumer in self.consumers.values():
            if self.prefetch_shared:
                dirty.pop(consumer.queue, None)  # who was served last comes last (see Consumer.deliver)
            dirty[consumer.queue] = None
