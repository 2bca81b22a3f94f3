"""Who asks for a declaration, or asks a queue, and where: a client on its channel, or an operator.

What comes in: the node, a virtual host, whose permissions hold. What goes out: the checks of permissions; a function
to be called with the node's answer, or with a queue's.
Rules: who asks waits while there is no answer, and for no answer that has come.
Not here: what is asked for (`queues.py`, `exchanges.py`, `bindings.py`), permissions themselves
(`security/access.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pamqp.exceptions import AMQPError

from amqpd.node.node import Node
from amqpd.queues.arguments import crashed
from amqpd.queues.port import QueuePort
from amqpd.security.access import Kind, Permission
from amqpd.vocabulary.caller import COMMAND_LINE, Caller
from amqpd.vocabulary.client import Client
from amqpd.vocabulary.records import QueueRecord

Suspend = Callable[[Callable[..., None]], Callable[..., Any]]
"""given what is to happen when an answer comes; returns what is to be called with that, which says whether the asker
was still there"""


class RoundTrip:
    """One question to a queue, which may be answered before who asked looks for the answer, or after."""

    # In the class, as one is made for each basic.get, which most of them do not change.
    answered = False
    _answer: Any = None
    _resume: Callable[..., Any] | None = None

    def answer(self, value: Any) -> bool:
        """For the queue, once. False when nobody is there any more who asked."""
        assert not self.answered, "a queue has answered twice"
        self.answered = True
        if self._resume is None:
            self._answer = value
            return True
        return bool(self._resume(value))

    def then(self, suspend: Suspend, continuation: Callable[[Any], None]) -> None:
        """Call the continuation with the answer: now, if that has come; if not, when it comes, after `suspend`."""
        if self.answered:
            continuation(self._answer)
        else:
            self._resume = suspend(continuation)


# Not frozen: one is made for each basic.get, and that takes three times as long.
@dataclass(slots=True)
class Asker:
    """The client or the operator that asks for a declaration, in one virtual host. `suspend` is given what has to
    happen when the node has answered, and returns what the node is to call. `user` is None for an operator whom no
    permissions bind, `client` for everybody who is no client of the protocol."""

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

    def ask(
        self, queue: QueuePort, question: Callable[[Callable[[Any], bool]], None], answered: Callable[[Any], None]
    ) -> bool:
        """Ask the queue: `question` is given what the queue is to call with its answer. `answered` is called with
        that, not from within the queue: what fails there is the asker's. Whether that was done before this returned.
        Raises AMQPNotFound when the queue goes out of service over the question."""
        trip = RoundTrip()
        try:
            question(trip.answer)
        except AMQPError:
            raise
        except Exception as error:
            self.node.quarantine(queue, error)
            if not trip.answered:
                raise crashed(queue.record) from error
        if trip.answered:
            answered(trip._answer)
            return True
        trip.then(self.suspend, answered)
        return False

    def once_known(self, step: Callable[[], None]) -> None:
        """Carry out the step, which answers that something is there, or is not: now, or when every node that takes
        publishes knows it, as it may have been made just now."""
        knowledge = self.node.cluster.knowledge
        if knowledge.has_all:
            step()
        else:
            knowledge.when_known(self.suspend(step))

    def owns(self, record: QueueRecord) -> bool:
        """An exclusive queue of this client."""
        client = self.client
        return client is not None and record.owner == client.id and record.node == self.node.sources.node
