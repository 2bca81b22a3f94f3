"""How a member becomes the leader of a source.

What comes in: answers of the metadata store and of the other members. What goes out: what to ask them, and in the
end a log from which the new epoch goes on, or why not.
Rules: 1. The store names the leader: one compare-and-swap on the source's record, in which nobody else got ahead. The
replica set is the one of the record that was swapped. 2. Nothing of an older epoch is confirmed any more when a
majority of the set, this member among it, has voted for the new one. 3. Of those that voted, the log with the highest
(epoch, idx) has everything that was ever committed; the new epoch goes on from its end. A disk that the record does
not name is not asked for its word: it may have lost what it acknowledged (NATS 2.12.1 lost a log to an empty one).
4. What the store did is unknown when it does not answer: a second swap on the same revision tells, reading back does
not. 5. What the own log lacks is fetched as entries; if the member has not kept them, as state, beside what stands
here. A member that does not get the attempt on is left for the next one, and without one the attempt is lost.
Not here: whether the old leader may be taken over from (`leader_lease.py`), and when to try again.

Who would vote is asked before the swap, so that a member that reaches no majority does not end a leader that does
(Raft's pre-vote: Ongaro, "Consensus: Bridging Theory and Practice", 2014, section 9.6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from amqpd.peers.entry import EPOCH_MAX, START, LogEntry, Position, Vote, is_far
from amqpd.peers.messages import Ballot, SnapshotPart
from amqpd.replication.commit import majority
from amqpd.replication.log import Match
from amqpd.replication.replica import Replicas, Write


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The record of a source in the metadata store: its leader and its replica set."""

    source: int
    leader: Vote
    members: tuple[str, ...]
    """of the replica set"""
    generations: tuple[int, ...]
    """of each one's disk, as it was admitted: one that was emptied since, or is another, counts for nothing"""
    revision: int = 0
    """of the store, that it was read at"""
    given_up: int = 0
    """the epoch whose majority an operator gave up for lost (`set_change.forced`); 0: that was never done"""

    def counts(self, forwarder: str, generation: int) -> bool:
        """A disk of this generation has everything that it ever acknowledged of the source."""
        return (forwarder, generation) in zip(self.members, self.generations, strict=True)

    def trusted(self, base: Position) -> Position:
        """What a member knows to be committed up to there, as far as that is sure to be in the log of today's leader:
        of an epoch that was given up others may have committed what the survivors never had."""
        return base if base[0] > self.given_up else START

    def admitted(self, forwarder: str, generation: int) -> SourceRecord:
        """The same with this disk, which the leader has caught up. Put by compare-and-swap: a leader that is not the
        present one any more admits nobody."""
        pairs = zip(self.members, self.generations, strict=True)
        generations = tuple(generation if member == forwarder else each for member, each in pairs)
        return replace(self, generations=generations)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to all other members: whether they would vote."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A request to the store: put this record, if its revision is still the one that it was read at."""

    record: SourceRecord


@dataclass(frozen=True, slots=True)
class Request:
    """A request to all other members: vote for this. The own replica has, as soon as this is asked: so no leader
    lease of this node goes on that another member was released from by this."""

    vote: Vote


@dataclass(frozen=True, slots=True)
class Fetch:
    """A request to one member for its entries that follow this one."""

    member: str
    after: Position


@dataclass(frozen=True, slots=True)
class FetchState:
    """A request to one member for what it has committed, as the difference to what there is up to this entry
    (`SnapshotPart`)."""

    member: str
    after: Position


Step = Ask | Swap | Request | Fetch | FetchState


class Phase(Enum):
    """The phase of an attempt: the answers for which it waits, or its end."""

    ASKING = auto()
    SWAPPING = auto()
    VOTING = auto()
    FETCHING = auto()
    WON = auto()
    """the own log is the one to go on from"""
    LOST = auto()
    """another attempt has to begin from the store's record"""


