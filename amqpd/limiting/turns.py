"""Turns: a connection whose publishes go to many queues each does not have the broker to itself.

What comes in: how many queues each run went to. What goes out: connections that are not read on
(`Intake.throttled`), and that are read again in the next tick.
Rules: 1. A turn ends after a number of copies, not after a time: the core has no clock. 2. What a connection sent
beyond its turn waits in its own buffer, so there is never more of it than one read. 3. Everybody else has had a turn
before it goes on.
Not here: how many bytes are read in a tick (`amqpd/pump.py`), how fast somebody may publish (`quotas.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqpd.states import State

if TYPE_CHECKING:
    from amqpd.connection import Connection

# So many runs one connection puts into queues in one turn, if each goes to several: some 20 ms of work. A received
# buffer of small messages to a thousand queues would be seconds of it.
COPIES_MAX = 10_000


class Turns:
    def __init__(self) -> None:
        self.waiting: dict[Connection, None] = {}
        """what they sent was more than their turn had room for"""

    def copied(self, connection: Connection, queues: int) -> None:
        """A run of the connection went to so many queues."""
        intake = connection.intake
        intake.copies += queues
        if intake.copies > COPIES_MAX:
            intake.copies = 0
            intake.throttled = True
            self.waiting[connection] = None

    def next(self) -> None:
        """Those who wait go on."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, {}
        for connection in waiting:
            if connection.state is not State.CLOSED and connection not in connection.node.quotas.waiting:
                connection.intake.go_on()
