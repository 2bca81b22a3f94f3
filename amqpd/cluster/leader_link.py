"""A connection of a leader to one who keeps copies for it, at the latter's end.

What comes in: who has dialed. What goes out: where its answers go, and what stands here of each of its lanes.
Not here: the bytes (`links/`), what is done with its messages (`copies.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from amqpd.peers.messages import Message
from amqpd.replication.receiver import Receiver


class LeaderLink:
    """A connection that another forwarder has dialed."""

    def __init__(
        self, forwarder: str, incarnation: int, send: Callable[[Message], None], close: Callable[[str], None]
    ) -> None:
        self.forwarder = forwarder
        self.incarnation = incarnation
        self.send = send
        self.close = close
        self.receivers: dict[int, Receiver] = {}
        self.open = True
        self.reads = 0
        """of the own disk, for it, that have not ended"""

    def forget_unused(self) -> None:
        """Lanes that have no source any more."""
        for lane in [lane for lane, receiver in self.receivers.items() if not receiver.sources]:
            del self.receivers[lane]
