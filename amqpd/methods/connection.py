"""The connection class, once the connection is open: close, and update-secret, by which a client renews its token.

What comes in: frames of channel 0; the connection.
What goes out: the answers, or the errors that close the connection; whether connection.close was answered.
Rules: what is not of the connection class, or not due in the connection's state, is a channel error (504).
Not here: the handshake's methods (`session/handshake.py`), log-ins (`security/authentication/logins.py`), what a
close does (`connection.py`).

Source: section 1.4 of the reference; https://www.rabbitmq.com/docs/access-control, rabbit_reader, rabbit_channel.
"""

from __future__ import annotations

from pamqp import commands
from pamqp.exceptions import AMQPChannelError, AMQPNotAllowed, AMQPUnexpectedFrame

from amqpd.session.handshake import Handshake
from amqpd.session.ports import ConnectionBase
from amqpd.session.steps import checking_consumers
from amqpd.vocabulary.states import ConnectionState
from amqpd.wire.frames import read_method

_CONNECTION_CLASS = b"\x00\x0a"
_CLOSE_ID, _CLOSE_OK_ID = b"\x00\x0a\x00\x32", b"\x00\x0a\x00\x33"


def connection_method(connection: ConnectionBase, handshake: Handshake, kind: int, payload: bytes) -> None:
    """A frame of channel 0 while nothing is closing. Raises AMQPHardError."""
    if kind != 1:
        raise AMQPUnexpectedFrame("content frame on channel 0")
    if payload[:2] != _CONNECTION_CLASS:
        raise AMQPChannelError("method of another class than connection on channel 0")
    method = read_method(payload)
    if isinstance(method, commands.Connection.Close):
        connection.close_wanted = connection.suspended = True
        connection.channel_went_on()
    elif connection.state is ConnectionState.HANDSHAKE:
        handshake.method(method)
    elif isinstance(method, commands.Connection.UpdateSecret):
        update_secret(connection)
    else:
        raise AMQPChannelError(f"unexpected {method.name.lower()} in the state '{connection.state.value}'")


def closes(connection: ConnectionBase, kind: int, number: int, payload: bytes) -> bool:
    """After connection.close or its answer was sent: whether this is the client's close-ok. Its own close, which
    crossed ours or is not the first one, is answered, and the stream stays open, for there may be another
    (rabbit_reader). A client that does not read the answers gets no more of them."""
    if number != 0 or kind != 1:
        return False
    if payload[:4] == _CLOSE_ID and not connection.outbox_full:
        connection.send(commands.Connection.CloseOk())
    return payload[:4] == _CLOSE_OK_ID


def update_secret(connection: ConnectionBase) -> None:
    """Users log in with passwords, which do not expire, so any new secret is taken and none is looked at (as in
    RabbitMQ, where only back ends whose secrets expire do)."""
    access = connection.shared.access
    if not access.may_enter(connection.user, connection.vhost):
        raise AMQPNotAllowed(f"access to vhost '{connection.vhost}' refused for user '{connection.user}'")

    def checked() -> None:
        if connection.state is ConnectionState.RUNNING:
            connection.send(commands.Connection.UpdateSecretOk())

    connection.intake.begin(checking_consumers(connection, checked))
