"""One replica set of this forwarder, as the leader of sources: who answers; and the lane that confirms wait for, of
each source.

What comes in: transactions of the journal, answers of peers. What goes out: messages to the peers; a growing number
of each source.
Rules: 1. `LedReplicaSet` is all sources of this leader with one replica set (docs/decisions/replication.md), and with
the same learner: its frames are cut, and answered, once for all of them. 2. What a confirm waits for is the number of
one source, which goes with the source to another set: one that has no majority holds back its own clients, and one
that ends here ends theirs. 3. Where somebody waits for a transaction in which the set has nothing, an empty frame is
cut.
4. A peer whose disk hangs takes questions and answers none: of `QUESTIONS_MAX` that wait every other one is
forgotten, and an answer to that counts from the one before.
Not here: how sources come to it (`led_sources.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from amqpd.journal.lane import Lane
from amqpd.peers.entry import Vote
from amqpd.peers.versions import LOWEST
from amqpd.replication.catch_up import ResendCounts
from amqpd.replication.leader import ReplicaSetLeader
from amqpd.replication.leader_lease import LeaderLease
from amqpd.replication.take_over import SourceRecord

ReplicaSetKey = tuple[tuple[str, ...], tuple[str, ...]]
"""members of the set, and who is about to be one"""
QUESTIONS_MAX = 4096
"""what a replica set asks in some seconds at full load"""


class OpenQuestions:
    """The questions that were sent over one connection and have no answer yet, each with the time when it was
    sent."""

    def __init__(self) -> None:
        self._number = 0
        self._sent: deque[tuple[int, float]] = deque()

    def ask(self, now_s: float) -> int:
        """The number of a question that is sent now."""
        self._number += 1
        if len(self._sent) >= QUESTIONS_MAX:
            self._sent = deque(list(self._sent)[::2])
        self._sent.append((self._number, now_s))
        return self._number

    def answered(self, number: int) -> float | None:
        """When the question with this number was sent, or one before it; None: it was answered before."""
        sent_s = None
        while self._sent and self._sent[0][0] <= number:
            sent_s = self._sent.popleft()[1]
        return sent_s


class SourceLane(Lane):
    """The lane of one source that this node leads, for which confirms of its queues wait."""

    def __init__(self, source: int, index: int, force_journal: Callable[[], None], asked: set[int]) -> None:
        """`index`: of the transaction that gathers; `asked`: sources of which somebody waits for one."""
        super().__init__(index, index - 1)
        self.forced = 0
        """the last transaction that somebody waits for"""
        self.first_asked = 0
        """the first one that somebody waits for and that is not cut yet; 0: none. One may be on its way to the disk,
        and the next one be waited for, before it is cut."""
        self._source = source
        self._force_journal = force_journal
        self._asked = asked

    def force(self) -> None:
        self.forced = self.gathering
        self.first_asked = self.first_asked or self.forced
        self._asked.add(self._source)
        self._force_journal()

    def cut(self, index: int) -> bool:
        """Note that the transaction was cut; whether somebody waits for it or for one before it."""
        waited = 0 < self.first_asked <= index
        if waited:
            self.first_asked = self.forced if self.forced > index else 0
        return waited

    def ends(self, *, lost: bool) -> bool:
        """Nobody reports it any more; who asks for it later is not to wait for ever. `lost`: not everything is
        committed; who waited was told. Whether this is to be reported."""
        self.lost = lost
        before, self.reported = self.reported, max(self.reported, self.gathering)
        return self.reported > before


class LedReplicaSet:
    """One replica set of this node, with all sources that the node leads and that this set keeps."""

    def __init__(self, number: int, key: ReplicaSetKey, index: int, lease_s: float, sent: ResendCounts) -> None:
        """`number`: of the replica set, as peers know it; `index`: of the journal's last transaction; `sent`: where
        what is sent again is counted."""
        self.number = number
        self.key = key
        self.members, self.learners = key
        self.leader = ReplicaSetLeader(self.members, index, learners=self.learners, sent=sent)
        self.leader_lease = LeaderLease(lease_s, len(self.members))
        self.version = LOWEST
        """of the messages, that all of the set read: frames are the same for each of them"""
        self.questions: dict[str, OpenQuestions] = {}
        """peer -> over its connection"""
        self.open: set[int] = set()
        """sources with entries that are not known to be committed, or with somebody who waits for a frame"""
        self.lagging: set[int] = set()
        """sources whose publishers wait"""

    def has(self, peer: str) -> bool:
        return peer in self.members or peer in self.learners

    def has_all(self, peer: str, source: int, now_s: float) -> bool:
        """Of the source, what was sent to it up to some time within the lease: under load something always is on its
        way."""
        return self.leader_lease.hears(peer, now_s) and self.leader.has_all(peer, source)

    def answered(self, peer: str, question: int) -> None:
        """It has answered up to this question."""
        sent_s = self.questions[peer].answered(question)
        if sent_s is not None and peer in self.members:
            self.leader_lease.answered(peer, sent_s)

    def lost(self, peer: str) -> None:
        """There is none any more."""
        self.leader.close(peer)
        self.leader_lease.closed(peer)
        self.questions.pop(peer, None)


@dataclass(slots=True)
class SourceLeadership:
    """A source that this node leads: its vote, its record, its replica set, and the lane that its confirms wait
    for."""

    vote: Vote
    record: SourceRecord
    """as the store had it last"""
    replica_set: LedReplicaSet
    lane: SourceLane
    first: int = 0
    """number of the first frame of this epoch; 0: it is not cut yet"""
    serving: bool = False
    begun_s: float = 0.0
    handed: bytes = b""
    """what the leader before has passed of remote clients, until its queues are served"""
    moved: int = 0
    """number of its first frame in a replica set that it has come to, until that is committed"""
    known_at: int = 0
    """The transaction that gathered when the record was heard of: who answers a later frame lived after that."""

    def take_handed(self) -> bytes:
        """What the leader before has passed, once."""
        handed, self.handed = self.handed, b""
        return handed
