"""What a leader knows of another member of a replica set, while there is a connection to it.

What comes in: nothing. What goes out: a record of what it has answered, and of what is on its way to it.
Rules: 1. It goes with the connection: what the member has on its disk it says again over the next one.
Not here: what follows from it (`leader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amqpd.peers.entry import LogEntry, Position
from amqpd.replication.catch_up import Resend, ResendCounts, Tail, Transfer


class PeerProgress:
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
        self.sent = ResendCounts()
        """again, over this connection"""
        self.bases: Mapping[int, Position] = {}
        """what it knows to be committed, of sources that it lacks something of"""

    def counts(self, source: int) -> bool:
        return source not in self.apart and source not in self.uncounted

    def keep_behind(self, entries: Iterable[LogEntry], tails: Mapping[int, Tail], bytes_max: int) -> None:
        """These follow the states that are on their way to it. Nothing is kept behind the one with the most any more
        when this is exceeded, beyond the tails of their sources, which are kept in any case."""
        for entry in entries:
            transfer = self.transfers.get(entry.source)
            if transfer is not None and transfer.behind is not None:
                transfer.behind.append(entry)
        kept = {source: each.behind for source, each in self.transfers.items() if each.behind is not None}
        extra = {source: max(0, behind.nbytes - tails[source].nbytes) for source, behind in kept.items()}
        while extra and sum(extra.values()) > bytes_max:
            source = max(extra, key=extra.__getitem__)
            self.transfers[source].behind = None
            del extra[source]
