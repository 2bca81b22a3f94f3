"""Fixtures for tests that start, hurt and restart brokers of their own.

`AMQPD_TEST_BROKER=rabbitmq` runs them against RabbitMQ. `AMQPD_HEAVY=1` runs the long ones too; otherwise
they are skipped. `AMQPD_FAULT_SEED` and `AMQPD_FAULT_ROUNDS` set the random faults.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from ..clients.broker_process import BrokerProcess
from ..clients.brokers import broker_class


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("AMQPD_HEAVY"):
        return
    for item in items:
        if item.get_closest_marker("heavy"):
            item.add_marker(pytest.mark.skip(reason="heavy: set AMQPD_HEAVY=1"))


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers (not started yet), each with its own data directory unless told otherwise; they are
    killed at the end of the test."""
    made: list[BrokerProcess] = []

    def make(data_dir: Path | None = None, **options: object) -> BrokerProcess:
        broker = broker_class()(data_dir or tmp_path / f"broker{len(made)}", **options)  # type: ignore[arg-type]
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def only_amqpd() -> None:
    if broker_class() is not BrokerProcess:
        pytest.skip("about amqpd's own promises")


@contextlib.contextmanager
def opened(broker: BrokerProcess) -> Iterator[BlockingChannel]:
    """A channel of a connection of its own; that the broker may be gone at the end is no error."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    try:
        yield connection.channel()
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):
            if connection.is_open:
                connection.close()


def settings(*, amqpd: dict[str, str], rabbitmq: list[str]) -> dict[str, object]:
    """Options for `make_broker` that mean the same to both brokers: environment, or lines of
    rabbitmq.conf."""
    return {"environment": amqpd} if broker_class() is BrokerProcess else {"arguments": rabbitmq}
