"""What is copied from a leader to its replicas, and whose entries a replica takes.

What comes in: what one transaction of the leader's journal has of a source, as bytes. What goes out: `LogEntry`, with
a checksum; `Frame`, all entries of one transaction that go to one replica set; `Vote`, the right to write them.
Rules: 1. An entry names the one before it in its source, since numbers have gaps: idx is the index of the leader's
journal, in which other sources have their entries too. 2. The checksum is of all that the entry says; the same
position with another checksum is another entry.
Not here: what the payload means (`journal/records.py`), which entries follow which (`replication/log.py`), who grants
a vote (`replication/replica.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple
from zlib import crc32

Position = tuple[int, int]
"""(epoch, idx) of an entry: the order of a source's entries."""
SOURCES_MAX = 256
"""numbers of sources, from 1"""
NUMBER_MAX = 1 << 62
"""Of every number that a forwarder gives: a million a second for a hundred thousand years, and those that follow it
still fit into 64 bits."""
EPOCH_MAX = 1 << 48
EPOCH_STEP_MAX = 1 << 20
"""By how much an epoch may be above the highest one that was heard of: each attempt to take a source over has the
next one, ten a second for a day. What is above that is no honest number."""
START: Position = (0, 0)
"""where a source is that has no entries"""

_said = Struct("<qqqqq")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a source's log."""

    source: int
    position: Position
    before: Position
    """of the entry before it in this source; `START` for the first"""
    payload: bytes
    checksum: int
    """CRC-32 of all of the above"""

    @property
    def sound(self) -> bool:
        """It says what it said when it was made."""
        return self.checksum == checksum_of(self.source, self.position, self.before, self.payload)


def new_entry(source: int, position: Position, before: Position, payload: bytes) -> LogEntry:
    """Raises ValueError for a position that does not follow."""
    if position <= before:
        raise ValueError(f"entry {position} of source {source} does not follow {before}")
    return LogEntry(source, position, before, payload, checksum_of(source, position, before, payload))


def checksum_of(source: int, position: Position, before: Position, payload: bytes) -> int:
    """CRC-32."""
    return crc32(payload, crc32(_said.pack(source, *position, *before)))


class BrokenConnection(ValueError):
    """A message came that is not what the sender sent, or not all of it. Nothing of it was taken: the connection
    is to be closed and dialed again."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of one transaction of the leader's journal that belongs to one replica set. Frames of a replica set
    are taken in one after the other: `after` is the number of the one before it."""

    number: int
    """the index of the transaction in the leader's journal, idx of all entries"""
    after: int
    entries: tuple[LogEntry, ...]
    committed: int
    """frames up to this number are, with everything that their entries follow"""
    passed: int = 0
    """frames up to this number are, too, except for what they have of sources that are left out"""
    left_out: tuple[int, ...] = ()
    revision: int = 0
    """of the metadata store, that the leader had heard of; 0: not all of the set read it (`versions.of_set`)"""


class Vote(NamedTuple):
    """The right to append to a source in one epoch."""

    epoch: int
    forwarder: str
    incarnation: int
    """of the forwarder's process: another incarnation needs another epoch"""


NO_VOTE = Vote(0, "", 0)
"""of a source that has had no leader"""


def is_far(epoch: int, known: int) -> bool:
    """No forwarder asks for such an epoch while `known` is the highest one that was heard of: it would use up those
    that are left."""
    return epoch > min(known + EPOCH_STEP_MAX, EPOCH_MAX)
