"""TLS over a raw socket, with the few calls of a socket that the generator uses.

What comes in: a connected socket and a context. What goes out: a `TlsSocket`, and a throw-away certificate for
private brokers. Rules: 1. the raw socket keeps its options (wake time, SO_RCVLOWAT), and flags such as
MSG_DONTWAIT work: Python's own SSLSocket refuses flags and hides the wake time; 2. one call of the system for
some 128 kB either way, eight records of TLS, so that the generator is not what is measured; 3. after `recv_into`
no plaintext is left behind, so that select and epoll over the raw socket tell the truth; 4. the certificate is
checked unless the address says no.
Not here: addresses (`wire.py`), what is sent (`roles/`).
"""

from __future__ import annotations

import functools
import importlib.util
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from bench.clock import now
from bench.errors import BenchError

PIECE_BYTES = 128 * 1024
STALL_SECONDS_MAX = 120.0
"""A broker that takes no bytes for so long has failed the run; RabbitMQ's flow control stops them for seconds."""


class TlsSocket:
    """A context's TLS over `raw`, which it owns. The handshake is done when the constructor returns.

    Raises ssl.SSLError if the handshake fails, OSError as sockets do."""

    def __init__(
        self, raw: socket.socket, context: ssl.SSLContext, host: str | None, *, server: bool = False
    ) -> None:
        self._raw = raw
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server, None if server else host)
        self._unsent = memoryview(b"")
        self._cipher = memoryview(bytearray(PIECE_BYTES))
        self.setblocking, self.settimeout = raw.setblocking, raw.settimeout
        self.setsockopt, self.fileno = raw.setsockopt, raw.fileno
        self.shutdown, self.close = raw.shutdown, raw.close
        self._handshake()

    @property
    def version(self) -> str:
        """As in "TLSv1.3 TLS_AES_256_GCM_SHA384"."""
        cipher = self._tls.cipher()
        return f"{self._tls.version()} {cipher[0] if cipher else ''}".strip()

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        """Encrypts and sends a piece of `data`; returns how much that was. Raises BlockingIOError for nothing.

        Without MSG_DONTWAIT all of the piece is on its way when this returns."""
        self._push(flags)
        view = memoryview(data)[:PIECE_BYTES]
        taken = 0
        while taken < len(view):
            taken += self._tls.write(view[taken:])
        self._unsent = memoryview(self._outgoing.read())
        if flags & socket.MSG_DONTWAIT:
            try:
                self._push(flags)
            except BlockingIOError:
                pass  # it is taken all the same: it goes out with the next call
        else:
            self._push_all()
        return taken

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[self.send(view) :]

    def recv(self, size: int, flags: int = 0) -> bytes:
        """At most `size` bytes, empty at the end of the connection."""
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(buffer, size, flags)])

    def recv_into(self, buffer: bytearray, size: int = 0, flags: int = 0) -> int:
        """Fills `buffer` (its first `size` bytes); 0 at the end of the connection. Raises BlockingIOError if no whole
        record came in the wake time."""
        view = memoryview(buffer)[: size or len(buffer)]
        if self._unsent:
            self._push(flags | socket.MSG_DONTWAIT)
        while True:
            filled = self._decrypt(view)
            if filled is not None:
                return filled
            came = self._raw.recv_into(self._cipher, min(len(view), PIECE_BYTES), flags)
            if not came:
                return 0
            self._incoming.write(self._cipher[:came])

    def _decrypt(self, view: memoryview) -> int | None:
        """As many records as there are whole; None for none. 0 if the other side has ended its stream."""
        filled = 0
        try:
            while filled < len(view):
                # The stub of ssl says bytes for both ways of calling it; with a buffer it is a number.
                came = int(self._tls.read(len(view) - filled, view[filled:]))
                if not came:
                    return filled
                filled += came
        except ssl.SSLWantReadError:
            return filled or None
        except ssl.SSLZeroReturnError:
            return filled
        return filled

    def _push(self, flags: int) -> None:
        while self._unsent:
            self._unsent = self._unsent[self._raw.send(self._unsent, flags) :]

    def _push_all(self) -> None:
        deadline = now() + STALL_SECONDS_MAX
        while self._unsent:
            try:
                self._push(0)
            except BlockingIOError:
                if now() > deadline:
                    raise BenchError(f"no bytes were taken for {STALL_SECONDS_MAX:g} s") from None

    def _handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                waits = False
            except ssl.SSLWantReadError:
                waits = True
            self._raw.sendall(self._outgoing.read())
            if not waits:
                return
            came = self._raw.recv_into(self._cipher)
            if not came:
                raise BenchError("the connection ended in the middle of the TLS handshake")
            self._incoming.write(self._cipher[:came])


@functools.cache
def client_context(cacertfile: str | None, *, verify: bool = True) -> ssl.SSLContext:
    """Trusts `cacertfile`, or what the system trusts; nothing is checked without `verify`."""
    context = ssl.create_default_context(cafile=cacertfile)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files: who signed, the certificate for this machine's loopback names, its key."""

    ca: Path
    certificate: Path
    key: Path


def can_make_certificates() -> bool:
    return importlib.util.find_spec("trustme") is not None


def make_certificate(directory: Path) -> Certificate:
    """A new authority and a certificate for 127.0.0.1 and localhost, in `directory`; both are worth nothing later."""
    import trustme  # a development dependency: only who measures TLS on a private broker needs it

    files = Certificate(directory / "ca.pem", directory / "server.pem", directory / "server.key")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(files.ca)
    issued.private_key_pem.write_to_path(files.key)
    for number, pem in enumerate(issued.cert_chain_pems):
        pem.write_to_path(files.certificate, append=number > 0)
    return files
