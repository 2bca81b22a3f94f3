"""Consumers and the queues they hold: prefetch, exclusivity, cancellation, auto-delete."""

from __future__ import annotations

import time
from collections.abc import Callable

import pika
import pika.exceptions
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from .brokers import Connect
from .wire import Wire

MakeQueue = Callable[..., str]


class Inbox:
    """What has come to consumers of one channel, in order."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.got: list[tuple[str, int, bytes]] = []

    def consume(self, queue: str, **options: object) -> str:
        return str(self.channel.basic_consume(queue, self._on_message, **options))

    def settled(self) -> list[tuple[str, int, bytes]]:
        """Everything that the broker has sent by now: what it had to send was sent before the answer to a
        method of the same channel, and pika hands it out after that."""
        for _ in range(2):
            self.channel.queue_declare(self.marker(), passive=True)
            self.channel.connection.process_data_events(time_limit=0)
        return self.got

    def marker(self) -> str:
        """A queue of this connection, to ask about."""
        if not hasattr(self, "_marker"):
            self._marker = self.channel.queue_declare("", exclusive=True).method.queue
        return self._marker

    def wait(self, count: int) -> list[tuple[str, int, bytes]]:
        for _ in range(60):
            if len(self.got) >= count:
                return self.got
            self.channel.connection.process_data_events(time_limit=1)
        raise AssertionError(f"only {self.got}, {count} were due")

    def _on_message(
        self,
        _channel: BlockingChannel,
        method: pika.spec.Basic.Deliver,
        _properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        self.got.append((method.consumer_tag, method.delivery_tag, body))


def fill(channel: BlockingChannel, queue: str, count: int) -> None:
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number)
    channel.queue_declare(queue, passive=True)


def test_prefetch_per_consumer(connect: Connect, channel: BlockingChannel, make_queue: MakeQueue) -> None:
    first, second = make_queue(), make_queue()
    fill(channel, first, 10)
    fill(channel, second, 10)
    inbox = Inbox(connect().channel())
    inbox.channel.basic_qos(prefetch_count=3)
    inbox.consume(first)
    inbox.consume(second)
    inbox.wait(6)
    assert len(inbox.settled()) == 6, "three for each consumer"
    inbox.channel.basic_ack(inbox.got[0][1])
    inbox.wait(7)
    inbox.channel.basic_ack(0, multiple=True)
    inbox.wait(13)
    assert len(inbox.settled()) == 13


def test_prefetch_shared_on_the_channel(connect: Connect, channel: BlockingChannel, make_queue: MakeQueue) -> None:
    first, second = make_queue(), make_queue()
    fill(channel, first, 10)
    fill(channel, second, 10)
    inbox = Inbox(connect().channel())
    inbox.channel.basic_qos(prefetch_count=4, global_qos=True)
    inbox.consume(first)
    inbox.consume(second)
    inbox.wait(4)
    assert len(inbox.settled()) == 4, "four for both together"
    inbox.channel.basic_ack(inbox.got[1][1], multiple=True)
    inbox.wait(6)
    assert len(inbox.settled()) == 6


def test_prefetch_is_for_later_consumers_and_zero_is_no_limit(
    connect: Connect, channel: BlockingChannel, make_queue: MakeQueue
) -> None:
    limited, free = make_queue(), make_queue()
    fill(channel, limited, 5)
    fill(channel, free, 5)
    inbox = Inbox(connect().channel())
    inbox.channel.basic_qos(prefetch_count=1)
    inbox.consume(limited, consumer_tag="limited")
    inbox.channel.basic_qos(prefetch_count=0)
    inbox.consume(free, consumer_tag="free")
    inbox.wait(6)
    tags = [tag for tag, _, _ in inbox.settled()]
    assert (tags.count("limited"), tags.count("free")) == (1, 5)


def test_prefetch_does_not_hold_up_auto_ack(
    connect: Connect, channel: BlockingChannel, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    fill(channel, queue, 20)
    inbox = Inbox(connect().channel())
    inbox.channel.basic_qos(prefetch_count=1)
    inbox.consume(queue, auto_ack=True)
    assert [body for _, _, body in inbox.wait(20)] == [b"%d" % number for number in range(20)]


def test_messages_go_round_among_consumers(connect: Connect, channel: BlockingChannel, make_queue: MakeQueue) -> None:
    queue = make_queue()
    inboxes = [Inbox(connect().channel()) for _ in range(3)]
    for inbox in inboxes:
        inbox.consume(queue, auto_ack=True)
    for _ in range(30):
        # One at a time: of a run that arrives at once, amqpd gives each consumer a short run in turn.
        fill(channel, queue, 1)
    for inbox in inboxes:
        inbox.wait(10)
    assert [len(inbox.settled()) for inbox in inboxes] == [10, 10, 10]


def test_declare_counts_consumers(connect: Connect, channel: BlockingChannel, make_queue: MakeQueue) -> None:
    queue = make_queue()
    inbox = Inbox(connect().channel())
    tag = inbox.consume(queue)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
    inbox.channel.basic_cancel(tag)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 0


def test_cancel_leaves_deliveries_to_be_settled(
    broker_url: str, channel: BlockingChannel, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    fill(channel, queue, 1)
    with Wire(pika.URLParameters(broker_url).port) as wire:
        wire.open()
        wire.open_channel()
        wire.send(commands.Basic.Consume(queue=queue, consumer_tag="c"), channel=1)
        assert isinstance(wire.read_method()[1], commands.Basic.ConsumeOk)
        assert wire.read_message()[1].body == b"0"
        assert isinstance(wire.call(commands.Basic.Cancel("c"), channel=1), commands.Basic.CancelOk)
        # A tag that nobody has is answered just as well.
        assert isinstance(wire.call(commands.Basic.Cancel("c"), channel=1), commands.Basic.CancelOk)
        wire.send(commands.Basic.Ack(1), channel=1)
        answer = wire.call(commands.Queue.Declare(queue=queue, passive=True), channel=1)
        assert isinstance(answer, commands.Queue.DeclareOk)
        wire.close()
    assert channel.basic_get(queue) == (None, None, None)


def test_the_consumer_is_told_when_its_queue_is_deleted(
    connect: Connect, channel: BlockingChannel, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    inbox = Inbox(connect().channel())
    cancelled: list[str] = []
    inbox.channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = inbox.consume(queue)
    channel.queue_delete(queue)
    while not cancelled:
        inbox.channel.connection.process_data_events(time_limit=1)
    assert cancelled == [tag]
    assert inbox.channel.is_open


def test_an_exclusive_consumer_has_the_queue_alone(
    connect: Connect, channel: BlockingChannel, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    inbox = Inbox(connect().channel())
    tag = inbox.consume(queue, exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_consume(queue, lambda *_: None)
    assert caught.value.reply_code == 403
    assert "exclusive use" in caught.value.reply_text
    inbox.channel.basic_cancel(tag)
    Inbox(connect().channel()).consume(queue, exclusive=True)


def test_server_named_and_exclusive_queues_go_with_their_connection(connect: Connect) -> None:
    owner, other = connect(), connect()
    names = {owner.channel().queue_declare("", exclusive=True).method.queue for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") for name in names)
    name = names.pop()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        other.channel().queue_declare(name, passive=True)
    assert caught.value.reply_code == 405
    owner.close()
    assert answer_when_gone(other, name) == 404


def answer_when_gone(connection: pika.BlockingConnection, queue: str, deadline_s: float = 20.0) -> int:
    """The code that a passive declare is refused with. Brokers delete exclusive queues after they have
    answered the owner's `connection.close`, so it may still be there, locked (405)."""
    end = time.monotonic() + deadline_s
    while True:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            connection.channel().queue_declare(queue, passive=True)
        if caught.value.reply_code != 405 or time.monotonic() > end:
            return int(caught.value.reply_code)


