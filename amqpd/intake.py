"""Whether a connection may be read: alarms, quotas, queues that drain, a journal that is behind, suspended channels.

What comes in: what the connection published to, what its channels hold. What goes out: `paused`; connection.blocked
and unblocked.
Rules: 1. An alarm stops who publishes, at its next publish, and tells it once for all alarms; consumers go on. 2.
What slows without an alarm is not told: it is over soon. 3. Whoever is paused is looked at again after each tick.
Not here: when a queue slows its publishers (`congestion.py`), when memory or disk are short (`alarms.py`), how fast
somebody may publish (`limiting/quotas.py`), how long a turn is (`limiting/turns.py`).

Source: https://www.rabbitmq.com/docs/connection-blocked, https://www.rabbitmq.com/docs/flow-control.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pamqp import commands

if TYPE_CHECKING:
    from amqpd.connection import Connection
    from amqpd.queues.queue import Queue

# What suspended channels of one connection may hold before the connection is not read any more.
HELD_BYTES_MAX = 1024 * 1024


class Intake:
    __slots__ = ("_connection", "blocked", "congested", "copies", "held_bytes", "throttled", "told_slowed")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.blocked = False
        """it published while an alarm was on"""
        self.throttled = False
        """it published as much as it may, or as its turn has room for; what came behind that is not taken"""
        self.copies = 0
        """runs that it put into one of several queues, since its turn began"""
        self.told_slowed = False
        """that it was throttled is in the log"""
        self.congested: dict[Queue, None] = {}
        """queues that it published to and that slowed their publishers then"""
        self.held_bytes = 0
        """what the suspended channels hold"""

    @property
    def paused(self) -> bool:
        connection = self._connection
        if self.blocked or self.throttled or (connection.publishing and connection.node.journal_full):
            return True
        if self.congested:
            slows = connection.node.congestion.slows
            self.congested = {queue: None for queue in self.congested if slows(queue)}
            if self.congested:
                return True
        return self.held_bytes > HELD_BYTES_MAX

    def block(self) -> None:
        """It published while an alarm is on."""
        connection = self._connection
        if not self.blocked:
            self.blocked = True
            if connection.capabilities.get("connection.blocked"):
                reason = "low on " + " & ".join(sorted(connection.node.alarms))
                connection.send(commands.Connection.Blocked(reason=reason))

    def unblock(self) -> None:
        """No alarm is on any more."""
        connection = self._connection
        if self.blocked:
            self.blocked = False
            if connection.capabilities.get("connection.blocked"):
                connection.send(commands.Connection.Unblocked())
            connection.node.touched[connection] = None

    def go_on(self) -> None:
        """It may publish again."""
        connection = self._connection
        self.throttled = False
        if not connection.suspended:
            connection.resume()
