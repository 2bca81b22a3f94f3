"""All links of a forwarder.

What comes in: listening sockets, and who the peers are, whenever that changes. What goes out: `LinkEvents`.
Rules: 1. Each peer is dialed, and dialed again, until it is no peer any more. 2. A forwarder that the store knows may
dial this one, also while it is no peer yet. 3. Of each peer one accepted link is there: a later one
takes its place, except from an older incarnation on the same disk.
Not here: one link (`link.py`), what the messages do.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Mapping, Sequence

import structlog
import trio

from amqpd.peers.links.accepting import LinkAcceptor
from amqpd.peers.links.dialing import Dialer
from amqpd.peers.links.framing import Incoming
from amqpd.peers.links.handshake import Proven
from amqpd.peers.links.link import LinkEvents, LinkLimits, PeerLink
from amqpd.peers.links.sockets import Address, listen
from amqpd.peers.links.stream import Stream
from amqpd.peers.links.troubles import NETWORK_CHANGES, Trouble
from amqpd.peers.links.trust import Trust
from amqpd.peers.messages import Hello

WARNS_S = 10.0
"""Between two warnings that bytes from the same peer change on the way: its links end a second after each other."""

log = structlog.get_logger(component="links")


class Links:
    """All links of one node: it dials its peers, and is dialed by them."""

    def __init__(
        self,
        me: Hello,
        events: LinkEvents,
        listeners: Sequence[socket.socket],
        trust: Trust,
        limits: LinkLimits | None = None,
        knows: Callable[[str], bool] = lambda name: True,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`listeners`: bound (`sockets.bind`); `run` closes them. `knows`: the cluster has a forwarder of this name.
        `chance`: from 0 to below 1, for pauses."""
        self._me = me
        self._events = events
        self._listeners = listeners
        self._trust = trust
        self._knows = knows
        self._limits = limits or LinkLimits()
        self._chance = chance
        self._nursery: trio.Nursery | None = None
        self._dialers: dict[str, Dialer] = {}
        self._accepted: dict[str, PeerLink] = {}
        self._warned_s: dict[str, float] = {}
        """nodes whose bytes change on the way: when that was a warning"""
        self._acceptor = LinkAcceptor(me, trust, self._limits, self._refuses, self._known, self._nodes_at)

    def peers_are(self, peers: Mapping[str, Address]) -> None:
        """By name; this forwarder may be among them. Links to others are closed, and those to peers that moved. May
        be called before `run`, too."""
        for name, dialer in self._dialers.items():
            dialer.move(peers.get(name))
        for name, address in peers.items():
            if name != self._me.forwarder and name not in self._dialers:
                dialer = Dialer(name, address, self._me, self._events, self._trust, self._limits, self._chance)
                self._dialers[name] = dialer
                if self._nursery is not None:
                    self._nursery.start_soon(self._dial, dialer)

    @property
    def troubles(self) -> dict[str, Trouble]:
        """Why there is no link to a peer, as the last attempt to dial it said."""
        return {name: each.trouble for name, each in self._dialers.items() if each.trouble is not None}

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until it is cancelled; it has started when peers can dial. What ends by that is not told. Raises
        StartupError for a port that another process listens on, and what `LinkEvents` raises."""
        try:
            for listener in self._listeners:
                listen(listener, self._limits.backlog)
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

    def _nodes_at(self, host: str) -> list[str]:
        """Peers that are reached there, as far as that is said by its number."""
        return [name for name, each in self._dialers.items() if each.address is not None and each.address[0] == host]

    def _refuses(self, peer: Hello) -> str:
        """Why a peer that has proven who it is may not stay; empty: it may."""
        name, before = peer.forwarder, self._accepted.get(peer.forwarder)
        if not self._knows(name):
            return f"the store of this cluster has no node {name!r}, as far as {self._me.forwarder!r} has heard"
        if (
            before is not None
            and before.peer.generation == peer.generation
            and before.peer.incarnation > peer.incarnation
        ):
            return f"incarnation {before.peer.incarnation} of it is here"
        if before is None and len(self._accepted) >= self._limits.accepted_max:
            return f"{len(self._accepted)} others are here"
        return ""

    async def _known(self, stream: Stream, incoming: Incoming, proven: Proven) -> None:
        """A peer has dialed."""
        peer = proven.hello
        name, reason = peer.forwarder, self._refuses(peer)
        if reason:  # since it was told that it may stay
            log.warning("a node is not let in", node=name, incarnation=peer.incarnation, reason=reason)
            stream.close()
            return
        before = self._accepted.get(name)
        if before is not None:
            self._leave(before, "it dialed again")
        link = PeerLink(stream, incoming, proven, self._events, self._limits.out_bytes_max, dialed=False)
        self._accepted[name] = link
        log.info("linked from", peer=name, incarnation=peer.incarnation, version=link.version)
        if name in self._dialers:
            self._dialers[name].heard_of(peer)
        self._leave(link, await link.run(self._events.accepted))

    def _leave(self, link: PeerLink, why: str) -> None:
        if self._accepted.get(link.peer.forwarder) is link:
            del self._accepted[link.peer.forwarder]
            link.close(why)
            self._tell_ended(link, why)
            self._events.left(link)

    def _tell_ended(self, link: PeerLink, why: str) -> None:
        name, now_s = link.peer.forwarder, trio.current_time()
        self._warned_s = {each: at_s for each, at_s in self._warned_s.items() if at_s + WARNS_S > now_s}
        if link.changed and name not in self._warned_s:
            self._warned_s[name] = now_s
            log.warning("link from it ended", peer=name, reason=why, do=NETWORK_CHANGES)
        else:
            log.info("link from it ended", peer=name, reason=why)
