"""TLS over a socket that the pump reads and writes itself.

What comes in: encrypted bytes from the socket, plain bytes to send. What goes out: plain bytes, and encrypted ones.
Rules: 1. No socket here: `ssl.MemoryBIO` on both sides, so TLS connections live in the same pump as the others.
2. Encrypted output may be due after any call, also after `receive` (handshake, key update).
Not here: certificates and the context (`tls.py`).
"""

from __future__ import annotations

import ssl

# One TLS record holds 16 kB; larger reads save calls.
READ_BYTES = 256 * 1024


class TlsStream:
    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.handshaken = False

    def receive(self, data: bytes) -> bytes | None:
        """The plain bytes that `data` completes, maybe none; None at the orderly end. Raises ssl.SSLError."""
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
                return b"".join(pieces) or None
            if not piece:
                return b"".join(pieces) or None
            pieces.append(piece)
        return b"".join(pieces)

    def send(self, data: bytes) -> None:
        """Encrypt; the result is part of `output`."""
        if data:
            self._tls.write(data)

    def output(self) -> bytes:
        """Encrypted bytes that are due to be sent."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def certificate(self) -> dict[str, object] | None:
        """The client's verified certificate, as `ssl.SSLSocket.getpeercert` has it; None without one."""
        return dict(self._tls.getpeercert() or {}) or None
