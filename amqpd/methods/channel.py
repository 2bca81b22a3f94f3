"""channel.open, close, close-ok, flow (section 1.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pamqp import commands
from pamqp.exceptions import AMQPChannelError, AMQPNotAllowed

from amqpd.channels import Channel
from amqpd.wire import read_method

if TYPE_CHECKING:
    from amqpd.connection import Connection
    from amqpd.node import Handlers


_OPEN_ID = b"\x00\x14\x00\x0a"


def open_channel(connection: Connection, number: int, kind: int, payload: bytes) -> None:
    """The first frame on a channel number. Raises AMQPChannelError unless it opens the channel, AMQPNotAllowed over a
    limit."""
    if kind != 1 or payload[:4] != _OPEN_ID:
        raise AMQPChannelError("expected 'channel.open'")
    # As RabbitMQ: channel_max bounds how many channels are open, not their numbers, and one that waits for its
    # close-ok is not open. Counted at the bound only.
    if len(connection.channels) >= connection.channel_max:
        count = sum(not channel.closing for channel in connection.channels.values())
        if count >= connection.channel_max:
            raise AMQPNotAllowed(
                f"number of channels opened ({count}) has reached the negotiated channel_max "
                f"({connection.channel_max})"
            )
    read_method(payload)
    connection.node.census.open_channel(connection.user)
    connection.channels[number] = Channel(connection, number)
    connection.channels[number].send(commands.Channel.OpenOk())


def open_again(channel: Channel, method: commands.Channel.Open) -> None:
    raise AMQPChannelError("second 'channel.open' seen")


def close(channel: Channel, method: commands.Channel.Close) -> None:
    channel.node.flush_confirms(channel)
    channel.release()
    channel.send(commands.Channel.CloseOk())
    channel.connection.forget_channel(channel)


def close_ok(channel: Channel, method: commands.Channel.CloseOk) -> None:
    """Not asked for: RabbitMQ takes it silently as the end of the channel."""
    channel.release()
    channel.connection.forget_channel(channel)


def flow(channel: Channel, method: commands.Channel.Flow) -> None:
    """The client stops or goes on with its deliveries. RabbitMQ refuses to stop (540); the specification has it."""
    channel.flow_active = bool(method.active)
    channel.send(commands.Channel.FlowOk(active=channel.flow_active))
    if channel.flow_active:
        channel.wake_consumers()


def flow_ok(channel: Channel, method: commands.Channel.FlowOk) -> None:
    """The answer to a flow that we never send; harmless."""


METHODS: Handlers = {
    commands.Channel.Open: open_again,
    commands.Channel.Close: close,
    commands.Channel.CloseOk: close_ok,
    commands.Channel.Flow: flow,
    commands.Channel.FlowOk: flow_ok,
}
