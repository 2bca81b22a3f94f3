"""All links of a forwarder.

What comes in: listening sockets; who the peers are, and to which of them data links are wanted, whenever that
changes. What goes out: `LinkEvents`, of each purpose by themselves.
Rules: 1. Each peer is dialed for replication, and dialed again, until it is no peer any more. 2. A forwarder that the
store knows may dial this one, also while it is no peer yet. 3. Of each peer and purpose one accepted link is there: a
later one takes its place, except from an older incarnation on the same disk. 4. A peer is dialed for data while that
is wanted, and once its last link of replication has said that it knows such links: a node of an older version would
take one for replication, in the place of the one that it has. 5. Strangers have not proven what they want: their
bounds are common to both purposes.
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
from amqpd.peers.links.troubles import NETWORK_CHANGES, REFUSED, UNREACHED, Trouble
from amqpd.peers.links.trust import Trust
from amqpd.peers.messages import Hello, Purpose
from amqpd.peers.versions import HAS_DATA_LINKS

WARNS_S = 10.0
"""Between two warnings that bytes from the same peer change on the way: its links end a second after each other."""

_Which = tuple[str, Purpose]
"""a peer, and what a link to or from it is for"""

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
        data_events: LinkEvents | None = None,
    ) -> None:
        """`listeners`: bound (`sockets.bind`); `run` closes them. `knows`: the cluster has a forwarder of this name.
        `chance`: from 0 to below 1, for pauses. `data_events`: of data links; None: there are none."""
        self._me = me
        self._events = {Purpose.REPLICATION: events}
        if data_events is not None:
            self._events[Purpose.DATA] = data_events
        self._listeners = listeners
        self._trust = trust
        self._knows = knows
        self._limits = limits or LinkLimits()
        self._chance = chance
        self._nursery: trio.Nursery | None = None
        self._addresses: dict[str, Address] = {}
        self._wanted: set[str] = set()
        """peers to which a data link is wanted"""
        self._spoken: dict[str, int] = {}
        """the version that this node and a peer use, as the last link of replication between them said"""
        self._dialers: dict[_Which, Dialer] = {}
        self._accepted: dict[_Which, PeerLink] = {}
        self._warned_s: dict[str, float] = {}
        """nodes whose bytes change on the way: when that was a warning"""
        self._acceptor = LinkAcceptor(me, trust, self._limits, self._refuses, self._known, self._nodes_at)

    def peers_are(self, peers: Mapping[str, Address]) -> None:
        """By name; this forwarder may be among them. Links to others are closed, and those to peers that moved. May
        be called before `run`, too."""
        gone = self._addresses.keys() - peers.keys()
        self._addresses = {name: address for name, address in peers.items() if name != self._me.forwarder}
        for name in gone:
            self._spoken.pop(name, None)
        for name in (*gone, *self._addresses):
            self._look(name, Purpose.REPLICATION)
            self._look(name, Purpose.DATA)

    def want_data(self, name: str) -> None:
        """A data link to this peer is kept from now on, while it is one and knows such links. May be called before
        `run`, too."""
        self._wanted.add(name)
        self._look(name, Purpose.DATA)

    def drop_data(self, name: str) -> None:
        """No data link to this peer is wanted any more."""
        self._wanted.discard(name)
        self._look(name, Purpose.DATA)

    @property
    def troubles(self) -> dict[str, Trouble]:
        """Why there is no link of replication to a peer, as the last attempt to dial it said."""
        return {
            name: each.trouble
            for (name, purpose), each in self._dialers.items()
            if purpose is Purpose.REPLICATION and each.trouble is not None
        }

    @property
    def data_troubles(self) -> dict[str, Trouble]:
        """Why there is no data link to a peer to which one is wanted."""
        found = {name: self._data_trouble(name) for name in sorted(self._wanted)}
        return {name: trouble for name, trouble in found.items() if trouble is not None}

    def _data_trouble(self, name: str) -> Trouble | None:
        dialer = self._dialers.get((name, Purpose.DATA))
        if dialer is not None and dialer.address is not None:
            return dialer.trouble
        spoken = self._spoken.get(name)
        if name not in self._addresses:
            return Trouble(UNREACHED, "it is no member of the cluster now")
        if spoken is None:
            return Trouble(UNREACHED, "there is no link for replication to it yet, which says its version")
        return Trouble(REFUSED, f"it speaks version {spoken} of the messages, which has no data links: upgrade it")

    def _look(self, name: str, purpose: Purpose) -> None:
        """Dial a peer, or do not any more, for this purpose."""
        address = self._addresses.get(name)
        if purpose is Purpose.DATA:
            knows = self._spoken.get(name, 0) >= HAS_DATA_LINKS
            address = address if name in self._wanted and knows and purpose in self._events else None
        which = name, purpose
        dialer = self._dialers.get(which)
        if dialer is not None:
            is_peer = name in self._addresses
            dialer.move(address, "it has no more use" if is_peer else "it is no peer any more")
        elif address is not None:
            dialer = self._dialers[which] = Dialer(
                name,
                address,
                self._me,
                self._events[purpose],
                self._trust,
                self._limits,
                self._chance,
                purpose,
                self._note_version,
            )
            if self._nursery is not None:
                self._nursery.start_soon(self._dial, which)

    def _note_version(self, link: PeerLink) -> None:
        name = link.peer.forwarder
        if link.purpose is Purpose.REPLICATION and name in self._addresses:
            self._spoken[name] = link.version
            self._look(name, Purpose.DATA)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until it is cancelled; it has started when peers can dial. What ends by that is not told. Raises
        StartupError for a port that another process listens on, and what `LinkEvents` raises."""
        try:
            for listener in self._listeners:
                listen(listener, self._limits.backlog)
            async with trio.open_nursery() as self._nursery:
                for listener in self._listeners:
                    self._nursery.start_soon(self._acceptor.run, listener)
                for which in self._dialers:
                    self._nursery.start_soon(self._dial, which)
                task_status.started()
                await trio.sleep_forever()
        finally:
            for listener in self._listeners:
                listener.close()

    async def _dial(self, which: _Which) -> None:
        await self._dialers[which].run()
        del self._dialers[which]

    def _nodes_at(self, host: str) -> list[str]:
        """Peers that are reached there, as far as that is said by its number."""
        return [name for name, address in self._addresses.items() if address[0] == host]

    def _refuses(self, peer: Hello, purpose: Purpose) -> str:
        """Why a peer that has proven who it is may not stay; empty: it may."""
        name, before = peer.forwarder, self._accepted.get((peer.forwarder, purpose))
        if purpose not in self._events:
            return f"{self._me.forwarder!r} takes no links of {purpose}"
        if not self._knows(name):
            return f"the store of this cluster has no node {name!r}, as far as {self._me.forwarder!r} has heard"
        if (
            before is not None
            and before.peer.generation == peer.generation
            and before.peer.incarnation > peer.incarnation
        ):
            return f"incarnation {before.peer.incarnation} of it is here"
        others = sum(each is purpose for _, each in self._accepted)
        if before is None and others >= self._limits.accepted_max:
            return f"{others} others are here"
        return ""

    async def _known(self, stream: Stream, incoming: Incoming, proven: Proven) -> None:
        """A peer has dialed."""
        peer, purpose = proven.hello, proven.purpose
        name, reason = peer.forwarder, self._refuses(peer, purpose)
        if reason:  # since it was told that it may stay
            log.warning("a node is not let in", node=name, incarnation=peer.incarnation, reason=reason)
            stream.close()
            return
        before = self._accepted.get((name, purpose))
        if before is not None:
            self._leave(before, "it dialed again")
        events = self._events[purpose]
        link = PeerLink(stream, incoming, proven, events, self._limits.out_bytes_max, dialed=False)
        self._accepted[name, purpose] = link
        log.info("linked from", peer=name, incarnation=peer.incarnation, version=link.version, **_of_data(link))
        self._note_version(link)
        for each in Purpose:
            dialer = self._dialers.get((name, each))
            if dialer is not None:
                dialer.heard_of(peer)
        self._leave(link, await link.run(events.accepted))

    def _leave(self, link: PeerLink, why: str) -> None:
        which = link.peer.forwarder, link.purpose
        if self._accepted.get(which) is link:
            del self._accepted[which]
            link.close(why)
            self._tell_ended(link, why)
            self._events[link.purpose].left(link)

    def _tell_ended(self, link: PeerLink, why: str) -> None:
        name, now_s = link.peer.forwarder, trio.current_time()
        self._warned_s = {each: at_s for each, at_s in self._warned_s.items() if at_s + WARNS_S > now_s}
        if link.changed and name not in self._warned_s:
            self._warned_s[name] = now_s
            log.warning("link from it ended", peer=name, reason=why, do=NETWORK_CHANGES, **_of_data(link))
        else:
            log.info("link from it ended", peer=name, reason=why, **_of_data(link))


def _of_data(link: PeerLink) -> dict[str, str]:
    """In lines of the log; all others are of replication."""
    return {"purpose": str(link.purpose)} if link.purpose is Purpose.DATA else {}
