"""New connections from the listeners.

What comes in: listening sockets, word from the pump that one of them is ready. What goes out: accepted sockets, to
what takes them.
Rules: 1. At most ACCEPTS_MAX at a time, so that connected clients are served in between. 2. Above the limit of
connections they are closed at once, with one line of the log a second. 3. No error of accept(2) ends anything: one of
that connection is passed over; after any other (out of descriptors) the listeners are left alone for a while, because
they would stay readable all the time. 4. What cannot be set up for one connection ends that connection.
Not here: opening ports (`listeners.py`), what is done with a connection (`pump.py`).
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
from collections.abc import Callable

import structlog

from amqpd.transport.link import SocketAddress

# From one listener in one tick.
ACCEPTS_MAX = 64
PAUSE_S = 0.5
# What is wrong with one connection and says nothing of the next: Linux hands over the network's pending errors of the
# new socket (accept(2), "Error handling"), and a firewall's EPERM.
_OF_ONE = frozenset(
    (
        errno.ENETDOWN,
        errno.EPROTO,
        errno.ENOPROTOOPT,
        errno.EHOSTDOWN,
        errno.ENONET,
        errno.EHOSTUNREACH,
        errno.EOPNOTSUPP,
        errno.ENETUNREACH,
        errno.EPERM,
        errno.ETIMEDOUT,
        errno.ECONNABORTED,
    )
)

Accepted = Callable[[socket.socket, SocketAddress, "ssl.SSLContext | None", float], None]
"""socket, the client's address, TLS if it is to speak that, now"""
_log = structlog.get_logger("amqpd.transport.acceptor")


class ClientAcceptor:
    """Accepts connections from listeners, at most ACCEPTS_MAX at a time."""

    def __init__(
        self, epoll: select.epoll, connections_max: int, accepted: Accepted, bug: Callable[[Exception], None]
    ) -> None:
        """`bug` is told of what `accepted` raises and should not have."""
        self._epoll = epoll
        self._connections_max = connections_max
        self._accepted = accepted
        self._bug = bug
        self._listeners: dict[int, tuple[socket.socket, ssl.SSLContext | None]] = {}
        self._again_at: float | None = None
        self._refused = 0
        """connections refused since the timer last looked"""

    def add(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept from a socket that listens already and does not block; with `tls`, clients speak TLS."""
        self._listeners[listener.fileno()] = listener, tls
        self._epoll.register(listener.fileno(), select.EPOLLIN)

    def stop(self) -> None:
        """Close the listeners."""
        for fd, (listener, _) in self._listeners.items():
            self._epoll.unregister(fd)
            listener.close()
        self._listeners.clear()

    def accept(self, fd: int, connected: int, now: float) -> None:
        """From that listener, if there is such a one; `connected`: how many are connected already."""
        if fd not in self._listeners:
            return
        listener, tls = self._listeners[fd]
        for _ in range(ACCEPTS_MAX):
            try:
                client, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OF_ONE:
                    continue
                _log.error("accept_failed", reason=error.strerror or str(error), pause_s=PAUSE_S)
                self._again_at = now + PAUSE_S
                for each in self._listeners:
                    self._epoll.modify(each, 0)
                return
            if connected >= self._connections_max:
                client.close()
                self._refused += 1
                if self._refused == 1:
                    _log.warning("connection_refused", reason="connections_max", limit=self._connections_max)
                continue
            connected += 1
            try:
                self._accepted(client, address, tls, now)
            except OSError as error:
                # Gone already, or no socket of TCP's: its options cannot be set.
                client.close()
                _log.info("connection_lost", reason=error.strerror or str(error))
            except Exception as error:  # noqa: BLE001 - this connection's; `bug` reports it
                client.close()
                self._bug(error)

    def on_timer(self, now: float) -> None:
        """Once a second."""
        if self._refused > 1:
            # Not a line for each: a client that comes again and again would fill the disk with them.
            _log.warning("connections_refused", count=self._refused, limit=self._connections_max)
        self._refused = 0
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            for fd in self._listeners:
                self._epoll.modify(fd, select.EPOLLIN)
