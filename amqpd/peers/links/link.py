"""One connection to a peer that is known.

What comes in: a stream, after the handshake; messages to send. What goes out: messages that came, to `LinkEvents`.
Rules: 1. `send` never waits: when more waits than the bound allows, the link ends, and is dialed again. 2. Where
nothing waits, the call itself gives a message to the system: peers begin with a frame when this forwarder's commit
does, whose thread would keep the interpreter from a task that sends. 3. After `close` nothing is sent, and nothing
that came is told. 4. A peer that sends what is no message, or not for its end of a link of this purpose, loses the
link.
Not here: that a link began or ended (`dialing.py`, `accepting.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from amqpd.peers.formats import MalformedMessage
from amqpd.peers.links.framing import ChangedOnTheWay, Incoming, Outgoing, framed
from amqpd.peers.links.handshake import Proven
from amqpd.peers.links.stream import Broken, Stream
from amqpd.peers.messages import OVER, Message

MESSAGES_AT_ONCE = 32
"""messages that `received` is told one after the other, before other tasks may run"""
CAPACITY_BYTES = 4 << 20
"""of what is sent part by part, no more is read while this waits: a small part of what may"""


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """The bounds of a link: the bytes that it may hold, and the time that its steps may take."""

    out_bytes_max: int = 64 << 20
    """What waits for one peer. As much as a replica set keeps for a peer that is behind (`KEPT_BYTES_MAX` in
    `replication/leader.py`): one that is further behind is caught up by state, so what waits would be of no use. One
    message that is larger goes by itself."""
    handshake_s: float = 5.0
    """From dialing, or accepting, to the peer's Hello. Two round trips and some milliseconds of computing; a lost
    packet costs a second or two."""
    strangers_max: int = 64
    """Accepted connections whose peer is not known yet. Beyond it the oldest one of the address that has most goes: a
    peer is known within milliseconds, so one that only holds connections open does not keep others out."""
    backlog: int = 512
    """Connections that the system has taken and this process has not, for as long as it does something else."""
    accepted_max: int = 256
    """Peers that have dialed this forwarder, for each purpose: there are 256 sources, so no more of them can be
    leaders, and no more nodes in a cluster."""
    starting_s: float = 30.0
    """In which a peer to which there was no link yet may just be starting, as all do where a cluster begins."""
    back_off_first_s: float = 0.05
    back_off_max_s: float = 1.0
    """Between two attempts to dial: doubled each time, drawn from the upper half. Half of a lease at most, so that a
    peer that came back is there before it is given up."""


class LinkEvents(Protocol):
    """The receiver of the events of links: begun, ended, refused, and each message. All of it is called by trio's
    thread, and does not wait; what it raises ends the node."""

    def dialed(self, link: PeerLink) -> None:
        """This forwarder has a link to a peer. The one before it to that peer was `lost`."""

    def lost(self, link: PeerLink, why: str) -> None:
        """One that was `dialed` has ended; it is dialed again, unless its peer is not one any more."""

    def refused(self, name: str) -> None:
        """Nobody listens at this peer's address now. That does not prove that the peer is gone."""

    def accepted(self, link: PeerLink) -> None:
        """A peer has dialed this forwarder. The one before it of that peer has `left`."""

    def left(self, link: PeerLink) -> None:
        """One that was `accepted` has ended."""

    def received(self, link: PeerLink, message: Message) -> None:
        """Between `dialed` and `lost`, or `accepted` and `left`; what the other end may send."""


