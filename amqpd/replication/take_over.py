"""How a member becomes the home of a source.

What comes in: answers of the metadata store and of the other members. What goes out: what to ask them, and in the
end a log from which the new epoch goes on, or why not.
Rules: 1. The store names the home: one compare-and-swap on the source's record, in which nobody else got ahead. The
replica set is the one of the record that was swapped. 2. Nothing of an older epoch is confirmed any more when a
majority of the set, this member among it, has sealed the new one. 3. Of those that sealed, the log with the highest
(epoch, idx) has everything that was ever committed; the new epoch goes on from its end. A disk that the record does
not name is not asked for its word: it may have lost what it acknowledged (NATS 2.12.1 lost a log to an empty one).
4. What the store did is unknown when it does not answer: a second swap on the same revision tells, reading back does
not.
Not here: whether the old home may be taken over from (`reign.py`), and when to try again.

Who would seal is asked before the swap, so that a member that reaches no majority does not end a home that does
(Raft's pre-vote: Ongaro, "Consensus: Bridging Theory and Practice", 2014, section 9.6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from amqpd.replication.commit import majority
from amqpd.replication.entry import LogEntry, Position
from amqpd.replication.log import Match
from amqpd.replication.replica import Replicas, Write
from amqpd.replication.seal import Seal


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """Who is the home of a source, and who keeps it, as the store has it."""

    source: int
    home: Seal
    members: tuple[str, ...]
    """of the replica set"""
    generations: tuple[int, ...]
    """of each one's disk, as it was admitted: one that was emptied since, or is another, counts for nothing"""
    revision: int = 0
    """of the store, that it was read at"""

    def counts(self, forwarder: str, generation: int) -> bool:
        """A disk of this generation has everything that it ever acknowledged of the source."""
        return (forwarder, generation) in zip(self.members, self.generations, strict=True)

    def admitted(self, forwarder: str, generation: int) -> SourceRecord:
        """The same with this disk, which the home has caught up. Put by compare-and-swap: a home that is not the
        present one any more admits nobody."""
        pairs = zip(self.members, self.generations, strict=True)
        generations = tuple(generation if member == forwarder else each for member, each in pairs)
        return replace(self, generations=generations)


@dataclass(frozen=True, slots=True)
class Ballot:
    """What a member says of a source when it is asked to seal, or whether it would."""

    granted: bool
    seal: Seal
    """the highest one there"""
    last: Position
    """its last entry, on its disk; meaningful if it was granted"""
    generation: int
    """of its disk"""


@dataclass(frozen=True, slots=True)
class Ask:
    """To all other members: would you seal?"""


@dataclass(frozen=True, slots=True)
class Swap:
    """To the store: put this record, if its revision is still the one that it was read at."""

    record: SourceRecord


@dataclass(frozen=True, slots=True)
class Request:
    """To all other members: seal this. The own replica has, as soon as this is asked: so no reign of this forwarder
    goes on that another member was released from by this."""

    seal: Seal


@dataclass(frozen=True, slots=True)
class Fetch:
    """To this member: your entries that follow this one."""

    member: str
    after: Position


Step = Ask | Swap | Request | Fetch


class Phase(Enum):
    """What an attempt waits for, and how it ended."""

    ASKING = auto()
    SWAPPING = auto()
    SEALING = auto()
    FETCHING = auto()
    WON = auto()
    """the own log is the one to go on from"""
    LOST = auto()
    """another attempt has to begin from the store's record"""


class TakeOver:
    """One attempt, of one source."""

    def __init__(self, forwarder: str, life: int, replicas: Replicas, record: SourceRecord) -> None:
        """`record`: as it was read now. Raises ValueError for a source of which this is no member."""
        if forwarder not in record.members:
            raise ValueError(f"{forwarder} is no member of {record.members}")
        replica = replicas[record.source]
        self.forwarder = forwarder
        self.life = life
        self.phase = Phase.ASKING
        self.record = record
        self.seal = Seal(max(record.home.epoch, replica.seal.epoch) + 1, forwarder, life)
        """that it tries to have"""
        self._replicas = replicas
        self._replica = replica
        self._ballots: dict[str, Ballot] = {}
        self._fetching: list[str] = []

    @property
    def source(self) -> int:
        return self.record.source

    def begin(self) -> Step:
        return Ask()

    def would(self, member: str, ballot: Ballot) -> Step | None:
        """A member's answer to `Ask`; the own one is to be among them."""
        if self.phase is not Phase.ASKING or not self.record.counts(member, ballot.generation):
            return None
        self._ballots[member] = ballot
        epoch = max(self.seal.epoch, ballot.seal.epoch + 1)
        self.seal = Seal(epoch, self.forwarder, self.life)
        if not self._has_majority():
            return None
        self.phase = Phase.SWAPPING
        return Swap(replace(self.record, home=self.seal))

    def swapped(self, record: SourceRecord | None, writes: list[Write]) -> Step | None:
        """What the store has now, if the swap was carried out; None: somebody else was first. When the writes are on
        the disk, the own ballot is said by `sealed`."""
        if self.phase is not Phase.SWAPPING:
            return None
        if record is None or self.forwarder not in record.members:
            self.phase = Phase.LOST
            return None
        self.record = record
        self._ballots = {}
        if not self._replicas.vote(self.source, self.seal, writes):
            self.phase = Phase.LOST
            return None
        self.phase = Phase.SEALING
        return Request(self.seal)

    def sealed(self, member: str, seal: Seal, ballot: Ballot) -> Step | None:
        """A member's answer to `Request` for this seal; the own one is said by this, too, when it is on disk."""
        if self.phase is not Phase.SEALING or seal != self.seal:
            return None
        if not self.record.counts(member, ballot.generation):
            return None
        if not ballot.granted:
            if ballot.seal.epoch >= self.seal.epoch:
                self.phase = Phase.LOST
            return None
        self._ballots[member] = ballot
        if not self._has_majority():
            return None
        best = max(ballot.last for ballot in self._ballots.values())
        own = self._ballots[self.forwarder]
        if own.last == best:
            self.phase = Phase.WON
            return None
        self._fetching = [name for name, each in self._ballots.items() if each.last == best]
        self.phase = Phase.FETCHING
        return Fetch(self._fetching[0], self._replica.log.base)

    def fetched(self, member: str, entries: Iterable[LogEntry], writes: list[Write]) -> Step | None:
        """Entries of the member's log, in order. When the own log ends where that one does, what is in `writes` has
        to be on the disk before the new epoch's first entry is. Raises Fenced, Contradiction."""
        if self.phase is not Phase.FETCHING or member != self._fetching[0]:
            return None
        log = self._replica.log
        for entry in entries:
            if self._replica.take(self.seal, entry, writes) is Match.AHEAD:
                break
        if log.last == self._ballots[member].last:
            self.phase = Phase.WON
            return None
        return Fetch(member, log.matched)

    def failed(self) -> None:
        """A member that was needed does not answer any more, or has not what it should have."""
        self.phase = Phase.LOST

    def _has_majority(self) -> bool:
        granted = {member for member, ballot in self._ballots.items() if ballot.granted}
        return self.forwarder in granted and len(granted) >= majority(len(self.record.members))
