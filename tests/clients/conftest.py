"""Fixtures for tests that speak to a broker over a socket, whichever broker that is.

`AMQPD_TEST_URL=amqp://...` runs them against a broker that is there; `AMQPD_TEST_BROKER=rabbitmq`
starts Debian's RabbitMQ for the session; with neither, one amqpd is started for the session.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .brokers import Connect, broker_class, connections


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "any_broker: speaks AMQP only, so it runs against any broker (AMQPD_TEST_URL)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "broker_url" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.any_broker)


@pytest.fixture(scope="session")
def broker_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("AMQPD_TEST_URL")
    if given:
        yield given
        return
    broker = broker_class()(tmp_path_factory.mktemp("broker"))
    try:
        broker.start()
        yield broker.url
        broker.terminate()
    finally:
        broker.close()


@pytest.fixture(scope="session")
def broker_product(broker_url: str) -> str:
    """`product` of the server's properties: tests that allow for a difference ask this, and say why."""
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        properties = connection._impl.server_properties
    return str(properties["product"])


@pytest.fixture
def connect(broker_url: str) -> Iterator[Connect]:
    """Opens connections with these parameters changed, and closes them all at the end."""
    with connections(broker_url) as connect:
        yield connect


@pytest.fixture
def connection(connect: Connect) -> pika.BlockingConnection:
    return connect()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that nobody else uses: broker and other tests of the session share one namespace."""
    run = uuid.uuid4().hex[:10]
    return lambda word: f"test.{word}.{run}"


@pytest.fixture
def make_queue(connect: Connect, unique: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Declares a queue that other connections may use, and deletes it at the end."""
    made: list[str] = []
    declaring = connect().channel()

    def declare(word: str = "queue", **options: object) -> str:
        name = unique(f"{word}{len(made)}")
        declaring.queue_declare(name, **options)
        made.append(name)
        return name

    yield declare
    cleaning = connect().channel()
    for name in made:
        cleaning.queue_delete(name)


@pytest.fixture
def make_exchange(connect: Connect, unique: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Declares an exchange of this type, and deletes it at the end."""
    made: list[str] = []
    declaring = connect().channel()

    def declare(exchange_type: str, **options: object) -> str:
        name = unique(f"{exchange_type}{len(made)}")
        declaring.exchange_declare(name, exchange_type, **options)
        made.append(name)
        return name

    yield declare
    cleaning = connect().channel()
    for name in made:
        cleaning.exchange_delete(name)
