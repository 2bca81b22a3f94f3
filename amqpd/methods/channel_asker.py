"""A channel as one that asks for declarations, and the queue that it means without naming it."""

from __future__ import annotations

from pamqp.exceptions import AMQPNotFound

from amqpd.channels import Channel
from amqpd.declarations.asker import Asker
from amqpd.declarations.names import strip


def asker(channel: Channel) -> Asker:
    """The channel waits while the node has not answered."""
    connection = channel.connection
    return Asker(channel.node, connection.vhost, channel.suspend, connection.user, connection)


def last_queue(channel: Channel, name: str | None) -> str:
    """The queue meant by `name`: an empty one is the last that was declared on the channel (section 1.7.2.3)."""
    name = strip(name)
    if name:
        return name
    if channel.last_queue is None:
        raise AMQPNotFound("no previously declared queue")
    return channel.last_queue
