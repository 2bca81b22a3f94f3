"""Which entries of a source stand at one replica: log matching.

What comes in: entries that a leader sends, in any order and more than once. What goes out: for each, what is to be
done with it.
Rules: 1. Entries at or below the base are committed here: they are those of every leader, and are never undone. 2.
The tail above it is undone from where an entry *differs*, never because a leader sends fewer entries than stand here.
3. What an entry follows must be here first: so an entry that matches says that all before it do, too.
Not here: payloads and disks (`replica.py` says what to write); what of the tail is committed (`commit.py`).

After Raft's log matching property (section 5.3); a position is unique because an epoch has one writer (`replica.py`),
the checksum shows where it was not, or a disk lies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from amqpd.peers.entry import LogEntry, Position


class Match(Enum):
    """The relation of an entry to the log of one replica."""

    HELD = auto()
    """it stands here"""
    FOLLOWS = auto()
    """it comes next"""
    DIFFERS = auto()
    """something else stands in its place: that is to be undone, back to what the entry follows"""
    AHEAD = auto()
    """what it follows is not here"""
    CONTRADICTS = auto()
    """it takes the place of something committed: a disk has lost or changed something, somewhere"""


class EntryHead(NamedTuple):
    """The position and the checksum of an entry that a log remembers, and the entry before it."""

    position: Position
    before: Position
    checksum: int


class Log:
    """The log of one source at one replica, as it will be when everything handed to the disk is on it."""

    def __init__(self, base: Position, tail: Iterable[EntryHead] = ()) -> None:
        self.base = base
        """the last entry that is known to be committed"""
        self._tail = list(tail)
        self._positions = [link.position for link in self._tail]
        self.matched = base
        """everything up to this entry is as the present leader has it"""

    @property
    def last(self) -> Position:
        return self._positions[-1] if self._positions else self.base

    def nearest(self, position: Position) -> Position:
        """The last entry here that is not above this position; the base, if there is none in the tail."""
        at = bisect_right(self._positions, position)
        return self._positions[at - 1] if at else self.base

    def match(self, entry: LogEntry) -> Match:
        if entry.position <= self.base:
            return Match.HELD
        if entry.before < self.base:
            return Match.CONTRADICTS
        link = self._at(entry.position)
        if link is not None and link.checksum == entry.checksum:
            return Match.HELD
        if entry.before == self.last:
            return Match.FOLLOWS
        if entry.before == self.base or self._at(entry.before) is not None:
            return Match.DIFFERS
        return Match.AHEAD

    def append(self, entry: LogEntry) -> None:
        """One that `FOLLOWS`, or that `DIFFERS` when what differed is undone."""
        assert entry.before == self.last, (entry.before, self.last)
        self._tail.append(EntryHead(entry.position, entry.before, entry.checksum))
        self._positions.append(entry.position)
        self.matched = entry.position

    def held(self, position: Position) -> None:
        """An entry that is here is the leader's, too."""
        self.matched = max(self.matched, position)

    def has(self, position: Position, checksum: int | None = None) -> bool:
        """An entry of this position is here; with this checksum, if it is known."""
        link = self._at(position)
        return position <= self.base or (link is not None and checksum in (None, link.checksum))

    def undo(self, position: Position) -> None:
        """Nothing above this entry of the log stands any more. Raises ValueError below the base."""
        if position < self.base:
            raise ValueError(f"no undo to {position}: {self.base} is committed")
        at = bisect_right(self._positions, position)
        del self._tail[at:], self._positions[at:]
        self.matched = min(self.matched, position)

    def commit(self, position: Position) -> Position:
        """The present leader, of this position's epoch, says that its entries up to there are committed. Here that is
        what has been matched with its log, if some of that is of its own epoch: what an older leader left counts only
        with what follows it (Raft, section 5.4.2). Returns the base."""
        upto = self.nearest(min(position, self.matched))
        if upto > self.base and upto[0] == position[0]:
            at = bisect_right(self._positions, upto)
            del self._tail[:at], self._positions[:at]
            self.base = upto
        return self.base

    def new_leader(self) -> None:
        """What was the same as with the last leader is not known to be so with the next one, except the base."""
        self.matched = self.base

    def _at(self, position: Position) -> EntryHead | None:
        at = bisect_left(self._positions, position)
        return self._tail[at] if at < len(self._tail) and self._positions[at] == position else None
