"""Keeps one link to a peer: dials, and dials again.

What comes in: the peer's name and address, which may change. What goes out: `dialed`, `lost`, `refused`.
Rules: 1. There is one link of a purpose to a peer at a time. 2. Between two attempts is a pause that doubles, up to a
bound; it begins from the shortest one when something was heard over the last link, or the peer itself has dialed; but
not when links to the same process end one after the other before they have held. 3. The log has a line when the
reason changes, not one for each attempt. 4. A peer to which there was no link yet may just be starting: that nobody
listens there is a warning only when it has lasted for a while.
Not here: who the peers are (`links.py`), what the peer has to say (`handshake.py`).
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable

import structlog
import trio

from amqpd.peers.links.framing import Incoming
from amqpd.peers.links.handshake import OneVersionOnly, Proven, dial_hello, speaking_only
from amqpd.peers.links.link import LinkEvents, LinkLimits, PeerLink
from amqpd.peers.links.sockets import Address, connect
from amqpd.peers.links.stream import Altered, Broken, NotListening, Stream
from amqpd.peers.links.tls import of_tls
from amqpd.peers.links.troubles import Trouble
from amqpd.peers.links.trust import Trust
from amqpd.peers.messages import Hello, Purpose
from amqpd.vocabulary.endpoint import Endpoint

log = structlog.get_logger(component="links")


class Dialer:
    """The link to one peer, whenever there can be one."""

    def __init__(
        self,
        name: str,
        address: Address,
        me: Hello,
        events: LinkEvents,
        trust: Trust,
        limits: LinkLimits,
        chance: Callable[[], float],
        purpose: Purpose = Purpose.REPLICATION,
        linked: Callable[[PeerLink], None] | None = None,
    ) -> None:
        """`linked`: told of each link, before it has begun."""
        self.name = name
        self.address: Address | None = address
        """None: there is to be no link to it any more"""
        self._purpose = purpose
        self._of_data = {"purpose": str(purpose)} if purpose is Purpose.DATA else {}
        """in lines of the log: all others are of replication"""
        self._linked = linked
        self._me = me
        self._events = events
        self._trust = trust
        self._limits = limits
        self._chance = chance
        self._link: PeerLink | None = None
        self._attempt = trio.CancelScope()
        self._pause: trio.CancelScope | None = None
        self._back_off_s = limits.back_off_first_s
        self._flapped: tuple[int, int] | None = None
        """generation and incarnation of the peer to which the last link did not hold; None: it did"""
        self._reason = ""
        self._begun_s = math.nan
        self._starting = True
        """there was no link to it yet, and it has had little time"""
        self.trouble: Trouble | None = None
        """why there is no link now; None: there is one, or no attempt has ended yet"""

    def move(self, address: Address | None, why: str = "it is no peer any more") -> None:
        """The peer is there from now on; None: there is to be no link to it, because of this, and `run` ends."""
        if address == self.address:
            return
        self.address = address
        self._attempt.cancel()
        self._back_off_s = self._limits.back_off_first_s
        self._flapped = None
        if self._pause is not None:
            self._pause.cancel()
        if self._link is not None:
            self._link.close("it has another address" if address else why)

    def heard_of(self, peer: Hello) -> None:
        """It has dialed this forwarder, so it can probably be dialed: a long pause ends soon. A newer incarnation of
        it says that the one to which there is a link has ended."""
        first_s = self._limits.back_off_first_s
        # Where links break in both directions each end would end the other one's pauses.
        if self._flapped != (peer.generation, peer.incarnation):
            self._back_off_s = first_s
            if self._pause is not None:
                self._pause.deadline = min(self._pause.deadline, trio.current_time() + first_s)
        if self._link is not None:
            there = self._link.peer
            if there.generation == peer.generation and there.incarnation < peer.incarnation:
                self._link.close("a newer incarnation of it is there")

    async def run(self) -> None:
        """Until there is to be no link any more. Raises what `LinkEvents` raises."""
        self._begun_s = trio.current_time()
        while self.address is not None:
            link = await self._dial(self.address)
            if link is not None:
                await self._attend(link)
            if self.address is not None:
                await self._wait()

    async def _dial(self, address: Address) -> PeerLink | None:
        link = await self._dial_as(self._me, address)
        if isinstance(link, OneVersionOnly):
            link = await self._dial_as(speaking_only(self._me, link.version), address)
            assert not isinstance(link, OneVersionOnly), "a node that says one version is told of no other one"
        return link

    async def _dial_as(self, me: Hello, address: Address) -> PeerLink | OneVersionOnly | None:
        stream, incoming = None, Incoming()
        peer: Proven | None = None
        failure = Broken(f"no answer in {self._limits.handshake_s} s")
        try:
            with trio.move_on_after(self._limits.handshake_s) as self._attempt:
                stream = self._stream(await connect(address, loopback_only=self._trust.is_loopback_only))
                await stream.handshake()
                peer = await dial_hello(stream, incoming, me, self.name, self._trust, self._purpose)
        except OneVersionOnly as other:
            return other
        except Broken as error:
            failure = error
        finally:
            if stream is not None and (peer is None or self.address != address):
                stream.close()
        if self.address != address:
            return None  # it moved meanwhile
        if stream is None or peer is None:
            self._failed(failure)
            if isinstance(failure, NotListening):
                self._events.refused(self.name)
            return None
        return PeerLink(stream, incoming, peer, self._events, self._limits.out_bytes_max, dialed=True)

    def _stream(self, connected: socket.socket) -> Stream:
        if self._trust.tls is None:
            return Stream(connected)
        try:
            return Stream(self._trust.tls.dialing.wrap_socket(connected, do_handshake_on_connect=False))
        except (OSError, ValueError) as error:
            connected.close()
            raise Broken(of_tls(error)) from None

    async def _attend(self, link: PeerLink) -> None:
        peer = link.peer
        log.info("linked", peer=self.name, incarnation=peer.incarnation, version=link.version, **self._of_data)
        if self._linked is not None:
            self._linked(link)
        self._reason, self._starting, self.trouble = "", False, None
        self._link = link
        begun_s, there = trio.current_time(), (peer.generation, peer.incarnation)
        why = await link.run(self._events.dialed)
        self._link = None
        held = trio.current_time() - begun_s >= self._limits.back_off_max_s
        if link.heard and (held or there != self._flapped):
            self._back_off_s = self._limits.back_off_first_s
        self._flapped = None if held else there
        self._failed(Altered(why) if link.changed else Broken(why))
        self._events.lost(link, why)

    def _failed(self, failure: Broken) -> None:
        self.trouble, reason = failure.trouble, str(failure)
        waited_s = trio.current_time() - self._begun_s
        if isinstance(failure, NotListening) and self._starting and waited_s < self._limits.starting_s:
            told, say = f"{reason}: maybe it has not started yet", log.info
        else:
            told, say = reason, log.warning
        if told != self._reason:
            where = Endpoint(*self.address) if self.address is not None else "none any more"
            say("no link to a node", peer=self.name, address=str(where), reason=told, **self._of_data)
        self._reason = told

    async def _wait(self) -> None:
        pause_s = self._back_off_s * (1 + self._chance()) / 2
        self._back_off_s = min(2 * self._back_off_s, self._limits.back_off_max_s)
        with trio.move_on_after(pause_s) as self._pause:
            await trio.sleep_forever()
        self._pause = None
