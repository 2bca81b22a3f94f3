"""How much may wait for one client, when much waits for many.

What comes in: what each connection has left to send after the pump sent what it could. What goes out: `limit`, the
bytes above which nothing is delivered to a connection.
Rules: 1. Up to a number of slow clients, each may have the setting's `outbox_bytes_max`. 2. Many share what there is
for all, and when that is spent each has the least that deliveries need: a thousand clients that do not read take
little more than some do. 3. What was already encoded for a client is never taken back.
Not here: what waits (`connection.py`, `transport/link.py`), a client that never reads again (`pump.py`).
"""

from __future__ import annotations

from amqpd.vocabulary.client import Client
from amqpd.vocabulary.limits import Limits

# Whatever the others do, so much may wait for each: a few small deliveries, so that a client that reads goes on.
LEAST_BYTES = 64 * 1024


class Outboxes:
    """The bytes that wait for all clients, and the limit for each that follows."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.limit: int = limits.outbox_bytes_max
        self.nbytes = 0
        """what waits for all of them"""
        self._waiting: dict[Client, int] = {}

    def left(self, connection: Client, nbytes: int) -> None:
        """So much of the connection's is left; 0 also when it is closed."""
        before = self._waiting.pop(connection, 0)
        if nbytes:
            self._waiting[connection] = nbytes
        elif not before:
            return
        self.nbytes += nbytes - before
        limits = self._limits
        least = min(LEAST_BYTES, limits.outbox_bytes_max)
        if self.nbytes > limits.outboxes_bytes_max:
            self.limit = least
        else:
            share = limits.outboxes_bytes_max // max(1, len(self._waiting))
            self.limit = max(least, min(limits.outbox_bytes_max, share))
