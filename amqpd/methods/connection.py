"""connection.update-secret, which RabbitMQ added to the connection class: a client renews its password or token.

What comes in: the connection and the method. What goes out: update-secret-ok after the permissions were looked at
anew, or the close.
Rules: nothing else of the connection is read until the secret is verified.
Not here: the handshake's methods (`handshake.py`), verifying (`security/logins.py`).

Source: https://www.rabbitmq.com/docs/access-control, rabbit_reader and rabbit_channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pamqp import commands
from pamqp.exceptions import AMQPAccessRefused, AMQPNotAllowed

from amqpd.states import State

if TYPE_CHECKING:
    from amqpd.connection import Connection


def update_secret(connection: Connection, method: commands.Connection.UpdateSecret) -> None:
    def verified(accepted: bool) -> None:
        if connection.state is State.RUNNING:
            connection.guard(lambda: _renewed(connection, accepted))
            connection.resume()

    connection.suspended = True
    secret = method.new_secret
    raw = secret.encode() if isinstance(secret, str) else bytes(secret or b"")
    connection.node.services.verify_secret(connection, raw, verified)


def _renewed(connection: Connection, accepted: bool) -> None:
    if not accepted:
        raise AMQPNotAllowed("New secret was refused by one of the backends")
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