class TakeOver:
    """One attempt to become the leader of one source."""

    def __init__(self, forwarder: str, incarnation: int, replicas: Replicas, record: SourceRecord) -> None:
        """`record`: as it was read now. Raises ValueError for a source of which this is no member. What the record
        and the own disk say of epochs is believed, up to the last one that there is."""
        if forwarder not in record.members:
            raise ValueError(f"{forwarder} is no member of {record.members}")
        replica = replicas[record.source]
        self.forwarder = forwarder
        self.incarnation = incarnation
        self.phase = Phase.ASKING
        self.record = record
        self.known = max(record.leader.epoch, replica.vote.epoch)
        """the highest epoch that the store and the own disk know of"""
        self.vote = Vote(self.known + 1, forwarder, incarnation)
        """that it tries to have"""
        self._replicas = replicas
        self._replica = replica
        self._ballots: dict[str, Ballot] = {}
        self._fetching: list[str] = []
        """members that have what is missing here, the one that is asked first"""
        self._asked: Position = START
        """entries that follow this one"""
        self._by_state = False
        """state was asked for, and has not come"""
        self.reason = ""
        """why the attempt is lost"""
        self.distrusted = ""
        """why the word of a member does not count, the last one"""

    @property
    def source(self) -> int:
        return self.record.source

    def begin(self) -> Step | None:
        if self.vote.epoch > EPOCH_MAX:
            return self._lose(f"epoch {self.vote.epoch} is above the last one that there is, {EPOCH_MAX}")
        return Ask()

    def would(self, member: str, ballot: Ballot) -> Step | None:
        """A member's answer to `Ask`; the own one is to be among them."""
        if self.phase is not Phase.ASKING or not self.record.counts(member, ballot.generation):
            return None
        if is_far(ballot.vote.epoch + 1, self.known):
            self.distrusted = f"{member} says that it has voted for epoch {ballot.vote.epoch}, after {self.known}"
            return None
        self._ballots[member] = ballot
        epoch = max(self.vote.epoch, ballot.vote.epoch + 1)
        self.vote = Vote(epoch, self.forwarder, self.incarnation)
        if not self._has_majority():
            return None
        self.phase = Phase.SWAPPING
        return Swap(replace(self.record, leader=self.vote))

    def swapped(self, record: SourceRecord | None, writes: list[Write]) -> Step | None:
        """What the store has now, if the swap was carried out; None: somebody else was first. This lets the own
        replica vote: it is not to be said before that may vote, for it may have answered the old leader since it was
        asked (`leader_lease.VoteDelay.ends_s`, as for a vote that another member asks for). When the writes are on
        the disk, the own ballot is said by `voted`."""
        if self.phase is not Phase.SWAPPING:
            return None
        if record is None:
            return self._lose("the record was changed meanwhile")
        if self.forwarder not in record.members:
            return self._lose(f"{self.forwarder} is no member of {record.members} any more")
        self.record = record
        self._ballots = {}
        if not self._replicas.cast_vote(self.source, self.vote, writes):
            return self._lose(f"the own replica has voted for {self._replica.vote}")
        self.phase = Phase.VOTING
        return Request(self.vote)

    def voted(self, member: str, vote: Vote, ballot: Ballot) -> Step | None:
        """A member's answer to `Request` for this vote; the own one is said by this, too, when it is on disk."""
        if self.phase is not Phase.VOTING or vote != self.vote:
            return None
        if not self.record.counts(member, ballot.generation):
            return None
        if ballot.granted and ballot.last[0] > self.vote.epoch:
            self.distrusted = f"{member} says that its log ends in epoch {ballot.last[0]}, above {self.vote.epoch}"
            return None
        if not ballot.granted:
            if ballot.vote.epoch >= self.vote.epoch:
                return self._lose(f"{member} has voted for {ballot.vote}")
            return None
        self._ballots[member] = ballot
        if not self._has_majority():
            return None
        best = max(ballot.last for ballot in self._ballots.values())
        own = self._ballots[self.forwarder]
        if own.last == best:
            self.phase = Phase.WON
            return None
        log = self._replica.log
        best_members = [name for name, each in self._ballots.items() if each.last == best]
        self._fetching = sorted(best_members, key=lambda name: not log.has(self._ballots[name].base))
        self.phase = Phase.FETCHING
        return self._fetch()

    def fetched(self, member: str, entries: Iterable[LogEntry], writes: list[Write]) -> Step | None:
        """Entries of the member's log, in order. When the own log ends where that one does, what is in `writes` has
        to be on the disk before the new epoch's first entry is. Raises StaleLeader, Contradiction."""
        found = list(entries)
        if not self._is_asked(member) or self._by_state:
            return None
        self._replica.follow(self.vote, writes)  # what is staged may be another leader's
        if found and found[-1].position <= self._asked:
            return None  # a late answer to an earlier question
        for entry in found:
            if not entry.sound or self._replica.take(self.vote, entry, writes) is Match.AHEAD:
                break
        log = self._replica.filling
        if log.last == self._ballots[member].last:
            return self._win(writes)
        if log.matched <= self._asked:
            return self._next_member(f"{member} has no sound entry that follows {self._asked}", writes)
        self._asked = log.matched
        return Fetch(member, self._asked)

    def fetched_state(self, member: str, state: SnapshotPart, writes: list[Write]) -> Step | None:
        """A part of the member's state; all of them, in order. For the rest see `fetched`. Raises StaleLeader."""
        if not self._is_asked(member) or not self._by_state:
            return None
        self._replica.follow(self.vote, writes)
        if state.after > self._replica.log.base or state.base > self._ballots[member].last:
            return self._next_member(f"the state of {member} goes from {state.after} to {state.base}", writes)
        if state.first:
            self._replica.stage(self.vote, writes, state.after)
        self._replica.take_part(self.vote, state.part, writes)
        if not state.last:
            return None
        self._replica.end_state(self.vote, state.base, writes)
        self._by_state = False
        if state.base == self._ballots[member].last:
            return self._win(writes)
        self._asked = state.base
        return Fetch(member, self._asked)

    def failed(self, reason: str = "a member that was needed does not answer") -> None:
        """It does not go on. What is staged goes with the next vote."""
        self._lose(reason)

    def _is_asked(self, member: str) -> bool:
        return self.phase is Phase.FETCHING and member == self._fetching[0]

    def _fetch(self) -> Step:
        """From the first of those that have it."""
        member, log = self._fetching[0], self._replica.log
        base = self._ballots[member].base
        self._by_state = not log.has(base)
        if self._by_state:
            return FetchState(member, self.record.trusted(log.base))
        # A position has one writer: what stands here up to the member's base is what stood there.
        self._asked = max(log.base, base)
        return Fetch(member, self._asked)

    def _next_member(self, reason: str, writes: list[Write]) -> Step | None:
        self._replica.discard_state(writes)
        del self._fetching[0]
        return self._fetch() if self._fetching else self._lose(reason)

    def _win(self, writes: list[Write]) -> Step | None:
        self._replica.install_state(writes)
        self.phase = Phase.WON
        return None

    def _lose(self, reason: str) -> Step | None:
        self.phase, self.reason = Phase.LOST, reason
        return None

    def _has_majority(self) -> bool:
        granted = {member for member, ballot in self._ballots.items() if ballot.granted}
        return self.forwarder in granted and len(granted) >= majority(len(self.record.members))
