"""Who asks for a declaration, and where: a client on its channel, or an operator.

What comes in: the node, a virtual host, whose permissions hold. What goes out: the checks of permissions; a function
to be called with the node's answer.
Not here: what is asked for (`queues.py`, `exchanges.py`, `bindings.py`), permissions themselves
(`security/access.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from amqpd.node.node import Node
from amqpd.queues.port import QueuePort
from amqpd.security.access import Kind, Permission
from amqpd.vocabulary.caller import COMMAND_LINE, Caller
from amqpd.vocabulary.client import Client
from amqpd.vocabulary.records import QueueRecord

Suspend = Callable[[Callable[..., None]], Callable[..., None]]


# Not frozen: one is made for each basic.get, and that takes three times as long.
@dataclass(slots=True)
class Asker:
    """`suspend` is given what has to happen when the node has answered, and returns what the node is to call. `user`
    is None for an operator whom no permissions bind, `client` for everybody who is no client of the protocol."""

    node: Node
    vhost: str
    suspend: Suspend
    user: str | None
    client: Client | None = None

    @property
    def by(self) -> Client | Caller:
        """Whose act it is: for the audit log, and for shares of the metadata store."""
        if self.client is not None:
            return self.client
        return COMMAND_LINE if self.user is None else Caller(self.user)

    def require(self, permission: Permission, kind: Kind, name: str) -> None:
        """Raises AMQPAccessRefused."""
        if self.user is not None:
            self.node.access.require(self.user, self.vhost, permission, kind, name)

    def require_topic(self, permission: Literal["write", "read"], exchange: str, routing_key: str) -> None:
        """For a topic exchange. Raises AMQPAccessRefused."""
        if self.user is not None:
            variables = {"username": self.user, "vhost": self.vhost}
            self.node.access.require_topic(self.user, self.vhost, permission, exchange, routing_key, variables)

    def queue(self, name: str) -> QueuePort | None:
        """The one of this name. If it is of a source that begins here, it is made now, which is the client's work."""
        node, client = self.node, self.client
        before = node.work_left
        queue = node.ports.get((self.vhost, name))
        if client is not None and node.work_left < before:
            node.turns.charge(client, before - node.work_left)
            node.work_left = before
        return queue

    def owns(self, record: QueueRecord) -> bool:
        """An exclusive queue of this client."""
        client = self.client
        return client is not None and record.owner == client.id and record.node == self.node.sources.node
