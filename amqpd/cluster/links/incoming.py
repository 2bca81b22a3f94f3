"""Messages cut out of the bytes that a peer sends.

What comes in: bytes, received into the space that is given here. What goes out: messages, in order.
Rules: 1. The buffer grows with what has come, never by what a length announces: it has at most twice the bytes that
the peer has sent of a message. 2. Bytes are received where they are decoded; payloads are copied once, out of there.
Not here: the form of a message (`replication/encoding.py`), the socket (`stream.py`).
"""

from __future__ import annotations

from amqpd.replication.encoding import LENGTH, decode
from amqpd.replication.formats import MalformedMessage
from amqpd.replication.messages import Message

FIRST_BYTES = 64 << 10
KEPT_BYTES_MAX = 4 << 20
"""A buffer that has grown above this is given back once it is empty: frames that usually come fit into it."""
READ_BYTES_MAX = 512 << 10
"""Received at once: what the processor's cache still has when it is decoded."""


class Incoming:
    """What a peer has sent and is not decoded yet."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """of one message"""
        self._view = memoryview(bytearray(FIRST_BYTES))
        self._at = self._end = 0

    @property
    def nbytes(self) -> int:
        """Of the buffer."""
        return len(self._view)

    def next(self) -> Message | None:
        """None: it has not come as a whole. Raises MalformedMessage; what follows is of no use then."""
        begin = self._at + LENGTH.size
        if begin > self._end:
            return None
        [nbytes] = LENGTH.unpack_from(self._view, self._at)
        if nbytes > self.bytes_max:
            raise MalformedMessage(f"a message of {nbytes} bytes is announced, the limit is {self.bytes_max}")
        if begin + nbytes > self._end:
            return None
        self._at = begin + nbytes
        return decode(self._view[begin : self._at])

    def space(self) -> memoryview:
        """Where to receive what comes next; never empty."""
        nbytes = self._end - self._at
        if not nbytes:
            if len(self._view) > KEPT_BYTES_MAX:
                self._view = memoryview(bytearray(FIRST_BYTES))
            self._at = self._end = 0
        elif len(self._view) - self._end < FIRST_BYTES // 2:
            # At most as much is moved as was received meanwhile.
            view = self._view if nbytes <= len(self._view) // 2 else memoryview(bytearray(2 * len(self._view)))
            view[:nbytes] = self._view[self._at : self._end]
            self._view, self._at, self._end = view, 0, nbytes
        return self._view[self._end : self._end + READ_BYTES_MAX]

    def took(self, nbytes: int) -> None:
        """This many were received into the space that was given last."""
        self._end += nbytes
