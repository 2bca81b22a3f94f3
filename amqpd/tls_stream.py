"""TLS over a socket that the pump reads and writes itself.

What comes in: encrypted bytes from the socket, plain bytes to send. What goes out: plain bytes, and encrypted ones.
Rules: 1. No socket here: `ssl.MemoryBIO` on both sides, so TLS connections live in the same pump as the others.
2. Encrypted output may be due after any call, also after `receive` (handshake, key update). 3. Each side says when it
is at its end (close_notify, RFC 8446 section 6.1): else the other could not tell the end from a cut.
Not here: certificates and the context (`tls.py`).
"""

from __future__ import annotations

import contextlib
import ssl

# One TLS record holds 16 kB; larger reads save calls.
READ_BYTES = 256 * 1024


class TlsStream:
    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.handshaken = False
        self.ended = False
        """the client has said that it sends nothing more"""

    def receive(self, data: bytes | memoryview) -> bytes:
        """The plain bytes that `data` completes, maybe none. Raises ssl.SSLError."""
        self._incoming.write(data)
        if not self.handshaken:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            self.handshaken = True
        pieces: list[bytes] = []
        while True:
            try:
                piece = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                piece = b""
            if not piece:
                self.ended = True
                break
            pieces.append(piece)
        return b"".join(pieces)

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt; the result is part of `output`."""
        if data:
            self._tls.write(data)

    def end(self) -> None:
        """Nothing more will be sent: say so; that is part of `output`."""
        if self.handshaken:
            with contextlib.suppress(ssl.SSLError):  # "want read": for the client's own end, which nobody waits for
                self._tls.unwrap()

    def output(self) -> bytes:
        """Encrypted bytes that are due to be sent."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def certificate(self) -> dict[str, object] | None:
        """The client's verified certificate, as `ssl.SSLSocket.getpeercert` has it; None without one."""
        return dict(self._tls.getpeercert() or {}) or None
