"""Channel: open, close, flow, and errors that end only the channel."""

from __future__ import annotations

import pika
import pytest
from pamqp import base, commands, frame, header

from conformance.conftest import Names, OpenWire
from conformance.rules import rule
from conformance.talk import ask, check_close, consume, get, new_queue, publish, refused
from tests.clients.wire import Wire

Basic, Channel, Queue, Connection = commands.Basic, commands.Channel, commands.Queue, commands.Connection


@rule("AMQP 0-9-1 section 1.5.2.1", "A channel that is open cannot be opened: 504.")
def test_open_twice(client: Wire) -> None:
    refused(client, Channel.Open(), 504, "CHANNEL_ERROR - second 'channel.open' seen", "connection")


@rule("AMQP 0-9-1 section 1.5", "A method on a channel that is not open closes the connection with 504.")
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(Basic.Qos(), id="qos"),
        pytest.param(Queue.Declare(queue=""), id="declare"),
        pytest.param(Channel.Close(200, "", 0, 0), id="close"),
        pytest.param(Basic.Publish(), id="publish"),
    ],
)
def test_a_channel_that_is_not_open(client: Wire, method: base.Frame) -> None:
    client.send(method, channel=7)
    if isinstance(method, Basic.Publish):
        client.send_bytes(frame.marshal(header.ContentHeader(), 7))
    check_close(client.closed("connection"), 504)


@rule("AMQP 0-9-1 section 1.4.2.6", "A channel above the negotiated channel_max closes the connection.")
def test_beyond_channel_max(wire: OpenWire) -> None:
    client = wire(channel_max=10)
    for number in range(1, 11):
        client.open_channel(number)
    client.send(Channel.Open(), channel=11)
    check_close(client.closed("connection"), 530)


@rule("AMQP 0-9-1 section 1.5.2.5", "channel.close is answered by close-ok, and the number can be opened again.")
def test_close(client: Wire) -> None:
    for _ in range(3):
        ask(client, Channel.Close(200, "done", 0, 0))
        client.open_channel()


@rule("AMQP 0-9-1 section 1.5.2.5", "Closes of a channel that cross are both answered.")
def test_closes_that_cross(client: Wire) -> None:
    client.send(Basic.Ack(9), channel=1)
    client.expect(Channel.Close)
    # Ours was on its way before theirs came.
    frames = (Channel.Close(200, "", 0, 0), Channel.CloseOk(), Channel.Open())
    client.send_bytes(b"".join(frame.marshal(each, 1) for each in frames))
    client.expect(Channel.CloseOk, Channel.OpenOk)


@rule("AMQP 0-9-1 section 1.5.2.5", "After its own close the broker takes no more on the channel, until close-ok.")
def test_after_a_channel_error_nothing_counts(client: Wire, unique: Names) -> None:
    client.send(Basic.Ack(9), Queue.Declare(queue=unique("queue")), channel=1)
    client.expect(Channel.Close)
    client.send(Channel.CloseOk(), channel=1)
    client.open_channel()
    refused(client, Queue.Declare(queue=unique("queue"), passive=True), 404)


@rule("AMQP 0-9-1 section 1.5.2.5", "Closing a channel gives back what it had unacknowledged, as redelivered.")
@pytest.mark.parametrize("how", ["close", "error"])
def test_a_closed_channel_gives_back(client: Wire, how: str) -> None:
    queue = new_queue(client)
    publish(client, "", queue)
    client.open_channel(2)
    assert get(client, queue, no_ack=False) is not None
    if how == "close":
        ask(client, Channel.Close(200, "", 0, 0))
    else:
        client.send(Basic.Ack(99), channel=1)
        client.expect(Channel.Close)
        client.send(Channel.CloseOk(), channel=1)
    client.open_channel()
    message = get(client, queue)
    assert message is not None
    assert message.method.redelivered is True


@rule("AMQP 0-9-1 section 1.5.2.5", "Closing a channel ends its consumers.")
def test_a_closed_channel_has_no_consumers(client: Wire) -> None:
    queue = new_queue(client)
    consume(client, queue)
    client.open_channel(2)
    ask(client, Channel.Close(200, "", 0, 0))
    assert client.call(Queue.Declare(queue=queue, passive=True), channel=2).consumer_count == 0


@rule("AMQP 0-9-1 section 1.5", "An error of one channel leaves the others as they are.")
def test_other_channels_go_on(connection: pika.BlockingConnection, unique: Names) -> None:
    first, second = connection.channel(), connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        first.queue_declare(unique("missing"), passive=True)
    assert caught.value.reply_code == 404
    assert second.is_open
    assert second.queue_declare("", exclusive=True).method.queue


@rule("AMQP 0-9-1 section 1.5.2.5", "What is delivered on different channels is counted by each from 1.")
def test_delivery_tags_are_of_the_channel(client: Wire) -> None:
    queue = new_queue(client)
    client.open_channel(2)
    for channel in (1, 2):
        client.send(Basic.Consume(queue=queue, consumer_tag=f"c{channel}"), channel=channel)
        client.expect(Basic.ConsumeOk)
    for _ in range(4):
        publish(client, "", queue)
    seen = [(channel, message.method.delivery_tag) for channel, message in (client.read_message() for _ in range(4))]
    assert sorted(seen) == [(1, 1), (1, 2), (2, 1), (2, 2)]


@rule("AMQP 0-9-1 section 1.5.2.3", "channel.flow with active is answered by flow-ok.")
def test_flow_on(client: Wire) -> None:
    assert ask(client, Channel.Flow(active=True)).active is True


@rule("RabbitMQ: specification", "channel.flow without active is not implemented: 540.")
def test_flow_off(client: Wire) -> None:
    refused(client, Channel.Flow(active=False), 540, "NOT_IMPLEMENTED - active=false", "connection")
