"""Permissions that the extensions need: for dead letter exchanges, for alternate exchanges, for direct replies.

What comes in and goes out: a user with few permissions, declarations with arguments.
Rules: what is refused closes the channel with 403, and nothing is made.
Not here: permissions of the methods themselves (`test_permissions.py`).
"""

from __future__ import annotations

import pika
import pytest

from conformance.extensions import gone, named, refused, take
from conformance.rules import rule

PASSWORD = "secret"


@pytest.fixture
def login(broker, admin, connect, unique):
    """Makes a user with these permissions and returns its connection."""

    def make(conf: str, write: str, read: str) -> pika.BlockingConnection:
        admin.add_user(unique("user"), PASSWORD)
        admin.set_permissions(broker.vhost, unique("user"), conf, write, read)
        return connect(credentials=pika.PlainCredentials(unique("user"), PASSWORD))

    return make


def denied(broker, access: str, kind: str, name: str, user: str) -> str:
    what = "access" if broker.is_("rabbitmq<4") else f"{access} access"  # later versions say which access
    return f"ACCESS_REFUSED - {what} to {named(broker, kind, name)} refused for user '{user}'"


@rule("RabbitMQ: dlx", "A dead letter exchange needs write permission on it and read permission on the queue.")
def test_a_dead_letter_exchange_needs_permissions(broker, admin, login, unique):
    name, user = str(unique), unique("user")
    arguments = {"x-dead-letter-exchange": unique("dlx")}
    theirs = login(f"^{name}", "^$", "^$")
    with refused(denied(broker, "read", "queue", unique("q"), user)):
        theirs.channel().queue_declare(unique("q"), durable=True, arguments=arguments)
    admin.set_permissions(broker.vhost, user, f"^{name}", "^$", f"^{name}")
    with refused(denied(broker, "write", "exchange", unique("dlx"), user)):
        theirs.channel().queue_declare(unique("q"), durable=True, arguments=arguments)
    admin.set_permissions(broker.vhost, user, f"^{name}", f"^{name}", f"^{name}")
    theirs.channel().queue_declare(unique("q"), durable=True, arguments=arguments)


@rule("RabbitMQ: ae", "An alternate exchange needs write permission on it and read permission on the exchange.")
def test_an_alternate_exchange_needs_permissions(broker, admin, login, unique):
    name, user = str(unique), unique("user")
    arguments = {"alternate-exchange": unique("ae")}
    theirs = login(f"^{name}", "^$", "^$")
    with refused(denied(broker, "read", "exchange", unique("ex"), user)):
        theirs.channel().exchange_declare(unique("ex"), arguments=arguments)
    admin.set_permissions(broker.vhost, user, f"^{name}", "^$", f"^{name}")
    with refused(denied(broker, "write", "exchange", unique("ae"), user)):
        theirs.channel().exchange_declare(unique("ex"), arguments=arguments)
    admin.set_permissions(broker.vhost, user, f"^{name}", f"^{name}", f"^{name}")
    theirs.channel().exchange_declare(unique("ex"), arguments=arguments)


@rule("RabbitMQ: dlx", "The permissions count when the queue is declared, not when a message dies.")
def test_permissions_count_at_the_declaration(broker, admin, login, connection, unique):
    name, user = str(unique), unique("user")
    theirs = login(f"^{name}", f"^{name}", f"^{name}")
    arguments = {"x-dead-letter-exchange": unique("dlx")}
    theirs.channel().queue_declare(unique("q"), durable=True, arguments=arguments)
    admin.set_permissions(broker.vhost, user, "^$", "^$", f"^{name}")
    channel = connection.channel()
    channel.exchange_declare(unique("dlx"), "fanout")
    channel.queue_declare(unique("dead"), durable=True)
    channel.queue_bind(unique("dead"), unique("dlx"))
    channel.basic_publish("", unique("q"), b"x")
    reading = theirs.channel()
    reading.basic_reject(take(reading, unique("q"), auto_ack=False).method.delivery_tag, requeue=False)
    assert take(channel, unique("dead")).body == b"x"


@rule("RabbitMQ: direct-reply-to", "The pseudo-queue may be consumed without any permission on queues.")
def test_reply_to_needs_no_permission(broker, login, connection, unique):
    theirs = login("^$", "^amq\\.default$", "^$").channel()
    channel = connection.channel()
    channel.queue_declare(unique("requests"), durable=True)
    got = []
    theirs.basic_consume("amq.rabbitmq.reply-to", lambda *all_of_it: got.append(all_of_it[3]), auto_ack=True)
    properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
    theirs.basic_publish("", unique("requests"), b"?", properties)
    channel.basic_publish("", take(channel, unique("requests")).properties.reply_to, b"!")
    while not got:
        theirs.connection.process_data_events(0.05)
    assert got == [b"!"]


@rule("RabbitMQ: access-control", "A refused declaration makes nothing.")
def test_a_refused_declaration_makes_nothing(broker, login, connection, unique):
    theirs = login(f"^{unique}", "^$", f"^{unique}")
    with refused(denied(broker, "write", "exchange", unique("dlx"), unique("user"))):
        theirs.channel().queue_declare(unique("q"), durable=True, arguments={"x-dead-letter-exchange": unique("dlx")})
    assert gone(connection, unique("q"))
