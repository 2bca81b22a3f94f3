"""Whether the other end is alive: the handshake's deadline, heartbeats both ways, the wait for close-ok, and whether
it acknowledges.

What comes in: the time, about once a second. What goes out: a heartbeat; the end of the connection, or of a channel.
Rules: 1. A heartbeat is sent when nothing was sent for half the interval; silence of more than two intervals ends
the connection; any traffic counts (section 4.2.7, and RabbitMQ's rabbit_heartbeat). 2. A client silent this long is
disconnected: the socket is reset, not closed politely. 3. The wait for close-ok ends with the first interval. 4.
While the broker does not read a connection, its silence is not counted. 5. Nobody stays in the handshake longer than
`handshake_timeout_s`.
Not here: clocks (`pump.py` calls with the time), how old a delivery is (`delivery_ages.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.vocabulary.states import ConnectionState
from amqpd.wire.frames import HEARTBEAT

# How long the client may take to answer connection.close, or to end the stream after its own was answered; the
# heartbeat's interval where that is shorter (RabbitMQ's CLOSING_TIMEOUT).
CLOSE_TIMEOUT_S = 30.0
# A look at a channel, in the unit of `flow/turns.py`.
LOOK_WORK = 2


class Liveness:
    """The deadlines of one connection."""

    __slots__ = ("_closing_until", "_connection", "_handshake_until", "received_at", "sent_at")

    def __init__(self, connection: ConnectionBase, now: float) -> None:
        self._connection = connection
        self._handshake_until = now + connection.shared.limits.handshake_timeout_s
        self._closing_until: float | None = None
        self.received_at = now
        self.sent_at = now

    def on_timer(self, now: float, heartbeat_only: bool = False) -> None:
        """Once a second, and in between with `heartbeat_only`: half an interval may end there."""
        connection = self._connection
        state = connection.state
        if heartbeat_only:
            self._send_heartbeat(now)
        elif state in (ConnectionState.HEADER, ConnectionState.HANDSHAKE):
            if now >= self._handshake_until:
                connection.shared.log("connection_timeout", connection=connection.name, waiting_for=state.value)
                connection.lost()
        elif state is ConnectionState.CLOSING:
            if self._closing_until is None:
                self._closing_until = now + self.close_timeout_s
            elif now >= self._closing_until:
                connection.abort()
        elif state is ConnectionState.RUNNING:
            connection.give_back_old_routes()  # its next publish would, but one that is idle has none
            # What is not read now may be the acknowledgements.
            if not connection.reading_paused:
                channels = connection.channels.values()
                waiting = [each for each in channels if each.unacked.count or each.ledger_bytes]
                if waiting:
                    connection.intake.begin_apart(self._look_at(waiting, now))
            if self._connection.heartbeat_s:
                self._heartbeat(now)

    def _look_at(self, channels: list[ChannelBase], now: float) -> Iterator[None]:
        connection = self._connection
        for channel in channels:
            connection.guard(partial(channel.on_timer, now))
            connection.shared.turns.charge(connection, LOOK_WORK)
            yield

    def _send_heartbeat(self, now: float) -> None:
        connection = self._connection
        if connection.outbox or not self._connection.heartbeat_s or connection.state is not ConnectionState.RUNNING:
            return
        if now - self.sent_at >= self._connection.heartbeat_s / 2:
            connection.write(HEARTBEAT)

    @property
    def close_timeout_s(self) -> float:
        return (
            min(float(self._connection.heartbeat_s), CLOSE_TIMEOUT_S)
            if self._connection.heartbeat_s
            else CLOSE_TIMEOUT_S
        )

    def _heartbeat(self, now: float) -> None:
        connection = self._connection
        self._send_heartbeat(now)
        if connection.reading_paused:
            self.received_at = now
        elif now - self.received_at > 2 * self._connection.heartbeat_s:
            connection.shared.log(
                "heartbeat_missed", connection=connection.name, timeout_s=self._connection.heartbeat_s
            )
            connection.abort()
