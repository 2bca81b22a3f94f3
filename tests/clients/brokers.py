"""Which broker a run of tests speaks to, and connections to it that are closed afterwards.

What comes in: AMQPD_TEST_BROKER (`amqpd` or `rabbitmq`). What goes out: the class that starts it; pika connections.
Not here: the fixtures (`conftest.py` here and in `conformance/`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import pika

from .broker_process import BrokerProcess
from .rabbitmq_process import RabbitMQProcess

Connect = Callable[..., pika.BlockingConnection]


def broker_class() -> type[BrokerProcess]:
    """Which broker the tests start: amqpd, unless AMQPD_TEST_BROKER says rabbitmq."""
    wanted = os.environ.get("AMQPD_TEST_BROKER") or "amqpd"
    return {"amqpd": BrokerProcess, "rabbitmq": RabbitMQProcess}[wanted]


@contextlib.contextmanager
def connections(url: str | Callable[[], str]) -> Iterator[Connect]:
    """Opens connections with these attributes of the parameters changed, and closes them all at the end. `url`: the
    same for all, or asked for each."""
    opened: list[pika.BlockingConnection] = []

    def open_connection(**changes: object) -> pika.BlockingConnection:
        parameters = pika.URLParameters(url if isinstance(url, str) else url())
        parameters.blocked_connection_timeout = 30
        for name, value in changes.items():
            setattr(parameters, name, value)
        connection = pika.BlockingConnection(parameters)
        opened.append(connection)
        return connection

    try:
        yield open_connection
    finally:
        for connection in opened:
            if connection.is_open:
                connection.close()