class PeerLink:
    """One connection to a peer, over which messages go both ways."""

    def __init__(
        self, stream: Stream, incoming: Incoming, peer: Proven, events: LinkEvents, out_bytes_max: int, dialed: bool
    ) -> None:
        """`incoming`: with what came behind the handshake."""
        self.peer = peer.hello
        self.version = peer.version
        """of the messages, that both ends use"""
        self.purpose = peer.purpose
        self.dialed = dialed
        """by this forwarder, which asks over it; else the peer does"""
        self.heard = False
        """a message has come"""
        self.changed = False
        """it has ended since bytes change on the way"""
        self.in_bytes = 0
        """that have come since the handshake, whole messages or not: a sign of life"""
        self.sent: Callable[[], None] | None = None
        """called whenever something that waited was sent: the link may take more"""
        self._stream = stream
        self._incoming = incoming
        self._events = events
        self._out = Outgoing()
        self._check = peer.check
        self._out_bytes_max = out_bytes_max
        self._sendable = trio.Event()
        self._drained = trio.Event()
        self._readable = trio.Event()
        self._readable.set()
        self._scope = trio.CancelScope()
        self._why: str | None = None
        allowed = OVER[peer.purpose]
        self._peer_sends = allowed.acceptor if dialed else allowed.dialer
        self._sends = allowed.dialer if dialed else allowed.acceptor

    def __repr__(self) -> str:
        way = "to" if self.dialed else "from"
        return f"<{self.purpose} link {way} {self.peer.forwarder}, incarnation {self.peer.incarnation}>"

    @property
    def out_bytes(self) -> int:
        """What waits to be sent; what the system has taken is not in it."""
        return self._out.nbytes

    @property
    def ended(self) -> bool:
        return self._why is not None

    def send(self, message: Message) -> None:
        """Behind what waits, or at once. Over a link that has ended it goes nowhere."""
        if self.ended:
            return
        assert type(message) in self._sends, f"{type(message).__name__} over {self!r}"
        waited = self._out.nbytes
        self._out.add(framed(message, self._check, self.version))
        if waited:
            if self._out.nbytes > self._out_bytes_max:
                self.close(f"it does not take what is sent: {waited} bytes wait")
            return
        try:
            self._out.sent(self._stream.send_nowait(self._out.next()))
        except Broken as error:
            self.close(str(error))
        if self._out.nbytes:
            self._sendable.set()

    async def wait_capacity(self) -> None:
        """Returns when little waits to be sent, or the link has ended. For what is sent part by part, and is more
        than may wait."""
        while self._out.nbytes > CAPACITY_BYTES and not self.ended:
            if self._drained.is_set():
                self._drained = trio.Event()
            await self._drained.wait()

    def pause(self) -> None:
        """Tell of no more messages: what they cause is more than can be done now. The peer is held up by and by, and
        closes the link when too much waits there. Until `resume` the end of the link is noticed only by sending."""
        if self._readable.is_set():
            self._readable = trio.Event()

    def resume(self) -> None:
        self._readable.set()

    def close(self, why: str = "this forwarder closed it") -> None:
        """What waits is not sent. `lost`, or `left`, comes a little later."""
        if self._why is None:
            self._why = why
            self._out.clear()
            self._drained.set()
            self._scope.cancel()

    async def run(self, begun: Callable[[PeerLink], None]) -> str:
        """Until it ends; why it did. `begun` is called before anything is told. Raises what that and
        `LinkEvents.received` raise."""
        try:
            begun(self)
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._receive)
                    nursery.start_soon(self._send)
        finally:
            self._stream.close()
        assert self._why is not None
        return self._why

    async def _receive(self) -> None:
        told = 0
        while True:
            if not self._readable.is_set():
                await self._readable.wait()
            message = self._next()
            if self.ended:
                return
            if message is not None:
                self.heard = True
                self._events.received(self, message)
                told += 1
                if told % MESSAGES_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
                continue
            try:
                nbytes = await self._stream.receive_into(self._incoming.space())
            except Broken as error:
                self.close(str(error))
                return
            self._incoming.took(nbytes)
            self.in_bytes += nbytes

    def _next(self) -> Message | None:
        try:
            message = self._incoming.next()
        except MalformedMessage as error:
            self.changed = isinstance(error, ChangedOnTheWay)
            self.close(f"what it sends is no message: {error}")
            return None
        if message is not None and type(message) not in self._peer_sends:
            self.close(f"{type(message).__name__} is not for it to send")
        return message

    async def _send(self) -> None:
        while True:
            if self._out.nbytes:
                await trio.lowlevel.checkpoint()
            else:
                self._sendable = trio.Event()
                await self._sendable.wait()
            try:
                nbytes = await self._stream.send(self._out.next())
            except Broken as error:
                self.close(str(error))
            if self.ended:
                return  # nothing waits any more, also of what was sent just now
            self._out.sent(nbytes)
            if self._out.nbytes <= CAPACITY_BYTES:
                self._drained.set()
            if self.sent is not None:
                self.sent()
