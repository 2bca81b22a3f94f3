"""connection.update-secret, which RabbitMQ added to the connection class: a client renews its token.

What comes in: the connection.
What goes out: update-secret-ok after the permissions were looked at anew, or the close.
Rules: none but that.
Not here: the handshake's methods (`handshake.py`), log-ins (`security/logins.py`).

Source: https://www.rabbitmq.com/docs/access-control, rabbit_reader and rabbit_channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pamqp import commands
from pamqp.exceptions import AMQPAccessRefused, AMQPNotAllowed

if TYPE_CHECKING:
    from amqpd.connection import Connection


def update_secret(connection: Connection) -> None:
    """Users log in with passwords, which do not expire, so any new secret is taken and none is looked at (as in
    RabbitMQ, where only back ends whose secrets expire do)."""
    access = connection.node.access
    if not access.may_enter(connection.user, connection.vhost):
        raise AMQPNotAllowed(f"access to vhost '{connection.vhost}' refused for user '{connection.user}'")
    for channel in connection.channels.values():
        for consumer in list(channel.consumers.values()):
            try:
                access.require(connection.user, connection.vhost, "read", "queue", consumer.queue.record.name)
            except AMQPAccessRefused:
                channel.remove_consumer(consumer)
                consumer.cancelled()
    connection.send(commands.Connection.UpdateSecretOk())
