"""The order in which the sessions of one data link send: each has its turn, and none waits for another one's backlog.

What comes in: messages of sessions, with what they weigh. What goes out: the same, one after the other.
Rules: 1. Messages of one source stay in their order. 2. Sources take turns; a turn is `TURN_BYTES`, and what is not
used of it, since the next message is larger, is added to the next turn, so that sources with large and with small
messages get the same share of the bytes (deficit round robin, as RFC 8290 has it, too). 3. What is left
over is forgotten when nothing of a source waits any more: it is no credit for later.
Not here: how much may wait (`data_links.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from amqpd.peers.messages import Message

TURN_BYTES = 64 << 10
"""Half a millisecond of a link of a gigabit a second; some hundred small messages."""


@dataclass(slots=True)
class _Waiting:
    """The messages of one source that wait."""

    messages: deque[tuple[Message, int]] = field(default_factory=deque)
    nbytes: int = 0
    left_bytes: int = 0
    """of its turn"""


class SessionTurns:
    """Messages that wait until a data link takes more, by the source whose session they are of."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._waiting: dict[int, _Waiting] = {}
        """by source; the one whose turn it is comes first"""

    def nbytes_of(self, source: int) -> int:
        waiting = self._waiting.get(source)
        return 0 if waiting is None else waiting.nbytes

    def add(self, source: int, message: Message, nbytes: int) -> None:
        """`nbytes`: what it weighs, at least 1."""
        waiting = self._waiting.get(source)
        if waiting is None:
            waiting = self._waiting[source] = _Waiting(left_bytes=TURN_BYTES)
        waiting.messages.append((message, nbytes))
        waiting.nbytes += nbytes
        self.nbytes += nbytes

    def next_bytes(self) -> int:
        """What the next message weighs; there is one."""
        return self._next().messages[0][1]

    def take(self) -> Message:
        """The next message; there is one."""
        waiting = self._next()
        message, nbytes = waiting.messages.popleft()
        waiting.left_bytes -= nbytes
        waiting.nbytes -= nbytes
        self.nbytes -= nbytes
        if not waiting.messages:
            del self._waiting[next(iter(self._waiting))]
        return message

    def _next(self) -> _Waiting:
        while True:
            source, waiting = next(iter(self._waiting.items()))
            if waiting.messages[0][1] <= waiting.left_bytes:
                return waiting
            del self._waiting[source]  # behind all others
            self._waiting[source] = waiting
            waiting.left_bytes += TURN_BYTES
