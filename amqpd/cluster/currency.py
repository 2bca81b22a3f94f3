"""Whether a node knows that it has heard of every change to the topology that was answered: only then it is
*current*, and takes publishes.

What comes in: which nodes are registered; how far this node has applied the metadata; what other nodes answer when it
asks them how far they have, and what the store does; the time. What goes out: questions; whether it is current.
Rules: 1. It is current while to questions that it sent within a lease time a majority of the registered nodes has
answered, itself among them, or the store has, and it has applied every revision that it was told of. 2. It is asked
by the boot-time clock, after something was read and before that is routed: so a process that was stopped in between
learns it. 3. A node that is registered alone answers itself, as long as it was current just now; after a gap, and
while no majority answers, the store is asked. 4. A revision that the store has not reached by a read which began
after a peer had said it is a lie: it counts no more, and the peer is named.
So a change of which some node of each majority knew before a lease time began is applied here when that ends
(`sync_point.py`); with the store stopped everybody who reaches a majority stays current.
Not here: what waits while a node is not current (`flow/alarms.py`), sending (`applied_revisions.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from amqpd.replication.commit import majority

QUESTIONS_MAX = 256
"""That may be answered yet: an older one was sent more than a lease time ago."""


class Currency:
    """How long one node may take publishes."""

    def __init__(self, name: str, lease_s: float) -> None:
        """`name`: of this node. `lease_s`: lease time of the cluster. Times are of the boot-time clock."""
        self._name, self._lease_s = name, lease_s
        self._voters = frozenset((name,))
        self._question = 0
        self._sent_s: OrderedDict[int, float] = OrderedDict()
        """by question"""
        self._answered_s: dict[str, float] = {}
        """by peer, when the last question that it has answered was sent"""
        self._alone_s = -inf
        """when this node, registered alone, answered itself last"""
        self._read_s = -inf
        """when the last read of the store began that has ended"""
        self._said: dict[str, tuple[int, float]] = {}
        """by peer, the revision that it has said, and when it came"""
        self._told_by_store = 0
        self.until_s = -inf
        """when this node ceases to be current, unless more answers come"""
        self.told = 0
        """the newest revision that it was told of"""

    def is_current(self, applied: int, now_s: float) -> bool:
        """`applied`: the revision up to which this node has applied everything."""
        return now_s < self.until_s and applied >= self.told

    def voters_are(self, voters: frozenset[str]) -> None:
        """The registered nodes whose version reports, this one among them."""
        self._voters = voters | {self._name}
        self._count()

    def ask(self, now_s: float) -> int:
        """The number of a question that is sent to all peers now."""
        self._question += 1
        self._sent_s[self._question] = now_s
        if len(self._sent_s) > QUESTIONS_MAX:
            self._sent_s.popitem(last=False)
        if len(self._voters) == 1 and now_s < self.until_s:
            self._alone_s = now_s
            self._count()
        return self._question

    def answered(self, peer: str, question: int, revision: int, now_s: float) -> bool:
        """The peer has applied this revision, and answers the question; 0: it says so without one. Whether there may
        be such an answer."""
        if question > self._question:
            return False
        if revision > self._said.get(peer, (0, 0.0))[0]:
            self._said[peer] = revision, now_s
            self.told = max(self.told, revision)
        sent_s = self._sent_s.get(question)
        if sent_s is not None and sent_s > self._answered_s.get(peer, -inf):
            self._answered_s[peer] = sent_s
            self._count()
        return True

    def store_read(self, began_s: float, revision: int) -> list[str]:
        """A linearizable read of the store, which began then, has found it at this revision. The peers that had said
        a later one before."""
        self._told_by_store = max(self._told_by_store, revision)
        self._read_s = max(self._read_s, began_s)
        liars = [peer for peer, (said, at_s) in self._said.items() if said > revision and at_s < began_s]
        for peer in liars:
            del self._said[peer]
            self._answered_s.pop(peer, None)
        self.told = max(self._told_by_store, *[said for said, _ in self._said.values()], 0)
        self._count()
        return liars

    def _count(self) -> None:
        """Until when, by the answers that have come."""
        peers = self._voters - {self._name}
        others = sorted([self._answered_s.get(peer, -inf) for peer in peers], reverse=True)
        needed = majority(len(self._voters)) - 1
        by_peers = self._alone_s if needed == 0 else others[needed - 1] if len(others) >= needed else -inf
        self.until_s = max(by_peers, self._read_s) + self._lease_s
