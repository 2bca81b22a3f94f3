"""channel.close, close-ok, flow (section 1.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pamqp import commands
from pamqp.exceptions import AMQPChannelError

if TYPE_CHECKING:
    from amqpd.channels import Channel
    from amqpd.node import Handlers


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
