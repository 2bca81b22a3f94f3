"""All links of a forwarder.

What comes in: listening sockets, and who the peers are, whenever that changes. What goes out: `LinkEvents`.
Rules: 1. Each peer is dialed, and dialed again, until it is no peer any more. 2. Any forwarder of the cluster may
dial this one: it may know of a new peer before this one does. 3. Of each peer one accepted link is there: a later one
takes its place, except from an older life on the same disk.
Not here: one link (`link.py`), what the messages do.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Mapping, Sequence

import structlog
import trio

from amqpd.cluster.links.accepting import Acceptor
from amqpd.cluster.links.dialing import Dialer
from amqpd.cluster.links.incoming import Incoming
from amqpd.cluster.links.limits import LinkLimits
from amqpd.cluster.links.link import Link, LinkEvents
from amqpd.cluster.links.sockets import Address, listen
from amqpd.cluster.links.stream import Stream
from amqpd.cluster.links.tls import LinkTls
from amqpd.replication.messages import Hello

log = structlog.get_logger(component="links")


class Links:
    """Dials peers and is dialed by them."""

    def __init__(
        self,
        me: Hello,
        events: LinkEvents,
        listeners: Sequence[socket.socket],
        tls: LinkTls | None = None,
        limits: LinkLimits | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`listeners`: bound (`sockets.bind`); `run` closes them. `chance`: from 0 to below 1, for pauses."""
        self._me = me
        self._events = events
        self._listeners = listeners
        self._tls = tls
        self._limits = limits or LinkLimits()
        self._chance = chance
        self._nursery: trio.Nursery | None = None
        self._dialers: dict[str, Dialer] = {}
        self._accepted: dict[str, Link] = {}
        self._acceptor = Acceptor(me, tls, self._limits, self._known)

    def peers_are(self, peers: Mapping[str, Address]) -> None:
        """By name; this forwarder may be among them. Links to others are closed, and those to peers that moved. May
        be called before `run`, too."""
        for name, dialer in self._dialers.items():
            dialer.move(peers.get(name))
        for name, address in peers.items():
            if name != self._me.forwarder and name not in self._dialers:
                dialer = Dialer(name, address, self._me, self._events, self._tls, self._limits, self._chance)
                self._dialers[name] = dialer
                if self._nursery is not None:
                    self._nursery.start_soon(self._dial, dialer)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until it is cancelled; it has started when peers can dial. What ends by that is not told. Raises
        StartupError for a port that another process listens on, and what `LinkEvents` raises."""
        try:
            for listener in self._listeners:
                listen(listener, self._limits.strangers_max)
            async with trio.open_nursery() as self._nursery:
                for listener in self._listeners:
                    self._nursery.start_soon(self._acceptor.run, listener)
                for dialer in self._dialers.values():
                    self._nursery.start_soon(self._dial, dialer)
                task_status.started()
                await trio.sleep_forever()
        finally:
            for listener in self._listeners:
                listener.close()

    async def _dial(self, dialer: Dialer) -> None:
        await dialer.run()
        del self._dialers[dialer.name]

    async def _known(self, stream: Stream, incoming: Incoming, peer: Hello) -> None:
        """A peer has dialed."""
        name, before = peer.forwarder, self._accepted.get(peer.forwarder)
        reason = None
        if before is not None and before.peer.generation == peer.generation and before.peer.life > peer.life:
            reason = f"life {before.peer.life} of it is here"
        elif before is None and len(self._accepted) >= self._limits.accepted_max:
            reason = f"{len(self._accepted)} others are here"
        if reason is not None:
            log.warning("a forwarder is not let in", peer=name, life=peer.life, reason=reason)
            stream.close()
            return
        if before is not None:
            self._leave(before, "it dialed again")
        link = Link(stream, incoming, peer, self._events, self._limits.out_bytes_max, dialed=False)
        self._accepted[name] = link
        log.info("linked from", peer=name, life=peer.life)
        if name in self._dialers:
            self._dialers[name].heard_of(peer)
        self._leave(link, await link.run(self._events.accepted))

    def _leave(self, link: Link, why: str) -> None:
        if self._accepted.get(link.peer.forwarder) is link:
            del self._accepted[link.peer.forwarder]
            link.close(why)
            log.info("link from it ended", peer=link.peer.forwarder, reason=why)
            self._events.left(link)
