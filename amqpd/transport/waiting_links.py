"""Links that wait: those that are not read now, those whose connection has ended, those whose client does not read.

What comes in: links; word that something has happened, after which some may be read again; the time. What goes out:
the links to look at now, a few at a time, in turn; those to close, and those to drop.
Rules: 1. Looking at all paused links after each tick would cost all clients milliseconds, with ten thousand
publishers that an alarm has blocked. Each is looked at after whatever happened last, so none waits for good: while
`unlooked` says so the pump goes on. 2. After the end the client closes first: if the broker did while the client
still sends, the system would reset the stream, and the client would see that in place of what it was answered. A
later time never replaces an earlier one. 3. A client that does not read is dropped after a time, which counts from
the last octet that the socket took while something was waiting, whatever that is: deliveries, answers, the last words
of a close. A client that reads slowly reads.
Not here: whether a link may be read (`Connection.reading_paused`), reading and closing (`pump.py`), what is still
answered after the end (`connection.py`), how much may wait for a client (`outbox_bytes_max`), heartbeats, which a
client that does not read may well send (`session/liveness.py`).

Source: RabbitMQ's send_timeout; a peer that acknowledges with a window of zero is there as far as TCP can tell (RFC
9293 section 3.8.6.1), so nothing else would ever end it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from amqpd.node.node import Node
from amqpd.transport.link import Link
from amqpd.vocabulary.states import ConnectionState

# In one tick: a tenth of a millisecond of work.
LOOKS_MAX = 128


class PausedLinks:
    """The links that are not read, in the order in which they were last looked at."""

    def __init__(self) -> None:
        self._links: OrderedDict[Link, None] = OrderedDict()
        self.unlooked = 0
        """how many have not been looked at since something happened"""

    def __bool__(self) -> bool:
        return bool(self._links)

    def __contains__(self, link: Link) -> bool:
        return link in self._links

    def add(self, link: Link) -> None:
        self._links[link] = None

    def discard(self, link: Link) -> None:
        self._links.pop(link, None)

    def changed(self) -> None:
        """Something has happened: any of them may go on."""
        self.unlooked = len(self._links)

    def next(self) -> list[Link]:
        """Those to look at now."""
        count = min(len(self._links), LOOKS_MAX)
        self.unlooked = max(0, min(self.unlooked, len(self._links)) - count)
        found: list[Link] = []
        for _ in range(count):
            link = next(iter(self._links))
            self._links.move_to_end(link)
            found.append(link)
        return found


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
        return connection.state is ConnectionState.CLOSED and not link.pending and not link.end()

    def _keep(self, link: Link, now: float, draining: bool) -> None:
        linger_s = LINGER_S
        if link.connection.state is ConnectionState.LINGERING and not draining:
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
            if link.connection.state is ConnectionState.LINGERING:
                link.reset()
        return due

    def forget(self, link: Link) -> None:
        self._until.pop(link, None)


def given_up(links: Iterable[Link], node: Node, now: float) -> list[Link]:
    """Those that are to be dropped now: logged, their sockets reset when they are closed, which is the caller's."""
    found = overdue(links, node.limits.send_timeout_s, now)
    for link in found:
        node.log("send_timeout", connection=link.connection.name, pending_bytes=link.pending_bytes)
        link.reset()
    return found


def overdue(links: Iterable[Link], timeout_s: float, now: float) -> list[Link]:
    """Those that have taken nothing for this long, as far as the calls before this one saw."""
    found: list[Link] = []
    for link in links:
        if not link.pending:
            link.stalled_at = None
        elif link.stalled_at is None or link.took:
            link.stalled_at, link.took = now, False
        elif now - link.stalled_at >= timeout_s:
            found.append(link)
    return found
