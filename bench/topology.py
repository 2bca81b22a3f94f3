"""The queues and exchanges of one run: declared before it, deleted after it whatever happened.

What comes in: names. What goes out: an open topology; when it closes, proof that nothing was left behind.
Rules: 1. names are unique to the run, so that two benches may share a broker; 2. after a run without errors
every queue must be empty: a message that is still there was not received, or its ack was lost.
Not here: users, vhosts and policies: the bench uses what the address gives it.
"""

from __future__ import annotations

import secrets

from pamqp import commands

from bench.errors import BenchError
from bench.tls import TlsSocket
from bench.wire import Wire

BINDINGS_AT_ONCE = 500


class Topology:
    """A context manager. `prefix` begins all names; their lengths are the same in every run."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.prefix = f"bench-{secrets.token_hex(4)}"
        self._wire = Wire(url)
        self._queues: list[str] = []
        self._exchanges: list[str] = []

    @property
    def tls(self) -> str:
        """Version and cipher, empty without TLS."""
        sock = self._wire.socket
        return sock.version if isinstance(sock, TlsSocket) else ""

    def disconnect(self) -> None:
        """Before the broker goes away; `reconnect` when it is back."""
        self._wire.close()

    def reconnect(self) -> None:
        self._wire = Wire(self._url)

    def queue(self, name: str = "", *, durable: bool = False, arguments: dict[str, str | int] | None = None) -> str:
        """Declare a queue and return its full name. Not exclusive: publisher and consumer are two
        connections."""
        full = f"{self.prefix}{name}"
        declare = commands.Queue.Declare(queue=full, durable=durable, arguments=dict(arguments or {}))
        self._wire.call(declare, commands.Queue.DeclareOk)
        self._queues.append(full)
        return full

    def exchange(self, exchange_type: str, name: str = "-x") -> str:
        full = f"{self.prefix}{name}"
        declare = commands.Exchange.Declare(exchange=full, exchange_type=exchange_type)
        self._wire.call(declare, commands.Exchange.DeclareOk)
        self._exchanges.append(full)
        return full

    def bind(self, queue: str, exchange: str, routing_key: str = "") -> None:
        bind = commands.Queue.Bind(queue=queue, exchange=exchange, routing_key=routing_key)
        self._wire.call(bind, commands.Queue.BindOk)

    def bind_many(self, queue: str, exchange: str, routing_keys: list[str]) -> None:
        """All bindings with no-wait, 500 at a time: thousands of round trips would take longer than the
        run."""
        for begin in range(0, len(routing_keys), BINDINGS_AT_ONCE):
            for key in routing_keys[begin : begin + BINDINGS_AT_ONCE]:
                self._wire.send(commands.Queue.Bind(queue=queue, exchange=exchange, routing_key=key, nowait=True))
            self.messages(queue)

    def messages(self, queue: str) -> int:
        """Ready messages in the queue (`message-count` of a passive declare)."""
        declare = commands.Queue.Declare(queue=queue, passive=True)
        return self._wire.call(declare, commands.Queue.DeclareOk).message_count or 0

    def __enter__(self) -> Topology:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        left = 0
        try:
            for queue in self._queues:
                deleted = self._wire.call(commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)
                left += deleted.message_count or 0
            for exchange in self._exchanges:
                self._wire.call(commands.Exchange.Delete(exchange=exchange), commands.Exchange.DeleteOk)
            self._wire.close()
        except (BenchError, OSError):
            if kind is None:
                raise
        if left and kind is None:
            raise BenchError(f"{left} messages were left in the queues after all were received")