def test_an_auto_delete_queue_goes_with_its_last_consumer(
    connect: Connect, channel: BlockingChannel, unique: Callable[[str], str]
) -> None:
    queue = unique("going")
    channel.queue_declare(queue, auto_delete=True)
    inboxes = [Inbox(connect().channel()) for _ in range(2)]
    tags = [inbox.consume(queue) for inbox in inboxes]
    inboxes[0].channel.basic_cancel(tags[0])
    channel.queue_declare(queue, passive=True)
    inboxes[1].channel.close()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.queue_declare(queue, passive=True)


def test_the_empty_name_means_the_last_queue_declared(
    channel: BlockingChannel, make_exchange: Callable[..., str]
) -> None:
    exchange = make_exchange("direct")
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind("", exchange, "key")
    channel.basic_publish(exchange, "key", b"1")
    assert channel.basic_get("", auto_ack=True)[2] == b"1"
    assert channel.queue_purge("").method.message_count == 0
    channel.queue_delete("")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.queue_declare(queue, passive=True)


def test_delete_tells_how_many_messages_went(channel: BlockingChannel, make_queue: MakeQueue) -> None:
    queue = make_queue()
    fill(channel, queue, 3)
    assert channel.queue_delete(queue).method.message_count == 3
    assert channel.queue_delete(queue).method.message_count == 0
