"""A consumer of a channel: credit, and deliveries on the wire.

What comes in: pieces of runs from a queue. What goes out: frames into the connection's outbox; entries in the
channel's ledger of unacked deliveries.
Rules: 1. Credit is what prefetch leaves, of the consumer and of the channel, and nothing while the connection's
outbox is full. 2. Delivery tags are the channel's.
Not here: which consumer is next (`queues/queue.py`), which wait for credit (`credit.py`), settling (`channels.py`).

Source: AMQP 0-9-1 section 1.8; https://www.rabbitmq.com/docs/consumer-prefetch.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr
from pamqp import commands

from amqpd.audit.book import Book
from amqpd.audit.kinds import REDELIVERED, WITH_ACKED
from amqpd.audit.party import Party, consuming
from amqpd.kernel import LARGE_BYTES_MIN, Pieces, Run, delivery_pieces, encode_deliveries
from amqpd.queues.consumer import CREDIT_UNLIMITED
from amqpd.queues.port import QueuePort
from amqpd.session.credit import Subscription
from amqpd.session.ports import ChannelBase
from amqpd.tracing.tracer import SentRange


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer(Subscription):
    """One basic.consume: the channel's side of `queues.consumer.Subscriber`."""

    __slots__ = (
        "channel",
        "party",
        "shares_prefetch",
        "tag_bytes",
    )

    def __init__(
        self,
        channel: ChannelBase,
        queue: QueuePort,
        tag: str,
        no_ack: bool,
        exclusive: bool,
        priority: int = 0,
        ack_timeout_ms: int | None = None,
    ) -> None:
        super().__init__(queue, tag, no_ack, exclusive, channel.prefetch, priority, ack_timeout_ms)
        self.channel = channel
        encoded = tag.encode()
        self.tag_bytes = bytes((len(encoded),)) + encoded
        self.party: Party | None = None
        """in the audit log, once it is named there"""
        self.shares_prefetch = not (queue.quorum or queue.is_remote)
        """quorum queues know nothing of a prefetch that consumers share; one can be set after their consumers came"""

    def record(self, book: Book, first: int, count: int, redelivered: bool, body_bytes: int) -> None:
        party = self.party
        if party is None:
            party = self.party = consuming(self.channel.connection, self.tag)
        flags = WITH_ACKED if self.no_ack else 0
        if redelivered:
            flags |= REDELIVERED
        book.delivered(first, count, flags, party, self.channel.id, body_bytes)

    def credit(self) -> int:
        channel = self.channel
        if channel.released or channel.connection.outbox_full:
            return 0
        credit = CREDIT_UNLIMITED
        if not self.no_ack:
            if self.prefetch:
                credit = self.prefetch - self.unacked
            if channel.prefetch_shared and self.shares_prefetch:
                credit = min(credit, channel.prefetch_shared - channel.consumed)
        elif channel.prefetch_shared and self.shares_prefetch and channel.consumed >= channel.prefetch_shared:
            credit = 0  # what it gets is not counted, but it waits with the others (rabbit_limiter)
        return credit

    def wait_for_credit(self) -> None:
        channel = self.channel
        if channel.released:
            return  # it was cancelled
        if channel.connection.outbox_full:
            self.waits_in = channel.connection.outbox_queue
        elif self.no_ack or not self.prefetch or self.unacked < self.prefetch:
            self.waits_in = channel.shared_queue
        else:
            return  # its acknowledgements find it
        self.waits_in.add(self)

    def resume(self) -> None:
        self.waits_in = None
        node, queue = self.channel.shared, self.queue
        try:
            queue.credited(self)
            node.to_dispatch.add(queue)
        except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
            node.quarantine(queue, error)

    def leave(self) -> None:
        """It is cancelled, and waits for nothing any more."""
        if self.waits_in is not None:
            self.waits_in.remove(self)
            self.waits_in = None

    def end(self, answer: Callable[[None], object]) -> None:
        self.leave()
        self.queue.cancel(self, answer)

    def deliver(self, run: Run, low: int, high: int, seq: int, redelivered: bool) -> None:
        channel = self.channel
        connection = channel.connection
        tag, count = channel.next_tag, high - low
        channel.next_tag = tag + count
        frame_max = connection.frame_max
        if channel.watched:
            channel.shared.trace(
                channel, self.queue, SentRange(run, low, high, redelivered, tag, "deliver", self.no_ack)
            )
        try:
            if run.body_size_max < LARGE_BYTES_MIN:
                connection.write(
                    encode_deliveries(run, low, high, channel.id, self.tag_bytes, tag, redelivered, frame_max)
                )
            else:
                connection.write_pieces(
                    delivery_pieces(run, low, high, channel.id, self.tag_bytes, tag, redelivered, frame_max)
                )
        except Exception as error:  # noqa: BLE001 - this connection's, not the queue's; reported, or raised on
            connection.contain_later(error)
        if not self.no_ack:
            self._await_acks(tag, count, seq)

    def pass_on(self, runs: list[Run], seq: int) -> int:
        """As many calls of `deliver`, but what they all need is looked up once."""
        if self.credit() <= 0:
            return 0
        try:
            return self._pass_on(runs, seq)
        except Exception as error:  # noqa: BLE001 - this connection's, not the queue's; reported, or raised on
            self.channel.connection.contain_later(error)
            return 0

    def _pass_on(self, runs: list[Run], seq: int) -> int:
        channel = self.channel
        connection, channel_id, consumer_tag = channel.connection, channel.id, self.tag_bytes
        frame_max, space = connection.frame_max, connection.shared.outboxes.limit - connection.outbox_bytes
        first = tag = channel.next_tag
        nbytes = taken = 0
        frames: Pieces = []
        for run in runs:
            count = run.count
            if run.body_size_max < LARGE_BYTES_MIN:
                encoded = encode_deliveries(run, 0, count, channel_id, consumer_tag, tag, False, frame_max)
                frames.append(encoded)
                nbytes += len(encoded)
            else:
                pieces = delivery_pieces(run, 0, count, channel_id, consumer_tag, tag, False, frame_max)
                frames += pieces
                nbytes += sum([len(piece) for piece in pieces])
                connection.outbox_large = True
            tag += count
            taken += 1
            if nbytes > space:
                break  # the outbox is full now
        channel.next_tag = tag
        if channel.watched:
            at = first
            for run in runs[:taken]:
                sent = SentRange(run, 0, run.count, False, at, "deliver", self.no_ack)
                channel.shared.trace(channel, self.queue, sent)
                at += run.count
        connection.write_all(frames, nbytes)
        if not self.no_ack:
            self._await_acks(first, tag - first, seq)
        return taken

    def _await_acks(self, tag: int, count: int, seq: int) -> None:
        channel = self.channel
        channel.unacked.add(tag, count, seq, self.queue, self)
        self.unacked += count
        channel.consumed += count

    def cancelled(self) -> None:
        channel = self.channel
        if channel.consumers.get(self.tag) is not self:
            return  # the client cancelled it meanwhile
        del channel.consumers[self.tag]
        channel.shared.client_counters.consumer_gone(channel.connection.vhost)
        channel.shared.events.consumer_removed(channel, self)
        try:
            self.leave()
            if channel.connection.capabilities.get("consumer_cancel_notify"):
                channel.notify(commands.Basic.Cancel(consumer_tag=self.tag, nowait=True))
        except Exception as error:  # noqa: BLE001 - this connection's, not the queue's; reported, or raised on
            channel.connection.contain_later(error)
