"""One replica set of this forwarder, as the home of sources: what confirms wait for, and who answers.

What comes in: transactions of the journal, answers of peers. What goes out: messages to the peers; one growing
number.
Rules: 1. A lane is all sources of this home with one replica set (docs/decisions/replication.md), and with the same
learner. 2. Where somebody waits for a transaction in which the lane has nothing, an empty frame is cut.
Not here: how sources come to it (`homes.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amqpd.cluster.questions import Questions
from amqpd.journal.lane import Lane
from amqpd.replication.catch_up import Sent
from amqpd.replication.home import HomeLane
from amqpd.replication.reign import Reign
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import SourceRecord

LaneKey = tuple[tuple[str, ...], tuple[str, ...]]
"""members of the set, and who is about to be one"""


class ReplicaSetLane(Lane):
    """What confirms of queues of these sources wait for."""

    def __init__(self, gathering: int, reported: int, force_journal: Callable[[], None]) -> None:
        super().__init__(gathering, reported)
        self.forced = 0
        """somebody waits for this transaction: of what gathers while one before it is on its way to the disk"""
        self._force_journal = force_journal

    def force(self) -> None:
        """See `Lane.force`."""
        self.forced = self.gathering
        self._force_journal()


class OwnLane:
    """One of them."""

    def __init__(
        self, number: int, key: LaneKey, index: int, lease_s: float, lane: ReplicaSetLane, sent: Sent
    ) -> None:
        """`number`: of the lane, as peers know it; `index`: of the journal's last transaction; `sent`: where what is
        sent again is counted."""
        self.number = number
        self.key = key
        self.members, self.learners = key
        self.home = HomeLane(self.members, index, learners=self.learners, sent=sent)
        self.reign = Reign(lease_s, len(self.members))
        self.lane = lane
        self.questions: dict[str, Questions] = {}
        """peer -> over its connection"""
        self.open: set[int] = set()
        """sources with entries that are not known to be committed"""
        self.left: dict[int, int] = {}
        """Sources that went to another lane, and the last transaction of which something waits for this one: what of
        them is committed the other one knows. This one reports nothing above that."""
        self.upto = 0
        """the highest of those that there were"""

    def has(self, peer: str) -> bool:
        return peer in self.members or peer in self.learners

    def answered(self, peer: str, question: int) -> None:
        """It has answered up to this question."""
        sent_s = self.questions[peer].answered(question)
        if sent_s is not None and peer in self.members:
            self.reign.answered(peer, sent_s)

    def connected(self, peer: str) -> None:
        """Over a new connection."""
        self.questions[peer] = Questions()

    def lost(self, peer: str) -> None:
        """There is none any more."""
        self.home.close(peer)
        self.reign.closed(peer)
        self.questions.pop(peer, None)


@dataclass(slots=True)
class Own:
    """A source, while this forwarder is its home."""

    seal: Seal
    record: SourceRecord
    """as the store had it last"""
    lane: OwnLane
    first: int = 0
    """number of the first frame of this epoch; 0: it is not cut yet"""
    serving: bool = False
    begun_s: float = 0.0
    before: OwnLane | None = None
    """the lane that it came from, while that waits for this one"""
    known_at: int = 0
    """The transaction that gathered when the record was heard of: who answers a later frame lived after that."""
