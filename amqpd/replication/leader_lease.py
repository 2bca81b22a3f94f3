"""How long a leader may deliver without asking again, and how long a replica must not vote after it has answered.

What comes in: when something was sent to a peer and answered by it; the time, as an argument, in seconds of a clock
that goes on while the machine sleeps (boot time). What goes out: whether the leader lease holds; when a replica may
vote.
Rules: 1. An answer counts from when the question was *sent*: in between the peer may have voted for another epoch
only when it had waited from its own answer, which is later; and an answer says what its sender has voted for before
it. 2. The leader looks before each delivery, so also when it was stopped in between. 3. No clock of another machine
is compared with this one's; only rates are taken to be alike, within `MARGIN`. 4. Confirms do not rest on this: a
leader whose leader lease is over confirms what a majority has, and no more. 5. A peer whose disk is not admitted for
a source keeps no leader lease over it.
Not here: whose entries are taken (`replica.py`), and what is known of leaders that are gone (their supervisor, or a
free lock).

After leases as Gray and Cheriton have them ("Leases: An Efficient Fault-Tolerant Mechanism for Distributed File
Cache Consistency", 1989): the holder's ends before the granter's.
"""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Iterable

from amqpd.peers.entry import Vote
from amqpd.replication.commit import majority

MARGIN = 1.1
"""By how much longer a replica waits than a leader holds its leader lease: clocks of two machines may differ in rate
by so much."""


class LeaderLease:
    """The leader lease of one leader over the sources of one replica set."""

    def __init__(self, lease_s: float, members: int) -> None:
        self._lease_s = lease_s
        self._members = members
        self._answered: dict[str, float] = {}
        """peer -> when the last question was sent that it has answered"""

    def answered(self, peer: str, sent_s: float) -> None:
        """What was sent then, over a connection that is still open."""
        self._answered[peer] = max(sent_s, self._answered.get(peer, -math.inf))

    def closed(self, peer: str) -> None:
        """There is no connection to it any more."""
        self._answered.pop(peer, None)

    def hears(self, peer: str, now_s: float) -> bool:
        """The peer has answered something that was sent to it within the lease time."""
        return self._answered.get(peer, -math.inf) >= now_s - self._lease_s

    def holds(self, now_s: float, uncounted: Container[str] = ()) -> bool:
        """With the peers that have answered in time, this leader is a majority of the set. `uncounted`: those whose
        disk the source's record does not name (`ReplicaSetLeader.uncounted_at`): it has forgotten what they voted
        for."""
        since = now_s - self._lease_s
        answered = sum(sent >= since and peer not in uncounted for peer, sent in self._answered.items())
        return 1 + answered >= majority(self._members)


class VoteDelay:
    """The delay of votes at one node that keeps replicas, since leaders that it has answered may still deliver."""

    def __init__(self, lease_s: float, started_s: float) -> None:
        """`started_s`: before it this forwarder may have answered anybody."""
        self._wait_s = lease_s * MARGIN
        self._started_s = started_s
        self._answered: dict[Hashable, float] = {}
        """connection -> when its leader was answered last"""
        self._left: dict[tuple[int, Vote], float] = {}
        """the same of a source, over a connection that is gone"""

    def answers(self, connection: Hashable, now_s: float) -> None:
        """An answer to a leader is made, whose leader lease over all of its sources goes on by that; it may go out
        much later, when the disk is done, and what is voted for meanwhile is not in it."""
        self._answered[connection] = now_s

    def closed(self, connection: Hashable, sources: Iterable[tuple[int, Vote]], now_s: float) -> None:
        """It is gone. The leader had these over it."""
        answered_s = self._answered.pop(connection, None)
        self._left = {key: at for key, at in self._left.items() if at + self._wait_s > now_s}
        if answered_s is not None:
            for source in sources:
                self._left[source] = max(answered_s, self._left.get(source, -math.inf))

    def ends_s(self, source: int, vote: Vote, connections: Iterable[Hashable]) -> float:
        """From when on another epoch of the source may be voted for in place of this one, whose leader is not known
        to be gone. `connections`: those that are open, over which the leader has it."""
        answered_s = [self._answered[each] for each in connections if each in self._answered]
        return max(self._started_s, self._left.get((source, vote), -math.inf), *answered_s) + self._wait_s
