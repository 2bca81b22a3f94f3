"""Whether the other end is alive: the handshake's deadline, heartbeats both ways, the wait for close-ok, and whether
it acknowledges.

What comes in: the time, about once a second. What goes out: a heartbeat; the end of the connection, or of a channel.
Rules: 1. A heartbeat is sent when nothing was sent for half the interval; silence of more than two intervals ends
the connection; any traffic counts (section 4.2.7, and RabbitMQ's rabbit_heartbeat). 2. While the broker does not
read a connection, its silence is not counted. 3. Nobody stays in the handshake longer than `handshake_timeout_s`.
Not here: clocks (`pump.py` calls with the time), how old a delivery is (`delivery_ages.py`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from amqpd.states import State
from amqpd.wire import HEARTBEAT

if TYPE_CHECKING:
    from amqpd.connection import Connection

# RabbitMQ waits so long for close-ok before it drops the socket.
CLOSE_TIMEOUT_S = 30.0


class Liveness:
    __slots__ = ("_closing_until", "_connection", "_handshake_until", "heartbeat_s", "received_at", "sent_at")

    def __init__(self, connection: Connection, now: float) -> None:
        self._connection = connection
        self._handshake_until = now + connection.node.limits.handshake_timeout_s
        self._closing_until: float | None = None
        self.heartbeat_s = 0
        """the interval that the client chose; 0 for none"""
        self.received_at = now
        self.sent_at = now

    def on_timer(self, now: float) -> None:
        connection = self._connection
        state = connection.state
        if state in (State.HEADER, State.HANDSHAKE):
            if now >= self._handshake_until:
                connection.node.log("connection_timeout", connection=connection.name, waiting_for=state.value)
                connection.lost()
        elif state is State.CLOSING:
            if self._closing_until is None:
                self._closing_until = now + CLOSE_TIMEOUT_S
            elif now >= self._closing_until:
                connection.lost()
        elif state is State.RUNNING:
            # What is not read now may be the acknowledgements.
            if not connection.reading_paused:
                for channel in [channel for channel in connection.channels.values() if channel.unacked.count]:
                    connection.guard(partial(channel.on_timer, now))
            if self.heartbeat_s:
                self._heartbeat(now)

    def _heartbeat(self, now: float) -> None:
        connection = self._connection
        if now - self.sent_at >= self.heartbeat_s / 2 and not connection.outbox:
            connection.write(HEARTBEAT)
        if connection.reading_paused:
            self.received_at = now
        elif now - self.received_at > 2 * self.heartbeat_s:
            connection.node.log("heartbeat_missed", connection=connection.name, timeout_s=self.heartbeat_s)
            connection.lost()
