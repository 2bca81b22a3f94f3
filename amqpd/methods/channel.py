"""channel.open, close, close-ok, flow (section 1.5)."""

from __future__ import annotations

from functools import partial

from pamqp import commands
from pamqp.exceptions import AMQPChannelError, AMQPNotAllowed, AMQPNotImplemented

from amqpd.channels import Channel
from amqpd.node.node import Handlers, Node
from amqpd.publishing.routes import RouteCache
from amqpd.session.ports import ConnectionBase
from amqpd.session.steps import closing
from amqpd.wire.frames import read_method

# As many channels as may be open may wait for their close-ok, and this many in any case: a client that fails one,
# opens another and answers late is let; one that never answers would keep up to 65,535 of them in memory.
CHANNELS_CLOSING_MIN = 64

_OPEN_ID = b"\x00\x14\x00\x0a"


def open_channel(
    node: Node, connection: ConnectionBase, routes: RouteCache, number: int, kind: int, payload: bytes
) -> None:
    """The first frame on a channel number. Raises AMQPChannelError unless it opens the channel, AMQPNotAllowed over a
    limit."""
    if kind != 1 or payload[:4] != _OPEN_ID:
        raise AMQPChannelError("expected 'channel.open'")
    # As RabbitMQ: channel_max bounds how many channels are open, not their numbers, and one that waits for its
    # close-ok is not open.
    limit, closing = connection.channel_max, connection.channels_closing
    count = len(connection.channels) - closing
    if count >= limit:
        raise AMQPNotAllowed(f"number of channels opened ({count}) has reached the negotiated channel_max ({limit})")
    if closing >= max(limit, CHANNELS_CLOSING_MIN):
        raise AMQPNotAllowed(f"{closing} channels wait for channel.close-ok")
    read_method(payload)
    node.client_counters.open_channel(connection.user)
    node.totals.channels_opened += 1
    connection.channels[number] = channel = Channel(node, connection, routes, number)
    node.events.channel_opened(channel)
    channel.send(commands.Channel.OpenOk())


def open_again(channel: Channel, method: commands.Channel.Open) -> None:
    raise AMQPChannelError("second 'channel.open' seen")


def close(channel: Channel, method: commands.Channel.Close) -> None:
    channel.node.durability.flush(channel)

    def closed() -> None:
        channel.send(commands.Channel.CloseOk())
        channel.connection.forget_channel(channel)

    channel.connection.intake.begin(closing(channel, closed))


def close_ok(channel: Channel, method: commands.Channel.CloseOk) -> None:
    """Not asked for: RabbitMQ takes it silently as the end of the channel."""
    connection = channel.connection
    connection.intake.begin(closing(channel, partial(connection.forget_channel, channel)))


def flow(channel: Channel, method: commands.Channel.Flow) -> None:
    """A client cannot stop its deliveries, as in RabbitMQ: it limits them with basic.qos."""
    if not method.active:
        raise AMQPNotImplemented("active=false")
    channel.send(commands.Channel.FlowOk(active=True))


def flow_ok(channel: Channel, method: commands.Channel.FlowOk) -> None:
    """The answer to a flow that we never send; harmless."""


METHODS: Handlers = {
    commands.Channel.Open: open_again,
    commands.Channel.Close: close,
    commands.Channel.CloseOk: close_ok,
    commands.Channel.Flow: flow,
    commands.Channel.FlowOk: flow_ok,
}
