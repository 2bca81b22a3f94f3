"""TLS over a socket that the pump reads and writes itself.

What comes in: encrypted bytes from the socket, plain bytes to send. What goes out: plain bytes, and encrypted ones.
Rules: 1. No socket here: `ssl.MemoryBIO` on both sides, so TLS connections live in the same pump as the others.
2. Encrypted output may be due after any call, also after `receive` (key update). 3. While it is `busy` a thread
computes a step of the handshake: it has nothing to say, and nothing else may be asked of it. 4. Each side says when
it is at its end (close_notify, RFC 8446 section 6.1): else the other could not tell the end from a cut. 5. Records
are counted: one of 23 bytes may take as long as one of 16 kB, and a request for new keys (RFC 8446 section 4.6.3)
ten times as long. A call decrypts a bounded number of them, and `behind` says that there are more.
Not here: certificates and the context (`tls.py`), the thread (`tls_handshakes.py`).
"""

from __future__ import annotations

import contextlib
import ssl

import structlog

# What one record holds (RFC 8446 section 5.1); a read returns no more than one.
READ_BYTES = 16 * 1024
# Type, version, length (RFC 8446 section 5.1).
HEADER_BYTES = 5
# In one call: two megabytes of a busy publisher, or two milliseconds of requests for new keys.
RECORDS_AT_ONCE = 128
# In the unit of `flow/turns.py`: a record with data, and one of the protocol's own.
RECORD_WORK, CONTROL_WORK = 2, 16

_log = structlog.get_logger("amqpd.transport.tls")


class TlsStream:
    """TLS in memory: octets of the socket on one side, octets of AMQP on the other."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.handshaken = False
        self.busy = False
        self.ended = False
        """the client has said that it sends nothing more"""
        self.work = 0
        """what the last `receive` did, in the unit of `flow/turns.py`"""
        self._waiting = b""
        """what came and is not given to OpenSSL yet"""
        self._record_left = 0
        """bytes of the last record given to it that are still to come"""

    @property
    def behind(self) -> bool:
        """`receive` has more to decrypt, without new data."""
        return len(self._waiting) >= HEADER_BYTES

    def handshake(self, data: bytes) -> None:
        """Go on with the handshake; `handshaken` says whether it is complete. Takes milliseconds. Raises
        ssl.SSLError."""
        self._waiting += data
        # One by one: what comes behind the last of the handshake is for `receive`.
        while not self.handshaken and self._feed(1):
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                self.handshaken = True

    def receive(self, data: bytes | memoryview) -> bytes:
        """The plain bytes that `data`, and what came before and was not decrypted, completes, maybe none. Raises
        ssl.SSLError."""
        self._waiting += data
        records = self._feed(RECORDS_AT_ONCE)
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
                self._waiting = b""
                break
            pieces.append(piece)
        self.work = RECORD_WORK * len(pieces) + CONTROL_WORK * max(records - len(pieces), 0)
        return b"".join(pieces)

    def _feed(self, records_max: int) -> int:
        """Give OpenSSL at most `records_max` records, the last one maybe in part. How many that were, begun ones
        included."""
        waiting, records = self._waiting, 0
        at, end = self._record_left, len(waiting)
        if at and end:
            records = 1
        while at + HEADER_BYTES <= end and records < records_max:
            at += HEADER_BYTES + (waiting[at + 3] << 8 | waiting[at + 4])
            records += 1
        self._incoming.write(waiting[:at])
        self._waiting = waiting[at:]
        self._record_left = max(at - end, 0)
        return records

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt; the result is part of `output`."""
        if data:
            self._tls.write(data)

    def end(self) -> None:
        """Nothing more will be sent: say so; that is part of `output`."""
        if self.handshaken and not self.busy:
            with contextlib.suppress(ssl.SSLError):  # "want read": for the client's own end, which is not waited for
                self._tls.unwrap()

    def output(self) -> bytes:
        """Encrypted bytes that are due to be sent."""
        return self._outgoing.read() if not self.busy and self._outgoing.pending else b""

    def agreed(self) -> tuple[str | None, str | None]:
        """Protocol and cipher, by OpenSSL's names; after the handshake."""
        cipher = self._tls.cipher()
        return self._tls.version(), cipher and cipher[0]

    def certificate(self) -> dict[str, object] | None:
        """The client's verified certificate, as `ssl.SSLSocket.getpeercert` has it; None without one, or with
        one that cannot be read."""
        try:
            return dict(self._tls.getpeercert() or {}) or None
        except ValueError as error:
            # Python decodes the whole of it, and an alternative name that is not UTF-8 raises UnicodeDecodeError. The
            # client may still log in with a password, as without a certificate.
            _log.warning("certificate_unreadable", reason=str(error))
            return None
