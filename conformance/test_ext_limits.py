"""Limits of virtual hosts and users: connections, channels, queues.

What comes in and goes out: limits set by the broker's command line; what is refused at the limit.
Rules: what is there when a limit is set stays.
Not here: the limits that are negotiated (`test_handshake.py`), quotas, which RabbitMQ has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pika.exceptions
import pytest

from conformance.extensions import refused, wait_until
from conformance.rules import rule


@contextmanager
def turned_away(text: str) -> Iterator[None]:
    """The broker closes the connection at connection.open with 530 and this text, which pika wraps in its own."""
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as caught:
        yield
    assert f'(530) "NOT_ALLOWED - {text}"' in str(caught.value)


@pytest.fixture
def vhost(admin, broker, unique):
    admin.add_vhost(unique("vhost"))
    admin.set_permissions(unique("vhost"), broker.user, ".*", ".*", ".*")
    return unique("vhost")


@rule(
    "RabbitMQ: vhosts#limits",
    "max-queues: the next queue is refused with 406, one that exists can be declared again.",
)
def test_max_queues(admin, connect, vhost):
    admin.set_vhost_limits(vhost, {"max-queues": 2})
    connection = connect(virtual_host=vhost)
    for name in ("a", "b", "a"):
        connection.channel().queue_declare(name, exclusive=True)
    told = f"cannot declare queue 'c': queue limit in vhost '{vhost}' (2) is reached"
    with refused(f"PRECONDITION_FAILED - {told}"):
        connection.channel().queue_declare("c", exclusive=True)
    connection.channel().queue_delete("a")
    connection.channel().queue_declare("c", exclusive=True)


@rule("RabbitMQ: vhosts#limits", "max-connections: the next connection is refused at connection.open with 530.")
def test_max_connections_of_a_virtual_host(admin, connect, vhost, broker):
    admin.set_vhost_limits(vhost, {"max-connections": 1})
    first = connect(virtual_host=vhost)
    with turned_away(f"access to vhost '{vhost}' refused for user '{broker.user}': connection limit (1) is reached"):
        connect(virtual_host=vhost)
    first.close()
    wait_until(lambda: opens(connect, virtual_host=vhost))


def opens(connect, **parameters: object) -> bool:
    try:
        connect(**parameters).close()
    except pika.exceptions.ProbableAccessDeniedError:
        return False
    return True


@rule("RabbitMQ: vhosts#limits", "A limit of 0 refuses all, -1 and no limit refuse none.")
def test_a_limit_of_zero(admin, connect, vhost):
    admin.set_vhost_limits(vhost, {"max-connections": 0})
    assert not opens(connect, virtual_host=vhost)
    admin.set_vhost_limits(vhost, {"max-connections": -1})
    assert opens(connect, virtual_host=vhost)


@rule("RabbitMQ: vhosts#limits", "What is there when a limit is set stays.")
def test_a_limit_closes_nothing(admin, connect, vhost):
    connection = connect(virtual_host=vhost)
    channel = connection.channel()
    for name in ("a", "b"):
        channel.queue_declare(name, exclusive=True)
    admin.set_vhost_limits(vhost, {"max-connections": 1, "max-queues": 1})
    channel.queue_declare("a", exclusive=True)
    channel.queue_declare("b", passive=True)


@pytest.fixture
def login(admin, broker, unique):
    """A new user's name and the parameters to connect as it."""
    admin.add_user(unique("user"), "secret")
    admin.set_permissions(broker.vhost, unique("user"), ".*", ".*", ".*")
    return unique("user"), {"credentials": pika.PlainCredentials(unique("user"), "secret")}


@rule("RabbitMQ: user-limits", "max-connections of a user: the next one is refused with 530.")
def test_max_connections_of_a_user(admin, connect, broker, login):
    user, credentials = login
    admin.set_user_limits(user, {"max-connections": 1})
    first = connect(**credentials)
    with turned_away(f"connection refused for user '{user}': user connection limit (1) is reached"):
        connect(**credentials)
    assert opens(connect)
    first.close()
    wait_until(lambda: opens(connect, **credentials))


@rule("RabbitMQ: user-limits", "max-channels of a user: the next channel ends the connection with 530.")
def test_max_channels_of_a_user(admin, connect, broker, login):
    user, credentials = login
    admin.set_user_limits(user, {"max-channels": 2})
    connection = connect(**credentials)
    for _ in range(2):
        connection.channel()
    limit = "(2)" if broker.is_("rabbitmq<4.3") else "2"
    told = f"number of channels opened for user '{user}' has reached the maximum allowed user limit of {limit}"
    with refused(f"NOT_ALLOWED - {told}"):
        connection.channel()
