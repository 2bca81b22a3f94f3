"""What a leader keeps of a source for its peers, and what it knows of each: its answers, and what is under way to it.

What comes in: entries as they are cut, and from where on a peer lacks them. What goes out: what is to be sent.
Rules: 1. What a peer lacks is sent once: nothing is lost on an ordered connection that stands. Again only if the peer
reports a lower position than before: up to the other one it had something of another leader. 2. What follows a state
that is under way is kept for that peer, whatever others have; if that is too much, the next state has it.
3. What is known of a peer goes with the connection: what it has on its disk it says again over the next one.
Not here: when what is kept is too much (`leader.py`), and how a peer takes it in (`receiver.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping

from amqpd.peers.entry import LogEntry, Position


class Tail:
    """The entries of one source that not every member is known to have, in order."""

    def __init__(self, epoch: int, first: int, base: Position, entries: Iterable[LogEntry]) -> None:
        self.epoch = epoch
        self.first = first
        """number of the first frame of this epoch, or with it in this replica set, if it has come from another one"""
        self.since = 0
        """frames of the replica set below this one say nothing of the source; 0: the epoch has begun in this replica
        set"""
        self.base = base
        """the last entry before these"""
        self._entries = list(entries)
        self._positions = [each.position for each in self._entries]
        self.nbytes = sum(len(each.payload) for each in self._entries)

    @property
    def last(self) -> Position:
        return self._positions[-1] if self._positions else self.base

    @property
    def checksum(self) -> int | None:
        """Of the last entry, if it is kept."""
        return self._entries[-1].checksum if self._entries else None

    def append(self, entry: LogEntry) -> None:
        self._entries.append(entry)
        self._positions.append(entry.position)
        self.nbytes += len(entry.payload)

    def after(self, position: Position, bytes_max: int | None = None) -> list[LogEntry] | None:
        """What follows the last entry that is not above this position; with a limit, the first of it, and at least
        one. None: that is not kept any more."""
        if position < self.base:
            return None
        at = end = bisect_right(self._positions, position)
        if bytes_max is None:
            return self._entries[at:]
        while end < len(self._entries) and bytes_max > 0:
            bytes_max -= len(self._entries[end].payload)
            end += 1
        return self._entries[at:end]

    def bytes_after(self, position: Position) -> int:
        """Of what is kept."""
        return sum(len(each.payload) for each in self._entries[bisect_right(self._positions, position) :])

    def next_after(self, number: int) -> int | None:
        """The first frame above this number that has an entry of it."""
        at = bisect_right(self._positions, (self.epoch, number))
        return self._positions[at][1] if at < len(self._positions) else None

    def forget(self, number: int) -> None:
        """Every member has what frames up to this one had of it."""
        at = bisect_right(self._positions, (self.epoch, number))
        if at and self._positions[at - 1][0] == self.epoch:
            self._forget(at)

    def forget_upto(self, position: Position) -> None:
        """The member that these are kept for has them up to this entry."""
        self._forget(bisect_right(self._positions, position))

    def _forget(self, count: int) -> None:
        if count:
            self.base = self._positions[count - 1]
            self.nbytes -= sum(len(each.payload) for each in self._entries[:count])
            del self._entries[:count], self._positions[:count]


class ResendCounts:
    """Counts of the entries and of the state that peers lacked and were sent."""

    def __init__(self) -> None:
        self.transfers_begun = self.transfers_done = self.transfers_followed = 0
        """of state; done: the peer has it; of these, followed by another one, since too much came meanwhile"""
        self.entries = self.nbytes = 0

    def again(self, entries: int, nbytes: int) -> None:
        self.entries += entries
        self.nbytes += nbytes


Missed = tuple[LogEntry, ...]
"""of one source, that a peer was found to lack, in order"""


class Transfer:
    """State that is on its way to a peer, and what is sent behind it."""

    def __init__(self, number: int, base: Position, behind: Tail) -> None:
        self.number = number
        self.base = base
        """the last entry that it has"""
        self.behind: Tail | None = behind
        """what follows that: kept for this peer, whatever others have. None: it was too much, and another state, a
        difference to this one, has it"""
        self.has_come = False


class Resend:
    """The entries of one source that a peer lacks and that are on their way to it."""

    def __init__(self, reported: Position) -> None:
        self.reported = self.sent = reported
        """the peer's last word; the last entry that was sent"""
        self.nbytes = 0
        """under way"""
        self._under_way: deque[tuple[Position, int]] = deque()
        """the last entry of each message, and its bytes"""

    def reports(self, position: Position) -> None:
        """A lower one than before: the peer had something else up to there, and what was sent since is of no use to
        it."""
        if position < self.reported:
            self.sent, self.nbytes = position, 0
            self._under_way.clear()
        while self._under_way and self._under_way[0][0] <= position:
            self.nbytes -= self._under_way.popleft()[1]
        self.reported, self.sent = position, max(position, self.sent)

    def sends(self, missed: Missed) -> None:
        nbytes = size_of(missed)
        self.sent = missed[-1].position
        self._under_way.append((self.sent, nbytes))
        self.nbytes += nbytes


def size_of(missed: Missed) -> int:
    """In bytes; entries without a payload count, too."""
    return sum(1 + len(entry.payload) for entry in missed)


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
