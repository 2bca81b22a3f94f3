"""What the home knows of another member of a replica set, while there is a connection to it.

What comes in: its answers, by way of the lane. What goes out: whether it counts for a source, and what is under way
to it.
Rules: 1. Nothing of it outlives the connection: the peer says again where it stands over the next one.
Not here: what is done about it (`home.py`), what is sent (`catch_up.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amqpd.replication.catch_up import Resend, Sent, Transfer
from amqpd.replication.entry import Position


class Peer:
    """Another member of the set, while there is a connection to it."""

    def __init__(self, uncounted: Iterable[int]) -> None:
        self.uncounted = set(uncounted)
        """sources whose record names another disk than it has: what it acknowledges is no copy yet"""
        self.number = 0
        """of its last answer"""
        self.apart: frozenset[int] = frozenset()
        """sources that do not count there"""
        self.transfers: dict[int, Transfer] = {}
        """sources that are caught up by state"""
        self.transfers_begun = 0
        self.resends: dict[int, Resend] = {}
        """sources that are caught up by entries"""
        self.sent = Sent()
        """again, over this connection"""
        self.bases: Mapping[int, Position] = {}
        """what it knows to be committed, of sources that it lacks something of"""

    def counts(self, source: int) -> bool:
        return source not in self.apart and source not in self.uncounted
