"""A connected socket, with TLS or without: bytes both ways.

What comes in: a socket that is connected and does not block. What goes out: bytes received and sent; `Broken` with
the reason when there is no connection any more.
Rules: 1. One task receives and one sends. 2. A call that was cancelled leaves a stream that can only be closed. 3.
Other tasks run before something is received, but not when all is sent at once: that is for the caller to see to. 4. A
handshake is computed in a thread, one at a time: it takes milliseconds, and a stranger can ask for it. A connection
that has sent nothing has no turn there, and addresses take turns: one from which many come waits for itself only.
Not here: opening a connection (`sockets.py`, `accepting.py`), who the peer is (`handshake.py`).

Python's TLS over a socket rather than trio's: a record of 16 kB is decrypted where it is to be decoded, and many of
them between two turns of the loop.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from amqpd.peers.links.tls import nodes_named, of_tls, reason_of
from amqpd.peers.links.troubles import CERTIFICATE, CHANGED, REFUSED, UNREACHED, Trouble

TLS_BYTES_AT_ONCE = 128 << 10
"""Joined and encrypted at once: eight records, some hundredth of a millisecond each."""

NO_TLS_THERE = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"))
"""OpenSSL's words for bytes that are no TLS"""

_thread = trio.CapacityLimiter(1)


class HandshakeTurns:
    """The order in which handshakes are computed, one at a time: addresses after each other, and those of one address
    in the order in which they came."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: dict[str, deque[trio.Event]] = {}
        """by address; the one whose turn is next is first"""

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """The turn of one handshake with a peer at this address."""
        if self._taken:
            await self._wait(host)
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, host: str) -> None:
        mine = trio.Event()
        self._waiting.setdefault(host, deque()).append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():  # and cancelled in the same moment
                self._pass_on()
            else:
                self._waiting[host].remove(mine)
                if not self._waiting[host]:
                    del self._waiting[host]
            raise

    def _pass_on(self) -> None:
        host = next(iter(self._waiting), None)
        self._taken = host is not None
        if host is not None:
            waiting = self._waiting.pop(host)
            waiting.popleft().set()
            if waiting:
                self._waiting[host] = waiting  # behind all other addresses


_turns = HandshakeTurns()


class Broken(Exception):
    """The connection to a peer failed or ended; the text says why. `node`: who the peer is, for the log; empty: it
    has not said it."""

    node = ""
    kind = UNREACHED
    reason = ""
    """as it is said of both ends; empty: as the text says it"""

    @property
    def trouble(self) -> Trouble:
        """With the peer that was dialed."""
        return Trouble(self.kind, self.reason or str(self))


class NotListening(Broken):
    """The connection was refused: no process listens at the peer's address."""


class Altered(Broken):
    """The bytes that came are not those that the peer has sent."""

    kind = CHANGED
    reason = "bytes change on the way"


class BadTls(Broken):
    """A link failed in TLS: a certificate was refused, or the other end speaks none."""

    kind = CERTIFICATE


class Distrusted(Broken):
    """One of the two ends does not take the other one for a node of its cluster."""

    def __init__(self, sentence: str, kind: str = REFUSED, reason: str = "") -> None:
        """`sentence`: for the log of this end; `reason`: as it is said of both, else the sentence."""
        super().__init__(sentence)
        self.kind, self.reason = kind, reason


class Stream:
    """The stream of bytes to and from a peer, with TLS or without."""

    def __init__(self, connected: socket.socket, host: str = "") -> None:
        """`connected`: an ssl.SSLSocket needs `handshake` first. `host`: from where it was dialed; empty: from
        here."""
        self._socket = connected
        self._host = host
        self._is_tls = isinstance(connected, ssl.SSLSocket)
        self._has_more = True
        """there may be something to receive without anything new from the network"""
        self._refused: bytes | memoryview = b""
        """by OpenSSL, for now"""

    async def handshake(self) -> None:
        """TLS's; of a plain socket there is none. Raises Broken."""
        connected = self._socket
        if isinstance(connected, ssl.SSLSocket) and connected.server_side:
            await trio.lowlevel.wait_readable(connected)
        while isinstance(connected, ssl.SSLSocket):
            try:
                async with _turns.turn(self._host):
                    return await trio.to_thread.run_sync(connected.do_handshake, limiter=_thread)
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(connected)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(connected)
            except (OSError, ValueError) as error:
                raise _of_tls(error) from None
        return None

    def nodes_named(self) -> list[str]:
        """By the certificate that the peer has shown, after `handshake`; without TLS none."""
        connected = self._socket
        return nodes_named(connected.getpeercert() or {}) if isinstance(connected, ssl.SSLSocket) else []

    async def receive_into(self, view: memoryview) -> int:
        """At least one byte. Raises Broken, also at the end of the stream."""
        if self._has_more:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_readable(self._socket)
        while True:
            try:
                nbytes = self._receive_tls(view) if self._is_tls else self._socket.recv_into(view)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
                await trio.lowlevel.wait_readable(self._socket)
            except OSError as error:
                # Also ssl.SSLWantWriteError: the peer asked for new keys, which no forwarder does. What it says of
                # this node's certificate comes when the handshake is over here.
                raise (_of_tls(error) if isinstance(error, ssl.SSLError) else Broken(reason_of(error))) from None
            else:
                if not nbytes:
                    raise Broken("the peer closed the connection")
                self._has_more = nbytes == len(view)
                return nbytes

    def _receive_tls(self, view: memoryview) -> int:
        """Record by record, until nothing more is there or fits."""
        at = 0
        try:
            while at < len(view):
                nbytes = self._socket.recv_into(view[at:])
                if not nbytes:
                    break
                at += nbytes
        except OSError:
            if not at:  # else the next call has it again
                raise
        return at

    async def send(self, pieces: Sequence[memoryview]) -> int:
        """Some of it, at least one byte; how many. Raises Broken."""
        while not (nbytes := self.send_nowait(pieces)):
            await trio.lowlevel.wait_writable(self._socket)
        return nbytes

    def send_nowait(self, pieces: Sequence[memoryview]) -> int:
        """What the system takes of it at once; how many bytes. 0: nothing, and until something is taken the next call
        has to be given the same pieces first. Raises Broken."""
        try:
            if not self._is_tls:
                return self._socket.sendmsg(pieces)
            # OpenSSL wants what it did not send at once to be given again, the same bytes.
            self._refused = self._refused or _joined(pieces)
            nbytes = self._socket.send(self._refused)
            self._refused = b""
        except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise Broken(reason_of(error)) from None
        return nbytes

    def close(self) -> None:
        self._socket.close()


def _joined(pieces: Sequence[memoryview]) -> bytes | memoryview:
    if len(pieces[0]) >= TLS_BYTES_AT_ONCE:
        return pieces[0][:TLS_BYTES_AT_ONCE]
    taken: list[memoryview] = []
    nbytes = 0
    for piece in pieces:
        taken.append(piece[: TLS_BYTES_AT_ONCE - nbytes])
        nbytes += len(taken[-1])
        if nbytes == TLS_BYTES_AT_ONCE:
            break
    return b"".join(taken)


def _of_tls(error: OSError | ValueError) -> Broken:
    """What one end says of the other one's certificate, or that it speaks no TLS, lasts; the end of a connection may
    be anything."""
    reason = getattr(error, "reason", None) or ""
    lasts = isinstance(error, ssl.SSLCertVerificationError) or "ALERT" in reason or reason in NO_TLS_THERE
    return (BadTls if lasts else Broken)(of_tls(error))
