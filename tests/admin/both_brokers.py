"""amqpd and Debian's RabbitMQ beside each other, each with its management API.

What comes in: a directory. What goes out: two `Side`s that answer the same requests.
Rules: 1. Both are started here on free ports, and ended by their process. 2. RabbitMQ has the plugins whose routes
are compared, and looks at its statistics each second in place of each fifth.
Not here: what is made on them (`same_topology.py`), what is compared (`compare.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pika
import pika.exceptions

from tests.clients.broker_process import BrokerProcess, free_port
from tests.clients.rabbitmq_process import NODE_NAME, PLUGINS, SCRIPTS, RabbitMQProcess

MANAGEMENT = Path("/usr/lib/rabbitmq/lib")
WITH = (
    *PLUGINS,
    "rabbitmq_management",
    "rabbitmq_federation_management",
    "rabbitmq_shovel_management",
    "rabbitmq_stream_management",
)


def missing() -> str:
    """Why RabbitMQ cannot be asked on this machine; empty when it can."""
    if not (SCRIPTS / "rabbitmq-server").exists():
        return "RabbitMQ is not installed"
    found = any(MANAGEMENT.glob("rabbitmq_server-*/plugins/rabbitmq_management-*"))
    return "" if found else "RabbitMQ's management plugin is not installed"


class ManagedRabbitMQ(RabbitMQProcess):
    """RabbitMQ with its management API on a port of its own."""

    plugins: Sequence[str] = WITH

    def child_environment(self) -> dict[str, str]:
        environment = super().child_environment()
        (self.data_dir / "rabbitmq" / "enabled_plugins").write_text(f"[{','.join(self.plugins)}].\n")
        return environment


@dataclass
class Side:
    """One of the two. `names` are what each calls by its own name: its node, its connection and channels."""

    broker: BrokerProcess
    port: int
    client: httpx2.Client
    names: dict[str, str] = field(default_factory=dict)
    clients: list[pika.BlockingConnection] = field(default_factory=list)

    def ask(
        self, method: str, path: str, body: object = None, *, user: str = "guest", **more: Any
    ) -> httpx2.Response:
        """`path` may name what is in `names`, in braces."""
        for name, value in self.names.items():
            path = path.replace("{" + name + "}", value)
        auth = (user, user) if user else None
        if body is not None:
            more["json"] = body
        return self.client.request(method, f"/api{path}", auth=auth, **more)

    def connect(self, properties: Mapping[str, str], vhost: str = "/") -> pika.BlockingConnection:
        parameters = pika.URLParameters(self.broker.url)
        parameters.virtual_host = vhost
        parameters.client_properties = dict(properties)
        parameters.heartbeat = 60
        connection = pika.BlockingConnection(parameters)
        self.clients.append(connection)
        return connection

    def close(self) -> None:
        for connection in self.clients:
            with contextlib.suppress(pika.exceptions.AMQPError):
                connection.close()
        self.client.close()


def _side(broker: BrokerProcess, port: int, node: str) -> Side:
    client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
    return Side(broker, port, client, {"node": node, "port": str(broker.port)})


@contextlib.contextmanager
def both(
    directory: Path, plugins: Sequence[str] = (), settings_of_ours: Mapping[str, str] | None = None
) -> Iterator[tuple[Side, Side]]:
    """RabbitMQ first. `plugins`: of RabbitMQ, beside those that it always has; `settings_of_ours`: variables of
    amqpd's environment."""
    theirs, ours = free_port(), free_port()
    settings = [f"management.tcp.port = {theirs}", "management.tcp.ip = 127.0.0.1"]
    settings += [f"stream.listeners.tcp.1 = 127.0.0.1:{free_port()}", "collect_statistics_interval = 1000"]
    rabbitmq = ManagedRabbitMQ(directory / "rabbitmq", arguments=settings)
    rabbitmq.plugins = (*WITH, *plugins)
    environment = {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(ours), **(settings_of_ours or {})}
    amqpd = BrokerProcess(directory / "amqpd", environment=environment)
    sides: list[Side] = []
    try:
        rabbitmq.spawn()
        amqpd.spawn()
        rabbitmq.wait_ready()
        amqpd.wait_ready()
        sides = [_side(rabbitmq, theirs, NODE_NAME), _side(amqpd, ours, "")]
        sides[1].names["node"] = sides[1].ask("GET", "/overview").json()["node"]
        yield sides[0], sides[1]
    finally:
        for side in sides:
            side.close()
        amqpd.close()
        rabbitmq.close()
