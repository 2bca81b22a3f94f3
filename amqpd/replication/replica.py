"""One source at one of its replicas.

What comes in: entries of a leader, and requests to vote. What goes out: whether they are taken, and what is to be
written, in order.
Rules: 1. The state here is that of the disk when all that was handed out is written; an answer is sent when it is.
2. A refusal is answered from this state, too: what was promised in it is on its way to the disk. 3. A replica that
lacks more than its leader keeps as entries is caught up by state, beside what it has: that it keeps, and votes with,
until all that it ever acknowledged has come again. So no replica is ever less than it said it was.
Not here: which frames were missed (`receiver.py`), payloads, and what a disk does (`amqpd.journal`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amqpd.peers.entry import NO_VOTE, START, BrokenConnection, LogEntry, Position, Vote
from amqpd.replication.log import Log, Match


@dataclass(frozen=True, slots=True)
class VoteCast:
    """A write of the highest vote."""

    source: int
    vote: Vote


@dataclass(frozen=True, slots=True)
class Undone:
    """A write that deletes everything of the source above this entry."""

    source: int
    position: Position


@dataclass(frozen=True, slots=True)
class Appended:
    """A write of the entry, behind the last one."""

    entry: LogEntry


@dataclass(frozen=True, slots=True)
class StateBegin:
    """A write after which the source's writes go beside what stands there, which stays as it is until `StateInstall`.
    What was staged before goes, and so it does at a restart."""

    source: int
    after: Position = START
    """what is staged goes on from what stands there up to this entry, which is committed, whether or not the disk has
    been told so yet"""


@dataclass(frozen=True, slots=True)
class StatePart:
    """A write of some of what the leader has committed above `StateBegin.after`, or of what still lives of what is
    below it."""

    source: int
    part: bytes


@dataclass(frozen=True, slots=True)
class StateEnd:
    """A write which says that what is staged is what the leader had committed, up to this entry."""

    source: int
    base: Position


@dataclass(frozen=True, slots=True)
class StateInstall:
    """A write by which what is staged takes the place of what stood there above `StateBegin.after`. What stood below
    stays if the parts say that it lives."""

    source: int


@dataclass(frozen=True, slots=True)
class StateDiscard:
    """A write that deletes what is staged."""

    source: int


Write = VoteCast | Undone | Appended | StateBegin | StatePart | StateEnd | StateInstall | StateDiscard


def source_of(write: Write) -> int:
    """Which source it is of."""
    return write.entry.source if isinstance(write, Appended) else write.source


class StaleLeader(Exception):
    """The sender is not the leader any more: a higher epoch was voted for here, or its own by somebody else."""

    def __init__(self, vote: Vote) -> None:
        super().__init__(f"epoch {vote.epoch} is of {vote.forwarder!r}, incarnation {vote.incarnation}")
        self.vote = vote


class Contradiction(Exception):
    """A leader has something else in the place of what is committed here. Nothing was changed; one of the two disks
    has lost or changed entries that were confirmed."""


class Replica:
    """The replica of one source, as its disk will have it."""

    def __init__(self, source: int, log: Log, vote: Vote = NO_VOTE) -> None:
        self.source = source
        self.log = log
        """what it has of everything that it ever acknowledged: its vote rests on that"""
        self.vote = vote
        self.refused: Vote | None = None
        """of a leader that has sent what the disk does not take: nothing more of it is tried"""
        self.staged: Log | None = None
        """what a leader is putting in place of it"""
        self._whole: Log | None = None
        """what is staged, when all parts of the state have come"""

    @property
    def usable(self) -> bool:
        """Entries can be added to what is being filled: its state has come."""
        return self.staged is self._whole

    @property
    def filling(self) -> Log:
        """What entries of the leader are added to."""
        return self.log if self.staged is None else self.staged

    def take(self, leader: Vote, entry: LogEntry, writes: list[Write]) -> Match:
        """An entry of this leader; what is to be written is added to `writes`. HELD and FOLLOWS: it is here then,
        with all before it. AHEAD: something before it is missing. Raises StaleLeader, Contradiction."""
        self.follow(leader, writes)
        if not self.usable:
            return Match.AHEAD
        log = self.filling
        match = log.match(entry)
        if match is Match.CONTRADICTS:
            raise Contradiction(
                f"source {self.source}: {entry.position} of {leader} follows {entry.before}, {log.base} is committed"
            )
        if match is Match.HELD:
            log.held(entry.position)
        elif match is not Match.AHEAD:
            if match is Match.DIFFERS:
                log.undo(entry.before)
                writes.append(Undone(self.source, entry.before))
            log.append(entry)
            writes.append(Appended(entry))
            match = Match.FOLLOWS
        return match

    def follow(self, leader: Vote, writes: list[Write]) -> None:
        """This leader sends something. Of a higher epoch than is voted for here, it was made the leader by others: a
        majority voted for it. Raises StaleLeader."""
        if leader == self.vote:
            return
        if leader.epoch <= self.vote.epoch:
            raise StaleLeader(self.vote)
        self._vote(leader, writes)

    def stage(self, leader: Vote, writes: list[Write], after: Position = START) -> None:
        """The leader is about to send what it has committed, except what is the same up to `after`. What is committed
        here may have passed that meanwhile, by what the leader said before. Raises StaleLeader, BrokenConnection."""
        self.follow(leader, writes)
        if after > self.log.base:
            raise BrokenConnection(
                f"state of source {self.source} goes on from {after}, and {self.log.base} is committed"
            )
        self.staged, self._whole = Log(after), None
        writes.append(StateBegin(self.source, after))

    def take_part(self, leader: Vote, part: bytes, writes: list[Write]) -> None:
        """Raises StaleLeader."""
        self.follow(leader, writes)
        writes.append(StatePart(self.source, part))

    def end_state(self, leader: Vote, base: Position, writes: list[Write]) -> None:
        """All of it has come: what the leader has committed up to this entry. Raises StaleLeader."""
        self.follow(leader, writes)
        self.staged = self._whole = Log(base)
        writes.append(StateEnd(self.source, base))

    def install_state(self, writes: list[Write]) -> None:
        """Put what is staged in the place of what stood here, once it has all that counts. Nothing, if its state has
        not come yet."""
        if self.staged is not None and self.usable:
            self.log, self.staged, self._whole = self.staged, None, None
            writes.append(StateInstall(self.source))

    def discard_state(self, writes: list[Write]) -> None:
        """Delete what is staged: the leader does not go on with it."""
        if self.staged is not None:
            self.staged = self._whole = None
            writes.append(StateDiscard(self.source))

    def drop(self, writes: list[Write]) -> None:
        """Nothing of the source stands here any more, except what was voted for. Not for a member of its set: that
        would vote, and has forgotten what it acknowledged."""
        self.log, self.staged, self._whole = Log(START), None, None
        writes += [StateBegin(self.source), StateEnd(self.source, START), StateInstall(self.source)]

    def cast_vote(self, asked: Vote, writes: list[Write]) -> bool:
        """Whether it votes: then its last entry, once the writes are on the disk, is `log.last`, and no leader of an
        older epoch adds to that."""
        if not grants(self.vote, asked):
            return False
        if asked != self.vote:
            self._vote(asked, writes)
        return True

    def _vote(self, vote: Vote, writes: list[Write]) -> None:
        self.vote = vote
        self.discard_state(writes)
        self.log.new_leader()
        writes.append(VoteCast(self.source, vote))


class Replicas:
    """All sources of which this forwarder keeps a replica."""

    def __init__(self, replicas: Iterable[Replica] = ()) -> None:
        self._replicas = {replica.source: replica for replica in replicas}
        self.votes = 0
        """how many there were: who has looked at all votes need not look again before the next one"""

    def __getitem__(self, source: int) -> Replica:
        return self._replicas[source]

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def put(self, replica: Replica) -> None:
        """In the place of the one that there is."""
        self._replicas[replica.source] = replica

    def cast_vote(self, source: int, asked: Vote, writes: list[Write]) -> bool:
        """Raises KeyError for a source of which there is no replica here."""
        self.votes += 1
        return self._replicas[source].cast_vote(asked, writes)


def grants(voted: Vote, asked: Vote) -> bool:
    """A replica whose highest vote is `voted` may grant this one. The same one twice: the first answer was lost."""
    return asked.epoch > voted.epoch or asked == voted
