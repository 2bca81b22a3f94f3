"""A client's socket and its connection machine.

What comes in: a socket that was accepted. What goes out: what the pump knows of it.
Rules: what the socket did not take is `pending`, in order.
Not here: moving bytes (`pump.py`), what they mean (`connection.py`).
"""

from __future__ import annotations

import select
import socket
from collections import deque

from amqpd.connection import Connection
from amqpd.tls_stream import TlsStream

# What waits for a slow client in smaller pieces is joined to pieces of this size: a confirm of 21 bytes would take
# ten times as much in memory.
PENDING_JOINED_BYTES = 4096


class Link:
    __slots__ = ("connection", "ended", "events", "linger_until", "pending", "pending_bytes", "socket", "tls")

    def __init__(self, client: socket.socket, connection: Connection, tls: TlsStream | None) -> None:
        self.socket = client
        self.connection = connection
        self.tls = tls
        self.pending: deque[memoryview] = deque()
        self.pending_bytes = 0
        self.events = select.EPOLLIN
        self.linger_until: float | None = None
        self.ended = False

    def send(self, data: bytes | bytearray) -> None:
        """Send `data` behind what is pending; what the socket does not take stays pending. Raises OSError when the
        socket is gone."""
        pending = self.pending
        try:
            while pending:
                sent = self.socket.send(pending[0])
                self.pending_bytes -= sent
                if sent < len(pending[0]):
                    pending[0] = pending[0][sent:]
                    break
                pending.popleft()
            if data and not pending:
                sent = self.socket.send(data)
                if sent == len(data):
                    return
                pending.append(memoryview(data)[sent:])
                self.pending_bytes += len(data) - sent
                return
        except (BlockingIOError, InterruptedError):
            pass
        if data:
            self.pending_bytes += len(data)
            if pending and len(pending[-1]) + len(data) <= PENDING_JOINED_BYTES:
                data = bytes(pending.pop()) + data
            pending.append(memoryview(data))

    def end(self) -> bool:
        """Nothing more will be sent. The client closes the socket when it has read that: if we did while it still
        sends (amqplib's publishes may follow its connection.close), the system would reset the stream, and the
        client would see that in place of close-ok. False when there is no stream any more."""
        if self.ended:
            return True
        self.ended = True
        try:
            if self.tls is not None:
                self.tls.end()
                self.socket.send(self.tls.output())
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        return True


def is_loopback(address: str) -> bool:
    """127.0.0.0/8, ::1, and the former in IPv6's clothes."""
    return address == "::1" or address.startswith(("127.", "::ffff:127."))
