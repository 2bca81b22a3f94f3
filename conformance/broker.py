"""The broker that is asked: one that is there already, or one that is started for the run.

What comes in: AMQPD_TEST_URL (an address), or AMQPD_TEST_BROKER (`amqpd`, `rabbitmq`). What goes out: a `Broker`.
Rules: a broker that we started is known by that; another by `product` of its server-properties.
Not here: its commands (`admin.py`), the processes (`tests/clients/broker_process.py`).
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika

from conformance.rules import applies
from tests.clients.broker_process import BrokerProcess
from tests.clients.brokers import broker_class
from tests.clients.wire import Wire

CLASSIC, QUORUM = "classic", "quorum"


@dataclass(frozen=True, slots=True)
class Broker:
    url: str
    name: str
    """`amqpd`, `rabbitmq` or `other`"""
    version: str
    process: BrokerProcess | None = None
    """what was started for this run; None when only an address is known"""
    forwarder: str = ""
    """which one of a cluster it is"""
    queue_type: str = CLASSIC
    """of a queue whose declaration names none"""
    nodes: tuple[str, ...] = ()
    """addresses of all nodes of a cluster, if each connection goes to another one of these"""
    draws: random.Random | None = None
    """which"""

    def address(self) -> str:
        """Where the next connection goes."""
        return self.draws.choice(self.nodes) if self.draws is not None else self.url

    @property
    def parameters(self) -> pika.URLParameters:
        """A new object each time: whoever asks may change it."""
        parameters = pika.URLParameters(self.address())
        parameters.blocked_connection_timeout = 30
        return parameters

    @property
    def host(self) -> str:
        return str(self.parameters.host)

    @property
    def port(self) -> int:
        return int(self.parameters.port)

    @property
    def vhost(self) -> str:
        return str(self.parameters.virtual_host)

    @property
    def user(self) -> str:
        return str(self.parameters.credentials.username)

    @property
    def password(self) -> str:
        return str(self.parameters.credentials.password)

    def is_(self, condition: str) -> bool:
        """`broker.is_("rabbitmq<4")`: for the tests that assert different answers."""
        return applies(condition, self)

    def open_wire(
        self, *, handshake: bool = True, timeout_s: float = 60.0, of: type[Wire] = Wire, **options: Any
    ) -> Wire:
        """A raw-frame client, opened like `Wire.open` with these options; or bare, before the protocol header."""
        parameters = self.parameters
        wire = of(int(parameters.port), host=str(parameters.host), timeout_s=timeout_s)
        if handshake:
            try:
                wire.open(**{"vhost": self.vhost, "user": self.user, "password": self.password, **options})
            except BaseException:
                wire.socket.close()
                raise
        return wire


@contextlib.contextmanager
def running_broker(directory: Path) -> Iterator[Broker]:
    """The broker of this run; what was started is stopped at the end, and must stop in good order."""
    url = os.environ.get("AMQPD_TEST_URL")
    if url:
        product, version = _server(url)
        yield Broker(url, product if product in ("amqpd", "rabbitmq") else "other", version)
        return
    process = broker_class()(directory)
    try:
        process.start()
        yield broker_of(process)
        stopped(process)
    finally:
        process.close()


def broker_of(process: BrokerProcess) -> Broker:
    """It serves."""
    return Broker(process.url, process.product.lower(), _server(process.url)[1], process)


def stopped(process: BrokerProcess) -> None:
    """It ends when it is told to. Raises AssertionError if that was not in good order."""
    code = process.terminate()
    assert code in (0, -15) or process.product != "amqpd", f"the broker ended with {code}:\n{process.log[-4000:]}"


def _server(url: str) -> tuple[str, str]:
    """Product in small letters, and version."""
    parameters = pika.URLParameters(url)
    credentials = parameters.credentials
    with Wire(parameters.port, host=parameters.host) as wire:
        wire.open(vhost=parameters.virtual_host, user=credentials.username, password=credentials.password)
        properties = wire.server_properties
        wire.close()
    return str(properties.get("product", "")).lower(), str(properties.get("version", ""))
