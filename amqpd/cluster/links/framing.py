"""Messages as they go over a connection: a length, the message, and a check of both.

What comes in: messages, keys. What goes out: their bytes in pieces; whether bytes that came are as they were sent.
Rules: 1. Of a link every message has a check: with a key of this connection and direction an authentication code,
which counts messages (nothing can be changed, repeated, left out or put elsewhere), else a CRC-32 (a flipped bit is
found). 2. The length stands there twice, the second time inverted: one that was changed is found before anything is
waited for. 3. What is said before there is a link has a plain length in front in all versions: so they can tell each
other apart. 4. A check is one pass over what is sent, whatever is in it.
Not here: cutting a stream into messages (`incoming.py`), where keys come from (`handshake.py`).
"""

from __future__ import annotations

import hmac
import zlib
from collections.abc import Iterable
from struct import Struct

from amqpd.replication.encoding import encode
from amqpd.replication.formats import Pieces
from amqpd.replication.messages import Message

LENGTH = Struct("<I")
"""of what follows it, the check included"""
LENGTHS = Struct("<II")
"""over a link: the same, and inverted"""
INVERTED = 0xFFFF_FFFF
MAC_BYTES = 16
"""of the code's 32: as many guesses as a key has, and one wrong one ends the link"""
_CRC = Struct("<I")
_COUNT = Struct("<Q")


class Crc:
    """The check of messages by CRC-32, which finds accidents and not forgeries."""

    nbytes = _CRC.size

    def of(self, pieces: Iterable[bytes | memoryview]) -> bytes:
        """The check of the next message."""
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        return _CRC.pack(crc)


class Mac:
    """The check of messages by an authentication code, which nobody without the key can forge. Each message that
    was checked counts, so both ends count alike.

    HMAC with SHA-256: processors of today compute twice as much of it as of BLAKE2b, 1.4 GB a second."""

    nbytes = MAC_BYTES

    def __init__(self, key: bytes) -> None:
        """`key`: of one direction of one connection."""
        self._keyed = hmac.new(key, digestmod="sha256")
        self._count = 0

    def of(self, pieces: Iterable[bytes | memoryview]) -> bytes:
        """The check of the next message."""
        digest = self._keyed.copy()
        digest.update(_COUNT.pack(self._count))
        self._count += 1
        for piece in pieces:
            digest.update(piece)
        return digest.digest()[:MAC_BYTES]


Check = Crc | Mac


def framed(message: Message, check: Check) -> Pieces:
    """Of a link. Raises ValueError for a message that is too large."""
    first, *payloads = encode(message)
    nbytes = len(first) + sum(map(len, payloads)) + check.nbytes
    head = LENGTHS.pack(nbytes, nbytes ^ INVERTED) + first
    if not payloads:
        return [head + check.of((head,))]
    return [head, *payloads, check.of((head, *payloads))]


def framed_word(message: Message) -> bytes:
    """Of the handshake."""
    said = b"".join(encode(message))
    head = LENGTH.pack(len(said) + Crc.nbytes) + said
    return head + Crc().of((head,))
