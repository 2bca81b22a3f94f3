"""Sockets of connections that have ended: until the client closes them, and not for ever.

What comes in: links, with the time until which they may stay; the time. What goes out: those to close now.
Rules: 1. The client closes first: if the broker did while the client still sends, the system would reset the stream,
and the client would see that in place of what it was answered. 2. A later time never replaces an earlier one.
Not here: closing them (`pump.py`), what is still answered meanwhile (`connection.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqpd.vocabulary.states import State

if TYPE_CHECKING:
    from amqpd.transport.link import Link

# A connection that is closed has this long to take what is left for it, and to close the socket. One that closed by
# the protocol's rules has longer (`Liveness.close_timeout_s`), but not at a shutdown.
LINGER_S = 5.0


class Lingering:
    """Sockets whose connection has ended, until the client closes its end or a time has passed."""

    def __init__(self) -> None:
        self._until: dict[Link, float] = {}

    def begin(self, link: Link, now: float, draining: bool) -> bool:
        """The connection has ended, and the link was sent what it takes. True when there is nothing to wait for."""
        connection = link.connection
        if connection.aborted:
            link.reset()
            return True
        self._keep(link, now, draining)
        return connection.state is State.CLOSED and not link.pending and not link.end()

    def _keep(self, link: Link, now: float, draining: bool) -> None:
        linger_s = LINGER_S
        if link.connection.state is State.LINGERING and not draining:
            linger_s = link.connection.liveness.close_timeout_s
        self._until[link] = min(now + linger_s, self._until.get(link, now + linger_s))

    def hasten(self, now: float) -> None:
        """The broker shuts down."""
        for link in self._until:
            self._keep(link, now, True)

    def due(self, now: float) -> list[Link]:
        """To be closed now, their time has passed. A client that did not end the stream after connection.close-ok is
        reset."""
        due = [link for link, until in self._until.items() if now > until]
        for link in due:
            if link.connection.state is State.LINGERING:
                link.reset()
        return due

    def forget(self, link: Link) -> None:
        self._until.pop(link, None)
