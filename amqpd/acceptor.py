"""New connections from the listeners.

What comes in: listening sockets, word from the pump that one of them is ready. What goes out: accepted sockets, to
who takes them.
Rules: 1. At most ACCEPTS_MAX at a time, so that who is connected is served in between. 2. Above the limit of
connections they are closed at once, with one line of the log a second. 3. Out of descriptors, the listeners are left
alone for a while: they would stay readable all the time.
Not here: opening ports (`listeners.py`), what is done with a connection (`pump.py`).
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
from collections.abc import Callable

import structlog

# From one listener in one tick.
ACCEPTS_MAX = 64
PAUSE_S = 0.5
_SHORT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Accepted = Callable[[socket.socket, tuple[str, int], "ssl.SSLContext | None", float], None]
"""socket, the client's address, TLS if it is to speak that, now"""
_log = structlog.get_logger("amqpd.acceptor")


class Acceptor:
    def __init__(self, epoll: select.epoll, connections_max: int, accepted: Accepted) -> None:
        self._epoll = epoll
        self._connections_max = connections_max
        self._accepted = accepted
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
        """From that listener, if there is such a one; so many are `connected` already."""
        if fd not in self._listeners:
            return
        listener, tls = self._listeners[fd]
        for _ in range(ACCEPTS_MAX):
            try:
                client, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORT_OF:
                    raise
                _log.error("accept_failed", reason=error.strerror, pause_s=PAUSE_S)
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
            self._accepted(client, address, tls, now)

    def on_timer(self, now: float) -> None:
        """Once a second."""
        if self._refused > 1:
            # Not a line for each: who comes again and again would fill the disk with them.
            _log.warning("connections_refused", count=self._refused, limit=self._connections_max)
        self._refused = 0
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            for fd in self._listeners:
                self._epoll.modify(fd, select.EPOLLIN)
