"""Messages cut out of the bytes that a peer sends.

What comes in: bytes, received into the space that is given here. What goes out: messages, in order.
Rules: 1. The buffer grows with what has come, never by what a length announces: it has at most twice the bytes that
the peer has sent of a message. 2. Bytes are received where they are decoded; payloads are copied once, out of there.
3. Nothing is decoded before its check fits. 4. First come the words of the handshake, which are short; after `begin`
the messages of a link.
Not here: the form of a message (`replication/encoding.py`), checks (`framing.py`), the socket (`stream.py`).
"""

from __future__ import annotations

from hmac import compare_digest

from amqpd.cluster.links.framing import INVERTED, LENGTH, LENGTHS, Check, Crc
from amqpd.replication.encoding import GREETING_BYTES_MAX, MESSAGE_BYTES_MAX, bytes_max_of, decode
from amqpd.replication.formats import MalformedMessage
from amqpd.replication.messages import VERSION, Greeting, Message

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

    def begin(self, check: Check) -> None:
        """What follows are messages of a link."""
        self._check = check

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
        return decode(self._view[begin:end])

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
        # Of another version, which may have no checks, a Greeting says no more than that.
        message = decode(self._view[begin : self._at])
        if not isinstance(message, Greeting) or message.hello.version == VERSION:
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
