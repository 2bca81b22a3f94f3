"""The API on a node in the test's own process, asked without a server: with what is on the node put there at once.

What comes in: requests as a test makes them. What goes out: answers; what the audit log was told.
Not here: a broker of its own process (`conftest.py`), the server (`test_server.py`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio
from starlette.types import ASGIApp

from amqpd.audit.acts import Acts
from amqpd.config import Settings
from amqpd.flow.client_counters import CHANNELS, CONNECTIONS, USER
from amqpd.management.across_nodes.rows import PeerRows
from amqpd.management.control.answers import Commands
from amqpd.management.face import BrokerParts, ClusterState
from amqpd.management.figures.node_facts import NodeFacts
from amqpd.management.figures.queue_names import QueueNames
from amqpd.management.figures.recent import Recent
from amqpd.management.figures.sampling import Sampler
from amqpd.management.messages.operations import MessageOperations
from amqpd.management.metadata.interface import Plan
from amqpd.management.metadata.live import LiveMetadata
from amqpd.management.running import Running
from amqpd.process.logs import recent_lines
from amqpd.security.access import Access
from amqpd.security.authentication.attempt_counts import LoginAttemptCounts
from amqpd.security.authentication.logins import Accepted
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Change, PermissionRecord, Put, QueueRecord, UserRecord
from amqpd_admin.app import make_app
from amqpd_admin.hosts import Hosts
from tests.admin.conftest import USERS
from tests.harness.harness import Client
from tests.node.test_identity import ONE, Stored, space_with, started

MACHINE = (7_000_000, 9_000_000)
"""memory and free space, in bytes"""


class Trusting:
    """Log-ins by any password: hashes take a tenth of a second each."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.attempt_counts = LoginAttemptCounts()

    def verdict_without_hash(self, user: str, password: bytes, loopback: bool) -> Accepted:
        return Accepted(user, self._topology.users[user].tags)


class Told:
    """In place of the audit log's recorder."""

    acts = True

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.watch: Callable[[dict[str, Any]], None] = lambda columns: None

    def act(self, event: str, columns: dict[str, Any]) -> None:
        self.rows.append((event, columns))
        self.watch({"event": event, "time": 1_795_254_684_000_000, **columns})


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)

    @property
    def text(self) -> bytes:
        return b"".join(self.pieces)

    def json(self) -> Any:
        return json.loads(self.text)


class Inside:
    def __init__(
        self,
        on: Running,
        broker: Stored,
        app: ASGIApp,
        told: Told,
        lines: Recent[str],
        samples: Sampler,
        logins: Trusting,
    ) -> None:
        self.on = on
        self.logins = logins
        self.broker = broker
        self.node = broker.node
        self.topology = broker.topology
        self.app = app
        self.told = told
        self.lines = lines
        self.samples = samples

    def applied(self, *changes: Change) -> None:
        """They are there, whatever the store has. A classic queue that names no node is this one's."""
        made = [self._ours(change) for change in changes]
        self.topology.apply(made)
        self.node.applied(made)

    def _ours(self, change: Change) -> Change:
        if isinstance(change, Put) and isinstance(record := change.record, QueueRecord) and not record.source:
            return Put(replace(record, node=record.node or self.node.sources.node))
        return change

    def client(self, user: str, vhost: str = "/") -> Client:
        """Connected, with a channel; its name is the user's."""
        client: Client = self.broker.client()
        connection, client_counters = client.connection, self.node.client_counters
        connection.name, connection.vhost = f"{user}:1 -> broker:5672", vhost
        # A harness takes everybody for guest, and puts them into "/".
        for what in (CONNECTIONS, CHANNELS):
            client_counters._own[what, USER, connection.user] -= 1
            client_counters._own[what, USER, user] += 1
        connection.user = user
        return client

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str = "guest",
        root: str = "/api",
        octets: bytes | None = None,
        kind: str = "application/json",
        accept: str = "*/*",
        left: trio.Event | None = None,
    ) -> Answer:
        """`octets`: a body as it is, of the content type `kind`. `left`: when the client leaves."""
        path, _, query = path.partition("?")
        text = octets if octets is not None else b"" if body is None else json.dumps(body).encode()
        authorization = b"Basic " + base64.b64encode(f"{user}:{user}".encode())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": root + path,
            "raw_path": (root + path).encode(),
            "query_string": query.encode(),
            "headers": [
                (b"content-type", kind.encode()),
                (b"accept", accept.encode()),
                *([(b"authorization", authorization)] if user else []),
            ],
            "client": ("10.0.0.9", 4711),
            "server": ("127.0.0.1", 15672),
        }
        sent, answer = False, Answer()

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent and left is None:
                await trio.sleep_forever()
            if sent:
                await left.wait()
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": text, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.pieces.append(message.get("body", b""))

        await self.app(scope, receive, send)
        return answer


FIGURES = {"resident_bytes_max": 1 << 30, "disk_free_bytes": 1 << 30, "disk_free_bytes_min": 1 << 20}


@asynccontextmanager
async def inside(view: ClusterState | None = None, peers: PeerRows | None = None) -> AsyncIterator[Inside]:
    """With guest, who administers, and a user of each tag (`USERS`); all of them may enter the virtual host "/". In a
    cluster with `view` and `peers`."""
    space = await space_with()
    async with trio.open_nursery() as nursery:
        broker = await started(space, ONE, nursery)
        told = Told()
        broker.node.acts = Acts(told)  # type: ignore[arg-type]
        on = Running(broker.node, broker.tick)
        metadata = LiveMetadata(on, broker.store, broker.sync)
        tags = {"guest": "administrator", **{user: tag for tag, user in USERS.items()}}

        def plan(topology: Topology) -> Plan:
            users = [Put(UserRecord(name, "hash", (tag,))) for name, tag in tags.items()]
            return Plan([*users, *(Put(PermissionRecord(name, "/", ".*", ".*", ".*")) for name in tags)])

        await metadata.change(plan)
        logins: Any = Trusting(broker.topology)
        messages = MessageOperations(broker.node, None, broker.tick)  # type: ignore[arg-type]
        clients = [("127.0.0.1", 5672, False)]
        addresses = ["http://127.0.0.1:15672"]
        sampler = Sampler(broker.node, lambda: broker.node.now_ms, lambda: MACHINE)
        facts = NodeFacts(on, lambda: FIGURES, sampler.of_node, clients, addresses, ".")
        cluster = None if view is None else lambda: view
        parts = (on, metadata, logins, Access(broker.topology), lambda: FIGURES, cluster, clients, messages)
        broker_parts = BrokerParts(*parts, Commands({}), sampler, facts, QueueNames(broker.topology), peers)
        told.rows.clear()
        settings = Settings(data_dir=Path.cwd())
        lines = recent_lines()
        app = make_app(broker_parts, settings, addresses, hosts=Hosts(settings), fatal=_raised, recent_lines=lines)
        yield Inside(on, broker, app, told, lines, sampler, logins)
        nursery.cancel_scope.cancel()


def _raised(error: BaseException) -> None:
    raise error
