"""What waits to be sent to a peer, in order.

What comes in: encoded messages; how much the socket took. What goes out: the next pieces for it.
Rules: 1. Large pieces are not copied: they are the payloads that other peers are sent, too. 2. Small messages are
joined, a piece each.
Not here: the bound (`link.py`), the socket (`stream.py`).
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from amqpd.replication.formats import Pieces

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
