"""Messages as they go over a connection: a length, the message, and a check of both; what waits to be sent, and
messages cut out of the bytes that a peer sends.

What comes in: messages, keys; bytes, received into the space that is given here. What goes out: their bytes in
pieces; messages, in order, whose bytes are as they were sent.
Rules: 1. Of a link every message has a check: with a key of this connection and direction an authentication code,
which counts messages (nothing can be changed, repeated, left out or put elsewhere), else a CRC-32 (a flipped bit is
found). 2. The length stands there twice, the second time inverted: one that was changed is found before anything is
waited for. 3. What is said before there is a link has a plain length in front in all versions: so they can tell each
other apart. 4. A check is one pass over what is sent, whatever is in it. 5. What is sent: large pieces are not
copied, since they are the payloads that other peers are sent, too; small messages are joined. 6. What comes: the
buffer grows with what has come, never by what a length announces, to at most twice the bytes that the peer has sent
of a message; nothing is decoded before its check fits; payloads are copied once, out of there.
Not here: the form of a message (`peers/encoding.py`), where keys come from (`handshake.py`), the socket
(`stream.py`), the bound of what waits (`link.py`).
"""

from __future__ import annotations

import hmac
import zlib
from collections import deque
from collections.abc import Iterable
from hmac import compare_digest
from itertools import islice
from struct import Struct

from amqpd.peers.encoding import GREETING_BYTES_MAX, MESSAGE_BYTES_MAX, bytes_max_of, decode, encode
from amqpd.peers.formats import MalformedMessage, Pieces
from amqpd.peers.messages import Greeting, Message
from amqpd.peers.versions import HIGHEST, LOWEST

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


def framed(message: Message, check: Check, version: int = HIGHEST) -> Pieces:
    """Of a link whose ends use this version. Raises ValueError as `encode` does."""
    first, *payloads = encode(message, version)
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


FIRST_BYTES = 64 << 10
STRANGER_BYTES = 2 << 10
"""For who has not said yet who it is: a word of the handshake fits, and there are many strangers."""
KEPT_BYTES_MAX = 4 << 20
"""A buffer that has grown above this is given back once it is empty: frames that usually come fit into it."""
READ_BYTES_MAX = 512 << 10
"""Received at once: what the processor's cache still has when it is decoded."""
CHANGED = "bytes have changed on the way"


class ChangedOnTheWay(MalformedMessage):
    """A message came changed: a device between the two ends alters bytes."""


class Incoming:
    """The bytes that a peer has sent and that are not decoded yet."""

    def __init__(self, check: Check | None = None, bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        """`check`: of a link's messages; None: words of the handshake come first."""
        self._check = check
        self._version = HIGHEST
        self._bytes_max = bytes_max
        """of one message"""
        self._view = memoryview(bytearray(STRANGER_BYTES if check is None else FIRST_BYTES))
        self._at = self._end = 0

    @property
    def nbytes(self) -> int:
        """Of the buffer."""
        return len(self._view)

    @property
    def first_bytes(self) -> bytes:
        """Of what is not decoded: enough to know what no node says."""
        return bytes(self._view[self._at : min(self._at + 2, self._end)])

    def begin(self, check: Check, version: int) -> None:
        """What follows are messages of a link whose ends use this version."""
        self._check, self._version = check, version

    def next(self) -> Message | None:
        """None: it has not come as a whole. Raises MalformedMessage; what follows is of no use then."""
        return self._next_word() if self._check is None else self._next(self._check)

    def _next(self, check: Check) -> Message | None:
        at = self._at
        begin = at + LENGTHS.size
        if begin > self._end:
            return None
        nbytes, inverted = LENGTHS.unpack_from(self._view, at)
        if nbytes ^ inverted != INVERTED:
            raise ChangedOnTheWay(f"its length is not as it was sent: {CHANGED}")
        self._refuse_length(nbytes, check, self._bytes_max)
        if begin + nbytes > self._end:
            if begin < self._end:
                self._refuse_length(nbytes, check, bytes_max_of(self._view[begin]))
            return None
        self._at = begin + nbytes
        end = self._at - check.nbytes
        if not compare_digest(check.of((self._view[at:end],)), self._view[end : self._at]):
            raise ChangedOnTheWay(f"its check does not fit: {CHANGED}")
        return decode(self._view[begin:end], self._version)

    def _next_word(self) -> Message | None:
        at = self._at
        begin = at + LENGTH.size
        if begin > self._end:
            return None
        [nbytes] = LENGTH.unpack_from(self._view, at)
        self._refuse_length(nbytes, Crc(), GREETING_BYTES_MAX)
        if begin + nbytes > self._end:
            return None
        self._at = begin + nbytes
        end = self._at - Crc.nbytes
        if Crc().of((self._view[at:end],)) == self._view[end : self._at]:
            return decode(self._view[begin:end])
        # A version before those with checks: a Greeting says no more than that.
        message = decode(self._view[begin : self._at])
        if not isinstance(message, Greeting) or message.hello.version >= LOWEST:
            raise ChangedOnTheWay(f"its check does not fit: {CHANGED}")
        return message

    @staticmethod
    def _refuse_length(nbytes: int, check: Check, bytes_max: int) -> None:
        if nbytes > bytes_max + check.nbytes:
            raise MalformedMessage(f"a message of {nbytes} bytes is announced, the limit is {bytes_max}")
        if nbytes <= check.nbytes:
            raise MalformedMessage(f"a message of {nbytes} bytes is announced, which is none")

    def space(self) -> memoryview:
        """Where to receive what comes next; never empty."""
        nbytes = self._end - self._at
        if not nbytes:
            if len(self._view) > KEPT_BYTES_MAX or (self._check is not None and len(self._view) < FIRST_BYTES):
                self._view = memoryview(bytearray(FIRST_BYTES))
            self._at = self._end = 0
        elif len(self._view) - self._end < min(FIRST_BYTES, len(self._view)) // 2:
            # At most as much is moved as was received meanwhile.
            view = self._view if nbytes <= len(self._view) // 2 else memoryview(bytearray(2 * len(self._view)))
            view[:nbytes] = self._view[self._at : self._end]
            self._view, self._at, self._end = view, 0, nbytes
        return self._view[self._end : self._end + READ_BYTES_MAX]

    def took(self, nbytes: int) -> None:
        """This many were received into the space that was given last."""
        self._end += nbytes


JOINED_BYTES_MAX = 4096
"""Of a message of several pieces that is copied into one: a piece costs about as much as copying this."""
PIECES_AT_ONCE = 64
"""Linux takes 1024 at most (IOV_MAX); what a socket takes at a time are a few large ones."""


class Outgoing:
    """Pieces of messages, and how many bytes they have."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._pieces: deque[memoryview] = deque()

    def add(self, pieces: Pieces) -> None:
        """A message."""
        nbytes = sum(map(len, pieces))
        self.nbytes += nbytes
        if nbytes <= JOINED_BYTES_MAX and len(pieces) > 1:
            pieces = [b"".join(pieces)]
        self._pieces.extend(memoryview(piece) for piece in pieces if piece)

    def next(self) -> list[memoryview]:
        return list(islice(self._pieces, PIECES_AT_ONCE))

    def sent(self, nbytes: int) -> None:
        """The first bytes of `next`."""
        self.nbytes -= nbytes
        pieces = self._pieces
        while nbytes:
            first = pieces[0]
            if nbytes < len(first):
                pieces[0] = first[nbytes:]
                return
            nbytes -= len(first)
            pieces.popleft()

    def clear(self) -> None:
        self._pieces.clear()
        self.nbytes = 0
