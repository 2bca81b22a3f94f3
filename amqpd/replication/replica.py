"""One source at one of its replicas.

What comes in: entries of a home, and requests to seal. What goes out: whether they are taken, and what is to be
written, in order.
Rules: 1. The state here is that of the disk when all that was handed out is written; an answer is sent when it is.
2. A refusal is answered from this state, too: what was promised in it is on its way to the disk. 3. A replica that
lacks more than its home keeps as entries is caught up by state, beside what it has: that it keeps, and votes with,
until all that it ever acknowledged has come again. So no replica is ever less than it said it was.
Not here: which frames were missed (`receiver.py`), payloads, and what a disk does (`amqpd.journal`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amqpd.replication import seal as seals
from amqpd.replication.entry import START, BrokenConnection, LogEntry, Position
from amqpd.replication.log import Log, Match
from amqpd.replication.seal import Seal


@dataclass(frozen=True, slots=True)
class Sealed:
    """To be written: the highest seal."""

    source: int
    seal: Seal


@dataclass(frozen=True, slots=True)
class Undone:
    """To be written: everything of the source above this entry goes."""

    source: int
    position: Position


@dataclass(frozen=True, slots=True)
class Appended:
    """To be written: the entry, behind the last one."""

    entry: LogEntry


@dataclass(frozen=True, slots=True)
class Staged:
    """To be written: from now on, what is written of the source goes beside what stands there, which stays as it is
    until `Completed`. What was staged before goes, and so it does at a restart."""

    source: int
    after: Position = START
    """what is staged goes on from what stands there up to this entry, which is committed, whether or not the disk has
    been told so yet"""


@dataclass(frozen=True, slots=True)
class StatePart:
    """To be written: some of what the home has committed above `Staged.after`, or what still lives of what is below
    it."""

    source: int
    part: bytes


@dataclass(frozen=True, slots=True)
class StateEnd:
    """To be written: what is staged is what the home had committed, up to this entry."""

    source: int
    base: Position


@dataclass(frozen=True, slots=True)
class Completed:
    """To be written: what is staged takes the place of what stood there above `Staged.after`. What stood below stays
    if the parts say that it lives."""

    source: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """To be written: what is staged goes."""

    source: int


Write = Sealed | Undone | Appended | Staged | StatePart | StateEnd | Completed | Dropped


def source_of(write: Write) -> int:
    """Which source it is of."""
    return write.entry.source if isinstance(write, Appended) else write.source


class Fenced(Exception):
    """The sender is not the home any more: a higher epoch was sealed here, or its own by somebody else."""

    def __init__(self, seal: Seal) -> None:
        super().__init__(f"epoch {seal.epoch} is of {seal.forwarder!r}, life {seal.life}")
        self.seal = seal


class Contradiction(Exception):
    """A home has something else in the place of what is committed here. Nothing was changed; one of the two disks has
    lost or changed entries that were confirmed."""


class Replica:
    """Of one source, as its disk will have it."""

    def __init__(self, source: int, log: Log, seal: Seal = seals.NONE) -> None:
        self.source = source
        self.log = log
        """what it has of everything that it ever acknowledged: its vote rests on that"""
        self.seal = seal
        self.refused: Seal | None = None
        """of a home that has sent what the disk does not take: nothing more of it is tried"""
        self.staged: Log | None = None
        """what a home is putting in place of it"""
        self._whole: Log | None = None
        """what is staged, when all parts of the state have come"""

    @property
    def usable(self) -> bool:
        """Entries can be added to what is being filled: its state has come."""
        return self.staged is self._whole

    @property
    def filling(self) -> Log:
        """What entries of the home are added to."""
        return self.log if self.staged is None else self.staged

    def take(self, home: Seal, entry: LogEntry, writes: list[Write]) -> Match:
        """An entry of this home; what is to be written is added to `writes`. HELD and FOLLOWS: it is here then, with
        all before it. AHEAD: something before it is missing. Raises Fenced, Contradiction."""
        self.follow(home, writes)
        if not self.usable:
            return Match.AHEAD
        log = self.filling
        match = log.match(entry)
        if match is Match.CONTRADICTS:
            raise Contradiction(
                f"source {self.source}: {entry.position} of {home} follows {entry.before}, {log.base} is committed"
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

    def follow(self, home: Seal, writes: list[Write]) -> None:
        """This home sends something. Of a higher epoch than is sealed here, it was made the home by others: a
        majority sealed it. Raises Fenced."""
        if home == self.seal:
            return
        if home.epoch <= self.seal.epoch:
            raise Fenced(self.seal)
        self._seal(home, writes)

    def stage(self, home: Seal, writes: list[Write], after: Position = START) -> None:
        """The home is about to send what it has committed, except what is the same up to `after`. What is committed
        here may have passed that meanwhile, by what the home said before. Raises Fenced, BrokenConnection."""
        self.follow(home, writes)
        if after > self.log.base:
            raise BrokenConnection(
                f"state of source {self.source} goes on from {after}, and {self.log.base} is committed"
            )
        self.staged, self._whole = Log(after), None
        writes.append(Staged(self.source, after))

    def take_part(self, home: Seal, part: bytes, writes: list[Write]) -> None:
        """Raises Fenced."""
        self.follow(home, writes)
        writes.append(StatePart(self.source, part))

    def end_state(self, home: Seal, base: Position, writes: list[Write]) -> None:
        """All of it has come: what the home has committed up to this entry. Raises Fenced."""
        self.follow(home, writes)
        self.staged = self._whole = Log(base)
        writes.append(StateEnd(self.source, base))

    def caught_up(self, writes: list[Write]) -> None:
        """What is staged has all that stood here and counts."""
        if self.staged is not None and self.usable:
            self.log, self.staged, self._whole = self.staged, None, None
            writes.append(Completed(self.source))

    def drop_staged(self, writes: list[Write]) -> None:
        """The home does not go on with it."""
        if self.staged is not None:
            self.staged = self._whole = None
            writes.append(Dropped(self.source))

    def drop(self, writes: list[Write]) -> None:
        """Nothing of the source stands here any more, except what was sealed. Not for a member of its set: that would
        vote, and has forgotten what it acknowledged."""
        self.log, self.staged, self._whole = Log(START), None, None
        writes += [Staged(self.source), StateEnd(self.source, START), Completed(self.source)]

    def vote(self, asked: Seal, writes: list[Write]) -> bool:
        """Whether it seals: then its last entry, once the writes are on the disk, is `log.last`, and no home of an
        older epoch adds to that."""
        if not seals.grants(self.seal, asked):
            return False
        if asked != self.seal:
            self._seal(asked, writes)
        return True

    def _seal(self, seal: Seal, writes: list[Write]) -> None:
        self.seal = seal
        self.drop_staged(writes)
        self.log.new_home()
        writes.append(Sealed(self.source, seal))


class Replicas:
    """All sources of which this forwarder keeps a replica."""

    def __init__(self, replicas: Iterable[Replica] = ()) -> None:
        self._replicas = {replica.source: replica for replica in replicas}
        self.votes = 0
        """how many there were: who has looked at all seals need not look again before the next one"""

    def __getitem__(self, source: int) -> Replica:
        return self._replicas[source]

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def put(self, replica: Replica) -> None:
        """In the place of the one that there is."""
        self._replicas[replica.source] = replica

    def vote(self, source: int, asked: Seal, writes: list[Write]) -> bool:
        """See `Replica.vote`. Raises KeyError for a source of which there is none here."""
        self.votes += 1
        return self._replicas[source].vote(asked, writes)
