"""A client's socket and its connection machine.

What comes in: a socket that was accepted. What goes out: what the pump knows of it.
Rules: what the socket did not take is `pending`, in order.
Not here: moving bytes (`pump.py`), what they mean (`connection.py`).
"""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from amqpd.connection import Connection
from amqpd.kernel import LARGE_BYTES_MIN, PIN_SHARE_MIN, Pieces
from amqpd.transport.tls import tls_facts
from amqpd.transport.tls_stream import TlsStream
from amqpd.vocabulary.states import PeerAddress

# What waits for a slow client in smaller pieces is joined to pieces of this size: a confirm of 21 bytes would take
# ten times as much in memory.
PENDING_JOINED_BYTES = 4096
# Large messages are taken in whole ones, as many as this holds, and the rest of one that has begun; never more than
# the second number at a time.
RECEIVE_BYTES = 512 * 1024
RECEIVE_BYTES_MAX = 1024 * 1024
# Where so little came this number of times, it is received without the copy that a large buffer costs. (The last read
# of a burst is little as well.)
LITTLE_BYTES, LITTLES_MIN = 4096, 2
# In one call: as many of them as a socket usually takes. Linux takes 1024 at most (IOV_MAX).
PIECES_AT_ONCE = 64
# struct linger: on, 0 seconds (socket(7)).
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Link:
    """A client's socket, its connection machine, and what waits to be sent."""

    __slots__ = (
        "connection",
        "ended",
        "events",
        "littles",
        "pending",
        "pending_bytes",
        "socket",
        "stalled_at",
        "tls",
        "took",
    )

    def __init__(self, client: socket.socket, connection: Connection, tls: TlsStream | None) -> None:
        self.socket = client
        self.connection = connection
        self.tls = tls
        self.pending: deque[memoryview] | None = None
        self.pending_bytes = 0
        self.events = select.EPOLLIN
        self.littles = 0
        """times that little was received, without a break; nothing is known of what TLS receives"""
        self.ended = False
        self.took = False
        """the socket took some of what was pending, since `waiting_links.py` looked last"""
        self.stalled_at: float | None = None
        """since when it has taken nothing of it"""

    @property
    def gone(self) -> bool:
        """Nothing will be sent any more."""
        return self.ended or self.socket.fileno() < 0

    def identify(self, certificate_user: Callable[[dict[str, object]], str | None]) -> None:
        """The handshake is complete: the client's certificate, if it showed one, says which user it is."""
        assert self.tls is not None
        certificate = self.tls.certificate()
        peer = self.connection.peer
        user = certificate_user(certificate) if certificate else None
        self.connection.peer = PeerAddress(
            peer.name, peer.loopback, True, user, tls_facts(*self.tls.agreed(), certificate)
        )

    def receive_large(self) -> bytes:
        """While large messages or frames come: received where they are to stay, and enough that the last one is
        whole, as far as those to come are of the size of the last. Raises OSError."""
        connection = self.connection
        size = connection.missing + max(RECEIVE_BYTES // connection.stride, 1) * connection.stride
        data = self.socket.recv(min(size, RECEIVE_BYTES_MAX))
        if len(data) < LARGE_BYTES_MIN:
            connection.stride = 0
        return data

    def receive_little(self) -> bytes:
        """For a client that sends a message or a command at a time: a copy less, and half of what it takes to receive
        into a large buffer. Raises OSError."""
        data: bytes = self.socket.recv(LITTLE_BYTES)
        if len(data) == LITTLE_BYTES:
            self.littles = 0
        return data

    def send(self, data: bytes | bytearray | memoryview | Pieces) -> None:
        """Send `data` behind what is pending; what the socket does not take stays pending. Pieces are not joined.
        Raises OSError when the socket is gone."""
        if isinstance(data, list):
            self._send_pieces(data)
            return
        pending = self.pending
        try:
            if pending:
                self._send_pending()
            if data and not pending:
                sent = self.socket.send(data)
                if sent == len(data):
                    return
                data = memoryview(data)[sent:]
        except (BlockingIOError, InterruptedError):
            pass
        if data:
            self._keep(data)

    def _send_pieces(self, pieces: Pieces) -> None:
        at = 0
        try:
            if self.pending:
                self._send_pending()
            while at < len(pieces) and not self.pending:
                sent = self.socket.sendmsg(pieces[at : at + PIECES_AT_ONCE])
                while at < len(pieces) and sent >= len(pieces[at]):
                    sent -= len(pieces[at])
                    at += 1
                if sent:
                    pieces[at] = memoryview(pieces[at])[sent:]
                    break
        except (BlockingIOError, InterruptedError):
            pass
        if at < len(pieces):
            for piece in _let_go(pieces[at:]):
                self._keep(piece)

    def _send_pending(self) -> None:
        """As much as the socket takes. Raises BlockingIOError when that is nothing."""
        pending = self.pending
        assert pending is not None
        while pending:
            sent = self.socket.sendmsg(list(islice(pending, PIECES_AT_ONCE)))
            self.pending_bytes -= sent
            self.took = True
            while sent:
                first = pending[0]
                if sent < len(first):
                    pending[0] = first[sent:]
                    return
                sent -= len(first)
                pending.popleft()
        self.pending = None

    def _keep(self, data: bytes | bytearray | memoryview) -> None:
        pending = self.pending
        if pending is None:
            # An empty one takes 760 bytes, and most clients read what they are sent.
            pending = self.pending = deque()
        self.pending_bytes += len(data)
        if pending and len(pending[-1]) + len(data) <= PENDING_JOINED_BYTES:
            data = b"".join((pending.pop(), data))
        pending.append(memoryview(data))

    def reset(self) -> None:
        """Nothing more will be sent, not even what is pending: closing the socket now resets the stream."""
        self.ended = True
        self.pending = None
        self.pending_bytes = 0
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def end(self) -> bool:
        """Nothing more will be sent. The client closes the socket when it has read that: if we did while it still
        sends (amqplib's publishes may follow its connection.close), the system would reset the stream, and the
        client would see that in place of close-ok. False when there is no stream any more."""
        if self.ended:
            return True
        self.ended = True
        try:
            if self.tls is not None:
                self.tls.end()
                self.socket.send(self.tls.output())
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        return True


def _let_go(pieces: Pieces) -> Iterator[bytes | bytearray | memoryview]:
    """Copies in place of the views that are a small share of what they keep in memory."""
    held: dict[int, int] = {}
    for piece in pieces:
        if isinstance(piece, memoryview):
            held[id(piece.obj)] = held.get(id(piece.obj), 0) + len(piece)
    for piece in pieces:
        if isinstance(piece, memoryview) and held[id(piece.obj)] * PIN_SHARE_MIN < len(piece.obj):  # type: ignore[arg-type]  # bytes
            yield bytes(piece)
        else:
            yield piece


# What `socket.accept` and `socket.getsockname` give. AF_INET has two members; AF_INET6 has four: host, port, flow
# information and scope (https://docs.python.org/3/library/socket.html#socket-families).
SocketAddress = tuple[Any, ...]
_MAPPED = "::ffff:"


def connection_name(client: SocketAddress, server: SocketAddress) -> str:
    """As RabbitMQ names a connection: "127.0.0.1:4711 -> 127.0.0.1:5672", "[::1]:4711 -> [::1]:5672"."""
    return f"{_host_and_port(client)} -> {_host_and_port(server)}"


def _host_and_port(address: SocketAddress) -> str:
    """An IPv4-mapped address is written as the IPv4 address it stands for, as RabbitMQ does."""
    host = unmapped(str(address[0]))
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"


def unmapped(host: str) -> str:
    """An IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2) as the IPv4 address; others as they are."""
    return host.removeprefix(_MAPPED) if "." in host else host


def is_loopback(host: str) -> bool:
    """127.0.0.0/8, also IPv4-mapped, and ::1. `host` is numeric, as the system gives it."""
    return host == "::1" or unmapped(host).startswith("127.")
